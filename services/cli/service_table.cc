#include "services/cli/service_table.h"

#include <algorithm>
#include <cmath>

#include "services/cli/text_width.h"

namespace foretoken::cli {
namespace {

using Cells = std::vector<std::string>;

std::string as_percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? "-" : std::to_string(100 * part / whole) + " %";
}

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

std::string rate_of(const TokenRates& rates, const std::string& name) {
  const auto found = rates.find(name);
  return found == rates.end() ? "-" : std::to_string(std::llround(found->second));
}

Cells row_of(const wire::ServiceStatus& s, const TokenRates& rates, Rates shown) {
  const bool guesses = !s.proposer.empty() && s.proposer != "none";
  Cells row = {s.name,
               s.state,
               or_dash(s.model),
               or_dash(s.device),
               or_dash(s.dtype),
               or_dash(s.proposer),
               guesses ? std::to_string(s.draft_len) : "-",
               std::to_string(s.active),
               std::to_string(s.queued)};
  if (shown == Rates::kShown) row.push_back(rate_of(rates, s.name));
  // Without memory it has registered and not reported yet.
  row.push_back(s.rss_bytes == 0 ? "-" : as_percent(s.kv_blocks_free, s.kv_blocks_total));
  row.push_back(as_percent(s.accepted_total, s.drafted_total));
  row.push_back(as_mebibytes(s.rss_bytes));
  row.push_back(as_duration(s.uptime_s));
  row.push_back(std::to_string(s.pid));
  row.push_back(s.links.empty() || s.note.empty() ? s.note + s.links : s.note + "; " + s.links);
  return row;
}

std::vector<std::string> aligned(const std::vector<Cells>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Cells& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  std::vector<std::string> lines;
  for (const Cells& row : rows) {
    std::string line;
    for (std::size_t i = 0; i + 1 < row.size(); ++i) line += filled_to(row[i], widths[i] + 2);
    lines.push_back(line + row.back());
  }
  return lines;
}

}  // namespace

std::string as_duration(std::uint64_t seconds) {
  std::string text;
  if (seconds >= 86400) text += std::to_string(seconds / 86400) + "d ";
  if (seconds >= 3600) text += std::to_string(seconds / 3600 % 24) + "h ";
  if (seconds >= 60) text += std::to_string(seconds / 60 % 60) + "m ";
  if (seconds < 3600) text += std::to_string(seconds % 60) + "s";
  return text;
}

std::string as_mebibytes(std::uint64_t bytes) {
  return bytes == 0 ? "-" : std::to_string(bytes >> 20) + " MiB";
}

TokenRates token_rates(const wire::StatusReply& before,
                       const wire::StatusReply& now,
                       double seconds) {
  TokenRates rates;
  if (seconds <= 0) return rates;
  for (const auto& s : now.services)
    for (const auto& earlier : before.services)
      if (earlier.name == s.name && earlier.pid == s.pid && earlier.tokens_total <= s.tokens_total)
        rates[s.name] = static_cast<double>(s.tokens_total - earlier.tokens_total) / seconds;
  return rates;
}

std::vector<std::string> service_table(const wire::StatusReply& status,
                                       const TokenRates& rates,
                                       Rates shown) {
  std::vector<Cells> rows = {
      {"SERVICE", "STATE", "MODEL", "DEVICE", "TYPE", "PROPOSER", "K", "ACTIVE", "QUEUED"}};
  if (shown == Rates::kShown) rows.front().push_back("TOK/S");
  for (const char* heading : {"KV FREE", "ACCEPTED", "MEMORY", "UPTIME", "PID", "NOTE"})
    rows.front().push_back(heading);
  for (const auto& service : status.services) rows.push_back(row_of(service, rates, shown));
  return aligned(rows);
}

std::string summary_of(const wire::StatusReply& status) {
  return std::string(status.ready ? "ready" : "not ready") + ", " +
         std::to_string(status.requests_active) + " active of " +
         std::to_string(status.requests_total) + " requests";
}

}  // namespace foretoken::cli
