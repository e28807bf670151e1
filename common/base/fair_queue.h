// Who goes next when several wait: start-time fair queueing. Each item belongs to a flow (a tenant,
// or a connection without one) and has a cost. Flows that wait get shares of the cost served in the
// proportion of their weights; a flow that comes after a pause goes next, and pays afterwards;
// within a flow higher priority goes first, then what came first. Pure: no clock, no I/O; equal
// histories give equal orders. One thread.
//
// Each flow has a start tag: the cost it was served, divided by its weight, but at least the
// virtual time, which is the largest start tag served so far. The least tag goes next; of equal
// ones the smaller cost. While two flows wait, the cost each was served by weight differs by at
// most one item of each.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "common/base/ids.h"

namespace foretoken {

using FlowId = std::uint64_t;

class FairQueue {
 public:
  struct Item {
    RequestId id;
    FlowId flow = 0;
    double weight = 1;  // of the flow; the latest one counts
    std::int32_t priority = 0;
    double cost = 1;
  };

  // Its id must not be waiting.
  void push(const Item& item);
  // True if it was waiting. Nothing is charged.
  bool erase(RequestId id);
  // The first in the order of service that fits, if any: it no longer waits, and its flow is
  // charged.
  std::optional<Item> take(const std::function<bool(const Item&)>& fits);

  bool contains(RequestId id) const { return items_.contains(id); }
  std::size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  // Flows that do not wait and have had more than their share: what each had is kept until the
  // others have had as much. Of more than kMaxRemembered those with the least are forgotten.
  std::size_t n_remembered() const { return finished_.size(); }
  static constexpr std::size_t kMaxRemembered = 1024;

 private:
  using Place = std::pair<std::int64_t, std::uint64_t>;  // -priority, order of arrival
  struct Flow {
    double start = 0;
    double weight = 1;
    std::map<Place, Item> waiting;
  };
  using Rank = std::tuple<double, double, std::uint64_t, FlowId>;

  static Rank rank_of(FlowId id, const Flow& flow);
  void remove(FlowId id, Place place);
  void remember(FlowId id, double finish);
  void forget_least();

  std::unordered_map<FlowId, Flow> flows_;  // those that wait
  std::set<Rank> order_;                    // of them
  std::unordered_map<RequestId, std::pair<FlowId, Place>> items_;
  std::unordered_map<FlowId, double> finished_;  // flows that wait no more: where they would go on
  std::set<std::pair<double, FlowId>> least_;    // of them; all beyond the virtual time
  std::uint64_t n_pushed_ = 0;
  double now_ = 0;  // virtual time
};

}  // namespace foretoken
