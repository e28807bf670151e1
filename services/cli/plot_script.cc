#include "services/cli/plot_script.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "services/cli/gnuplot.h"

namespace foretoken::cli {
namespace {

// Of one line of a picture: its data and how it is drawn.
struct PlotCurve {
  std::string label;
  std::vector<std::pair<double, double>> points;
};

std::string data_block(const std::string& name, const PlotCurve& curve) {
  std::string text = "$" + name + " << EOD\n";
  for (const auto& [x, y] : curve.points)
    text += gnuplot_number(x) + " " + gnuplot_number(y) + "\n";
  return text + "EOD\n";
}

// The data of curves, and the command that draws them.
struct Drawing {
  std::string data, command;
};
Drawing drawing_of(const std::vector<PlotCurve>& curves,
                   const std::string& prefix,
                   const std::string& style) {
  Drawing drawing{.data = {}, .command = "plot"};
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const std::string name = prefix + std::to_string(i);
    drawing.data += data_block(name, curves[i]);
    drawing.command += (i > 0 ? ", $" : " $") + name + " using 1:2 with " + style + " lc rgb " +
                       gnuplot_colour(i) + " title " + gnuplot_text(curves[i].label);
  }
  drawing.command += "\n";
  return drawing;
}

// What was measured where: without it a picture claims nothing.
std::vector<std::string> caption(std::span<const BenchRun> runs) {
  std::vector<std::string> lines;
  const auto all = [&](const char* name) {
    std::set<std::string> values;
    for (const BenchRun& run : runs) {
      const Json& value = run.at(name);
      if (!value.is_null())
        values.insert(value.is_string() ? value.get<std::string>() : to_text(value));
    }
    std::string text;
    for (const auto& value : values) text += (text.empty() ? "" : " and ") + value;
    return text.empty() ? std::string("not said") : text;
  };
  lines.push_back("machine: " + all("machine") + "   build: " + all("build"));
  const std::string rate = all("request_rate"), most = all("concurrency");
  const bool all_complete =
      std::all_of(runs.begin(), runs.end(), [](const BenchRun& run) { return run.is_complete(); });
  const std::string failed = all_complete ? "" : ", failed " + all("failed");
  const std::string arrivals = rate == "0.0" ? "closed loop" : rate + " arrivals a second";
  lines.push_back("load: " + all("num_prompts") + " requests of " + all("output_len") +
                  " tokens, concurrency " + (most == "0" ? "unbounded" : most) + ", " + arrivals +
                  ", door " + all("door") + ", repeats " + all("repeats") + failed +
                  "   model: " + all("model"));
  return lines;
}

std::string head(std::string_view title, std::span<const BenchRun> runs) {
  std::string text =
      "set encoding utf8\nset termoption noenhanced\nset grid lc rgb '#d0d0d0'\nset border lc rgb "
      "'#404040'\nset bmargin at screen 0.22\nset key outside right top\nset title " +
      gnuplot_text(title) + "\n";
  double y = 0.075;
  int n = 0;
  for (const std::string& line : caption(runs)) {
    text += "set label " + std::to_string(++n) + " " + gnuplot_text(line) +
            " at screen 0.02, screen " + gnuplot_number(y) + " font ',9' tc rgb '#505050'\n";
    y -= 0.04;
  }
  return text;
}

// Setup and drawing of one kind of picture.
struct Picture {
  std::string setup, drawing;
};

Error nothing_to_draw(const std::string& why) { return {ErrorCode::kConfig, why, "--kind"}; }

// Throughput over that of the plain run of the same concurrency, by the most guesses of a round.
Result<Picture> speedup(std::span<const BenchRun> runs) {
  std::map<double, double> plain;  // by concurrency
  for (const BenchRun& run : runs)
    if (run.draft_len() == 0 && run.is_complete())
      plain[run.number("concurrency")] = run.number("output_throughput");
  std::map<double, PlotCurve> curves;
  for (const BenchRun& run : runs) {
    const double concurrency = run.number("concurrency");
    const auto base = plain.find(concurrency);
    if (run.draft_len() == 0 || !run.is_complete() || base == plain.end() || base->second <= 0)
      continue;
    PlotCurve& curve = curves[concurrency];
    curve.label = "concurrency " + gnuplot_number(concurrency);
    curve.points.emplace_back(run.draft_len(), run.number("output_throughput") / base->second);
  }
  if (curves.empty())
    return nothing_to_draw(
        "a speed-up needs a plain run (--draft-len 0) and one with guesses of the same "
        "concurrency, and no failed request in either");
  std::vector<PlotCurve> lines;
  for (auto& [concurrency, curve] : curves) {
    std::sort(curve.points.begin(), curve.points.end());
    lines.push_back(std::move(curve));
  }
  const Drawing drawing = drawing_of(lines, "speedup", "linespoints lw 2 pt 7");
  return Picture{drawing.data +
                     "set xlabel 'most guessed tokens a round'\nset ylabel 'tokens a second, over "
                     "plain decoding'\nset xtics 1\nset offsets 0.5, 0.5, 0.1, 0\nset yrange "
                     "[0:*]\nset arrow 1 from graph 0, "
                     "first 1 to graph 1, first 1 nohead dt 2 lc rgb '#808080'\n",
                 drawing.command};
}

// Of all rounds, the share that accepted at least so many guesses.
Result<Picture> acceptance(std::span<const BenchRun> runs) {
  std::vector<PlotCurve> curves;
  for (const BenchRun& run : runs) {
    const Json& histogram = run.at("speculative_decoding", "acceptance_histogram");
    double rounds = 0;
    if (histogram.is_array())
      for (const Json& each : histogram) rounds += each.is_number() ? each.get<double>() : 0;
    if (rounds <= 0) continue;
    PlotCurve curve{.label = run.label, .points = {}};
    double reached = rounds;
    for (std::size_t i = 1; i < histogram.size(); ++i) {
      reached -= histogram[i - 1].is_number() ? histogram[i - 1].get<double>() : 0;
      curve.points.emplace_back(static_cast<double>(i), 100 * reached / rounds);
    }
    curves.push_back(std::move(curve));
  }
  if (curves.empty()) return nothing_to_draw("in none of these runs anything was guessed");
  const Drawing drawing = drawing_of(curves, "acceptance", "linespoints lw 2 pt 7");
  return Picture{drawing.data +
                     "set xlabel 'position of a guess in its round'\nset ylabel 'accepted, % of "
                     "rounds'\nset xtics 1\nset offsets 0.5, 0.5, 0, 0\nset yrange [0:100]\n",
                 drawing.command};
}

std::vector<PlotCurve> distributions(std::span<const BenchRun> runs, const char* name) {
  std::vector<PlotCurve> curves;
  for (const BenchRun& run : runs) {
    const Json& quantiles = run.at(name, "quantiles");
    if (!quantiles.is_array() || quantiles.size() < 2) continue;
    PlotCurve curve{.label = run.label, .points = {}};
    for (std::size_t i = 0; i < quantiles.size(); ++i)
      if (quantiles[i].is_number())
        curve.points.emplace_back(
            quantiles[i].get<double>(),
            100 * static_cast<double>(i) / static_cast<double>(quantiles.size() - 1));
    curves.push_back(std::move(curve));
  }
  return curves;
}

// The distributions of the time to the first token and of the gaps between pieces.
Result<Picture> latency(std::span<const BenchRun> runs) {
  const auto first = distributions(runs, "ttft_ms"), gaps = distributions(runs, "itl_ms");
  if (first.empty() || gaps.empty())
    return nothing_to_draw("these runs have no distributions of times; measure them again");
  const Drawing left = drawing_of(first, "first", "lines lw 2");
  const Drawing right = drawing_of(gaps, "gaps", "lines lw 2");
  return Picture{
      left.data + right.data,
      "set multiplot\nset ylabel '% of values are at most'\nset yrange [0:100]\nset key inside "
      "right bottom\nset xrange [0:*]\nset lmargin at screen 0.08\nset rmargin at screen 0.50\nset "
      "title 'Time to the first token'\nset xlabel 'ms'\n" +
          left.command +
          "unset label\nunset ylabel\nset format y ''\nset lmargin at screen 0.55\nset rmargin at "
          "screen 0.97\nset title 'Gaps between pieces of an answer'\n" +
          right.command + "unset multiplot\n"};
}

// Each request from when it was sent: until its first token, and until its end.
Result<Picture> timeline(std::span<const BenchRun> runs) {
  if (runs.size() != 1)
    return nothing_to_draw("a timeline is of one run; these files have " +
                           std::to_string(runs.size()));
  const Json& requests = runs.front().at("requests");
  if (!requests.is_array() || requests.empty())
    return nothing_to_draw("this run has no times of its requests; measure it again");
  std::string data = "$requests << EOD\n";
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const BenchRun request{.label = {}, .document = requests[i]};
    data += gnuplot_number(request.number("at_ms") / 1000) + " " +
            gnuplot_number(request.number("ttft_ms") / 1000) + " " +
            gnuplot_number((request.number("e2el_ms") - request.number("ttft_ms")) / 1000) + " " +
            std::to_string(i + 1) + "\n";
  }
  return Picture{data + "EOD\nset xlabel 'seconds'\nset ylabel 'request'\nset yrange [" +
                     std::to_string(requests.size() + 1) + ":0]\n",
                 "plot $requests using 1:4:2:(0) with vectors nohead lw 4 lc rgb '#b0b0b0' title "
                 "'to the first token', $requests using ($1+$2):4:3:(0) with vectors nohead lw 4 "
                 "lc rgb '#0072b2' title 'to the end'\n"};
}

