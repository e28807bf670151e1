// What serve, latency and acceptance of bench share: the request that all others are made from, the
// system that is asked, one run or the same one plain and speculative, the document, and what is
// said of requests that failed. How a run is printed is the verb's.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "services/cli/bench_load.h"
#include "services/cli/bench_prompts.h"
#include "services/cli/bench_result.h"
#include "services/cli/options.h"

namespace foretoken::cli {

// A system that was found, and what it will be asked.
struct BenchSession {
  BenchKind kind;
  BenchDoor& door;
  const CliOptions& options;
  BenchLoad load;
  BenchDescription description;
  const BenchPrompts& prompts;  // `load` has those of run 0
};

// Finds the system that the options name, and gives it to `measure`; the exit code is that one's.
int with_bench_session(BenchKind kind,
                       const CliOptions& options,
                       const std::function<int(BenchSession&)>& measure);

using PrintRun = std::function<void(const BenchSamples&)>;
int run_once(const BenchSession& session, const PrintRun& print);
// A run with each number of requests at a time, and all as one table.
int run_sweep(const BenchSession& session, const std::vector<int>& concurrency);
// The same load plain, speculative, speculative, plain.
int run_both_ways(const BenchSession& session, const PrintRun& print);

}  // namespace foretoken::cli
