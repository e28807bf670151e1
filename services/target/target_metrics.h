// The metrics of a target: what its service observes of requests and rounds, beside the totals of
// engine and drafts. Lists them when they are read, so that nothing of it is on the path of a
// token. Must not know messages of requests. Borrows engine and drafts. Work thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/histogram.h"
#include "common/engine/target_engine.h"
#include "common/messages/messages.h"
#include "common/runtime/metrics.h"
#include "services/target/draft_proposer.h"

namespace foretoken {

// Since start: of requests, and of rounds.
struct TargetTally {
  Histogram prefill{latency_bounds()}, decode{latency_bounds()}, per_token{latency_bounds()};
  Histogram wait{round_bounds()}, verify{round_bounds()}, commit{round_bounds()};
};

class TargetMetrics {
 public:
  TargetMetrics(const TargetEngine& engine, const DraftPools& pools)
      : engine_(engine), pools_(pools) {}

  TargetTally tally;

  // Of all drafts, models and memories.
  std::size_t n_drafts() const;
  std::vector<std::pair<std::string, std::string_view>> links() const;  // name and tier
  std::vector<wire::DraftSetAside> set_aside() const;
  std::uint64_t total(std::uint64_t DraftCounters::*counter) const;
  // hello: what the target has said of itself.
  void list(const wire::Hello& hello, Metrics& metrics);

 private:
  Histogram transport() const;
  void list_links(Metrics& metrics);

  const TargetEngine& engine_;
  DraftPools pools_;
  std::set<std::pair<std::string, std::string>> links_seen_;  // by draft and tier
};

}  // namespace foretoken
