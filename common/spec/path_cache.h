// The best path of one sequence, kept until something that it follows from changes: the proposals
// for it, its text, what proposals of their kind are worth, or how long it may be. A target asks
// for it several times between two passes. Pure; one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "common/spec/calibration.h"
#include "common/spec/proposal_store.h"

namespace foretoken {

struct PathQuery {
  SeqId seq{};
  std::uint32_t n = 0;  // most tokens
  double odds = 1;      // as for Calibration::acceptance()
};

class PathCache {
 public:
  // ProposalStore::best_path(), valid until the next call. Store, calibration and sequence must be
  // the same in every call.
  const std::vector<PathToken>& best(const PathQuery& query,
                                     const ProposalStore& store,
                                     const Calibration& calibration) {
    const Source source{store.state(query.seq), calibration.n_observed(), query.n, query.odds};
    if (source == source_) return path_;
    path_ = store.best_path(query.seq, query.n, calibration, query.odds);
    source_ = source;
    return path_;
  }

 private:
  struct Source {
    ProposalStore::State state;  // of a sequence that is open never this one
    std::uint64_t n_observed = 0;
    std::uint32_t n = 0;
    double odds = 1;
    bool operator==(const Source&) const = default;
  };
  Source source_;
  std::vector<PathToken> path_;
};

}  // namespace foretoken
