// plot: pictures of what bench measured, drawn by gnuplot.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "services/cli/plot_script.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

constexpr int kNoSuchCommand = 127;  // of the shell

// The script through gnuplot's standard input.
int draw(const std::string& script) {
  std::FILE* gnuplot = ::popen("gnuplot -d -", "w");
  const bool is_written = gnuplot != nullptr && std::fputs(script.c_str(), gnuplot) >= 0;
  const int status = gnuplot == nullptr ? -1 : ::pclose(gnuplot);
  if (is_written && status == 0) return kExitOk;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoSuchCommand) {
    std::cerr << "error: gnuplot draws the pictures and is not installed\n"
                 "  try: apt install gnuplot-nox\n";
    return kExitEnvironment;
  }
  std::cerr << "error: gnuplot could not draw this; what it says is above\n";
  return kExitFailed;
}

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
  std::signal(SIGPIPE, SIG_IGN);  // a gnuplot that ends early is an error, and not this one's end
  if (const int failed = draw(*script); failed != kExitOk) return failed;
  for (const PlotOutput& output : outputs) std::cout << output.path << "\n";
  return kExitOk;
}

}  // namespace foretoken::cli
