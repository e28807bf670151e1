// bench micro: the kernels of this build against this machine, in one run.
#include <iostream>

#include "bench/micro.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {

int run_bench_micro(const CliOptions& options) {
  const auto& chosen = options.bench_micro;
  if (!options.output.quiet && !options.output.json)
    std::cerr
        << "measuring with random weights; other work on this machine shows in every figure\n";
  const bench::MicroReport report =
      bench::run_micro({.n_threads = chosen.threads, .n_rounds = chosen.rounds});
  const std::string json = report.to_json();
  if (!chosen.out.empty())
    if (const auto written = write_whole_file(chosen.out, json + "\n", Existing::kReplace);
        !written.ok())
      return report_error(written.error());
  std::cout << (options.output.json ? json : report.to_table()) << "\n";
  return kExitOk;
}

}  // namespace foretoken::cli
