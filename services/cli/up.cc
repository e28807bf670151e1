// up, down: all services of this machine under one supervisor.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "common/base/host_and_port.h"
#include "common/client/client.h"
#include "common/config/models.h"
#include "common/config/resolve.h"
#include "services/cli/serving_check.h"
#include "services/cli/start_checks.h"
#include "services/cli/supervisor.h"
#include "services/cli/supervisor_folder.h"
#include "services/cli/up_keys.h"
#include "services/cli/up_settings.h"
#include "services/cli/verbs.h"
#include "services/cli/voice.h"

namespace foretoken::cli {
namespace {

using namespace std::chrono_literals;

// A command as one would type it, but for blanks in its words.
std::string in_words(const std::vector<std::string>& argv) {
  std::string line;
  for (const auto& word : argv) line += (line.empty() ? "" : " ") + word;
  return line;
}

std::vector<ServiceSpec> service_specs(const CliOptions& options, const LoadedConfig& loaded) {
  std::vector<std::string> shared;
  // People read these logs, and to a service a file is no terminal.
  if (loaded.config.log.format == "auto") shared = {"--set", "log.format=text"};
  if (options.output.verbose) shared.insert(shared.end(), {"--set", "log.level=debug"});
  if (!options.config.file.empty()) shared.insert(shared.end(), {"--config", options.config.file});
  for (const auto& setting : options.config.sets) shared.insert(shared.end(), {"--set", setting});
  std::vector<ServiceSpec> specs;
  const auto add = [&](wire::Role of, const std::string& id,
                       const std::vector<std::string>& flags = {}) {
    const std::string role(name_of(of));
    ServiceSpec spec{.name = role + "-" + id,
                     .argv = {program_folder() + "/foretoken-" + role, "--id", id},
                     .role = role,
                     .optional = of == wire::Role::kDraft};
    spec.argv.insert(spec.argv.end(), flags.begin(), flags.end());
    spec.argv.insert(spec.argv.end(), shared.begin(), shared.end());
    specs.push_back(std::move(spec));
  };
  add(wire::Role::kRouter, "0");
  for (const ModelInstances& model : models_of(loaded)) {
    const ModelSection& section = model.config.model;
    add(wire::Role::kTokenizer, model.id(0));
    for (std::uint32_t i = 0; i < section.targets; ++i) add(wire::Role::kTarget, model.id(i));
    for (std::uint32_t i = 0; i < section.drafts && !section.draft.empty(); ++i)
      add(wire::Role::kDraft, model.id(i));
    if (model.config.memory.start) add(wire::Role::kDraft, model.memory_id(), {"--memory"});
  }
  add(wire::Role::kEdge, "0");
  return specs;
}

// Beyond it a service is killed: what its last answers and its end may take on top of draining.
std::chrono::seconds stop_timeout(std::uint32_t drain_s) {
  return std::chrono::seconds(drain_s) + 10s;
}

// `ready_fd`: of the pipe for the verdict of the start, -1 = none.
SupervisorOptions supervisor_options(const Config& config, int ready_fd = -1) {
  const std::filesystem::path folder = runtime_directory(config.bus);
  return {.runtime_folder = folder,
          .log_folder = folder / "log",
          .watchdog = std::chrono::seconds(config.limits.watchdog_s),
          .stop_timeout = stop_timeout(config.limits.drain_s),
          .reader_fd = ready_fd};
}

// What the supervisor of a folder leaves there for other commands.
constexpr auto kAddressFile = "up.client";     // one line: where it serves
constexpr auto kSettingsFile = "up.settings";  // lines_of() its settings

// Empty if it left no word.
std::string served_endpoint(const std::filesystem::path& folder) {
  std::ifstream file(folder / kAddressFile);
  std::string endpoint;
  std::getline(file, endpoint);
  return endpoint;
}

// There for as long as the supervisor: written once its lock is held, gone before it is given back.
class Note {
 public:
  Note(std::filesystem::path path, const std::string& text) : path_(std::move(path)) {
    std::ofstream(path_) << text;
  }
  ~Note() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  Note(const Note&) = delete;
  Note& operator=(const Note&) = delete;

