#include "common/runtime/pass_log.h"

#include <algorithm>

#include "common/base/micros.h"

namespace foretoken {

void PassLog::add(const Pass& pass) {
  if (ring_.size() < kMost)
    ring_.push_back(pass);
  else
    ring_[n_ % kMost] = pass;
  ++n_;
}

// A number of 32 bits reaches back for an hour; what is older is left out.
wire::Passes PassLog::passes(TimePoint now, std::uint64_t wall_us) const {
  wire::Passes all{.now_us = wall_us, .first = n_};
  for (std::uint64_t i = n_ - ring_.size(); i < n_; ++i) {
    const Pass& pass = ring_[i % kMost];
    if (now - pass.began > std::chrono::hours(1)) continue;
    all.first = std::min(all.first, i);
    all.ago_us.push_back(short_micros(now - pass.began));
    all.wait_us.push_back(short_micros(pass.waited));
    all.compute_us.push_back(short_micros(pass.computed));
    all.commit_us.push_back(short_micros(pass.committed));
    all.sequences.push_back(pass.n_sequences);
    all.rows.push_back(pass.n_rows);
    all.drafted.push_back(pass.n_drafted);
    all.accepted.push_back(pass.n_accepted);
    all.tokens.push_back(pass.n_tokens);
  }
  return all;
}

std::uint64_t wall_micros() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

}  // namespace foretoken
