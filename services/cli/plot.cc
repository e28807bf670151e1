// plot: pictures of what bench measured, drawn by gnuplot.
#include <iostream>

#include "services/cli/gnuplot.h"
#include "services/cli/plot_script.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

// name.svg and name.png; with the end of one of them that one alone.
std::vector<PlotOutput> outputs_for(const std::string& out, const std::string& kind) {
  if (out.ends_with(".svg")) return {{"svg", out}};
  if (out.ends_with(".png")) return {{"pngcairo", out}};
  const std::string name = out.empty() ? kind : out;
  return {{"svg", name + ".svg"}, {"pngcairo", name + ".png"}};
}

}  // namespace

int run_plot(const CliOptions& options) {
  const auto runs = read_bench_runs(options.bench_files.files);
  if (!runs.ok()) return report_error(runs.error());
  const auto outputs = outputs_for(options.bench_files.out, options.bench_files.kind);
  const auto script = plot_script(options.bench_files.kind, *runs, outputs);
  if (!script.ok()) return report_error(script.error());
  if (const int failed = draw_by_gnuplot(*script); failed != kExitOk) return failed;
  for (const PlotOutput& output : outputs) std::cout << output.path << "\n";
  return kExitOk;
}

}  // namespace foretoken::cli