 private:
  std::filesystem::path path_;
};

Settings running_settings(const std::filesystem::path& folder) {
  std::ifstream file(folder / kSettingsFile);
  return read_settings(file);
}

// limits.drain_s of the system that runs, which may have been started with another file.
std::uint32_t running_drain_s(const std::filesystem::path& folder, const Config& otherwise) {
  const Settings running = running_settings(folder);
  const auto drain_s = running.find("limits.drain_s");
  return drain_s == running.end() ? otherwise.limits.drain_s
                                  : static_cast<std::uint32_t>(std::atoi(drain_s->second.c_str()));
}

// The exit code of a service says that its settings or its model are at fault; which of them, its
// last line says, or a look at the model.
int exit_code_for(const StartReport& report, const LoadedConfig& loaded) {
  switch (report.kind) {
    case FailureKind::kInterrupted:
      return kExitInterrupted;
    case FailureKind::kEnvironment:
      return kExitEnvironment;
    case FailureKind::kCrash:
      return kExitFailed;
    case FailureKind::kConfiguration:
      break;
  }
  // The last line is text or JSON, and has the code's name in both.
  if (report.failure.find(error_code_name(ErrorCode::kUnsupportedModel)) != std::string::npos)
    return kExitModel;
  try {
    for (const ModelInstances& model : models_of(loaded))
      inspect_folders(model.config.model, FolderDepth::kTokenizers);
  } catch (const FatalError&) {
    return kExitModel;
  }
  return kExitUsage;
}

// What happened when, for the log of the detached half, where no terminal shows a moving line.
Progress dated_log() {
  return [](const std::string& service, const std::string& status) {
    if (status.find('%') != std::string::npos)
      return;  // how far it has loaded: in the service's own log
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    ::gmtime_r(&now, &utc);
    char time[32];
    std::strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%SZ", &utc);
    std::cerr << time << " " << (service.empty() ? "foretoken" : service) << " " << status
              << std::endl;
  };
}

// " and http://..."; nothing for a port that the edge itself chooses.
std::string http_address(const EdgeSection& edge) {
  if (edge.port == 0) return {};
  return " and http://" + host_and_port(edge.host, std::to_string(edge.port));
}

// False if nothing reads it: the command that began this start has ended, and nothing may be
// printed on its terminal any more.
bool report_verdict(int ready_fd, int code) {
  return ::write(ready_fd, &code, sizeof(code)) == sizeof(code);
}

// Starts and keeps everything; runs in the foreground, or as the detached half.
int supervise(const CliOptions& options,
              const LoadedConfig& loaded,
              const Progress& progress,
              int ready_fd) {
  const Config& config = loaded.config;
  // A reader of the messages or of the verdict that has gone must not end this process before its
  // services have ended and its files are removed.
  ::signal(SIGPIPE, SIG_IGN);
  std::optional<Supervisor> made;
  try {
    made.emplace(supervisor_options(config, ready_fd), service_specs(options, loaded));
  } catch (const FatalError& error) {
    report_error({error.code(), error.what()});
    return kExitEnvironment;
  }
  Supervisor& supervisor = *made;
  const std::filesystem::path folder = supervisor_options(config).runtime_folder;
  const Note address(folder / kAddressFile, client_endpoint(config.bus) + "\n");
  const Note settings(folder / kSettingsFile, lines_of(settings_of(loaded)));
  const auto fail = [&](const std::string& why, int code) {
    if (ready_fd < 0 || report_verdict(ready_fd, code)) std::cerr << "error: " << why << std::endl;
    return code;
  };
  const StartReport report = supervisor.start(progress);
  if (!report.ready) return fail(report.failure, exit_code_for(report, loaded));
  ServingCheck check(loaded, folder);
  constexpr auto kPause =
      std::chrono::milliseconds(2);  // the first request waits for the last look
  if (const StartReport waited =
          supervisor.run_until([&] { return check.look(); }, progress, kPause);
      !waited.ready)
    return fail(waited.failure, exit_code_for(waited, loaded));
  if (const auto& problem = check.problem())
    return fail(problem->message + "; the logs of the services are in " +
                    supervisor_options(config).log_folder.string(),
                kExitFailed);
  for (const std::string& name : check.not_listed())
    progress(name, "is not listed by the router after 30 s (foretoken ps)");
  progress("", "serving at " + client_endpoint(config.bus) + http_address(config.edge));
  if (ready_fd >= 0) {
    if (!report_verdict(ready_fd, kExitOk)) return kExitInterrupted;
    ::close(ready_fd);
    // From here on nothing is printed; the terminal belongs to its user.
    const int log = ::open((supervisor_options(config).log_folder / "up.log").c_str(),
                           O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(log, 1);
    ::dup2(log, 2);
    ::close(log);
    std::cerr.clear();  // of a message that had no reader: the log takes what follows
  }
  const Progress told = ready_fd >= 0 ? dated_log() : progress;
  const StartReport ending = supervisor.run(told);
  if (ending.ready)
    told("", "stopping: running requests may take " + std::to_string(config.limits.drain_s) +
                 " s (limits.drain_s); a second signal ends them at once");
  supervisor.stop(told);
  if (ending.ready) return kExitOk;
  std::cerr << "error: " << ending.failure << std::endl;
  return exit_code_for(ending, loaded);
}

// Starts this program again as a session of its own and waits for its verdict.
int detach(const CliOptions& options) {
  int fds[2];
  if (::pipe(fds) != 0)
    throw std::runtime_error(std::string("cannot make a pipe: ") + std::strerror(errno));
  std::vector<std::string> words = {program_folder() + "/foretoken", "up", "--supervise",
                                    "--ready-fd", std::to_string(fds[1])};
  if (options.output.quiet) words.push_back("--quiet");
  if (options.output.verbose) words.push_back("--verbose");
  if (!options.config.file.empty()) words.insert(words.end(), {"--config", options.config.file});
  for (const auto& setting : options.config.sets) words.insert(words.end(), {"--set", setting});
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error(std::string("cannot fork: ") + std::strerror(errno));
  if (pid == 0) {
    // What the caller has open is not ours to keep: a lock of its would stay taken as long as we
    // serve.
    if (fds[1] > 3) ::close_range(3, static_cast<unsigned>(fds[1]) - 1, 0);
    ::close_range(static_cast<unsigned>(fds[1]) + 1, ~0U, 0);
    ::setsid();
    const int null = ::open("/dev/null", O_RDONLY);
    ::dup2(null, 0);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(fds[1]);
  int verdict = kExitFailed;
  // End of file without a verdict: it died before it could say why.
  if (::read(fds[0], &verdict, sizeof(verdict)) != sizeof(verdict)) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : kExitFailed;
  }
  // A start that failed leaves nothing behind: the next one must not find the rest of this.
  if (verdict != kExitOk) ::waitpid(pid, nullptr, 0);
  return verdict;
}

// A line for every change; on a terminal the percentages overwrite one another, elsewhere only the
// words count.
Progress printer(bool quiet) {
  return [quiet, last = std::map<std::string, std::string>()](const std::string& service,
                                                              const std::string& status) mutable {
    const bool terminal = stderr_is_terminal();
    const std::string shown = terminal ? status : status.substr(0, status.find(','));
    if (quiet || last[service] == shown) return;
    last[service] = shown;
    const std::string name = service.empty() ? "foretoken" : service;
    const bool passing = terminal && status.find('%') != std::string::npos;
    std::cerr << "      " << name << std::string(name.size() < 14 ? 14 - name.size() : 1, ' ')
              << shown << (terminal ? "\033[K" : "") << (passing ? "\r" : "\n") << std::flush;
  };
}

}  // namespace

int run_up(const CliOptions& options) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  const Config& config = loaded->config;
  const std::filesystem::path folder = runtime_directory(config.bus);
  if (options.up.supervise) {
    const int ready_fd = options.up.ready_fd.empty() ? -1 : std::stoi(options.up.ready_fd);
    if (ready_fd >= 0) ::fcntl(ready_fd, F_SETFD, FD_CLOEXEC);
    return supervise(options, *loaded, printer(options.output.quiet), ready_fd);
  }
  if (const int pid = supervisor_pid(folder); pid != 0) {
    if (const std::string there = served_endpoint(folder);
        !there.empty() && there != client_endpoint(config.bus)) {
      std::cerr << "error: pid " << pid << " serves at " << there << " from this runtime folder, "
                << folder.string() << "\n"
                << "  try: --set bus.runtime_dir=/FOLDER --port PORT, for a second system needs a "
                   "runtime folder and an HTTP port of its own\n";
      return kExitEnvironment;
    }
    if (const std::string differing = differences(running_settings(folder), settings_of(*loaded));
        !differing.empty()) {
      std::cerr << "error: pid " << pid << " already serves at " << client_endpoint(config.bus)
                << " with other settings\n"
                << differing << "  try: foretoken down, then again\n";
      return kExitEnvironment;
    }
    Client client(config.bus);
    if (const auto status = client.status(steady_now() + 2s); status.ok() && status->ready) {
      std::cerr << "      already serving at " << client_endpoint(config.bus) << " (pid " << pid
                << ")\n";
      if (runs_replaced_program(folder))
        say_note(
            "programs of that system have been replaced since it was started: foretoken down, then "
            "up, runs the new ones");
      return kExitOk;
    }
    std::cerr << "error: pid " << pid << " holds " << folder.string()
              << ", and no router answered that all is ready\n"
              << "  try: foretoken ps, or the logs in " << (folder / "log").string()
              << "; foretoken down ends it\n";
    return kExitEnvironment;
  }
  if (const auto trouble = key_trouble(*loaded)) return report_error(*trouble);
  print_warnings(*loaded);
  if (const int code = refuse_unfit_models(*loaded); code != kExitOk) return code;
  if (!options.output.quiet)
    for (const std::string& sentence : self_draft_predictions(*loaded)) say_note(sentence);
  for (const auto& spec : service_specs(options, *loaded))
    say_detail("starts " + in_words(spec.argv));
  if (!options.up.detach) return supervise(options, *loaded, printer(options.output.quiet), -1);
  return detach(options);
}

int run_down(const CliOptions& options) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  const std::filesystem::path folder = runtime_directory(loaded->config.bus);
  const int pid = supervisor_pid(folder);
  if (pid == 0) {
    if (!options.output.quiet) std::cerr << "nothing to stop\n";
    return kExitOk;
  }
  const std::string there = served_endpoint(folder), meant = client_endpoint(loaded->config.bus);
  // Who names an address means the system at that address; who names none means the one of this
  // runtime folder.
  if (const auto origin = loaded->origin.find("bus.client"); !there.empty() && there != meant &&
                                                             origin != loaded->origin.end() &&
                                                             origin->second != "default") {
    std::cerr << "error: pid " << pid << ", of the runtime folder " << folder.string()
              << ", serves at " << there << " and not at " << meant << "; nothing was stopped\n"
              << "  try: foretoken down --set bus.client=" << there
              << ", or --set bus.runtime_dir=/FOLDER for the other one\n";
    return kExitUsage;
  }
  const std::uint32_t drain_s = running_drain_s(folder, loaded->config);
  const bool tell = !options.output.quiet && drain_s > 0;
  if (!stop_supervisor(pid, 2s)) {
    if (tell)
      std::cerr << "      running requests may take " << drain_s
                << " s to end (limits.drain_s); foretoken down again ends them at once"
                << std::endl;
    // On top: what may be left of each of three turns, and be killed.
    const auto longest = stop_timeout(drain_s) + 30s;
    if (!await_supervisor(pid, longest)) {
      std::cerr << "error: pid " << pid << " did not end within " << longest.count() + 2 << " s\n";
      return kExitFailed;
    }
  }
  if (!options.output.quiet)
    std::cerr << "stopped" << (there.empty() ? "" : " what served at " + there) << "\n";
  return kExitOk;
}

}  // namespace foretoken::cli
