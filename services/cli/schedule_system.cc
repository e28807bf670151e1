#include "services/cli/schedule_system.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/schedule/schedule_model.h"
#include "common/config/load.h"
#include "common/config/resolve.h"
#include "services/cli/verbs.h"
#include "services/cli/voice.h"

namespace foretoken::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kStartTime = 30s;  // until the draft is listed
constexpr auto kStopTime = 10s;

std::string program(const std::string& name) {
  const std::string path = program_folder() + "/" + name;
  if (::access(path.c_str(), X_OK) != 0)
    throw FatalError(ErrorCode::kConfig,
                     path +
                         " is not there: bench schedule needs a build folder, in which `cmake "
                         "--build FOLDER` makes it; packages leave it out");
  return path;
}

// What the measurement needs; what the user sets comes later and wins.
std::vector<std::string> settings_of(const ScheduleConditions& conditions,
                                     const std::filesystem::path& folder,
                                     const ConfigOptions& config) {
  std::vector<std::string> sets = {
      "log.format=text", "bus.runtime_dir=" + folder.string(), "bus.client=ipc://client",
      "model.target=demo",  // for their tokenizers
      "model.draft=demo", "model.packed_cache=off", "limits.max_running=64",
      "limits.max_batch_rows=2048", "speculation.draft_len=" + std::to_string(bench::kMostGuesses),
      "draft.run_ahead=" + std::string(conditions.runs_ahead() ? "on" : "off"),
      "draft.branches=" + std::to_string(conditions.n_branches()),
      // A link through memory would go round the relay.
      "target.draft_link=" + std::string(conditions.rtt_ms > 0 ? "zeromq" : "auto")};
  sets.insert(sets.end(), config.sets.begin(), config.sets.end());
  return sets;
}

// A value of these would be ignored, or be of another schedule than the one expected.
void refuse_what_is_measured(const LoadedConfig& given) {
  const auto refuse = [&](const std::string& key, const std::string& instead) {
    const auto origin = given.origin.find(key);
    if (origin == given.origin.end() || origin->second == "default") return;
    throw FatalError(ErrorCode::kConfig, key + " is given (" + origin->second +
                                             "), and bench schedule decides it: " + instead);
  };
  refuse("draft.run_ahead",
         "the draft runs ahead unless --synchronous or --same-cores says otherwise");
  refuse("draft.branches", "--branches says how many, none with --synchronous or --same-cores");
  refuse("speculation.proposer",
         "requests name the draft alone, which runs ahead unless --synchronous says otherwise");
}

LoadedConfig loaded_or_throw(const ConfigSources& sources) {
  LoadedConfig loaded = load_config(sources);
  if (!loaded.errors.empty()) throw FatalError(ErrorCode::kConfig, loaded.errors.front());
  return loaded;
}

ServiceSpec spec_of(const std::string& role,
                    std::vector<std::string> argv,
                    const std::vector<std::string>& shared) {
  argv.insert(argv.end(), shared.begin(), shared.end());
  return {.name = role + "-0", .argv = std::move(argv), .role = role, .optional = role == "draft"};
}

std::vector<ServiceSpec> specs_of(const ScheduleConditions& conditions,
                                  const std::string& lock,
                                  const std::vector<std::string>& shared) {
  const bench::TimedSetting target{.pass_ms = conditions.target_ms, .lock = lock};
  const bench::TimedSetting draft{.pass_ms = conditions.target_ms * conditions.cost,
                                  .acceptance = conditions.acceptance,
                                  .rtt_ms = conditions.rtt_ms,
                                  .lock = lock};
  const std::string flag(bench::kTimedFlag);
  return {spec_of("router", {program("foretoken-router")}, shared),
          spec_of("tokenizer", {program("foretoken-tokenizer")}, shared),
          spec_of("target", {program("foretoken-bench-target"), flag, text_of(target)}, shared),
          spec_of("draft", {program("foretoken-bench-draft"), flag, text_of(draft)}, shared)};
}

}  // namespace

ScheduleSystem::Folder::Folder() {
  std::string name = (std::filesystem::temp_directory_path() / "foretoken-bench-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    throw FatalError(ErrorCode::kIo, name + " cannot be made: " + std::strerror(errno));
  path_ = name;
}

ScheduleSystem::Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

ScheduleSystem::ScheduleSystem(const ScheduleConditions& conditions, const ConfigOptions& config) {
  // An empty file, so that none of the usual places is read.
  const std::string file =
      config.file.empty() ? (folder_.path() / "foretoken.toml").string() : config.file;
  if (config.file.empty()) std::ofstream(file) << "";
  refuse_what_is_measured(loaded_or_throw({file, process_environment(), config.sets}));
  const auto settings = settings_of(conditions, folder_.path(), config);
  const LoadedConfig loaded = loaded_or_throw({file, process_environment(), settings});
  std::vector<std::string> shared{"--config", file};
  for (const std::string& setting : settings) shared.insert(shared.end(), {"--set", setting});
  const bool is_shared = conditions.cores == Cores::kShared;
  const std::string lock = is_shared ? (folder_.path() / "cores").string() : "";
  supervisor_.emplace(SupervisorOptions{.runtime_folder = folder_.path(),
                                        .log_folder = folder_.path() / "log",
                                        .watchdog = 0ms,  // its messages have no reader here
                                        .stop_timeout = kStopTime},
                      specs_of(conditions, lock, shared));
  const StartReport report = supervisor_->start(
      [](const std::string& name, const std::string& is) { say_detail(name + ": " + is); });
  if (!report.ready)
    throw FatalError(
        report.kind == FailureKind::kInterrupted ? ErrorCode::kCancelled : ErrorCode::kInternal,
        report.failure);
  client_.emplace(loaded.config.bus);
  wait_for_draft();
}

ScheduleSystem::~ScheduleSystem() {
  client_.reset();
  if (supervisor_) supervisor_->stop();
}

wire::StatusReply ScheduleSystem::status() {
  return value_or_throw(client_->status(steady_now() + 3s));
}

void ScheduleSystem::wait_for_draft() {
  for (const TimePoint end = steady_now() + kStartTime; steady_now() < end; ::usleep(20'000)) {
    const wire::StatusReply now = status();
    if (now.ready && std::ranges::any_of(now.services, [](const wire::ServiceStatus& each) {
          return each.role == "draft";
        }))
      return;
  }
  throw FatalError(ErrorCode::kInternal, "the draft is not listed by the router after 30 s");
}

void ScheduleSystem::kill_draft() {
  for (const wire::ServiceStatus& each : status().services)
    if (each.role == "draft" && each.pid > 1) {
      ::kill(static_cast<pid_t>(each.pid), SIGKILL);
      return;
    }
  throw FatalError(ErrorCode::kInternal, "there is no draft to be killed");
}

}  // namespace foretoken::cli
