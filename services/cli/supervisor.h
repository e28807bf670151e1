// Starts services as child processes, waits until each says READY over the systemd notify protocol,
// restarts those that fail, later and later, and ends them by duty: first the router, which waits
// for its requests, then what they needed. Watches them as systemd does: one whose watchdog pings
// stay away is ended and started again. A service that only adds speed never ends the others.
// Single-threaded; knows programs, roles and exit codes, not messages.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/vocabulary.h"
#include "services/cli/restart_backoff.h"

namespace foretoken::cli {

struct ServiceSpec {
  std::string name;               // "target-0": unique, also names the log file
  std::vector<std::string> argv;  // argv[0] is the program's path
  std::string role = {};          // "target"
  bool optional = false;          // the others serve on without it, however often it fails
};

// A process as its supervisor knows it. The router's states of a worker are others: it knows no
// process that does not register.
enum class ProcessState : std::uint8_t {
  kStarting,
  kReady,
  kWaiting,  // to be started again
  kGivenUp
};
inline constexpr std::array<std::string_view, 4> kProcessStateNames{"starting", "ready", "waiting",
                                                                    "given up"};
constexpr const auto& names_of(ProcessState) { return kProcessStateNames; }
using foretoken::name_of;  // beside those of other types in this namespace

struct SupervisorOptions {
  std::filesystem::path runtime_folder;        // pid file, notify socket; created 0700
  std::filesystem::path log_folder;            // one <name>.log a service
  std::chrono::seconds ready_timeout{60};      // EXTEND_TIMEOUT_USEC gives more, as at systemd
  std::chrono::milliseconds watchdog{10'000};  // longest silence of one that is ready; 0 = any
  std::chrono::seconds abort_timeout{5};       // from SIGABRT to SIGKILL
  std::chrono::seconds stop_timeout{40};       // above limits.drain_s
  // The write end of a pipe whose reader waits for the start; -1 = none. Stays open until the last
  // run_until() has returned. When the read end is closed, start() and run_until() end as on
  // SIGTERM.
  int reader_fd = -1;
  RestartRules restarts{.most_restarts = 10};
  RestartRules optional_restarts{.longest = std::chrono::seconds(30)};
};

// Why a service ended for good: by its exit code.
enum class FailureKind { kCrash, kConfiguration, kEnvironment, kInterrupted };

// What became of starting, and of running: for people and for the exit code.
struct StartReport {
  bool ready = false;   // after run(): ended because it was asked to
  std::string failure;  // which service, how it ended, its last log lines
  FailureKind kind = FailureKind::kCrash;
};

// A line for every change worth seeing: "target-0", "loading 40 %".
using Progress = std::function<void(const std::string& service, const std::string& status)>;

class Supervisor {
 public:
  // Blocks SIGTERM, SIGINT, SIGCHLD and, where it is not ignored, SIGHUP for the process. Throws
  // FatalError when the runtime folder is held by another supervisor or cannot be written to.
  Supervisor(SupervisorOptions options, std::vector<ServiceSpec> services);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Starts everything and waits until all are ready, one has failed for good, a signal asks to
  // stop, or nothing reads `reader_fd` any more.
  StartReport start(const Progress& progress);
  // Restarts what fails until SIGTERM, SIGINT or SIGHUP, or until a service that the others need
  // cannot be kept alive.
  StartReport run(const Progress& progress);
  // As run(), and until `is_done`, which is called after every look at the services, at least once
  // in `pause`, and may take some milliseconds. `ready`: it is done; a signal is a failure, as in
  // start().
  StartReport run_until(const std::function<bool()>& is_done,
                        const Progress& progress,
                        std::chrono::milliseconds pause = std::chrono::milliseconds(20));
  // SIGTERM to each in order of duty, SIGKILL to what is left after stop_timeout; after one more
  // SIGTERM or SIGINT all end at once, or the second one where SIGHUP began it. Idempotent.
  void stop(const Progress& progress = [](const std::string&, const std::string&) {});

 private:
  struct Child;
  enum class Duty { kDoor, kWork, kSpeed };  // the order in which they stop
  void spawn(Child& child);
  // `reader_fd` as in SupervisorOptions.
  void turn(std::chrono::milliseconds at_most, const Progress& progress, int reader_fd = -1);
  void read_notifications(const Progress& progress);
  void take(Child& child, const std::string& line, const Progress& progress);
  void reap(const Progress& progress);
  void start_again_or_give_up(Child& child,
                              FailureKind kind,
                              std::optional<TimePoint> ready_since,
                              const Progress& progress);
  void end_hung();
  void end_at_once();
  void restart_due(const Progress& progress);
  void give_up(Child& child, FailureKind kind, const Progress& progress);
  bool can_serve_without(const Child& child) const;
  void write_state() const;
  void wait_for_event(std::chrono::milliseconds at_most, int reader_fd);
  void take_stop_signal(int signal);
  bool stop_requested_ = false;
  bool hung_up_ = false;            // SIGHUP came
  std::size_t n_stop_signals_ = 0;  // of SIGTERM and SIGINT
  TimePoint last_turn_{};
  bool started_ = false;  // all have been ready once
  std::string failure_;   // not empty = a service is missing that cannot be done without
  FailureKind failure_kind_ = FailureKind::kCrash;
  SupervisorOptions options_;
  std::vector<Child> children_;
  int lock_fd_ = -1;
  int signal_fd_ = -1;
  int notify_fd_ = -1;
  std::string notify_path_;
};

}  // namespace foretoken::cli
