#include "services/target/assigned_drafts.h"

#include <algorithm>
#include <tuple>

#include "common/base/log.h"

namespace foretoken {
namespace {

constexpr Duration kLeasePatience = std::chrono::seconds(10);  // then the draft has ended it itself

}  // namespace

bool AssignedDrafts::add(const wire::Assign& assign, const DraftConnection::Surroundings& around) {
  try {
    drafts_.emplace(assign.draft,
                    AssignedDraft{.id = assign.draft,
                                  .incarnation = assign.incarnation,
                                  .endpoint = assign.endpoint,
                                  .max_sequences = assign.max_sequences,
                                  .order = assign.order,
                                  .connection = {around, assign.name, assign.endpoint}});
  } catch (const FatalError& error) {
    // The endpoint came over the wire: a bad one is that draft's problem, not the end of this
    // process.
    log_warning("cannot connect to a draft", {{"draft", assign.name}, {"reason", error.what()}});
    return false;
  }
  log_info("draft assigned", {{"draft", assign.name}, {"endpoint", assign.endpoint}});
  return true;
}

void AssignedDrafts::remove(WorkerId id) {
  drafts_.at(id).connection.close();
  drafts_.erase(id);
}

AssignedDraft* AssignedDrafts::find(WorkerId id) {
  const auto it = drafts_.find(id);
  return it == drafts_.end() ? nullptr : &it->second;
}

const AssignedDraft* AssignedDrafts::find(WorkerId id) const {
  const auto it = drafts_.find(id);
  return it == drafts_.end() ? nullptr : &it->second;
}

AssignedDraft* AssignedDrafts::find(SocketId socket) {
  const auto it = std::find_if(drafts_.begin(), drafts_.end(), [&](const auto& entry) {
    return entry.second.connection.owns(socket);
  });
  return it == drafts_.end() ? nullptr : &it->second;
}

bool AssignedDrafts::owns(SocketId socket) const {
  return std::any_of(drafts_.begin(), drafts_.end(),
                     [&](const auto& entry) { return entry.second.connection.owns(socket); });
}

bool AssignedDrafts::may_be_chosen(const AssignedDraft& draft, TimePoint now) {
  return draft.has_room() && !draft.record.is_aside(now);
}

bool AssignedDrafts::has_room(TimePoint now) const {
  return std::any_of(drafts_.begin(), drafts_.end(),
                     [&](const auto& entry) { return may_be_chosen(entry.second, now); });
}

AssignedDraft* AssignedDrafts::choose(TimePoint now) {
  AssignedDraft* best = nullptr;
  const auto rank = [&](const AssignedDraft& draft) {
    return std::tuple(draft.is_suspect(now), draft.n_sequences, draft.order, draft.id);
  };
  for (auto& [id, draft] : drafts_) {
    if (!may_be_chosen(draft, now)) continue;
    if (best == nullptr || rank(draft) < rank(*best)) best = &draft;
  }
  return best;
}

void AssignedDrafts::judge(TimePoint now, const std::function<void(AssignedDraft&)>& set_aside) {
  for (auto& [id, draft] : drafts_)
    if (draft.record.judge(now)) set_aside(draft);
}

std::vector<wire::DraftSetAside> AssignedDrafts::set_aside(TimePoint now) const {
  std::vector<wire::DraftSetAside> list;
  for (const auto& [id, draft] : drafts_)
    if (draft.record.is_aside(now))
      list.push_back(
          {.draft = id,
           .reason = draft.record.reason(),
           .again_in_s = static_cast<std::uint32_t>(
               std::chrono::ceil<std::chrono::seconds>(draft.record.pause_left(now)).count())});
  return list;
}

std::vector<std::pair<std::string, std::string_view>> AssignedDrafts::links() const {
  std::vector<std::pair<std::string, std::string_view>> found;
  for (const auto& [id, draft] : drafts_)
    found.emplace_back(draft.connection.name(), draft.connection.tier());
  return found;
}

// A place at a draft that no sequence uses is one less for the others for ten seconds: worth a
// wait, as a burst of sequences that end together does not fit a link's short queue.
void AssignedDrafts::end_sequence(AssignedDraft& draft, const wire::CloseSequence& close) {
  draft.connection.send(close, {.patience = kLeasePatience});
}

TimePoint AssignedDrafts::poll(TimePoint now) {
  TimePoint due = TimePoint::max();
  for (auto& [id, draft] : drafts_) due = std::min(due, draft.connection.poll(now));
  return due;
}

void AssignedDrafts::flush(TimePoint now) {
  for (auto& [id, draft] : drafts_)
    if (draft.connection.flush()) draft.renewed = now;
}

void AssignedDrafts::renew_leases(TimePoint now, Duration silence) {
  for (auto& [id, draft] : drafts_) {
    if (draft.n_sequences == 0 || !draft.may_be_used() || now - draft.renewed < silence) continue;
    draft.connection.send(wire::Propose{});
    draft.renewed = now;
  }
}

}  // namespace foretoken
