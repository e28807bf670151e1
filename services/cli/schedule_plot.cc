#include "services/cli/schedule_plot.h"

#include <map>

#include "services/cli/gnuplot.h"

namespace foretoken::cli {
namespace {

// The data of one panel, and the command that draws it.
struct RatioPanel {
  std::string data, command;
};
RatioPanel panel_of(const std::vector<ScheduleFigures>& cells, Cores cores) {
  std::map<double, std::map<int, double>> curves;  // by acceptance, by sequences
  for (const ScheduleFigures& cell : cells)
    if (cell.asked.cores == cores) curves[cell.asked.acceptance][cell.n_sequences] = cell.speedup;
  RatioPanel panel{.data = {}, .command = "plot"};
  std::size_t n = 0;
  for (const auto& [acceptance, points] : curves) {
    const std::string name = "$" + std::string(name_of(cores)) + std::to_string(n);
    panel.data += name + " << EOD\n";
    for (const auto& [n_sequences, speedup] : points)
      panel.data += std::to_string(n_sequences) + " " + gnuplot_number(speedup) + "\n";
    panel.data += "EOD\n";
    panel.command += (n > 0 ? ", " : " ") + name + " using 1:2 with linespoints lw 2 pt 7 lc rgb " +
                     gnuplot_colour(n) + " title " +
                     gnuplot_text("a " + gnuplot_number(acceptance));
    ++n;
  }
  panel.command += "\n";
  return panel;
}

}  // namespace

std::string ratio_script(const std::vector<ScheduleFigures>& cells, const SchedulePlot& plot) {
  const ScheduleConditions& asked = cells.front().asked;
  const RatioPanel own = panel_of(cells, Cores::kOwn), same = panel_of(cells, Cores::kShared);
  const std::string caption = "timed mock models: target " + gnuplot_number(asked.target_ms) +
                              " ms a row, c " + gnuplot_number(asked.cost) + ", round trip " +
                              gnuplot_number(asked.rtt_ms) + " ms   machine: " + plot.machine;
  const std::string terminal =
      plot.path.ends_with(".png") ? "pngcairo" : "svg background '#ffffff'";
  return own.data + same.data + "set terminal " + terminal +
         " size 960,540 font 'DejaVu Sans,11'\nset output " + gnuplot_text(plot.path) +
         "\nset encoding utf8\nset termoption noenhanced\nset grid lc rgb '#d0d0d0'\nset border lc "
         "rgb '#404040'\nset bmargin at screen 0.2\nset label 1 " +
         gnuplot_text(caption) +
         " at screen 0.02, screen 0.04 font ',9' tc rgb '#505050'\nset multiplot\nset logscale xy "
         "2\nset yrange [0.5:*]\nset xlabel 'answers at a time'\nset arrow 1 from graph 0, first 1 "
         "to graph 1, first 1 nohead dt 2 lc rgb '#808080'\nset key inside right top\nset ylabel "
         "'tokens a second, over plain decoding'\nset lmargin at screen 0.08\nset rmargin at "
         "screen 0.50\nset title 'draft on its own cores'\n" +
         own.command +
         "unset label\nunset ylabel\nset lmargin at screen 0.57\nset rmargin at screen 0.97\nset "
         "title \"draft on the target's cores\"\n" +
         same.command + "unset multiplot\nunset output\n";
}

}  // namespace foretoken::cli
