// bench latency, bench acceptance: one request at a time, so that nothing but the request itself
// decides its times, and no other request which guesses are worth asking for.
#include <cstdio>
#include <iostream>

#include "services/cli/bench_session.h"
#include "services/cli/bench_tables.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

PrintRun printer_of(std::string (*table)(const BenchSamples&)) {
  return [table](const BenchSamples& samples) { std::cout << table(samples) << std::flush; };
}

}  // namespace

int run_bench_latency(const CliOptions& options) {
  const auto print = printer_of(latency_table);
  return with_bench_session(BenchKind::kLatency, options, [&](const BenchSession& session) {
    return options.bench_load.compare ? run_both_ways(session, print) : run_once(session, print);
  });
}

int run_bench_acceptance(const CliOptions& options) {
  return with_bench_session(BenchKind::kAcceptance, options, [](const BenchSession& session) {
    return run_once(session, printer_of(acceptance_table));
  });
}

}  // namespace foretoken::cli
