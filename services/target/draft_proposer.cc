#include "services/target/draft_proposer.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/spec/prefix_hash.h"
#include "common/transport/memory_door.h"
#include "kernels/include/numerics.h"

namespace foretoken {
namespace {

constexpr Duration kSuspect = std::chrono::seconds(1);
constexpr Duration kRetry = std::chrono::milliseconds(20);
constexpr Duration kOpenAgain = std::chrono::milliseconds(2);
constexpr std::size_t kMostReason = 200;  // of what a draft says, in our log
constexpr Duration kPrefillPerToken =
    std::chrono::microseconds(500);  // a guess on the slow side, for patience only

}  // namespace

// ---- drafts come and go

void DraftProposer::assign(const wire::Assign& assign) {
  const TimePoint now = bus_->now();
  if (assign.fingerprints.vocabulary != options_.vocabulary) {
    log_warning("refused a draft: its vocabulary is not ours", {{"draft", assign.name}});
    return;
  }
  if (const auto it = drafts_.find(assign.draft); it != drafts_.end()) {
    if (it->second.incarnation == assign.incarnation && it->second.endpoint == assign.endpoint)
      return;
    end_draft(assign.draft, now);
  }
  Draft draft{.incarnation = assign.incarnation,
              .name = assign.name,
              .endpoint = assign.endpoint,
              .max_sequences = assign.max_sequences,
              .link = DraftLink(options_.link)};
  try {
    draft.socket = bus_->connect(assign.endpoint, Door::kDraft);
  } catch (const FatalError& error) {
    // The endpoint came over the wire: a bad one is that draft's problem, not the end of this
    // process.
    log_warning("cannot connect to a draft", {{"draft", assign.name}, {"reason", error.what()}});
    return;
  }
  log_info("draft assigned", {{"draft", assign.name}, {"endpoint", assign.endpoint}});
  drafts_.emplace(assign.draft, std::move(draft));
  for (auto& [seq, sequence] : sequences_)
    if (!sequence.draft) attach_somewhere(seq, sequence, now);
}

void DraftProposer::unassign(WorkerId draft, Incarnation incarnation) {
  const auto it = drafts_.find(draft);
  if (it == drafts_.end() ||
      (incarnation != Incarnation{} && it->second.incarnation != incarnation))
    return;
  log_info("draft unassigned", {{"draft", it->second.name}});
  end_draft(draft, bus_->now());
}

void DraftProposer::end_draft(WorkerId id, TimePoint now) {
  const Draft& draft = drafts_.at(id);
  bus_->close(draft.socket);
  if (draft.beside != 0) bus_->close(draft.beside);
  drafts_.erase(id);
  let_go_all(id, now);
}

// Its sequences go to others, or on without one.
void DraftProposer::let_go_all(WorkerId id, TimePoint now) {
  for (auto& [seq, sequence] : sequences_) {
    if (sequence.draft != id) continue;
    sequence.attachment.lost(now);
    leave_draft(sequence);
    sequence.attach_due = sequence.tail_due = false;
    attach_somewhere(seq, sequence, now);
  }
  std::erase_if(arrived_, [&](const Arrived& arrived) { return arrived.draft == id; });
}

bool DraftProposer::owns(SocketId socket) const {
  return std::any_of(drafts_.begin(), drafts_.end(),
                     [&](const auto& entry) {
                       return entry.second.socket == socket || entry.second.beside == socket;
                     });
}

DraftProposer::Draft* DraftProposer::find_draft(SocketId socket, WorkerId* id) {
  for (auto& [worker, draft] : drafts_) {
    if (draft.socket != socket && (draft.beside == 0 || draft.beside != socket)) continue;
    *id = worker;
    return &draft;
  }
  return nullptr;
}

bool DraftProposer::may_use(const Draft& draft) const {
  return !draft.refuses && (options_.link != LinkChoice::kSharedMemory || draft.link.is_up());
}

bool DraftProposer::has_room(const Draft& draft) const {
  return may_use(draft) && draft.n_sequences < draft.max_sequences;
}

// The emptiest draft with room, one that has not just failed somebody; nothing if there is none.
void DraftProposer::attach_somewhere(SeqId seq, Sequence& sequence, TimePoint now) {
  std::pair<const WorkerId, Draft>* best = nullptr;
  const auto rank = [&](const auto& entry) {
    return std::tuple(entry.second.suspect_until > now, entry.second.n_sequences, entry.first);
  };
  for (auto& entry : drafts_) {
    if (!has_room(entry.second)) continue;
    if (best == nullptr || rank(entry) < rank(*best)) best = &entry;
  }
  if (best == nullptr) return;
  leave_draft(sequence);
  sequence.draft = best->first;
  ++best->second.n_sequences;
  apply(seq, sequence, sequence.attachment.assigned(now, expected_prefill(sequence)), now);
}

void DraftProposer::leave_draft(Sequence& sequence) {
  if (!sequence.draft) return;
  if (const auto it = drafts_.find(*sequence.draft);
      it != drafts_.end() && it->second.n_sequences > 0)
    --it->second.n_sequences;
  sequence.draft.reset();
}

Duration DraftProposer::expected_prefill(const Sequence& sequence) const {
  return static_cast<std::int64_t>(sequence.tokens.size()) * kPrefillPerToken;
}

void DraftProposer::apply(SeqId seq, Sequence& sequence, AttachmentAction action, TimePoint now) {
  switch (action) {
    case AttachmentAction::kNone:
      return;
    case AttachmentAction::kSendAttach:
      return send_attach(seq, sequence, now);
    case AttachmentAction::kSendPropose:
      sequence.tail_due = true;
      return;
    case AttachmentAction::kSendClose:
      if (sequence.draft)
        if (const auto it = drafts_.find(*sequence.draft); it != drafts_.end())
          if (const wire::CloseSequence close{.seq = seq, .lease = sequence.attachment.lease()};
              !send(it->second, close))
            keep_close(it->first, close);
      return;
    case AttachmentAction::kLeave:
      sequence.attach_due = sequence.tail_due = false;
      if (std::any_of(drafts_.begin(), drafts_.end(),
                      [&](const auto& entry) { return has_room(entry.second); }))
        attach_somewhere(seq, sequence, now);
      return;
    case AttachmentAction::kRelease: {
      if (!sequence.draft) return;
      sequence.attach_due = sequence.tail_due = false;
      Draft& draft = drafts_.at(*sequence.draft);
      if (draft.suspect_until <= now)
        lost_.push_back({.draft = *sequence.draft,
                         .incarnation = draft.incarnation,
                         .reason = "does not answer"});
      draft.suspect_until = now + kSuspect;
      // Another one that answers, at once; else this one is probed again by and by.
      const bool others = std::any_of(drafts_.begin(), drafts_.end(), [&](const auto& entry) {
        return entry.second.suspect_until <= now && has_room(entry.second);
      });
      if (others) attach_somewhere(seq, sequence, now);
      return;
    }
  }
}

// ---- to the drafts

// A place at a draft that nobody uses is one less for the others for ten seconds: worth a second
// try, as a burst of sequences that end together does not fit a link's short queue.
void DraftProposer::keep_close(WorkerId draft, const wire::CloseSequence& close) {
  if (closes_.size() < kMaxCloses) closes_.push_back({draft, close, bus_->now() + kRetry});
}

bool DraftProposer::send(const Draft& draft, const wire::Message& message, Way way) {
  auto frames = wire::try_encode(speaker_, {}, message);
  const bool too_large = !frames.ok();  // it stays so: nothing to be tried again
  if (way == Way::kShortest && !too_large && draft.link.is_up()) {
    if (bus_->send(Peer{draft.beside, {}, false}, *frames) == SendResult::kSent) {
      ++counters_.sent_beside;
      return true;
    }
    ++counters_.fallbacks;
  }
  if (!too_large &&
      bus_->send(Peer{draft.socket, {}, false}, std::move(frames).value()) == SendResult::kSent)
    return true;
  ++counters_.not_sent;
  return too_large;
}

void DraftProposer::send_attach(SeqId seq, Sequence& sequence, TimePoint) {
  const Draft& draft = drafts_.at(*sequence.draft);
  ++counters_.attaches;
  sequence.attach_due = !send(draft, wire::Attach{.seq = seq,
                                                  .lease = sequence.attachment.lease(),
                                                  .vocabulary = options_.vocabulary,
                                                  .noise_version = kNoiseVersion,
                                                  .params = sequence.params,
                                                  .n_prompt = sequence.n_prompt,
                                                  .tokens = sequence.tokens,
                                                  .prefix = sequence.prefix,
                                                  .budget = sequence.budget,
                                                  .tenant_salt = sequence.tenant_salt,
                                                  .root = options_.prefix_root,
                                                  .end_tokens = options_.end_tokens});
  sequence.tail_due = false;
  sequence.known = static_cast<Position>(sequence.tokens.size());
}

wire::ProposeRecord DraftProposer::record_for(SeqId seq, Sequence& sequence, TimePoint now) {
  const Position from = std::min(sequence.known, static_cast<Position>(sequence.tokens.size()));
  const std::uint32_t budget = sequence.attachment.may_ask(now) ? sequence.budget : 0;
  ++sequence.epoch.value;
  sequence.tail_due = false;
  sequence.attachment.asked(sequence.epoch, budget, now);
  return {
      .seq = seq,
      .lease = sequence.attachment.lease(),
      .epoch = sequence.epoch,
      .from = from,
      .tail = {sequence.tokens.begin() + from, sequence.tokens.end()},
      .prefix = sequence.prefix,
      .budget = budget};
}

void DraftProposer::open(const Opening& opening) {
  close(opening.seq);
  Sequence& sequence = sequences_.try_emplace(opening.seq, options_.rules).first->second;
  sequence.params = opening.params;
  sequence.tokens.assign(opening.prompt.begin(), opening.prompt.end());
  sequence.n_prompt = static_cast<std::uint32_t>(opening.prompt.size());
  sequence.prefix = prefix_hash_extend(options_.prefix_root, opening.prompt);
  sequence.tenant_salt = opening.tenant_salt;
  sequence.budget = options_.first_budget;
  attach_somewhere(opening.seq, sequence, bus_->now());
}

void DraftProposer::ask(std::span<const Ask> asks) {
  const TimePoint now = bus_->now();
  for (const Ask& ask : asks) {
    const auto it = sequences_.find(ask.seq);
    if (it == sequences_.end()) continue;
    Sequence& sequence = it->second;
    const std::size_t known =
        sequence.tokens.size() - std::min<std::size_t>(sequence.tokens.size(), ask.from);
    if (known < ask.tail.size())
      sequence.tokens.insert(sequence.tokens.end(),
                             ask.tail.begin() + static_cast<std::ptrdiff_t>(known), ask.tail.end());
    sequence.prefix = ask.prefix;
    sequence.budget = ask.budget;
    if (!sequence.draft) attach_somewhere(ask.seq, sequence, now);
    apply(ask.seq, sequence, sequence.attachment.tick(now, expected_prefill(sequence)), now);
    if (!sequence.draft || !sequence.attachment.is_attached()) continue;
    if (sequence.attach_due) send_attach(ask.seq, sequence, now);
    if (sequence.attach_due) continue;
    add_record(ask.seq, sequence, now);
  }
  send_records();
}

void DraftProposer::add_record(SeqId seq, Sequence& sequence, TimePoint now) {
  const auto it = drafts_.find(*sequence.draft);
  const bool may_overtake = it != drafts_.end() && it->second.link.is_up() &&
                            sequence.attachment.state() != AttachmentState::kOpening;
  Outgoing& outgoing = outgoing_[*sequence.draft];
  (may_overtake ? outgoing.beside : outgoing.usual)
      .records.push_back(record_for(seq, sequence, now));
}

void DraftProposer::send_records() {
  const auto send_frame = [&](const Draft& draft, wire::Propose& frame, Way way) {
    if (frame.records.empty()) return;
    counters_.records += frame.records.size();
    ++counters_.proposes;
    send(draft, frame, way);
  };
  for (auto& [id, outgoing] : outgoing_) {
    if (const auto it = drafts_.find(id); it != drafts_.end()) {
      send_frame(it->second, outgoing.beside, Way::kShortest);
      send_frame(it->second, outgoing.usual, Way::kConnection);
    }
    outgoing.beside.records.clear();
    outgoing.usual.records.clear();
  }
}

void DraftProposer::close(SeqId seq) {
  const auto it = sequences_.find(seq);
  if (it == sequences_.end()) return;
  apply(seq, it->second, it->second.attachment.closed(), {});
  leave_draft(it->second);
  sequences_.erase(it);
}

// ---- from the drafts

void DraftProposer::on_message(SocketId socket, const wire::Header& header, wire::Message message) {
  WorkerId id;
  Draft* draft = find_draft(socket, &id);
  if (draft == nullptr || header.sender != id || header.incarnation != draft->incarnation) {
    ++counters_.stale;
    return;
  }
  const TimePoint now = bus_->now();
  if (auto* proposal = std::get_if<wire::Proposal>(&message)) {
    for (wire::ProposalRecord& record : proposal->records) {
      if (arrived_.size() < kMaxArrived)
        arrived_.push_back({id, std::move(record), now});
      else
        ++counters_.stale;
    }
  } else if (const auto* need = std::get_if<wire::Need>(&message)) {
    on_need(id, *need, now);
  } else if (const auto* busy = std::get_if<wire::DraftBusy>(&message)) {
    ++counters_.busy;
    const auto it = sequences_.find(busy->seq);
    if (it != sequences_.end() && it->second.draft == id &&
        it->second.attachment.lease() == busy->lease)
      it->second.attachment.busy(now,
                                 std::min<Duration>(std::chrono::microseconds(busy->retry_after_us),
                                                    std::chrono::seconds(10)));
  } else if (const auto* offer = std::get_if<wire::LinkOffer>(&message)) {
    on_offer(*draft, *offer, now);
  } else if (const auto* opened = std::get_if<wire::LinkOpen>(&message)) {
    if (socket != draft->beside || opened->token != draft->token || !draft->link.confirmed(now))
      ++counters_.stale;
    else
      say_tier(*draft);
  } else if (std::holds_alternative<wire::Goodbye>(message)) {
    unassign(id, header.incarnation);
  } else {
    ++counters_.stale;
  }
}

void DraftProposer::on_dropped(SocketId socket, const Frames& frames) {
  ++counters_.not_sent;
  WorkerId id;
  const auto sent = wire::decode(frames);
  Draft* draft = find_draft(socket, &id);
  if (draft == nullptr || !sent.ok()) return;
  if (std::holds_alternative<wire::LinkAsk>(sent->message))
    return draft->link.not_asked(bus_->now());
  if (const auto* close = std::get_if<wire::CloseSequence>(&sent->message))
    return keep_close(id, *close);
  const auto* attach = std::get_if<wire::Attach>(&sent->message);
  if (attach == nullptr) return;
  const auto it = sequences_.find(attach->seq);
  if (it != sequences_.end() && it->second.draft == id &&
      it->second.attachment.lease() == attach->lease)
    it->second.attach_due = it->second.attachment.is_attached();
}

// ---- the shorter way

// The first word before the timers: a step of ours that took longer than their patience is not the
// draft's silence.
TimePoint DraftProposer::tend_link(Draft& draft, TimePoint now) {
  say_first_word(draft, now);
  switch (draft.link.tick(now)) {
    case DraftLink::Action::kNone:
      break;
    case DraftLink::Action::kAsk:
      // A busy connection is one that is not up yet: nothing to count.
      if (const auto frames = wire::try_encode(speaker_, {}, wire::LinkAsk{options_.machine});
          frames.ok() && bus_->send(Peer{draft.socket, {}, false}, *frames) == SendResult::kSent)
        draft.link.asked(now);
      else
        draft.link.not_asked(now);
      break;
    case DraftLink::Action::kGiveUp:
      if (draft.beside != 0) bus_->close(std::exchange(draft.beside, 0));
      break;
  }
  if (draft.link.state() == DraftLink::State::kOpening && !draft.has_opened)
    return std::min(draft.link.due(), now + kOpenAgain);
  if (!draft.link.why_not().empty()) say_tier(draft);
  return draft.link.due();
}

void DraftProposer::say_first_word(Draft& draft, TimePoint now) {
  if (draft.link.state() != DraftLink::State::kOpening || draft.has_opened) return;
  const auto frames = wire::try_encode(speaker_, {}, wire::LinkOpen{draft.token});
  draft.has_opened =
      frames.ok() && bus_->send(Peer{draft.beside, {}, false}, *frames) == SendResult::kSent;
  if (draft.has_opened) draft.link.said(now);
}

// What a draft says may be anything: nothing is opened but a door in our own folder.
void DraftProposer::on_offer(Draft& draft, const wire::LinkOffer& offer, TimePoint now) {
  if (!draft.link.offered(now)) {
    ++counters_.stale;
    return;
  }
  if (offer.endpoint.empty()) return draft.link.failed(now, offer.reason.substr(0, kMostReason));
  const std::string folder = std::string(MemoryDoor::kScheme) + options_.link_folder + "/";
  if (!offer.endpoint.starts_with(folder) ||
      offer.endpoint.find('/', folder.size()) != std::string::npos)
    return draft.link.failed(now, "its door is not in this target's bus.runtime_dir");
  try {
    draft.beside = bus_->connect(offer.endpoint, Door::kDraft);
    draft.token = offer.token;
    draft.has_opened = false;
  } catch (const FatalError& error) {
    draft.link.failed(now, error.what());
  }
}

void DraftProposer::on_closed(SocketId socket, const std::string& why) {
  WorkerId id;
  Draft* draft = find_draft(socket, &id);
  if (draft == nullptr || socket != draft->beside) return;
  const TimePoint now = bus_->now();
  draft->beside = 0;
  draft->link.failed(now, why);
  say_tier(*draft);
  if (!may_use(*draft)) let_go_all(id, now);
}

std::string_view DraftProposer::tier_of(const Draft& draft) const {
  if (draft.link.is_up()) return "shared_memory";
  return options_.link == LinkChoice::kSharedMemory ? "none" : "zeromq";
}

void DraftProposer::say_tier(Draft& draft) {
  const std::string now = std::string(tier_of(draft)) + " " + draft.link.why_not();
  if (std::exchange(draft.said, now) == now) return;
  if (draft.link.is_up())
    return log_info("link to a draft", {{"draft", draft.name}, {"tier", "shared_memory"}});
  if (options_.link == LinkChoice::kSharedMemory)
    return log_error("a draft is not used: target.draft_link pins shared_memory",
                     {{"draft", draft.name}, {"reason", draft.link.why_not()}});
  log_info("link to a draft",
           {{"draft", draft.name}, {"tier", "zeromq"}, {"reason", draft.link.why_not()}});
}

std::vector<std::pair<std::string, std::string_view>> DraftProposer::links() const {
  std::vector<std::pair<std::string, std::string_view>> found;
  for (const auto& [id, draft] : drafts_) found.emplace_back(draft.name, tier_of(draft));
  return found;
}

void DraftProposer::on_need(WorkerId draft, const wire::Need& need, TimePoint now) {
  ++counters_.needs;
  const auto it = sequences_.find(need.seq);
  if (it == sequences_.end() || it->second.draft != draft ||
      it->second.attachment.lease() != need.lease)
    return;
  Sequence& sequence = it->second;
  if (need.reason == wire::NeedReason::kRefused) {
    Draft& refusing = drafts_.at(draft);
    // What differs is the same for every sequence, for as long as it lives.
    if (!std::exchange(refusing.refuses, true))
      log_warning("a draft refuses our sequences: another vocabulary, noise or acceptance",
                  {{"draft", refusing.name}});
    return apply(need.seq, sequence, sequence.attachment.refused(now), now);
  }
  const bool has_part =
      (need.reason == wire::NeedReason::kGap || need.reason == wire::NeedReason::kMismatch) &&
      need.known > 0 && need.known <= sequence.tokens.size() &&
      prefix_hash_extend(options_.prefix_root, std::span(sequence.tokens).first(need.known)) ==
          need.prefix;
  if (has_part) {
    const AttachmentAction action = sequence.attachment.needs_tail(now);
    if (action == AttachmentAction::kSendPropose) sequence.known = need.known;
    return apply(need.seq, sequence, action, now);
  }
  apply(need.seq, sequence, sequence.attachment.needs_everything(now, expected_prefill(sequence)),
        now);
}

void DraftProposer::collect(TimePoint now, ProposalStore& into) {
  for (const Arrived& arrived : arrived_) use(arrived, now, into);
  arrived_.clear();
}

void DraftProposer::use(const Arrived& arrived, TimePoint now, ProposalStore& into) {
  const wire::ProposalRecord& record = arrived.record;
  const auto it = sequences_.find(record.seq);
  if (it == sequences_.end() || it->second.draft != arrived.draft ||
      it->second.attachment.lease() != record.lease) {
    ++counters_.stale;
    return;
  }
  Sequence& sequence = it->second;
  Proposal proposal{.base = record.base,
                    .prefix = record.prefix,
                    .tokens = record.tokens,
                    .parents = record.parents,
                    .confidences = record.confidence,
                    .source = ProposerKind::kDraft};
  if (proposal.confidences.empty())
    proposal.confidences.assign(proposal.tokens.size(), 128);  // it did not say
  const bool sized =
      record.tokens.size() <= kMaxDraftTokens * 16 && record.known <= sequence.tokens.size();
  const Insertion insertion = sized ? into.insert(record.seq, proposal) : Insertion::kMalformed;
  switch (insertion) {
    case Insertion::kInserted:
      ++counters_.usable;
      sequence.known = std::max(sequence.known, record.known);
      return apply(record.seq, sequence, sequence.attachment.answered(record.epoch, arrived.at),
                   now);
    case Insertion::kMalformed:
      ++counters_.malformed;
      return apply(record.seq, sequence, sequence.attachment.malformed(now), now);
    case Insertion::kAhead:
    case Insertion::kDivergent:
      ++counters_.divergent;
      return;
    case Insertion::kUnknownSequence:
      ++counters_.stale;
      return;
  }
}

TimePoint DraftProposer::turn(TimePoint now) {
  TimePoint due = TimePoint::max();
  for (std::size_t n = closes_.size(); n > 0 && closes_.front().not_before <= now; --n) {
    const LateClose late = closes_.front();
    closes_.pop_front();
    if (const auto it = drafts_.find(late.draft);
        it != drafts_.end() && !send(it->second, late.close))
      keep_close(late.draft, late.close);
  }
  if (!closes_.empty()) due = std::min(due, closes_.front().not_before);
  for (auto& [id, draft] : drafts_) due = std::min(due, tend_link(draft, now));
  for (auto& [seq, sequence] : sequences_) {
    if (!sequence.draft) {
      if (!drafts_.empty()) attach_somewhere(seq, sequence, now);
      continue;
    }
    if (!sequence.attachment.is_attached()) continue;
    if (sequence.attach_due) send_attach(seq, sequence, now);
    if (sequence.attach_due) {
      due = std::min(due, now + kRetry);
    } else if (sequence.tail_due) {
      add_record(seq, sequence, now);
    }
  }
  send_records();
  return due;
}

DraftOutlook DraftProposer::outlook(SeqId seq, TimePoint now) const {
  const auto it = sequences_.find(seq);
  if (it == sequences_.end()) return {};
  const Attachment& attachment = it->second.attachment;
  DraftOutlook outlook;
  switch (attachment.state()) {
    case AttachmentState::kOpening:
      outlook.state = DraftState::kOpening;
      break;
    case AttachmentState::kActive:
      outlook.state = attachment.may_wait(now) ? DraftState::kActive : DraftState::kLagging;
      break;
    case AttachmentState::kLagging:
      outlook.state = DraftState::kLagging;
      break;
    case AttachmentState::kDetached:
    case AttachmentState::kClosed:
      outlook.state = DraftState::kDetached;
      break;
  }
  // What lies in the inbox is here, although nobody has looked into it yet: waiting on would bring
  // nothing.
  const bool is_here = std::any_of(arrived_.begin(), arrived_.end(), [&](const Arrived& arrived) {
    return arrived.record.seq == seq && arrived.record.lease == attachment.lease() &&
           arrived.record.epoch == it->second.epoch;
  });
  outlook.is_under_way = attachment.is_under_way() && !is_here;
  if (outlook.is_under_way)
    outlook.arrives_in =
        std::max(Duration{0}, attachment.asked_at() + attachment.usual_answer() - now);
  return outlook;
}

std::vector<wire::DraftLost> DraftProposer::take_lost() { return std::exchange(lost_, {}); }

}  // namespace foretoken
