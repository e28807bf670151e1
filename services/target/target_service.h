// The target as a service: requests in, steps of the engine, tokens out. It keeps what each
// sequence has said until the router closes it, so that a repeated OPEN is answered and nothing
// that got lost is lost. It waits for proposals only as long as the engine says, and for nothing
// else. Work thread only; engine and proposer are borrowed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/config/sections.h"
#include "common/engine/target_engine.h"
#include "common/runtime/pass_log.h"
#include "common/runtime/worker_service.h"
#include "common/wire/codec.h"
#include "services/target/draft_proposer.h"
#include "services/target/target_answer.h"
#include "services/target/target_metrics.h"

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
  using Answers = std::unordered_map<RequestId, TargetAnswer>;

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
  void list_metrics(Metrics& metrics) override { own_metrics_.list(router().hello(), metrics); }

  void on_open(RequestId id, const wire::Open& open, TimePoint now);
  void on_close(RequestId id, const wire::Close& close);
  void drop(Answers::iterator it);
  void refuse(RequestId id, const Error& error);
  void send_all(RequestId id, std::vector<wire::Tokens> messages);
  void repeat_from(RequestId id, TargetAnswer& answer, const wire::Open& open);
  Duration wait_for_proposals();
  void step(Duration waited);
  void send_prompt(const TokensEvent& event);
  void add_tokens(const TokensEvent& event, TimePoint now);
  void send_new_tokens(RequestId id, TargetAnswer& answer, TimePoint now);
  void done(const DoneEvent& event, TimePoint now);
  void end(SeqId seq, wire::Message message, TimePoint now);
  void forget_all(const std::string& why);
  void on_assign(const wire::Assign& assign);
  void on_unassign(const wire::Unassign& unassign);

  TargetServiceOptions options_;
  TargetEngine& engine_;
  // The pool that has the socket: of models, unless it is one of memories.
  DraftProposer& pool_of(SocketId socket);
  void report_lost(DraftProposer& pool);

  DraftProposer& drafts_;
  DraftProposer* memories_;  // may be none
  TargetMetrics own_metrics_;
  Answers answers_;
  std::unordered_map<SeqId, RequestId> requests_;
  std::uint64_t last_seq_ = 0;
  TimePoint next_sweep_{};
  std::vector<std::uint32_t> step_us_;  // of recent steps, a ring
  std::size_t n_steps_ = 0;
  PassLog log_;
};

}  // namespace foretoken
