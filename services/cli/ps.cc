// ps: every service the router knows.
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "common/client/answer_json.h"
#include "common/client/client.h"
#include "common/config/resolve.h"
#include "services/cli/supervisor.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

using namespace std::chrono_literals;

std::string as_duration(std::uint64_t seconds) {
  std::ostringstream text;
  if (seconds >= 86400) text << seconds / 86400 << "d ";
  if (seconds >= 3600) text << seconds / 3600 % 24 << "h ";
  if (seconds >= 60) text << seconds / 60 % 60 << "m ";
  if (seconds < 3600) text << seconds % 60 << "s";
  return text.str();
}

std::string as_mebibytes(std::uint64_t bytes) {
  return bytes == 0 ? "-" : std::to_string(bytes >> 20) + " MiB";
}

std::string as_percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? "-" : std::to_string(100 * part / whole) + " %";
}

void print_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::ostringstream line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line << std::left << std::setw(static_cast<int>(i + 1 < row.size() ? widths[i] + 2 : 0))
           << row[i];
    std::cout << line.str() << "\n";
  }
}

OrderedJson as_json(const wire::StatusReply& status) {
  OrderedJson document = {{"schema", "foretoken.ps/1"}};
  document["ready"] = status.ready;
  document["models"] = status.models;
  document["requests_active"] = status.requests_active;
  document["requests_total"] = status.requests_total;
  document["services"] = OrderedJson::array();
  for (const auto& service : status.services) document["services"].push_back(struct_json(service));
  return document;
}

// The router lists running services only. The supervisor's state file adds the stopped ones and the
// restarts of each.
void add_supervised(wire::StatusReply& status, const std::vector<ServiceState>& supervised) {
  for (const auto& known : supervised) {
    const auto same = std::find_if(status.services.begin(), status.services.end(),
                                   [&](const auto& s) { return s.name == known.name; });
    if (same == status.services.end()) {
      if (known.state == "ready")
        continue;  // between the two clocks: the router will show it in a moment
      wire::ServiceStatus missing;
      missing.role = known.role;
      missing.name = known.name;
      missing.state = known.state;
      missing.note = known.note;
      status.services.push_back(std::move(missing));
    } else if (!known.note.empty()) {
      same->note += (same->note.empty() ? "" : "; ") + known.note;
      if (known.state != "ready") same->state = known.state;
    }
  }
}

}  // namespace

int run_ps(const CliOptions& options) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  Client client(loaded->config.bus);
  auto status = client.status(steady_now() + 3s);
  const std::filesystem::path folder = runtime_directory(loaded->config.bus);
  const auto supervised =
      supervisor_pid(folder) != 0 ? supervisor_state(folder) : std::vector<ServiceState>{};
  if (!status.ok()) {
    for (const auto& service : supervised)
      std::cerr << service.name << " " << service.state << (service.note.empty() ? "" : ": ")
                << service.note << "\n";
    Error error = status.error();
    if (error.code == ErrorCode::kDeadlineExceeded) error.code = ErrorCode::kUnavailable;
    return report_error(error);
  }
  add_supervised(*status, supervised);
  if (options.output.json) {
    std::cout << to_text(as_json(*status), 2) << "\n";
    return kExitOk;
  }
  std::vector<std::vector<std::string>> rows = {{"SERVICE", "STATE", "MODEL", "ACTIVE", "QUEUED",
                                                 "KV FREE", "ACCEPTED", "MEMORY", "UPTIME", "PID",
                                                 "NOTE"}};
  for (const auto& s : status->services) {
    // Without memory it has registered and not reported yet.
    rows.push_back(
        {s.name, s.state, s.model.empty() ? "-" : s.model, std::to_string(s.active),
         std::to_string(s.queued),
         s.rss_bytes == 0 ? "-" : as_percent(s.kv_blocks_free, s.kv_blocks_total),
         as_percent(s.accepted_total, s.drafted_total), as_mebibytes(s.rss_bytes),
         as_duration(s.uptime_s), std::to_string(s.pid),
         s.links.empty() || s.note.empty() ? s.note + s.links : s.note + "; " + s.links});
  }
  print_table(rows);
  std::cout << (status->ready ? "ready" : "not ready") << ", " << status->requests_active
            << " active of " << status->requests_total << " requests\n";
  return kExitOk;
}

}  // namespace foretoken::cli
