// ps: every service the router knows, once or again and again.
#include <algorithm>
#include <iostream>
#include <thread>

#include "common/client/answer_json.h"
#include "common/client/client.h"
#include "common/config/resolve.h"
#include "services/cli/service_table.h"
#include "services/cli/supervisor.h"
#include "services/cli/supervisor_folder.h"
#include "services/cli/terminal_size.h"
#include "services/cli/text_width.h"
#include "services/cli/verbs.h"
#include "services/cli/voice.h"

namespace foretoken::cli {
namespace {

using namespace std::chrono_literals;

OrderedJson as_json(const wire::StatusReply& status) {
  OrderedJson document = {{"schema", "foretoken.ps/1"}};
  document["ready"] = status.ready;
  document["models"] = status.models;
  document["requests_active"] = status.requests_active;
  document["requests_total"] = status.requests_total;
  document["model_states"] = OrderedJson::array();
  for (const auto& model : status.model_states)
    document["model_states"].push_back(struct_json(model));
  document["services"] = OrderedJson::array();
  for (const auto& service : status.services) document["services"].push_back(struct_json(service));
  return document;
}

OrderedJson as_json(const wire::StatusReply& status, const TokenRates& rates) {
  OrderedJson document = as_json(status);
  for (auto& service : document["services"]) {
    const auto found = rates.find(service["name"].get<std::string>());
    service["tokens_per_second"] =
        found == rates.end() ? OrderedJson(nullptr) : OrderedJson(found->second);
  }
  return document;
}

// The router lists running services only. The supervisor's state file adds the stopped ones and the
// restarts of each.
void add_supervised(wire::StatusReply& status, const std::vector<ServiceState>& supervised) {
  for (const auto& known : supervised) {
    const auto same = std::find_if(status.services.begin(), status.services.end(),
                                   [&](const auto& s) { return s.name == known.name; });
    if (same == status.services.end()) {
      if (known.state == name_of(ProcessState::kReady))
        continue;  // between the two clocks: the router will show it in a moment
      wire::ServiceStatus missing;
      missing.role = known.role;
      missing.name = known.name;
      missing.state = known.state;
      missing.note = known.note;
      status.services.push_back(std::move(missing));
    } else if (!known.note.empty()) {
      same->note += (same->note.empty() ? "" : "; ") + known.note;
      if (known.state != name_of(ProcessState::kReady)) same->state = known.state;
    }
  }
}

std::vector<ServiceState> supervised_in(const std::filesystem::path& folder) {
  return !folder.empty() && supervisor_pid(folder) != 0 ? supervisor_state(folder)
                                                        : std::vector<ServiceState>{};
}

Result<wire::StatusReply> ask_status(Client& client, const std::filesystem::path& folder) {
  auto status = client.status(steady_now() + 3s);
  if (status.ok()) {
    add_supervised(*status, supervised_in(folder));
    return status;
  }
  Error error = status.error();
  if (error.code == ErrorCode::kDeadlineExceeded) error.code = ErrorCode::kUnavailable;
  return error;
}

Paint paint_of(const std::string& state) {
  if (state == name_of(ProcessState::kReady)) return Paint::kGood;
  return state == name_of(ProcessState::kGivenUp) ? Paint::kBad : Paint::kWarning;
}

// Of the lines of service_table(), already cut: headings, and the state of each service.
void paint_table(std::vector<std::string>& lines, const wire::StatusReply& status) {
  const std::size_t column = lines.front().find("STATE");
  lines.front() = painted_out(lines.front(), Paint::kTitle);
  for (std::size_t i = 0; i < status.services.size() && i + 1 < lines.size(); ++i) {
    const std::string& state = status.services[i].state;
    if (column < lines[i + 1].size() && lines[i + 1].compare(column, state.size(), state) == 0)
      lines[i + 1].replace(column, state.size(), painted_out(state, paint_of(state)));
  }
}

// On a terminal each look takes the place of the one before, cut to the screen; elsewhere one
// follows the other.
void show(std::vector<std::string> lines, const wire::StatusReply& status) {
  const TerminalSize screen = terminal_size();
  if (screen.columns == 0) {
    paint_table(lines, status);
    for (const auto& line : lines) std::cout << line << "\n";
    std::cout << std::endl;
    return;
  }
  if (lines.size() > static_cast<std::size_t>(std::max(2, screen.rows - 1)))
    lines.resize(static_cast<std::size_t>(std::max(2, screen.rows - 1)));
  for (auto& line : lines) line = cut_to(line, static_cast<std::size_t>(screen.columns));
  paint_table(lines, status);
  std::cout << "\x1b[H";
  for (const auto& line : lines) std::cout << line << "\x1b[K\n";
  std::cout << "\x1b[J" << std::flush;
}

int watch(Client& client,
          const std::filesystem::path& folder,
          wire::StatusReply status,
          const CliOptions& options) {
  if (!options.output.json && terminal_size().columns > 0) std::cout << "\x1b[2J";
  const Duration interval =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(options.watch.interval_s));
  TokenRates rates;
  for (TimePoint seen = steady_now(); std::cout;) {
    if (options.output.json) {
      std::cout << to_text(as_json(status, rates)) << std::endl;
    } else {
      auto lines = service_table(status, rates, Rates::kShown);
      lines.push_back(summary_of(status));
      show(std::move(lines), status);
    }
    std::this_thread::sleep_until(seen + interval);
    auto next = ask_status(client, folder);
    while (!next.ok()) {  // a router that is started again answers later
      say_note(next.error().message);
      std::this_thread::sleep_for(interval);
      next = ask_status(client, folder);
    }
    const TimePoint now = steady_now();
    rates = token_rates(status, *next, std::chrono::duration<double>(now - seen).count());
    status = std::move(*next);
    seen = now;
  }
  return kExitFailed;  // stdout is closed
}

}  // namespace

int run_ps(const CliOptions& options) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  Client client(loaded->config.bus);
  std::filesystem::path folder;  // empty: of a system elsewhere the router alone knows something
  if (options.config.host.empty()) folder = runtime_directory(loaded->config.bus);
  const auto status = ask_status(client, folder);
  if (!status.ok()) {
    for (const auto& service : supervised_in(folder))
      std::cerr << service.name << " " << service.state << (service.note.empty() ? "" : ": ")
                << service.note << "\n";
    return report_error(status.error());
  }
  if (options.watch.watch) return watch(client, folder, *status, options);
  if (options.output.json) {
    std::cout << to_text(as_json(*status), 2) << "\n";
    return kExitOk;
  }
  auto lines = service_table(*status, {}, Rates::kLeftOut);
  paint_table(lines, *status);
  for (const auto& line : lines) std::cout << line << "\n";
  std::cout << summary_of(*status) << "\n";
  return kExitOk;
}

}  // namespace foretoken::cli
