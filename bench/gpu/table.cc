#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>

#include "bench/gpu/report.h"
#include "common/base/json_writer.h"

namespace foretoken::bench {
namespace {

std::string number(double x, int digits) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, x);
  return buffer;
}

}  // namespace

bool Report::failed() const {
  return std::any_of(checks.begin(), checks.end(), [](const Check& c) { return !c.passed; });
}

std::string Report::to_json() const {
  constexpr auto kLineEach = JsonWriter::Layout::kLineEach;
  JsonWriter out;
  out.begin_object(kLineEach).field("device", device).field("weights", "synthetic");
  out.field("copy_gigabytes_per_second", copy_gigabytes_per_second, 1);
  out.key("checks").begin_array(kLineEach);
  for (const Check& c : checks)
    out.begin_object().field("what", c.what).field("passed", c.passed).end_object();
  out.end_array().key("rows").begin_array(kLineEach);
  for (const Row& r : rows)
    out.begin_object()
        .field("what", r.what)
        .field("dtype", r.dtype)
        .field("path", r.path)
        .field("rows", r.n_rows)
        .field("context", r.context)
        .field("microseconds", r.microseconds, 3)
        .field("spread", r.spread, 4)
        .field("gigabytes_per_second", r.gigabytes_per_second, 1)
        .field("share_of_copy", r.share_of_copy, 4)
        .end_object();
  out.end_array().key("rounds").begin_array(kLineEach);
  for (const Iteration& r : iterations)
    out.begin_object()
        .field("pair", r.pair)
        .field("path", r.path)
        .field("acceptance", "synthetic")
        .field("a", r.acceptance, 2)
        .field("k", r.n_drafted)
        .field("n_rounds", r.n_rounds)
        .field("ms", r.milliseconds, 4)
        .field("draft_ms", r.draft, 4)
        .field("handoff_ms", r.handoff, 4)
        .field("verify_ms", r.verify, 4)
        .field("accept_ms", r.accept, 4)
        .field("host_ms", r.host, 4)
        .field("tokens_per_round", r.tokens_per_round, 3)
        .field("tokens_per_second", r.tokens_per_second(), 1)
        .end_object();
  out.end_array().key("sections").begin_array();
  for (const Section& s : sections)
    out.begin_object().field("what", s.what).field("seconds", s.seconds, 1).end_object();
  out.end_array().key("not_run").begin_array();
  for (const std::string& what : not_run) out.value(what);
  return out.end_array().end_object().text() + "\n";
}

namespace {

constexpr int kMostLines = 24;

// One line for each thing, dtype and context on its fastest path: 1 row, 11 rows, growth.
std::vector<std::string> row_lines(const std::vector<Row>& rows, bool steps) {
  using Key = std::tuple<std::string, std::string, int>;
  std::vector<Key> things;
  std::map<Key, std::map<int, const Row*>> best;
  for (const Row& r : rows) {
    if ((r.context > 0) != steps) continue;
    const Key key{r.what, r.dtype, r.context};
    if (!best.contains(key)) things.push_back(key);
    const Row*& at = best[key][r.n_rows];
    if (at == nullptr || r.microseconds < at->microseconds) at = &r;
  }
  std::vector<std::string> lines;
  for (const Key& key : things) {
    auto& by_rows = best[key];
    if (!by_rows.contains(1) || !by_rows.contains(11)) continue;
    const Row &one = *by_rows[1], &eleven = *by_rows[11];
    char line[160];
    std::snprintf(line, sizeof line, "%-14s %-12s %5s %10.2f %5.1f %10.2f %5.1f %6.1f%%  %s\n",
                  one.what.c_str(), one.dtype.c_str(),
                  steps ? std::to_string(one.context).c_str() : "", one.microseconds,
                  100 * one.share_of_copy, eleven.microseconds, 100 * eleven.share_of_copy,
                  100 * (eleven.microseconds / one.microseconds - 1), one.path.c_str());
    lines.push_back(line);
  }
  return lines;
}

// One line a pair: the longest draft's round, and the best rate at each acceptance.
std::vector<std::string> round_lines(const std::vector<Iteration>& iterations) {
  std::vector<std::string> pairs;
  for (const Iteration& one : iterations)
    if (std::find(pairs.begin(), pairs.end(), one.pair) == pairs.end()) pairs.push_back(one.pair);
  std::vector<std::string> lines;
  for (const std::string& pair : pairs) {
    const Iteration* longest = nullptr;
    std::map<double, const Iteration*> best;
    for (const Iteration& one : iterations) {
      if (one.pair != pair || one.n_rounds == 0) continue;
      if (longest == nullptr || one.n_drafted >= longest->n_drafted) longest = &one;
      const Iteration*& at = best[one.acceptance];
      if (at == nullptr || one.tokens_per_second() > at->tokens_per_second()) at = &one;
    }
    if (longest == nullptr) continue;
    char line[160];
    std::snprintf(line, sizeof line, "%s, K = %d: %.2f ms (draft %.2f verify %.2f rest %.2f)",
                  pair.c_str(), longest->n_drafted, longest->milliseconds, longest->draft,
                  longest->verify, longest->handoff + longest->accept + longest->host);
    std::string text = line;
    for (const auto& [a, one] : best) {
      std::snprintf(line, sizeof line, "; a %.1f: %.0f/s K%d", a, one->tokens_per_second(),
                    one->n_drafted);
      text += line;
    }
    lines.push_back(text + "\n");
  }
  return lines;
}

}  // namespace

std::string Report::to_table() const {
  std::vector<std::string> lines{device + ", copy " + number(copy_gigabytes_per_second, 0) +
                                 " GB/s; synthetic weights; % of that copy\n"};
  int n_failed = 0;
  for (const Check& c : checks) n_failed += c.passed ? 0 : 1;
  lines.push_back(std::to_string(checks.size()) + " checks, " + std::to_string(n_failed) +
                  " failed\n");
  int n_named = 0;
  for (const Check& c : checks)
    if (!c.passed && ++n_named <= 3) lines.push_back("  FAILED: " + c.what + "\n");
  if (!not_run.empty())
    lines.push_back(std::to_string(not_run.size()) +
                    " not run for lack of time or memory, first: " + not_run.front() + "\n");
  const std::vector<std::string> rounds = round_lines(iterations);
  if (!rounds.empty()) {
    lines.push_back(
        "rounds with made-up acceptance a (synthetic), draft and target on this device:\n");
    lines.insert(lines.end(), rounds.begin(), rounds.end());
  }
  char line[160];
  std::snprintf(line, sizeof line, "%-14s %-12s %5s %10s %5s %10s %5s %7s  %s\n", "what", "dtype",
                "at", "us, 1 row", "%", "us, 11", "%", "growth", "fastest at 1");
  lines.push_back(line);
  for (const bool steps : {true, false})
    for (std::string& one : row_lines(rows, steps)) lines.push_back(std::move(one));
  std::string out;
  for (std::size_t i = 0; i < std::min<std::size_t>(lines.size(), kMostLines); ++i) out += lines[i];
  return out;
}

}  // namespace foretoken::bench
