// The pool of drafts behind spec's Proposer: one connection per assigned draft, one attachment per
// sequence. It spreads sequences over drafts, moves those of a draft that died, and never waits:
// what cannot be sent is dropped and healed by the next PROPOSE, what has not arrived is simply not
// there. Owned by the target service, called by its work thread; the engine sees a Proposer and a
// DraftWatch.
//
// A draft on this machine is asked for a link through shared memory, and what somebody waits for
// travels there: PROPOSE for a sequence that the draft is known to have, and its answers. Everything
// else, and whatever the link does not take, goes over the connection as ever. So an ATTACH is not
// overtaken by the PROPOSE after it, and what else changes places the epochs and leases sort out.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/engine/draft_watch.h"
#include "common/runtime/service.h"
#include "common/spec/proposer.h"
#include "common/wire/codec.h"
#include "services/target/attachment.h"
#include "services/target/draft_link.h"

namespace foretoken {

struct DraftPoolOptions {
  Fingerprint vocabulary = 0;  // of this target: a draft of another is refused
  PrefixHash prefix_root = 0;  // H(0)
  std::vector<TokenId> end_tokens;
  std::uint32_t first_budget = 4;  // asked for with ATTACH, before the engine asks
  AttachmentRules rules;
  LinkChoice link = LinkChoice::kZeroMq;
  std::string machine;      // its boot id; empty = not known
  std::string link_folder;  // the only one where a draft's door is looked for
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
  // A link through shared memory is over.
  void on_closed(SocketId socket, const std::string& why);
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
  // Each draft and the tier that its guesses take: "shared_memory", "zeromq", or "none" where a
  // pinned tier is not to be had.
  std::vector<std::pair<std::string, std::string_view>> links() const;
  struct Counters {
    std::uint64_t attaches = 0, proposes = 0, records = 0, usable = 0, stale = 0, malformed = 0,
                  divergent = 0, misses = 0, not_sent = 0, busy = 0, needs = 0;
    // Frames that left through shared memory, and those that would have and went the other way.
    std::uint64_t sent_beside = 0, fallbacks = 0;
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
    DraftLink link{LinkChoice::kZeroMq};
    SocketId beside = 0;  // the link's, while there is one
    std::uint64_t token = 0;
    bool has_opened = false;  // the first word has left
    std::string said;         // about its tier, in the log
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
  bool may_use(const Draft& draft) const;
  bool has_room(const Draft& draft) const;
  void let_go_all(WorkerId id, TimePoint now);
  TimePoint tend_link(Draft& draft, TimePoint now);
  void say_first_word(Draft& draft, TimePoint now);
  void on_offer(Draft& draft, const wire::LinkOffer& offer, TimePoint now);
  std::string_view tier_of(const Draft& draft) const;
  void say_tier(Draft& draft);
  // Into the frame that is due to its draft, for the way it has to take.
  void add_record(SeqId seq, Sequence& sequence, TimePoint now);
  void send_records();
  void attach_somewhere(SeqId seq, Sequence& sequence, TimePoint now);
  void leave_draft(Sequence& sequence);
  void apply(SeqId seq, Sequence& sequence, AttachmentAction action, TimePoint now);
  void send_attach(SeqId seq, Sequence& sequence, TimePoint now);
  wire::ProposeRecord record_for(SeqId seq, Sequence& sequence, TimePoint now);
  enum class Way : std::uint8_t { kConnection, kShortest };
  bool send(const Draft& draft, const wire::Message& message, Way way = Way::kConnection);
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
  struct Outgoing {
    wire::Propose usual;   // for sequences whose ATTACH may still be under way
    wire::Propose beside;  // for the others
  };
  std::map<WorkerId, Outgoing> outgoing_;
  std::deque<LateClose> closes_;  // found no room; the lease's patience heals those beyond
  std::vector<wire::DraftLost> lost_;
  Counters counters_;
};

}  // namespace foretoken
