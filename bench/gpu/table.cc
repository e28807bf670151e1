#include <algorithm>
#include <cstdio>
#include <map>

#include "bench/gpu/report.h"

namespace foretoken::bench {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c < ' ' ? ' ' : c;
  }
  return out + "\"";
}

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
  std::string out = "{\"device\": " + quoted(device) + ", \"weights\": \"synthetic\"" +
                    ",\n \"copy_gigabytes_per_second\": " + number(copy_gigabytes_per_second, 1) +
                    ",\n \"checks\": [";
  for (std::size_t i = 0; i < checks.size(); ++i)
    out += (i == 0 ? "" : ",") + ("\n  {\"what\": " + quoted(checks[i].what)) +
           ", \"passed\": " + (checks[i].passed ? "true" : "false") + "}";
  out += "],\n \"rows\": [";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& r = rows[i];
    out += (i == 0 ? "" : ",") + ("\n  {\"what\": " + quoted(r.what)) +
           ", \"dtype\": " + quoted(r.dtype) + ", \"path\": " + quoted(r.path) +
           ", \"rows\": " + std::to_string(r.n_rows) +
           ", \"microseconds\": " + number(r.microseconds, 3) +
           ", \"spread\": " + number(r.spread, 4) +
           ", \"gigabytes_per_second\": " + number(r.gigabytes_per_second, 1) +
           ", \"share_of_copy\": " + number(r.share_of_copy, 4) + "}";
  }
  out += "],\n \"not_run\": [";
  for (std::size_t i = 0; i < not_run.size(); ++i) out += (i == 0 ? "" : ", ") + quoted(not_run[i]);
  return out + "]}\n";
}

// One line for each thing and dtype on its fastest path: 1 row, 11 rows, growth.
std::string Report::to_table() const {
  std::string out = device + ", copy " + number(copy_gigabytes_per_second, 0) +
                    " GB/s; synthetic weights; % of that copy\n";
  int n_failed = 0;
  for (const Check& c : checks) n_failed += c.passed ? 0 : 1;
  out += std::to_string(checks.size()) + " checks, " + std::to_string(n_failed) + " failed\n";
  int n_named = 0;
  for (const Check& c : checks)
    if (!c.passed && ++n_named <= 3) out += "  FAILED: " + c.what + "\n";
  std::vector<std::pair<std::string, std::string>> things;
  std::map<std::pair<std::string, std::string>, std::map<int, const Row*>> best;
  for (const Row& r : rows) {
    const std::pair key{r.what, r.dtype};
    if (!best.contains(key)) things.push_back(key);
    const Row*& at = best[key][r.n_rows];
    if (at == nullptr || r.microseconds < at->microseconds) at = &r;
  }
  char line[160];
  std::snprintf(line, sizeof line, "%-14s %-12s %10s %5s %10s %5s %7s  %s\n", "what", "dtype",
                "us, 1 row", "%", "us, 11", "%", "growth", "fastest at 1");
  out += line;
  int n_lines = 6;
  for (const auto& key : things) {
    auto& by_rows = best[key];
    if (!by_rows.contains(1)) continue;
    if (++n_lines > 29) break;
    const Row& one = *by_rows[1];
    const Row* eleven = by_rows.contains(11) ? by_rows[11] : nullptr;
    std::snprintf(line, sizeof line, "%-14s %-12s %10.2f %5.1f %10.2f %5.1f %6.1f%%  %s\n",
                  key.first.c_str(), key.second.c_str(), one.microseconds, 100 * one.share_of_copy,
                  eleven != nullptr ? eleven->microseconds : 0.0,
                  eleven != nullptr ? 100 * eleven->share_of_copy : 0.0,
                  eleven != nullptr ? 100 * (eleven->microseconds / one.microseconds - 1) : 0.0,
                  one.path.c_str());
    out += line;
  }
  if (!not_run.empty())
    out += std::to_string(not_run.size()) +
           " rows not run for lack of time, first: " + not_run.front() + "\n";
  return out;
}

}  // namespace foretoken::bench
