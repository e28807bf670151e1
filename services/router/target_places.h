// The places of targets: how many requests each has, and of which flows; and the requests that wait
// for a place, in the order of their flows. A target's own queue is short: it is given what it runs
// at a time, and the others wait here. Pure: no clock, no messages. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "common/base/fair_queue.h"
#include "common/base/ids.h"
#include "services/router/placement.h"
#include "services/router/pool.h"

namespace foretoken {

class TargetPlaces {
 public:
  // Borrows the pool, which says how many places a target has.
  explicit TargetPlaces(const Pool& pool) : pool_(pool) {}

  void take(WorkerId target, FlowId flow);
  void give_back(WorkerId target, FlowId flow);

  // Its id must not be waiting.
  void wait(const FairQueue::Item& item);
  // Nothing happens if it does not wait.
  void stop_waiting(RequestId id) { waiting_.erase(id); }
  bool is_waiting(RequestId id) const { return waiting_.contains(id); }
  bool is_empty() const { return waiting_.empty(); }

  // A target has come, has changed or has begun to work: next() looks again.
  void look_again() { may_have_room_ = true; }
  struct Given {
    RequestId id;
    WorkerId target;
  };
  // The next request that has a place, which waits no longer; take() is the caller's. Nothing: none
  // has, until something changes.
  std::optional<Given> next(const std::function<TargetNeed(RequestId)>& need_of);

 private:
  bool has_room_for(const Worker& target, FlowId flow) const;
  std::vector<const Worker*> targets_with_room() const;
  std::optional<WorkerId> target_for(const std::vector<const Worker*>& with_room,
                                     const TargetNeed& need,
                                     FlowId flow) const;

  struct Taken {
    std::uint32_t n = 0;
    std::unordered_map<FlowId, std::uint32_t> of_flow;
  };
  const Pool& pool_;
  FairQueue waiting_;
  std::unordered_map<WorkerId, Taken> taken_;  // of requests that a target runs or queues
  bool may_have_room_ = false;
};

}  // namespace foretoken
