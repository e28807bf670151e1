// Starts services as child processes, waits until each says READY over the systemd notify protocol, restarts those that
// fail as the units would, and ends them in order. Single-threaded; knows programs and exit codes, not messages.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace foretoken::cli {

struct ServiceSpec {
  std::string name;               // "target-0": unique, also names the log file
  std::vector<std::string> argv;  // argv[0] is the program's path
};

struct SupervisorOptions {
  std::filesystem::path runtime_folder;  // pid file, notify socket; created 0700
  std::filesystem::path log_folder;      // one <name>.log a service, appended
  std::chrono::seconds ready_timeout{60};
  std::chrono::seconds stop_timeout{35};
};

// What became of starting: for people and for the exit code.
struct StartReport {
  bool ready = false;
  std::string failure;  // which service, how it ended, its last log lines
  bool bad_configuration = false;
};

// A line for every change worth seeing: "target-0", "loading 40 %".
using Progress = std::function<void(const std::string& service, const std::string& status)>;

class Supervisor {
 public:
  // Blocks SIGTERM, SIGINT and SIGCHLD for the process. Throws std::runtime_error with a sentence when the runtime
  // folder is held by another supervisor or cannot be made.
  Supervisor(SupervisorOptions options, std::vector<ServiceSpec> services);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Starts everything and waits until all are ready, one has failed for good, or a signal asks to stop.
  StartReport start(const Progress& progress);
  // Restarts what fails until SIGTERM or SIGINT, or until a service cannot be kept alive. Returns false for the latter.
  bool run(const Progress& progress);
  // SIGTERM to all, SIGKILL to what is left after stop_timeout. Idempotent.
  void stop();

 private:
  struct Child;
  void spawn(Child& child);
  void read_notifications(const Progress& progress);
  void reap(const Progress& progress);
  void restart_due(const Progress& progress);
  bool wait_for_event(std::chrono::milliseconds at_most);
  bool stop_requested_ = false;
  std::string fatal_;
  bool fatal_is_configuration_ = false;
  SupervisorOptions options_;
  std::vector<Child> children_;
  int lock_fd_ = -1;
  int signal_fd_ = -1;
  int notify_fd_ = -1;
  std::string notify_path_;
};

// The pid of the live supervisor that holds `runtime_folder`, or 0.
int supervisor_pid(const std::filesystem::path& runtime_folder);

// Asks that supervisor to stop and waits for its end. False if it is still there after `timeout`.
bool stop_supervisor(int pid, std::chrono::seconds timeout);

}  // namespace foretoken::cli
