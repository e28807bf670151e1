// The pool of drafts behind spec's Proposer: the protocol between the sequences of this target and
// the drafts it was assigned, one attachment per sequence. It spreads sequences over drafts, moves
// those of a draft that died, and never waits: what cannot be sent is dropped and healed by the
// next PROPOSE, what has not arrived is simply not there. Owned by the target service, called by
// its work thread; the engine sees a Proposer and a DraftWatch. Below it, and knowing nothing of
// each other's business: AssignedDrafts (who is there, who has room), DraftConnection (how one is
// reached), DraftedSequence (what was sent of a sequence), Attachment (its state at its draft).
//
// Messages that a peer waits for take the shortest way, a link through shared memory where there is
// one: PROPOSE for a sequence that the draft is known to have, and its answers. Everything else
// goes over the connection. So an ATTACH is not overtaken by the PROPOSE after it, and what else
// changes places the epochs and leases sort out.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/histogram.h"
#include "common/engine/draft_watch.h"
#include "common/runtime/service.h"
#include "common/spec/proposer.h"
#include "common/wire/codec.h"
#include "services/target/assigned_drafts.h"
#include "services/target/attachment.h"
#include "services/target/draft_connection.h"
#include "services/target/drafted_sequence.h"

namespace foretoken {

struct DraftPoolOptions {
  ProposerKind kind = ProposerKind::kDraft;  // or kMemory: which source of drafts it has
  Fingerprint vocabulary = 0;                // of this target: a draft of another is refused
  std::vector<TokenId> end_tokens;
  std::uint32_t first_budget = 4;  // asked for with ATTACH, before the engine asks
  AttachmentRules rules;
  DraftLinkOptions link;
};

class DraftProposer final : public Proposer, public DraftWatch {
 public:
  DraftProposer(const DraftPoolOptions& options, wire::Speaker& speaker)
      : options_(options), speaker_(speaker) {}
  DraftProposer(const DraftProposer&) = delete;
  DraftProposer& operator=(const DraftProposer&) = delete;
  void start(Bus& bus) { bus_ = &bus; }

  // From the router. Both may be repeated.
  void assign(const wire::Assign& assign);
  void unassign(WorkerId draft, Incarnation incarnation);
  // True if the socket is one of ours. Whatever a draft says is kept until collect().
  bool owns(SocketId socket) const { return drafts_.owns(socket); }
  // `arrived`: when it came, if that is known; it may have lain there during a pass.
  void on_message(SocketId socket,
                  const wire::Header& header,
                  wire::Message message,
                  TimePoint arrived = {});
  // The connection did not take the message of this ticket. Only what is said anew has one: an
  // ATTACH, with the tokens that there are by then, and the question for a link. A PROPOSE is
  // healed by the next, and a CLOSE waits for as long as the draft's lease lasts.
  void on_dropped(SocketId socket, Ticket ticket);
  // A link through shared memory is over.
  void on_closed(SocketId socket, const std::string& why);
  // Attachments that have to be sent again, probes. Returns when it wants to be called again.
  TimePoint turn(TimePoint now);

  ProposerKind kind() const override { return options_.kind; }
  void open(const Opening& opening) override;
  void ask(std::span<const Ask> asks) override;
  void collect(TimePoint now, ProposalStore& into) override;
  void close(SeqId seq) override;
  DraftOutlook outlook(SeqId seq, TimePoint now) const override;

  // Drafts that were let go since the last call: for the router and the log.
  std::vector<wire::DraftLost> take_lost();
  std::size_t n_drafts() const { return drafts_.size(); }
  // Each draft's name and the tier that its guesses take.
  std::vector<std::pair<std::string, std::string_view>> links() const { return drafts_.links(); }
  const DraftCounters& counters() const { return counters_; }
  // From questions to their answers, less what the draft took.
  const Histogram& transport() const { return transport_; }
  // Those that are not used for a while, as their guesses were worth nothing.
  std::vector<wire::DraftSetAside> set_aside() const { return drafts_.set_aside(bus_->now()); }
  // Of one of our drafts: bytes that are no message.
  void on_malformed(SocketId socket);

