// The pool of drafts behind spec's Proposer: one connection per assigned draft, one attachment per
// sequence. It spreads sequences over drafts, moves those of a draft that died, and never waits:
// what cannot be sent is dropped and healed by the next PROPOSE, what has not arrived is simply not
// there. Owned by the target service, called by its work thread; the engine sees a Proposer and a
// DraftWatch.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/engine/draft_watch.h"
#include "common/runtime/service.h"
#include "common/spec/proposer.h"
#include "common/wire/codec.h"
#include "services/target/attachment.h"

namespace foretoken {

struct DraftPoolOptions {
  Fingerprint vocabulary = 0;  // of this target: a draft of another is refused
  PrefixHash prefix_root = 0;  // H(0)
  std::vector<TokenId> end_tokens;
  std::uint32_t first_budget = 4;  // asked for with ATTACH, before the engine asks
  AttachmentRules rules;
};

class DraftProposer final : public Proposer, public DraftWatch {
 public:
  DraftProposer(const DraftPoolOptions& options, wire::Speaker& speaker)
      : options_(options), speaker_(speaker) {}
  void start(Bus& bus) { bus_ = &bus; }

  // From the router. Both may be repeated.
  void assign(const wire::Assign& assign);
  void unassign(WorkerId draft, Incarnation incarnation);
  // True if the socket is one of ours. Whatever a draft says is kept until collect().
  bool owns(SocketId socket) const;
  void on_message(SocketId socket, const wire::Header& header, wire::Message message);
  // The connection did not take these frames: a PROPOSE is healed by the next, an ATTACH is sent
  // again.
  void on_dropped(SocketId socket, const Frames& frames);
  // Attachments that have to be sent again, probes. Returns when it wants to be called again.
  TimePoint turn(TimePoint now);

  ProposerKind kind() const override { return ProposerKind::kDraft; }
  void open(const Opening& opening) override;
  void ask(std::span<const Ask> asks) override;
  void collect(TimePoint now, ProposalStore& into) override;
  void close(SeqId seq) override;
  DraftOutlook outlook(SeqId seq, TimePoint now) const override;

  // Drafts that were let go since the last call: for the router and the log.
  std::vector<wire::DraftLost> take_lost();
  std::size_t n_drafts() const { return drafts_.size(); }
  struct Counters {
    std::uint64_t attaches = 0, proposes = 0, records = 0, usable = 0, stale = 0, malformed = 0,
                  divergent = 0, misses = 0, not_sent = 0, busy = 0, needs = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  struct Draft {
    Incarnation incarnation;
    std::string name;
    std::string endpoint;
    SocketId socket = 0;
    std::uint32_t max_sequences = 0;
    std::uint32_t n_sequences = 0;
    bool refuses = false;       // answered NEED(refused): used no more in this life
    TimePoint suspect_until{};  // let go by a sequence a moment ago: others first
  };
  struct Sequence {
    explicit Sequence(const AttachmentRules& rules) : attachment(rules) {}
    SamplingParams params;
    std::uint32_t n_prompt = 0;
    std::vector<TokenId> tokens;  // all committed
    PrefixHash prefix = 0;        // of all of them
    std::uint64_t tenant_salt = 0;
    std::uint32_t budget = 0;
    std::optional<WorkerId> draft;
    Attachment attachment;
    Epoch epoch{0};
    Position known = 0;  // what the draft confirmed, or was sent by ATTACH
    bool attach_due = false;
    bool tail_due = false;
  };
  struct Arrived {
    WorkerId draft;
    wire::ProposalRecord record;
    TimePoint at{};  // when it came: the engine may look much later
  };

  struct LateClose {
    WorkerId draft;
    wire::CloseSequence close;
    TimePoint not_before{};
  };

  Draft* find_draft(SocketId socket, WorkerId* id);
  void attach_somewhere(SeqId seq, Sequence& sequence, TimePoint now);
  void leave_draft(Sequence& sequence);
  void apply(SeqId seq, Sequence& sequence, AttachmentAction action, TimePoint now);
  void send_attach(SeqId seq, Sequence& sequence, TimePoint now);
  wire::ProposeRecord record_for(SeqId seq, Sequence& sequence, TimePoint now);
  bool send(const Draft& draft, const wire::Message& message);
  void keep_close(WorkerId draft, const wire::CloseSequence& close);
  void use(const Arrived& arrived, TimePoint now, ProposalStore& into);
  void on_need(WorkerId draft, const wire::Need& need, TimePoint now);
  void end_draft(WorkerId id, TimePoint now);
  Duration expected_prefill(const Sequence& sequence) const;

  static constexpr std::size_t kMaxCloses = 1024;
  static constexpr std::size_t kMaxArrived = 16384;  // records not yet collected

  DraftPoolOptions options_;
  wire::Speaker& speaker_;
  Bus* bus_ = nullptr;
  std::map<WorkerId, Draft> drafts_;
  std::map<SeqId, Sequence> sequences_;
  std::vector<Arrived> arrived_;
  std::map<WorkerId, wire::Propose> outgoing_;
  std::deque<LateClose> closes_;  // found no room; the lease's patience heals those beyond
  std::vector<wire::DraftLost> lost_;
  Counters counters_;
};

}  // namespace foretoken
