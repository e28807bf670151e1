#include "common/runtime/rank_launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/base/result.h"
#include "common/config/load.h"
#include "common/runtime/process.h"
#include "common/runtime/rank_clock.h"
#include "common/runtime/rank_group.h"
#include "common/runtime/rank_host.h"
#include "common/runtime/service_main.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;

// This process's own command line, to be run once more.
std::vector<std::string> own_command() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> command;
  for (std::string word; std::getline(in, word, '\0');) command.push_back(word);
  std::error_code ignored;
  const fs::path self = fs::read_symlink("/proc/self/exe", ignored);
  if (command.empty() || self.empty())
    throw FatalError(ErrorCode::kIo, "/proc does not show this process's command line");
  command.front() = self.string();
  return command;
}

std::vector<std::string> mpirun_command(const RankLaunch& launch, const fs::path& folder) {
  std::vector<std::string> command{
      "mpirun",
      "--quiet",
      "-n",
      std::to_string(launch.n_ranks),
      "--bind-to",
      "none",
      "--oversubscribe",
      // Between ranks of one host: shared memory in the group's folder, and no listening sockets.
      "--mca",
      "btl",
      launch.hostfile.empty() ? "self,vader" : "self,vader,tcp",
      "--mca",
      "btl_vader_backing_directory",
      folder.string(),
      "--mca",
      "orte_tmpdir_base",
      folder.string(),
  };
  // On other hosts this program watches over OpenMPI's daemon, which stays its child.
  const RankHosting others{folder.string(), launch.deadline, {"orted"}};
  if (launch.hostfile.empty()) {
    command.insert(command.end(), {"--host", "localhost:" + std::to_string(launch.n_ranks)});
  } else {
    command.insert(command.end(), {"--hostfile", launch.hostfile, "--mca", "plm_rsh_no_tree_spawn",
                                   "1", "--leave-session-attached", "--launch-agent",
                                   launch_agent(own_command().front(), others)});
    for (std::string& word : passed_variables(process_environment()))
      command.push_back(std::move(word));
  }
  if (::geteuid() == 0) command.emplace_back("--allow-run-as-root");
  for (std::string& word : own_command()) command.push_back(std::move(word));
  return command;
}

// The child of launch(): nothing of this process's signal handling may reach the ranks.
[[noreturn]] void become(const std::vector<std::string>& command, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kExitGone);
  ::setpgid(0, 0);  // a terminal's ^C is for the launcher, which asks rank 0 to drain
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words.front(), words.data());
  ::_exit(127);
}

class Launcher {
 public:
  explicit Launcher(const RankLaunch& launch)
      : launch_(launch),
        folder_(launch.name),
        reports_(folder_.path() / "notify"),
        clock_(launch.n_ranks, launch.deadline, steady_now()) {}

  int run() {
    start();
    while (!verdict_) {
      wait();
      read_reports();
      read_signals();
      look_at_processes();
      look_at_clock();
    }
    end_all();
    return *verdict_;
  }

 private:
  struct Rank {
    int number = 0;
    WatchedProcess process;
    std::optional<int> exit_code = {};
    bool is_gone = false;
  };