 private:
  struct AttachedSequence {
    DraftedSequence told;
    Attachment attachment;
    std::optional<WorkerId> draft = {};
    bool is_wanted = true;  // it is attached as soon as there is a draft with room
    std::optional<TimePoint> attach_at = {};  // it has to be sent, not before this
    Ticket attach_ticket = {};                // of the last one
    bool tail_due = false;
    std::optional<WorkerId> asked = {};  // whose guesses the round since then verified
    Position n_asked = 0;                // tokens at the last ask
    TimePoint opened{};                  // ATTACH was due
    std::size_t n_opening = 0;  // tokens that its draft had to read then, other sequences' too

    void no_message_is_due() {
      attach_at.reset();
      attach_ticket = {};
      tail_due = false;
    }
  };
  struct Arrived {
    WorkerId draft;
    wire::ProposalRecord record;
    TimePoint at{};  // when it came: the engine may look much later
  };

  void end_draft(WorkerId id, TimePoint now);
  std::size_t n_opening(WorkerId draft) const;
  AttachmentPace pace_of(const AttachedSequence& sequence) const;
  void note_opening(AttachedSequence& sequence, TimePoint now);
  void learn_prefill(const AttachedSequence& sequence, TimePoint answered);
  void let_go_all(WorkerId id, TimePoint now);
  void set_aside(AssignedDraft& draft, TimePoint now);
  void attach_somewhere(AttachedSequence& sequence, TimePoint now);
  void attach_to(AssignedDraft& draft, AttachedSequence& sequence, TimePoint now);
  void leave_draft(AttachedSequence& sequence);
  // CLOSE, where its draft is still assigned: the place there is free again.
  void end_at_draft(const AttachedSequence& sequence);
  void apply(AttachedSequence& sequence, AttachmentAction action, TimePoint now);
  void move_from(AssignedDraft& draft, AttachedSequence& sequence, TimePoint now);
  // True if it is not due any more.
  bool send_due_attach(AttachedSequence& sequence, TimePoint now);
  void send_attach(AttachedSequence& sequence);
  // Into the frame that is due to its draft.
  void add_record(AttachedSequence& sequence, TimePoint now);
  // The sequence that a draft means; nothing if it has it no more, or had it under another lease.
  AttachedSequence* find(SeqId seq, WorkerId draft, Lease lease);
  void keep(WorkerId draft, std::vector<wire::ProposalRecord>& records, TimePoint at);
  void drop_malformed(WorkerId draft, AttachedSequence& sequence);
  void use(const Arrived& arrived, TimePoint now, ProposalStore& into);
  void note_transport(const Attachment& attachment, const Arrived& arrived);
  void on_need(AssignedDraft& draft, const wire::Need& need, TimePoint now);
  void on_busy(WorkerId draft, const wire::DraftBusy& busy, TimePoint now);

  static constexpr std::size_t kMaxArrived = 16384;  // records not yet collected

  DraftPoolOptions options_;
  wire::Speaker& speaker_;
  Bus* bus_ = nullptr;
  DraftCounters counters_;
  Histogram transport_{round_bounds()};
  AssignedDrafts drafts_;
  std::map<SeqId, AttachedSequence> sequences_;
  std::vector<Arrived> arrived_;
  std::vector<wire::DraftLost> lost_;
  std::uint64_t n_tickets_ = 0;
  Duration step_{};  // of the target, the last one
};

// The drafts of a target by what they guess with.
struct DraftPools {
  DraftProposer& models;
  DraftProposer* memories = nullptr;

  template <class Visit>
  void for_each(Visit&& visit) const {
    visit(models);
    if (memories != nullptr) visit(*memories);
  }
};

}  // namespace foretoken
