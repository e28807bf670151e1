#include "services/target/draft_proposer.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "kernels/include/numerics.h"

namespace foretoken {
namespace {

using std::chrono::seconds;

constexpr Duration kSuspect = seconds(1);
constexpr Duration kRetry = std::chrono::milliseconds(2);
constexpr std::uint64_t kAttachTickets = 2;                   // those of connections are apart
constexpr Duration kLongestPause = std::chrono::seconds(10);  // that a busy draft may ask for
// A draft frees a sequence that no message named for ten seconds. While prompts are read it is not
// asked anything for longer than that.
constexpr Duration kRenewAfter = std::chrono::seconds(2);
// Answers take longer than they usually do: prefill is waited for so many times its measured
// length.
constexpr int kPrefillMargin = 2;
// Of fewer tokens the time says little: most of it the draft was busy with others.
constexpr std::size_t kLeastMeasured = 64;
// Tokens of a record, branches included: no draft has a use for more.
constexpr std::size_t kMostOfRecord = std::size_t{kMaxDraftTokens} * 16;

DraftReadiness readiness_of(const Attachment& attachment, TimePoint now) {
  switch (attachment.state()) {
    case AttachmentState::kOpening:
      return DraftReadiness::kOpening;
    case AttachmentState::kActive:
      return attachment.may_wait(now) ? DraftReadiness::kReady : DraftReadiness::kUnready;
    case AttachmentState::kLagging:
      return DraftReadiness::kUnready;
    case AttachmentState::kDetached:
    case AttachmentState::kClosed:
      return DraftReadiness::kDetached;
  }
  return DraftReadiness::kDetached;
}

Proposal proposal_of(const wire::ProposalRecord& record, ProposerKind source) {
  Proposal proposal{.base = record.base,
                    .prefix = record.prefix,
                    .tokens = record.tokens,
                    .parents = record.parents,
                    .confidences = record.confidence,
                    .source = source};
  if (proposal.confidences.empty())
    proposal.confidences.assign(proposal.tokens.size(), 128);  // it did not say
  return proposal;
}

}  // namespace

// ---- drafts come and go

void DraftProposer::assign(const wire::Assign& assign) {
  const TimePoint now = bus_->now();
  if (assign.fingerprints.vocabulary != options_.vocabulary) {
    log_warning("refused a draft: its vocabulary is not ours", {{"draft", assign.name}});
    return;
  }
  if (AssignedDraft* known = drafts_.find(assign.draft)) {
    known->order = assign.order;
    if (known->incarnation == assign.incarnation && known->endpoint == assign.endpoint) return;
    end_draft(assign.draft, now);
  }
  if (!drafts_.add(
          assign,
          {.bus = *bus_, .speaker = speaker_, .options = options_.link, .counters = counters_}))
    return;
  for (auto& [seq, sequence] : sequences_)
    if (!sequence.draft) attach_somewhere(sequence, now);
}

void DraftProposer::unassign(WorkerId draft, Incarnation incarnation) {
  const AssignedDraft* known = drafts_.find(draft);
  if (known == nullptr || (incarnation != Incarnation{} && known->incarnation != incarnation))
    return;
  log_info("draft unassigned", {{"draft", known->connection.name()}});
  end_draft(draft, bus_->now());
}

void DraftProposer::end_draft(WorkerId id, TimePoint now) {
  drafts_.remove(id);
  let_go_all(id, now);
}

// Its sequences go to others, or on without one.
void DraftProposer::let_go_all(WorkerId id, TimePoint now) {
  for (auto& [seq, sequence] : sequences_) {
    if (sequence.draft != id) continue;
    end_at_draft(sequence);
    sequence.attachment.lost(now);
    leave_draft(sequence);
    sequence.no_message_is_due();
    attach_somewhere(sequence, now);
  }
  std::erase_if(arrived_, [&](const Arrived& arrived) { return arrived.draft == id; });
}

void DraftProposer::set_aside(AssignedDraft& draft, TimePoint now) {
  ++counters_.set_aside;
  log_warning("a draft is set aside",
              {{"draft", draft.connection.name()},
               {"reason", draft.record.reason()},
               {"again_in_s", std::chrono::ceil<seconds>(draft.record.pause_left(now)).count()}});
  let_go_all(draft.id, now);
}

// ---- a sequence and its draft

// Tokens of all sequences that the draft has not answered yet: it reads them side by side.
std::size_t DraftProposer::n_opening(WorkerId draft) const {
  std::size_t n = 0;
  for (const auto& [seq, sequence] : sequences_)
    if (sequence.draft == draft && sequence.attachment.state() == AttachmentState::kOpening)
      n += sequence.told.n_tokens();
  return n;
}

AttachmentPace DraftProposer::pace_of(const AttachedSequence& sequence) const {
  AttachmentPace pace{.step = step_};
  const AssignedDraft* draft = sequence.draft ? drafts_.find(*sequence.draft) : nullptr;
  if (draft == nullptr) return pace;
  std::size_t n_tokens = n_opening(draft->id);
  if (sequence.attachment.state() != AttachmentState::kOpening)
    n_tokens += sequence.told.n_tokens();
  pace.prefill = static_cast<std::int64_t>(kPrefillMargin * n_tokens) * draft->prefill_per_token;
  return pace;
}

void DraftProposer::note_opening(AttachedSequence& sequence, TimePoint now) {
  sequence.opened = now;
  sequence.n_opening = n_opening(*sequence.draft);
}

void DraftProposer::learn_prefill(const AttachedSequence& sequence, TimePoint answered) {
  AssignedDraft* draft = drafts_.find(*sequence.draft);
  if (draft == nullptr || sequence.n_opening == 0) return;
  const Duration sample = (answered - sequence.opened) /
                          static_cast<std::int64_t>(std::max(sequence.n_opening, kLeastMeasured));
  Duration& known = draft->prefill_per_token;
  known =
      sample > known ? sample : std::max(AssignedDraft::kQuickPrefill, (7 * known + sample) / 8);
}

void DraftProposer::attach_somewhere(AttachedSequence& sequence, TimePoint now) {
  if (!sequence.is_wanted) return;
  if (AssignedDraft* draft = drafts_.choose(now)) attach_to(*draft, sequence, now);
}

void DraftProposer::attach_to(AssignedDraft& draft, AttachedSequence& sequence, TimePoint now) {
  leave_draft(sequence);
  sequence.draft = draft.id;
  if (draft.n_sequences++ == 0) draft.renewed = now;
  apply(sequence, sequence.attachment.assigned(now, pace_of(sequence)), now);
}

void DraftProposer::leave_draft(AttachedSequence& sequence) {
  if (!sequence.draft) return;
  if (AssignedDraft* draft = drafts_.find(*sequence.draft);
      draft != nullptr && draft->n_sequences > 0)
    --draft->n_sequences;
  sequence.draft.reset();
}

// A model has no use for the last tokens; a memory proposes them to later sequences.
void DraftProposer::end_at_draft(const AttachedSequence& sequence) {
  AssignedDraft* draft = sequence.draft ? drafts_.find(*sequence.draft) : nullptr;
  if (draft == nullptr) return;
  const Lease lease = sequence.attachment.lease();
  AssignedDrafts::end_sequence(
      *draft, options_.kind == ProposerKind::kMemory
                  ? sequence.told.close(lease)
                  : wire::CloseSequence{.seq = sequence.told.seq(), .lease = lease});
}

void DraftProposer::apply(AttachedSequence& sequence, AttachmentAction action, TimePoint now) {
  AssignedDraft* draft = sequence.draft ? drafts_.find(*sequence.draft) : nullptr;
  switch (action) {
    case AttachmentAction::kNone:
      return;
    case AttachmentAction::kSendAttach:
      note_opening(sequence, now);
      return send_attach(sequence);
    case AttachmentAction::kSendPropose:
      sequence.tail_due = true;
      return;
    case AttachmentAction::kSendClose:
      return end_at_draft(sequence);
    case AttachmentAction::kLeave:
      sequence.no_message_is_due();
      leave_draft(sequence);
      return attach_somewhere(sequence, now);
    case AttachmentAction::kRelease:
      if (draft == nullptr) return;
      if (now >= draft->quiet_until) {
        draft->quiet_until = now + kSuspect;
        lost_.push_back(
            {.draft = draft->id, .incarnation = draft->incarnation, .reason = "does not answer"});
      }
      return move_from(*draft, sequence, now);
    case AttachmentAction::kReleaseBusy:
      if (draft != nullptr) move_from(*draft, sequence, now);
      return;
  }
}

// To another one that answers, at once; else this one is probed again by and by.
void DraftProposer::move_from(AssignedDraft& draft, AttachedSequence& sequence, TimePoint now) {
  sequence.no_message_is_due();
  draft.suspect_until = now + kSuspect;
  if (AssignedDraft* other = drafts_.choose(now); other != nullptr && !other->is_suspect(now)) {
    end_at_draft(sequence);
    attach_to(*other, sequence, now);
  } else if (sequence.attachment.is_over()) {
    end_at_draft(sequence);
  }
}

DraftProposer::AttachedSequence* DraftProposer::find(SeqId seq, WorkerId draft, Lease lease) {
  const auto it = sequences_.find(seq);
  return it != sequences_.end() && it->second.draft == draft &&
                 it->second.attachment.lease() == lease
             ? &it->second
             : nullptr;
}

// ---- to the drafts

void DraftProposer::send_attach(AttachedSequence& sequence) {
  ++counters_.attaches;
  wire::Attach attach = sequence.told.attach(sequence.attachment.lease());
  attach.vocabulary = options_.vocabulary;
  attach.noise_version = kNoiseVersion;
  attach.end_tokens = options_.end_tokens;
  sequence.no_message_is_due();
  sequence.attach_ticket = {.high = kAttachTickets, .low = ++n_tickets_};
  drafts_.at(*sequence.draft).connection.send(attach, {.ticket = sequence.attach_ticket});
}

bool DraftProposer::send_due_attach(AttachedSequence& sequence, TimePoint now) {
  if (sequence.attach_at && now >= *sequence.attach_at) send_attach(sequence);
  return !sequence.attach_at;
}

void DraftProposer::add_record(AttachedSequence& sequence, TimePoint now) {
  Attachment& attachment = sequence.attachment;
  wire::ProposeRecord record = sequence.told.propose(
      attachment.lease(), attachment.may_ask(now) ? DraftedSequence::AskFor::kGuesses
                                                  : DraftedSequence::AskFor::kNothing);
  sequence.tail_due = false;
  attachment.asked(record.epoch, record.budget, now);
  // The ATTACH of one that is opening may still be under way.
  const auto way =
      attachment.state() == AttachmentState::kOpening ? Way::kConnection : Way::kShortest;
  drafts_.at(*sequence.draft).connection.add(std::move(record), way);
}

void DraftProposer::open(const Opening& opening) {
  close(opening.seq);
  AttachedSequence fresh{.told = DraftedSequence(opening, options_.first_budget),
                         .attachment = Attachment(options_.rules),
                         .is_wanted = opening.is_asked_soon};
  AttachedSequence& sequence = sequences_.try_emplace(opening.seq, std::move(fresh)).first->second;
  attach_somewhere(sequence, bus_->now());
}

void DraftProposer::ask(std::span<const Ask> asks) {
  const TimePoint now = bus_->now();
  for (const Ask& ask : asks) {
    const auto it = sequences_.find(ask.seq);
    if (it == sequences_.end()) continue;
    AttachedSequence& sequence = it->second;
    const Position n_before = std::exchange(sequence.n_asked, sequence.told.n_tokens());
    sequence.told.want(ask.budget);
    if (AssignedDraft* draft = sequence.asked ? drafts_.find(*sequence.asked) : nullptr;
        draft != nullptr && sequence.asked == sequence.draft && sequence.told.n_tokens() > n_before)
      draft->record.verified(ask.n_verified, ask.n_accepted);
    sequence.attachment.stream().asked(ask.n_verified, ask.n_at_hand, now);
    step_ = ask.step;
    sequence.is_wanted = true;
    if (!sequence.draft) attach_somewhere(sequence, now);
    const bool is_attached = sequence.attachment.is_attached();
    apply(sequence,
          sequence.attachment.tick(now,
                                   is_attached ? AttachmentPace{.step = step_} : pace_of(sequence)),
          now);
    if (!sequence.draft || !sequence.attachment.is_attached()) continue;
    if (send_due_attach(sequence, now)) add_record(sequence, now);
    sequence.asked = sequence.draft;
  }
  drafts_.flush(now);
}

void DraftProposer::close(SeqId seq) {
  const auto it = sequences_.find(seq);
  if (it == sequences_.end()) return;
  apply(it->second, it->second.attachment.closed(), bus_->now());
  leave_draft(it->second);
  sequences_.erase(it);
}

TimePoint DraftProposer::turn(TimePoint now) {
  drafts_.judge(now, [&](AssignedDraft& draft) { set_aside(draft, now); });
  TimePoint due = drafts_.poll(now);
  for (auto& [seq, sequence] : sequences_) {
    if (!sequence.draft) {
      attach_somewhere(sequence, now);
      continue;
    }
    if (!sequence.attachment.is_attached()) continue;
    if (!send_due_attach(sequence, now))
      due = std::min(due, *sequence.attach_at);
    else if (sequence.tail_due)
      add_record(sequence, now);
  }
  drafts_.flush(now);
  drafts_.renew_leases(now, kRenewAfter);
  return due;
}

// ---- from the drafts

void DraftProposer::on_message(SocketId socket,
                               const wire::Header& header,
                               wire::Message message,
                               TimePoint arrived) {
  AssignedDraft* draft = drafts_.find(socket);
  if (draft == nullptr || header.sender != draft->id || header.incarnation != draft->incarnation) {
    ++counters_.stale;
    return;
  }
  const TimePoint now = bus_->now();
  if (auto* proposal = std::get_if<wire::Proposal>(&message))
    keep(draft->id, proposal->records, arrived == TimePoint{} ? now : arrived);
  else if (const auto* need = std::get_if<wire::Need>(&message))
    on_need(*draft, *need, now);
  else if (const auto* busy = std::get_if<wire::DraftBusy>(&message))
    on_busy(draft->id, *busy, now);
  else if (const auto* offer = std::get_if<wire::LinkOffer>(&message))
    draft->connection.on_offer(*offer, now);
  else if (const auto* opened = std::get_if<wire::LinkOpen>(&message))
    draft->connection.on_opened(socket, *opened, now);
  else if (std::holds_alternative<wire::Goodbye>(message))
    unassign(draft->id, header.incarnation);
  else
    ++counters_.stale;
}

void DraftProposer::on_malformed(SocketId socket) {
  ++counters_.malformed;
  if (AssignedDraft* draft = drafts_.find(socket)) draft->record.malformed();
}

void DraftProposer::on_dropped(SocketId socket, Ticket ticket) {
  const TimePoint now = bus_->now();
  AssignedDraft* draft = drafts_.find(socket);
  // A connection that is not up yet has no room for a question either: nothing to count.
  if (draft != nullptr && draft->connection.on_dropped(ticket, now)) return;
  ++counters_.not_sent;
  if (ticket == Ticket{}) return;
  for (auto& [seq, sequence] : sequences_)
    if (sequence.attach_ticket == ticket && sequence.attachment.is_attached())
      sequence.attach_at = now + kRetry;
}

void DraftProposer::on_closed(SocketId socket, const std::string& why) {
  AssignedDraft* draft = drafts_.find(socket);
  if (draft == nullptr || !draft->connection.is_link(socket)) return;
  const TimePoint now = bus_->now();
  draft->connection.on_closed(why, now);
  if (!draft->may_be_used()) let_go_all(draft->id, now);
}

void DraftProposer::on_need(AssignedDraft& draft, const wire::Need& need, TimePoint now) {
  ++counters_.needs;
  AttachedSequence* sequence = find(need.seq, draft.id, need.lease);
  if (sequence == nullptr) return;
  if (need.reason == NeedReason::kRefused) {
    // What differs is the same for every sequence, for as long as it lives.
    if (!std::exchange(draft.refuses, true))
      log_warning("a draft refuses our sequences: another vocabulary, noise or acceptance",
                  {{"draft", draft.connection.name()}});
    return apply(*sequence, sequence->attachment.refused(now), now);
  }
  const bool has_part = (need.reason == NeedReason::kGap || need.reason == NeedReason::kMismatch) &&
                        sequence->told.begins_with(need.known, need.prefix);
  if (has_part) {
    const AttachmentAction action = sequence->attachment.needs_tail(now);
    if (action == AttachmentAction::kSendPropose) sequence->told.fall_back_to(need.known);
    return apply(*sequence, action, now);
  }
  apply(*sequence, sequence->attachment.needs_everything(now, pace_of(*sequence)), now);
}

void DraftProposer::on_busy(WorkerId draft, const wire::DraftBusy& busy, TimePoint now) {
  ++counters_.busy;
  if (AttachedSequence* sequence = find(busy.seq, draft, busy.lease))
    sequence->attachment.busy(
        now, std::min<Duration>(std::chrono::microseconds(busy.retry_after_us), kLongestPause));
}

void DraftProposer::keep(WorkerId draft, std::vector<wire::ProposalRecord>& records, TimePoint at) {
  for (wire::ProposalRecord& record : records) {
    AttachedSequence* sequence = find(record.seq, draft, record.lease);
    if (sequence == nullptr || arrived_.size() >= kMaxArrived)
      ++counters_.stale;
    else if (record.tokens.size() > kMostOfRecord)
      drop_malformed(draft, *sequence);
    else
      arrived_.push_back({draft, std::move(record), at});
  }
}

void DraftProposer::drop_malformed(WorkerId draft, AttachedSequence& sequence) {
  ++counters_.malformed;
  drafts_.at(draft).record.malformed();
  const TimePoint now = bus_->now();
  apply(sequence, sequence.attachment.malformed(now), now);
}

void DraftProposer::collect(TimePoint now, ProposalStore& into) {
  for (const Arrived& arrived : arrived_) use(arrived, now, into);
  arrived_.clear();
}

// Each of the two durations is measured by one process; the way is their difference.
void DraftProposer::note_transport(const Attachment& attachment, const Arrived& arrived) {
  const auto asked = attachment.asked_at(arrived.record.epoch);
  if (!asked || arrived.record.took_us == 0) return;
  transport_.observe(arrived.at - *asked - std::chrono::microseconds(arrived.record.took_us));
}

void DraftProposer::use(const Arrived& arrived, TimePoint now, ProposalStore& into) {
  const wire::ProposalRecord& record = arrived.record;
  AttachedSequence* sequence = find(record.seq, arrived.draft, record.lease);
  if (sequence == nullptr) {
    ++counters_.stale;
    return;
  }
  const Insertion insertion = record.known <= sequence->told.n_tokens()
                                  ? into.insert(record.seq, proposal_of(record, options_.kind))
                                  : Insertion::kMalformed;
  switch (insertion) {
    case Insertion::kInserted:
      ++counters_.usable;
      sequence->told.confirm(record.known);
      if (sequence->attachment.state() == AttachmentState::kOpening)
        learn_prefill(*sequence, arrived.at);
      note_transport(sequence->attachment, arrived);
      return apply(*sequence,
                   record.is_partial ? sequence->attachment.progressed(
                                           record.epoch, wire::chain_length(record), arrived.at)
                                     : sequence->attachment.answered(record.epoch, arrived.at),
                   now);
    case Insertion::kMalformed:
      return drop_malformed(arrived.draft, *sequence);
    case Insertion::kAhead:
    case Insertion::kDivergent:
      ++counters_.divergent;
      return;
    case Insertion::kUnknownSequence:
      ++counters_.stale;
      return;
  }
}

// ---- what the engine and the service ask

DraftOutlook DraftProposer::outlook(SeqId seq, TimePoint now) const {
  const auto it = sequences_.find(seq);
  if (it == sequences_.end()) return {};
  const Attachment& attachment = it->second.attachment;
  DraftOutlook outlook;
  outlook.readiness = readiness_of(attachment, now);
  if (!it->second.is_wanted && drafts_.has_room(now)) outlook.readiness = DraftReadiness::kUnasked;
  // What lies in the inbox is here, although it is not processed yet: waiting on would bring
  // nothing.
  const bool is_here = std::any_of(arrived_.begin(), arrived_.end(), [&](const Arrived& arrived) {
    return arrived.record.seq == seq && arrived.record.lease == attachment.lease() &&
           !arrived.record.is_partial && arrived.record.epoch == it->second.told.epoch();
  });
  outlook.is_under_way = attachment.is_under_way() && !is_here;
  if (!outlook.is_under_way) return outlook;
  const StreamPace& stream = attachment.stream();
  outlook.arrives_in =
      std::max(Duration{0}, attachment.asked_at() + attachment.answer_ewma() - now);
  if (!stream.is_known()) return outlook;
  const StreamPace::First first = stream.first_token(now);
  outlook.arrives_in = first.in;
  outlook.n_unseen = first.n_unseen;
  outlook.per_token = stream.per_token();
  outlook.next_in = std::max(Duration{0}, stream.latest() + stream.per_token() - now);
  return outlook;
}

std::vector<wire::DraftLost> DraftProposer::take_lost() { return std::exchange(lost_, {}); }

}  // namespace foretoken
