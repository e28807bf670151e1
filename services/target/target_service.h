// The target as a service: requests in, steps of the engine, tokens out. It keeps what each
// sequence has said until the router closes it, so that a repeated OPEN is answered and nothing
// that got lost is lost. It waits for proposals only as long as the engine says, and for nothing
// else. Work thread only; engine and proposer are borrowed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/histogram.h"
#include "common/config/sections.h"
#include "common/engine/target_engine.h"
#include "common/runtime/pass_log.h"
#include "common/runtime/worker_service.h"
#include "common/wire/codec.h"
#include "services/target/draft_proposer.h"

namespace foretoken {

struct TargetServiceOptions {
  std::string router;  // endpoint
  Duration heartbeat = std::chrono::milliseconds(250);
  // Of requests that name none.
  ProposerSet proposers{ProposerKind::kDraft, ProposerKind::kNgram, ProposerKind::kMemory};
  std::uint32_t draft_len = 4;
  std::uint32_t lookup_len = 0;
  bool adaptive = true;
  bool allow_prediction = true;
  Duration keep_finished = std::chrono::seconds(10);  // for a router that missed the end
};

// The drafts of a target by what they guess with.
struct DraftPools {
  DraftProposer& models;
  DraftProposer* memories = nullptr;
};

class TargetService final : public WorkerService {
 public:
  TargetService(const TargetServiceOptions& options,
                const wire::Hello& hello,
                TargetEngine& engine,
                const DraftPools& pools,
                wire::Speaker& speaker,
                Metrics& metrics);

  void on_closed(const Peer& peer, const std::string& why) override;
  std::string status() const override;

 private:
  struct Answer {
    SeqId seq;
    std::uint32_t n_prompt = 0;
    SamplingParams params;  // as asked for, as the next one is
    std::vector<TokenId> end_tokens;
    // The engine's; resumed tokens included.
    std::shared_ptr<const CommittedTokens> text = {};
    std::size_t n_output() const { return text->size() - n_prompt; }
    std::vector<std::uint8_t> guessed;
    std::vector<TokenLogprobs> logprobs;
    std::vector<TokenLogprobs> prompt_logprobs;
    Position first_prompt_logprob = 1;  // the position of the first of these
    Position prompt_logprobs_until() const {
      return static_cast<Position>(first_prompt_logprob + prompt_logprobs.size());
    }
    bool with_logprobs = false;
    std::uint32_t first_logprob = 0;  // resumed tokens have none here
    // Ends of the passes that committed its first tokens and its latest.
    std::optional<TimePoint> first_token = {};
    TimePoint last_token{};
    std::uint32_t n_later = 0;  // tokens after those of the first pass
    // What was sent to the router.
    Duration interval{};               // at least so long between two Tokens
    std::uint32_t n_sent = 0;          // tokens of the answer, resumed ones included
    TimePoint sent_at{};               // when the last of them were sent
    bool closing = false;              // the router wants nothing but the end
    std::optional<wire::Message> end;  // Done or Failed, once it has ended
    TimePoint ended{};
  };

  void open(Bus& bus, wire::Hello& hello) override;
  bool on_router_message(const wire::Header& header, wire::Message& message) override;
  void on_new_router() override { forget_all("the router restarted"); }
  void on_peer_message(const Delivery& from,
                       const wire::Header& header,
                       wire::Message& message) override;
  void on_peer_dropped(const Peer& peer, Ticket ticket) override;
  void on_malformed(const Peer& peer) override;
  TimePoint work(TimePoint now) override;
  bool has_to_stay() const override;
  void leave() override;
  wire::Heartbeat own_load() const override;
  wire::Passes passes() const override { return log_.passes(bus().now(), wall_micros()); }
  void list_metrics(Metrics& metrics) override;

  static std::string_view what_differs(const Answer& answer, const wire::Open& open);
  void on_open(RequestId id, const wire::Open& open, TimePoint now);
  void on_close(RequestId id, const wire::Close& close);
  void refuse(RequestId id, const Error& error);
  static wire::Tokens tokens_of(const Answer& answer,
                                std::size_t from,
                                std::size_t until,
                                bool with_logprobs);
  void repeat_from(RequestId id, Answer& answer, const wire::Open& open);
  void send_tokens(RequestId id, const Answer& answer, std::size_t begin, bool with_logprobs);
  void send_prompt(RequestId id, const Answer& answer, Position from);
  Duration wait_for_proposals();
  void step(Duration waited);
  void send_prompt(const TokensEvent& event);
  void add_tokens(const TokensEvent& event, TimePoint now);
  void send_new_tokens(RequestId id, Answer& answer, TimePoint now);
  void done(const DoneEvent& event, TimePoint now);
  void end(SeqId seq, wire::Message message, TimePoint now);
  void forget_all(const std::string& why);
  void on_assign(const wire::Assign& assign);
  void on_unassign(const wire::Unassign& unassign);
  // Of all drafts, models and memories: name and tier.
  std::vector<std::pair<std::string, std::string_view>> links() const;
  void list_links(Metrics& metrics);

  // Since start, for the metrics: of requests, and of rounds.
  struct Tally {
    Histogram prefill{latency_bounds()}, decode{latency_bounds()}, per_token{latency_bounds()};
    Histogram wait{round_bounds()}, verify{round_bounds()}, commit{round_bounds()};
  };

  TargetServiceOptions options_;
  TargetEngine& engine_;
  // The pool that has the socket: of models, unless it is one of memories.
  DraftProposer& pool_of(SocketId socket);
  void report_lost(DraftProposer& pool);

  DraftProposer& drafts_;
  DraftProposer* memories_;  // may be none
  std::unordered_map<RequestId, Answer> answers_;
  std::unordered_map<SeqId, RequestId> requests_;
  std::uint64_t last_seq_ = 0;
  TimePoint next_sweep_{};
  std::vector<std::uint32_t> step_us_;  // of recent steps, a ring
  std::size_t n_steps_ = 0;
  Tally tally_;
  PassLog log_;
  std::set<std::pair<std::string, std::string>> links_seen_;  // by draft and tier
};

}  // namespace foretoken
