#include "common/base/fair_queue.h"

#include <algorithm>

#include "common/base/check.h"

namespace foretoken {

FairQueue::Rank FairQueue::rank_of(FlowId id, const Flow& flow) {
  const auto& [place, first] = *flow.waiting.begin();
  return {flow.start, first.cost, place.second, id};
}

void FairQueue::push(const Item& item) {
  FORETOKEN_CHECK(!items_.contains(item.id), "an item waits once");
  FORETOKEN_CHECK(item.weight > 0 && item.cost > 0, "weights and costs are positive");
  auto [it, is_new] = flows_.try_emplace(item.flow);
  Flow& flow = it->second;
  if (is_new) {
    const auto before = finished_.find(item.flow);
    flow.start = before == finished_.end() ? now_ : std::max(now_, before->second);
    if (before != finished_.end()) {
      least_.erase({before->second, item.flow});
      finished_.erase(before);
    }
  } else {
    order_.erase(rank_of(item.flow, flow));
  }
  flow.weight = item.weight;
  const Place place{-std::int64_t{item.priority}, ++n_pushed_};
  flow.waiting.emplace(place, item);
  items_.emplace(item.id, std::pair(item.flow, place));
  order_.insert(rank_of(item.flow, flow));
}

void FairQueue::remove(FlowId id, Place place) {
  const auto it = flows_.find(id);
  Flow& flow = it->second;
  order_.erase(rank_of(id, flow));
  const auto item = flow.waiting.find(place);
  items_.erase(item->second.id);
  flow.waiting.erase(item);
  if (!flow.waiting.empty()) {
    order_.insert(rank_of(id, flow));
    return;
  }
  remember(id, flow.start);
  flows_.erase(it);
}

void FairQueue::forget_least() {
  finished_.erase(least_.begin()->second);
  least_.erase(least_.begin());
}

// Most flows are connections that do not come back: what is kept of them may not grow with their
// number.
void FairQueue::remember(FlowId id, double finish) {
  while (!least_.empty() && least_.begin()->first <= now_) forget_least();
  if (finish <= now_) return;
  finished_.emplace(id, finish);
  least_.emplace(finish, id);
  if (finished_.size() > kMaxRemembered) forget_least();
}

bool FairQueue::erase(RequestId id) {
  const auto it = items_.find(id);
  if (it == items_.end()) return false;
  const auto [flow, place] = it->second;
  remove(flow, place);
  return true;
}

std::optional<FairQueue::Item> FairQueue::take(const std::function<bool(const Item&)>& fits) {
  for (const Rank& entry : order_) {
    const Rank rank = entry;  // a copy: the entry is taken out below
    const FlowId id = std::get<3>(rank);
    Flow& flow = flows_.at(id);
    for (const auto& [place, item] : flow.waiting) {
      if (!fits(item)) continue;
      const Item taken = item;
      const Place where = place;
      now_ = std::max(now_, flow.start);
      order_.erase(rank);
      flow.start += taken.cost / flow.weight;
      order_.insert(rank_of(id, flow));
      remove(id, where);
      return taken;
    }
  }
  return std::nullopt;
}

}  // namespace foretoken
