// bench serve: load on a running system, seen from outside, the same load plain and speculative, or
// with several numbers of requests at a time. The block has the lines and the order of `vllm bench
// serve`.
#include "services/cli/bench_session.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {

int run_bench_serve(const CliOptions& options) {
  return with_bench_session(BenchKind::kServe, options, [&](const BenchSession& session) {
    const auto print = [&](const BenchSamples& samples) {
      print_block(samples, session.description.goals);
    };
    const auto& bench = options.bench_load;
    if (bench.concurrency.size() > 1) return run_sweep(session, bench.concurrency);
    return bench.compare ? run_both_ways(session, print) : run_once(session, print);
  });
}

}  // namespace foretoken::cli
