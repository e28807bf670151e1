// bench serve: load on a running system, seen from outside, and the same load plain and
// speculative. The block has the lines and the order of `vllm bench serve`.
#include "services/cli/bench_session.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {

int run_bench_serve(const CliOptions& options) {
  return with_bench_session(BenchKind::kServe, options, [&](const BenchSession& session) {
    return options.bench_load.compare ? run_both_ways(session, print_block)
                                      : run_once(session, print_block);
  });
}

}  // namespace foretoken::cli
