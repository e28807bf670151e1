#include "services/cli/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

extern char** environ;

namespace foretoken::cli {
namespace {

using std::chrono::milliseconds;
using SteadyTime = std::chrono::steady_clock::time_point;

constexpr int kExitUsage = 64;
constexpr int kExitConfiguration = 78;
constexpr auto kRestartDelay = milliseconds(200);
constexpr auto kRestartWindow = std::chrono::seconds(60);
constexpr std::size_t kMostRestarts = 10;  // in a window, as StartLimitBurst of the units
constexpr auto kPidFile = "up.pid";

std::runtime_error system_error(const std::string& what) {
  return std::runtime_error(what + ": " + std::strerror(errno));
}

std::filesystem::path log_path(const SupervisorOptions& options, const std::string& name) {
  return options.log_folder / (name + ".log");
}

// The last lines of a log: what a person needs to see when a service did not start.
std::string last_lines(const std::filesystem::path& path, std::size_t n_lines) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
    if (lines.size() > n_lines) lines.erase(lines.begin());
  }
  std::string text;
  for (const auto& line : lines) text += "\n  " + line;
  return text;
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return std::string("was ended by signal ") + std::to_string(WTERMSIG(status));
  return "ended with exit code " + std::to_string(WEXITSTATUS(status));
}

bool is_configuration_error(int status) {
  return WIFEXITED(status) && (WEXITSTATUS(status) == kExitUsage || WEXITSTATUS(status) == kExitConfiguration);
}

int open_lock(const std::filesystem::path& folder) {
  const auto path = folder / kPidFile;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) throw system_error("cannot open " + path.string());
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    ::close(fd);
    throw std::runtime_error("already running here: " + path.string() + " is held by another foretoken up");
  }
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(fd, 0) != 0 || ::write(fd, pid.data(), pid.size()) != static_cast<ssize_t>(pid.size()))
    throw system_error("cannot write " + path.string());
  return fd;
}

int open_notify_socket(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) throw system_error("cannot create the notify socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    throw std::runtime_error("the runtime folder's path is too long for a socket (107 bytes): " + path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  ::unlink(path.c_str());
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    throw system_error("cannot bind " + path);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
  return fd;
}

}  // namespace

struct Supervisor::Child {
  ServiceSpec spec;
  pid_t pid = 0;  // 0 = not running
  bool ready = false;
  bool was_ever_ready = false;
  SteadyTime restart_at{};
  std::vector<SteadyTime> restarts;
};

Supervisor::Supervisor(SupervisorOptions options, std::vector<ServiceSpec> services) : options_(std::move(options)) {
  std::filesystem::create_directories(options_.runtime_folder);
  std::filesystem::permissions(options_.runtime_folder, std::filesystem::perms::owner_all);
  std::filesystem::create_directories(options_.log_folder);
  lock_fd_ = open_lock(options_.runtime_folder);
  notify_path_ = (options_.runtime_folder / "notify").string();
  notify_fd_ = open_notify_socket(notify_path_);

  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal_fd_ = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_fd_ < 0) throw system_error("cannot create a signalfd");
  for (auto& service : services) children_.push_back({.spec = std::move(service)});
}

Supervisor::~Supervisor() {
  stop();
  ::unlink(notify_path_.c_str());
  for (int fd : {notify_fd_, signal_fd_}) ::close(fd);
  // The file stays: unlinking a locked file would let two supervisors hold "the" lock.
  if (::ftruncate(lock_fd_, 0) != 0) std::fprintf(stderr, "cannot empty the pid file: %s\n", std::strerror(errno));
  ::close(lock_fd_);
}

void Supervisor::spawn(Child& child) {
  // Everything that allocates happens before fork().
  std::vector<char*> argv;
  for (auto& argument : child.spec.argv) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (std::strncmp(*entry, "NOTIFY_SOCKET=", 14) != 0 && std::strncmp(*entry, "WATCHDOG_", 9) != 0)
      environment.emplace_back(*entry);
  environment.push_back("NOTIFY_SOCKET=" + notify_path_);
  std::vector<char*> envp;
  for (auto& entry : environment) envp.push_back(entry.data());
  envp.push_back(nullptr);
  // A log begins with its run: what an earlier one said would be shown as the reason of a failure.
  const int keep = child.restarts.empty() ? O_TRUNC : O_APPEND;
  const int log = ::open(log_path(options_, child.spec.name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | keep, 0600);
  if (log < 0) throw system_error("cannot open the log of " + child.spec.name);
  const pid_t parent = ::getpid();

  const pid_t pid = ::fork();
  if (pid < 0) throw system_error("cannot fork");
  if (pid == 0) {
    // Its own group, so that a Ctrl-C at the terminal reaches the supervisor alone; and no life without it.
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    const int null = ::open("/dev/null", O_RDONLY);
    ::dup2(null, 0);
    ::dup2(log, 1);
    ::dup2(log, 2);
    ::execve(argv[0], argv.data(), envp.data());
    ::dprintf(2, "cannot start %s: %s\n", argv[0], std::strerror(errno));
    ::_exit(127);
  }
  ::close(log);
  child.pid = pid;
  child.ready = false;
}

bool Supervisor::wait_for_event(milliseconds at_most) {
  pollfd fds[2] = {{signal_fd_, POLLIN, 0}, {notify_fd_, POLLIN, 0}};
  const int n = ::poll(fds, 2, static_cast<int>(at_most.count()));
  if (n > 0 && (fds[0].revents & POLLIN) != 0) {
    signalfd_siginfo info{};
    while (::read(signal_fd_, &info, sizeof(info)) == sizeof(info))
      if (info.ssi_signo != SIGCHLD) stop_requested_ = true;
  }
  return n > 0;
}

void Supervisor::read_notifications(const Progress& progress) {
  char text[4096];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  for (;;) {
    iovec part{text, sizeof(text)};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t size = ::recvmsg(notify_fd_, &message, MSG_DONTWAIT);
    if (size < 0) return;
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header == nullptr || header->cmsg_type != SCM_CREDENTIALS) continue;
    ucred sender{};
    std::memcpy(&sender, CMSG_DATA(header), sizeof(sender));
    for (auto& child : children_) {
      if (child.pid != sender.pid) continue;
      std::istringstream lines(std::string(text, static_cast<std::size_t>(size)));
      for (std::string line; std::getline(lines, line);) {
        if (line == "READY=1" && !child.ready) {
          child.ready = child.was_ever_ready = true;
          progress(child.spec.name, "ready");
        } else if (line.starts_with("STATUS=") && !child.ready) {
          progress(child.spec.name, line.substr(7));
        }
      }
    }
  }
}