  void start() {
    const std::vector<std::string> command = mpirun_command(launch_, folder_.path());
    ::setenv("NOTIFY_SOCKET", (folder_.path() / "notify").c_str(), 1);
    // Rank 0's pings are passed on: they must come as often as who waits outside expects them.
    std::uint64_t us = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(launch_.deadline).count());
    if (std::uint64_t outer_us = 0; sd_watchdog_enabled(0, &outer_us) > 0)
      us = std::min(us, outer_us);
    ::setenv("WATCHDOG_USEC", std::to_string(us).c_str(), 1);
    ::unsetenv("WATCHDOG_PID");
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    const pid_t parent = ::getpid();
    mpirun_ = ::fork();
    if (mpirun_ == 0) become(command, parent);
    if (outer_socket_.empty())
      ::unsetenv("NOTIFY_SOCKET");
    else
      ::setenv("NOTIFY_SOCKET", outer_socket_.c_str(), 1);
    if (mpirun_ < 0) throw FatalError(ErrorCode::kIo, "fork: " + words_of_errno());
    mpirun_process_ = WatchedProcess(mpirun_);
    log_info("ranks started", {{"ranks", launch_.n_ranks}, {"mpirun", mpirun_}});
  }

  void wait() {
    std::vector<pollfd> all{{reports_.fd(), POLLIN, 0}, {signals_.fd(), POLLIN, 0}};
    all.push_back({mpirun_process_.fd(), POLLIN, 0});
    for (const auto& [pid, rank] : ranks_)
      if (!rank.is_gone) all.push_back({rank.process.fd(), POLLIN, 0});
    ::poll(all.data(), all.size(), 100);
  }

  void read_reports() {
    while (auto report = reports_.next()) {
      std::istringstream lines(report->text);
      for (std::string line; std::getline(lines, line);) take(report->pid, line);
    }
  }

  void take(pid_t pid, const std::string& line) {
    if (line.starts_with(kRankWord)) {
      Rank rank{.number = std::atoi(line.c_str() + kRankWord.size()),
                .process = WatchedProcess(pid)};
      if (rank.number == 0) first_ = pid;
      log_info("a rank has connected", {{"rank", rank.number}, {"pid", pid}});
      ranks_.insert_or_assign(pid, std::move(rank));
      return;
    }
    if (line.starts_with(kExitWord)) {
      const int code = std::atoi(line.c_str() + kExitWord.size());
      if (const auto rank = ranks_.find(pid); rank != ranks_.end()) rank->second.exit_code = code;
      if (code != kExitOk && !bad_code_) bad_code_ = code;
      return;
    }
    if (pid != first_) return;
    clock_.rank0_says(line, steady_now());
    sd_notify(0, line.c_str());
  }

  void read_signals() {
    while (const auto signal = signals_.next()) {
      if (*signal == SIGHUP) continue;
      if (clock_.is_serving()) {
        ::kill(first_, *signal);  // as it came: two equal ones that wait are read as one
      } else {  // nothing was promised yet, and rank 0 may be waiting where it hears no signal
        log_info("stopped while starting");
        verdict_ = kExitOk;
      }
    }
  }

  void look_at_processes() {
    for (auto& [pid, rank] : ranks_) {
      if (rank.is_gone || !rank.process.has_ended()) continue;
      rank.is_gone = true;
      read_reports();  // its last word came before its end
      if (rank.exit_code == kExitOk) {
        clock_.rank_left_well(steady_now());
      } else if (!verdict_) {
        verdict_ = bad_code_.value_or(kExitGone);
        log_error("a rank is gone: all are ended",
                  {{"rank", rank.number}, {"pid", pid}, {"code", *verdict_}});
      }
    }
    int status = 0;
    if (verdict_ || ::waitpid(mpirun_, &status, WNOHANG) != mpirun_) return;
    mpirun_ = 0;
    read_reports();
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : kExitGone;
    if (code == 127 && ranks_.empty())
      verdict_ = complain(kExitConfig, "mpirun was not found; install openmpi-bin");
    else if (code == 0)
      verdict_ = bad_code_.value_or(kExitOk);
    else
      verdict_ = complain(bad_code_.value_or(kExitGone),
                          "mpirun has ended with code " + std::to_string(code));
  }

  void look_at_clock() {
    if (verdict_) return;
    if (const auto what = clock_.overdue(steady_now(), ranks_.size()))
      verdict_ = complain(kExitGone, *what);
    if (clock_.is_serving()) return;  // then ranks notice by themselves that one of them is stopped
    for (auto& [pid, rank] : ranks_)
      if (!verdict_ && rank.process.stopped_for(steady_now()) > launch_.deadline)
        verdict_ = complain(kExitGone, "rank " + std::to_string(rank.number) + " is stopped");
  }

  static int complain(int code, const std::string& what) {
    log_error(what + ": all ranks are ended", {{"code", code}});
    return code;
  }

  // Also those that are stopped. Other hosts end what is there themselves (rank_host.h).
  void end_all() {
    for (const auto& [pid, rank] : ranks_) rank.process.kill();
    // What a rank logged before it ended by itself is still on its way through mpirun.
    if (mpirun_ > 0 && bad_code_) mpirun_process_.await_end(kLastWords);
    if (mpirun_ > 0) ::kill(mpirun_, SIGKILL);
    const TimePoint latest = steady_now() + kGoodbye;
    end_orphans();
    for (const auto& [pid, rank] : ranks_) rank.process.await_end(latest - steady_now());
  }

  // What mpirun started besides ranks, ssh for one, is this process's child once mpirun is gone.
  void end_orphans() {
    if (mpirun_ > 0) ::waitpid(mpirun_, nullptr, 0);
    mpirun_ = 0;
    std::ifstream children("/proc/self/task/" + std::to_string(::getpid()) + "/children");
    for (pid_t pid = 0; children >> pid;) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  const RankLaunch launch_;
  const std::string outer_socket_ = [] {
    const char* socket = std::getenv("NOTIFY_SOCKET");
    return std::string(socket == nullptr ? "" : socket);
  }();
  Signals signals_;
  GroupFolder folder_;
  ReportSocket reports_;
  RankClock clock_;
  pid_t mpirun_ = 0;  // 0: ended
  WatchedProcess mpirun_process_;
  std::map<pid_t, Rank> ranks_;  // of this host, once they have said who they are
  pid_t first_ = 0;              // rank 0
  std::optional<int> bad_code_;  // the first that is not 0
  std::optional<int> verdict_;
};

// FORETOKEN_TEST_RANK_FAULT="1=stop" or "1=abort": rank 1 does so when the launcher knows it and
// MPI does not. A signal from outside cannot be sure to come between the two.
void fail_for_test(int rank) {
  const char* fault = std::getenv("FORETOKEN_TEST_RANK_FAULT");
  if (fault == nullptr) return;
  const std::string mine = std::to_string(rank);
  if (fault == mine + "=stop") ::raise(SIGSTOP);
  if (fault == mine + "=abort") std::abort();
}

}  // namespace

int launch_ranks(const RankLaunch& launch) {
  const int code = Launcher(launch).run();
  if (code == kExitOk) log_info("all ranks have ended");
  return code;
}

std::vector<std::string> passed_variables(const std::map<std::string, std::string>& environment) {
  std::vector<std::string> options;
  for (const auto& [name, value] : environment)
    if (name.starts_with("FORETOKEN_") && name != "FORETOKEN_API_KEY")
      options.insert(options.end(), {"-x", name});
  return options;
}

void join_launcher(int rank) {
  const pid_t parent = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kExitGone);
  sd_notify(0, (std::string(kRankWord) + std::to_string(rank)).c_str());
  fail_for_test(rank);
}

void report_exit(int code) {
  sd_notify(0, (std::string(kExitWord) + std::to_string(code)).c_str());
}

}  // namespace foretoken
