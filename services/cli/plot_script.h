// Runs of bench as a picture, in the words of gnuplot: data and commands in one text, equal
// for equal runs.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/cli/bench_files.h"

namespace foretoken::cli {

inline constexpr std::string_view kPlotKinds[] = {"speedup", "acceptance", "latency", "timeline"};

// Where gnuplot writes, by its terminal.
struct PlotOutput {
  std::string terminal;  // "svg" or "pngcairo"
  std::string path;
};

// An Error: these runs have nothing to draw of that kind.
Result<std::string> plot_script(std::string_view kind,
                                std::span<const BenchRun> runs,
                                const std::vector<PlotOutput>& outputs);

}  // namespace foretoken::cli