void Supervisor::reap(const Progress& progress) {
  int status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    for (auto& child : children_) {
      if (child.pid != pid) continue;
      child.pid = 0;
      child.ready = false;
      if (stop_requested_) continue;
      const auto now = std::chrono::steady_clock::now();
      std::erase_if(child.restarts, [&](SteadyTime at) { return now - at > kRestartWindow; });
      child.restarts.push_back(now);
      child.restart_at = now + kRestartDelay;
      progress(child.spec.name, how_it_ended(status));
      // A service that never came up will not come up the next time either; one that did may be hit again while it
      // loads.
      if (is_configuration_error(status) || !child.was_ever_ready || child.restarts.size() > kMostRestarts) {
        fatal_ = child.spec.name + " " + how_it_ended(status) + "; the end of its log:" +
                 last_lines(log_path(options_, child.spec.name), 8);
        fatal_is_configuration_ = is_configuration_error(status);
      }
    }
  }
}

void Supervisor::restart_due(const Progress& progress) {
  const auto now = std::chrono::steady_clock::now();
  for (auto& child : children_) {
    if (child.pid != 0 || now < child.restart_at) continue;
    spawn(child);
    progress(child.spec.name, "restarted");
  }
}

StartReport Supervisor::start(const Progress& progress) {
  for (auto& child : children_) spawn(child);
  const auto deadline = std::chrono::steady_clock::now() + options_.ready_timeout;
  const auto all_ready = [&] {
    for (const auto& child : children_)
      if (!child.ready) return false;
    return true;
  };
  while (!all_ready() && fatal_.empty() && !stop_requested_) {
    if (std::chrono::steady_clock::now() > deadline) {
      for (const auto& child : children_)
        if (!child.ready)
          return {.failure = child.spec.name + " is not ready after " +
                             std::to_string(options_.ready_timeout.count()) + " s; the end of its log:" +
                             last_lines(log_path(options_, child.spec.name), 8)};
    }
    wait_for_event(milliseconds(100));
    read_notifications(progress);
    reap(progress);
  }
  if (stop_requested_) return {.failure = "interrupted"};
  if (!fatal_.empty()) return {.failure = fatal_, .bad_configuration = fatal_is_configuration_};
  return {.ready = true};
}

bool Supervisor::run(const Progress& progress) {
  while (!stop_requested_ && fatal_.empty()) {
    wait_for_event(milliseconds(100));
    read_notifications(progress);
    reap(progress);
    if (!stop_requested_ && fatal_.empty()) restart_due(progress);
  }
  if (!fatal_.empty()) std::fprintf(stderr, "error: %s\n", fatal_.c_str());
  return fatal_.empty();
}

void Supervisor::stop() {
  stop_requested_ = true;
  const Progress silent = [](const std::string&, const std::string&) {};
  const auto running = [&] {
    for (const auto& child : children_)
      if (child.pid != 0) return true;
    return false;
  };
  for (int signal : {SIGTERM, SIGKILL}) {
    if (!running()) return;
    for (const auto& child : children_)
      if (child.pid != 0) ::kill(child.pid, signal);
    const auto deadline = std::chrono::steady_clock::now() + options_.stop_timeout;
    while (running() && std::chrono::steady_clock::now() < deadline) {
      reap(silent);
      if (running()) wait_for_event(milliseconds(50));
      read_notifications(silent);
    }
  }
}

int supervisor_pid(const std::filesystem::path& runtime_folder) {
  const auto path = runtime_folder / kPidFile;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  // Only a held lock means a live one: a pid in a file may belong to anybody by now.
  const bool held = ::flock(fd, LOCK_SH | LOCK_NB) != 0;
  char text[32] = {};
  const ssize_t size = ::read(fd, text, sizeof(text) - 1);
  ::close(fd);
  return held && size > 0 ? std::atoi(text) : 0;
}

bool stop_supervisor(int pid, std::chrono::seconds timeout) {
  if (::kill(pid, SIGTERM) != 0) return true;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (std::chrono::steady_clock::now() < deadline) {
    if (::kill(pid, 0) != 0) return true;
    ::poll(nullptr, 0, 50);
  }
  return ::kill(pid, 0) != 0;
}

}  // namespace foretoken::cli
