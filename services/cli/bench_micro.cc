// bench micro: the kernels of this build against this machine, in one run.
#include <iostream>
#include <vector>

#include "bench/micro.h"
#include "common/base/json.h"
#include "common/model/pair.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

// Of the layers of the model in a folder.
bench::LayerShape shape_of(const std::string& folder) {
  const ModelConfig config = inspect_model(folder).config;
  return {.name = "layers of " + folder,
          .n_hidden = config.n_hidden,
          .n_heads = config.n_heads,
          .n_kv_heads = config.n_kv_heads,
          .head_dim = config.head_dim,
          .n_ffn = config.n_ffn,
          .n_layers = config.n_layers};
}

}  // namespace

int run_bench_micro(const CliOptions& options) {
  const auto& chosen = options.bench_micro;
  if (const auto out = check_writable(chosen.out, "--out"); !out.ok())
    return report_error(out.error());
  bench::MicroOptions micro{.contexts = chosen.contexts, .n_rounds = chosen.rounds};
  if (!chosen.model.empty()) micro.shape = shape_of(chosen.model);
  if (!options.output.quiet && !options.output.json)
    std::cerr
        << "measuring with random weights; other work on this machine shows in every figure\n";
  std::string tables;
  OrderedJson runs = OrderedJson::array();
  for (const int n_threads : chosen.threads) {
    micro.n_threads = n_threads;
    const bench::MicroReport report = bench::run_micro(micro);
    runs.push_back(report.to_json());
    tables += (tables.empty() ? "" : "\n") + report.to_table();
  }
  // A list only where there are several.
  const std::string json = to_text(runs.size() == 1 ? runs[0] : runs);
  if (!chosen.out.empty())
    if (const auto written = write_whole_file(chosen.out, json + "\n", Existing::kReplace);
        !written.ok())
      return report_error(written.error());
  std::cout << (options.output.json ? json : tables) << "\n";
  return kExitOk;
}

}  // namespace foretoken::cli
