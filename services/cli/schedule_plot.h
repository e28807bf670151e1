// The cells of a sweep of bench schedule as a picture, in the words of gnuplot: two panels, the
// draft on its own cores and on the target's; a line for each acceptance. Equal for equal cells.
#pragma once

#include <string>
#include <vector>

#include "services/cli/schedule_figures.h"

namespace foretoken::cli {

struct SchedulePlot {
  std::string path;     // .svg or .png
  std::string machine;  // what was measured where
};
std::string ratio_script(const std::vector<ScheduleFigures>& cells, const SchedulePlot& plot);

}  // namespace foretoken::cli