struct KindOfPlot {
  std::string_view title;
  Result<Picture> (*make)(std::span<const BenchRun>);
};
constexpr KindOfPlot kMakers[] = {
    {"Speed-up by the length of guesses", speedup},
    {"Acceptance by position", acceptance},
    {"Latencies", latency},
    {"Requests of one run", timeline},
};

}  // namespace

Result<std::string> plot_script(std::string_view kind,
                                std::span<const BenchRun> runs,
                                const std::vector<PlotOutput>& outputs) {
  const auto at = std::find(std::begin(kPlotKinds), std::end(kPlotKinds), kind);
  const KindOfPlot& made = kMakers[at - std::begin(kPlotKinds)];
  const auto picture = made.make(runs);
  if (!picture.ok()) return picture.error();
  // Of each terminal all is set anew, as a drawing may change what the next one finds.
  std::string script;
  for (const PlotOutput& output : outputs)
    script += "reset session\nset terminal " + output.terminal +
              (output.terminal == "svg" ? " background '#ffffff'" : "") +
              " size 960,540 font 'DejaVu Sans,11'\nset output " + gnuplot_text(output.path) +
              "\n" + head(made.title, runs) + picture->setup + picture->drawing + "unset output\n";
  return script;
}

}  // namespace foretoken::cli
