// The load that bench puts on a system: which request is sent when, through a door, and what is
// measured. Closed loop: so many at a time, the next one when one ends. Open loop: requests arrive
// at a rate, whether the system keeps up or not.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "services/cli/bench_door.h"
#include "services/cli/bench_result.h"
#include "services/cli/prompts.h"

namespace foretoken::cli {

struct BenchLoad {
  wire::ClientRequest base;  // without messages; its seed + i is the seed of request i
  std::vector<DemoPrompt> prompts;
  std::size_t n_requests = 0;
  std::size_t concurrency = 0;  // most at a time; 0 = no bound
  double request_rate = 0;      // a second, with the gaps of chance (Poisson); 0 = no pause
  // A request has ended, with an answer or without.
  std::function<void(const BenchRecord&)> on_end = {};
};

// Throws nothing; failures are counted, the first one kept. One that finds no service, or one that
// is about to stop, is the last request sent: what is under way is waited for.
BenchSamples run_load(BenchDoor& door, const BenchLoad& load);

}  // namespace foretoken::cli
