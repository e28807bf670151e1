#include "services/cli/bench_tables.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <vector>

#include "services/cli/text_width.h"

namespace foretoken::cli {
namespace {

constexpr std::size_t kColumn = 10;
constexpr const char* kAll = "all";

using Cells = std::vector<std::string>;

template <class... Values>
std::string printed(const char* format, Values... values) {
  char text[64];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string in_percent(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "-";
  return printed("%.0f %%", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string in_ms(const std::vector<double>& values, double p) {
  return values.empty() ? "-" : printed("%.2f", percentile(values, p));
}

// The first cell from the left, all others below one another from the right.
std::string aligned(const std::vector<Cells>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), kColumn);
  for (const Cells& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], width_of(row[i]) + 2);
  std::string text;
  for (const Cells& row : rows) {
    text += filled_to(row.front(), widths.front());
    for (std::size_t i = 1; i < row.size(); ++i) text += right_aligned(row[i], widths[i]);
    text += "\n";
  }
  return text;
}

// By kind, and all together as the last, if they are not one kind anyway.
std::vector<std::pair<std::string, KindTally>> rows_of(const BenchSamples& samples) {
  const auto kinds = tally_kinds(samples);
  std::vector<std::pair<std::string, KindTally>> rows(kinds.begin(), kinds.end());
  if (kinds.size() == 1) return rows;
  KindTally all;
  for (const auto& [name, kind] : kinds) add(all, kind);
  rows.emplace_back(kAll, std::move(all));
  return rows;
}

Cells times_row(const std::string& name, const std::vector<double>& values) {
  Cells row = {name, values.empty() ? "-" : printed("%.2f", mean(values))};
  for (const double p : {0.5, 0.9, 0.99, 1.0}) row.push_back(in_ms(values, p));
  return row;
}

std::string times_table(const BenchSamples& samples) {
  return aligned({{"one at a time, in ms", "mean", "median", "p90", "p99", "max"},
                  times_row("time to first token", samples.values(&BenchRecord::ttft_ms)),
                  times_row("time per output token", token_times(samples)),
                  times_row("between two pieces", all_gaps(samples)),
                  times_row("whole answer", samples.values(&BenchRecord::e2el_ms))});
}

// Times beside what was accepted: either alone flatters.
std::string kinds_table(const BenchSamples& samples) {
  std::vector<Cells> rows = {{"by kind of text", "requests", "guesses", "accepted", "tokens/round",
                              "first, ms", "per token, ms"}};
  for (const auto& [name, kind] : rows_of(samples))
    rows.push_back({name, std::to_string(kind.n_done), std::to_string(kind.drafted),
                    in_percent(kind.accepted, kind.drafted),
                    printed("%.2f", kind.acceptance_length()), in_ms(kind.ttft_ms, 0.5),
                    in_ms(kind.tpot_ms, 0.5)});
  return aligned(rows);
}

std::string positions_table(const BenchSamples& samples) {
  const auto kinds = rows_of(samples);
  std::vector<Cells> rows = {{"accepted at"}};
  std::size_t n_positions = 0;
  for (const auto& [name, kind] : kinds) {
    rows.front().push_back(name);
    n_positions = std::max(n_positions, kind.by_position.size());
  }
  for (std::size_t i = 0; i < n_positions; ++i) {
    rows.push_back({"position " + std::to_string(i + 1)});
    for (const auto& [name, kind] : kinds) {
      const bool is_there = i < kind.by_position.size();
      const PositionTally at = is_there ? kind.by_position[i] : PositionTally{};
      rows.back().push_back(in_percent(at.accepted, at.guessed));
    }
  }
  return n_positions == 0 ? "no round had a guess\n" : aligned(rows);
}

std::string requests_line(const BenchSamples& samples) {
  return std::to_string(samples.n_done()) + " requests answered, " +
         std::to_string(samples.n_failed) + " failed; times by kind are medians\n";
}

}  // namespace

std::string latency_table(const BenchSamples& samples) {
  return times_table(samples) + "\n" + kinds_table(samples) + requests_line(samples);
}

std::string acceptance_table(const BenchSamples& samples) {
  return kinds_table(samples) + "\n" + positions_table(samples) + requests_line(samples);
}

std::string sweep_table(const std::vector<SweepRow>& rows, const LatencyGoals& goals) {
  std::vector<Cells> cells{{"at a time", "req/s", "tok/s", "TTFT ms", "p99", "TPOT ms", "p99",
                            "ITL p99", "accepted", "processors"}};
  if (goals.any()) cells.front().emplace_back("good req/s");
  for (const SweepRow& row : rows) {
    const BenchSamples& samples = row.samples;
    const auto a_second = [&](double value) {
      return samples.seconds > 0 ? printed("%.2f", value / samples.seconds) : "-";
    };
    const auto ttft = samples.values(&BenchRecord::ttft_ms);
    const auto tpot = token_times(samples);
    double processor_seconds = 0;
    for (const auto& [service, seconds] : samples.processor_seconds) processor_seconds += seconds;
    cells.push_back(
        {std::to_string(row.concurrency), a_second(static_cast<double>(samples.n_done())),
         printed("%.1f", samples.output_throughput()), in_ms(ttft, 0.5), in_ms(ttft, 0.99),
         in_ms(tpot, 0.5), in_ms(tpot, 0.99), in_ms(all_gaps(samples), 0.99),
         in_percent(samples.sum(&BenchRecord::accepted), samples.sum(&BenchRecord::drafted)),
         samples.processor_seconds.empty() ? "-" : a_second(processor_seconds)});
    if (goals.any()) cells.back().push_back(a_second(static_cast<double>(n_good(samples, goals))));
  }
  return aligned(cells);
}

}  // namespace foretoken::cli
