#include "services/router/target_places.h"

#include <algorithm>

#include "common/messages/messages.h"

namespace foretoken {

void TargetPlaces::take(WorkerId target, FlowId flow) {
  Taken& taken = taken_[target];
  ++taken.n;
  ++taken.of_flow[flow];
}

void TargetPlaces::give_back(WorkerId target, FlowId flow) {
  Taken& taken = taken_.at(target);
  if (--taken.of_flow.at(flow) == 0) taken.of_flow.erase(flow);
  if (--taken.n == 0) taken_.erase(target);
  may_have_room_ = true;
}

void TargetPlaces::wait(const FairQueue::Item& item) {
  waiting_.push(item);
  may_have_room_ = true;
}

// Its last places are kept for flows that have few there: they need not wait until one of the
// others' requests ends.
bool TargetPlaces::has_room_for(const Worker& target, FlowId flow) const {
  const std::uint32_t places = target.hello.max_sequences;
  const auto found = taken_.find(target.id);
  if (places == 0 || found == taken_.end()) return true;
  const std::uint32_t kept = wire::kept_places(places);
  const Taken& taken = found->second;
  const auto theirs = taken.of_flow.find(flow);
  if (theirs == taken.of_flow.end() || theirs->second < kept) return taken.n < places + kept;
  std::uint32_t n_few = 0;  // of flows that have few
  for (const auto& [id, n] : taken.of_flow) n_few += n <= kept ? n : 0;
  return taken.n - std::min(n_few, kept) < places;
}

// Those that have a place at all.
std::vector<const Worker*> TargetPlaces::targets_with_room() const {
  auto targets = pool_.ready(wire::Role::kTarget);
  std::erase_if(targets, [&](const Worker* target) {
    const std::uint32_t places = target->hello.max_sequences;
    const std::uint32_t queued =
        target->load.queued - std::min(target->load.queued, target->n_started);
    const auto taken = taken_.find(target->id);
    return places > 0 &&
           (queued > wire::kept_places(places) ||
            (taken != taken_.end() && taken->second.n >= places + wire::kept_places(places)));
  });
  return targets;
}

std::optional<WorkerId> TargetPlaces::target_for(const std::vector<const Worker*>& with_room,
                                                 const TargetNeed& need,
                                                 FlowId flow) const {
  auto for_it = with_room;
  std::erase_if(for_it, [&](const Worker* target) { return !has_room_for(*target, flow); });
  if (const auto chosen = place_target(for_it, need)) return chosen;
  // Where none is ready, one that drains finishes what was accepted before.
  const auto last = place_target(pool_, need);
  const Worker* draining = last ? pool_.find(*last) : nullptr;
  if (draining == nullptr || draining->state != wire::WorkerState::kDraining ||
      !has_room_for(*draining, flow))
    return std::nullopt;
  return last;
}

std::optional<TargetPlaces::Given> TargetPlaces::next(
    const std::function<TargetNeed(RequestId)>& need_of) {
  if (!may_have_room_ || waiting_.empty()) return std::nullopt;
  may_have_room_ = false;
  const auto with_room = targets_with_room();
  if (with_room.empty() && pool_.draining(wire::Role::kTarget).empty()) return std::nullopt;
  std::optional<WorkerId> chosen;
  const auto item = waiting_.take([&](const FairQueue::Item& waiting) {
    chosen = target_for(with_room, need_of(waiting.id), waiting.flow);
    return chosen.has_value();
  });
  if (!item) return std::nullopt;
  may_have_room_ = true;  // for the one behind it, too
  return Given{item->id, *chosen};
}

}  // namespace foretoken
