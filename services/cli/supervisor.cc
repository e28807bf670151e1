#include "services/cli/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "common/base/json.h"
#include "common/base/result.h"
#include "common/messages/types.h"
#include "services/cli/service_process.h"
#include "services/cli/supervisor_folder.h"

namespace foretoken::cli {
namespace {

using std::chrono::milliseconds;

// As under nohup. A signalfd has ignored signals too.
bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// Exit codes of services, docs/operations.md.
constexpr int kServiceUsage = 64;
constexpr int kServiceGone = 75;
constexpr int kServiceConfiguration = 78;

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
  if (WIFSIGNALED(status))
    return std::string("was ended by signal ") + std::to_string(WTERMSIG(status));
  return "ended with exit code " + std::to_string(WEXITSTATUS(status));
}

FailureKind kind_of(int status) {
  if (!WIFEXITED(status)) return FailureKind::kCrash;
  switch (WEXITSTATUS(status)) {
    case kServiceUsage:
    case kServiceConfiguration:
      return FailureKind::kConfiguration;
    case kServiceGone:
      return FailureKind::kEnvironment;
    default:
      return FailureKind::kCrash;
  }
}

// The number after `key`, if the line begins with it and is one.
std::optional<std::uint64_t> number_after(std::string_view key, std::string_view line) {
  if (!line.starts_with(key)) return std::nullopt;
  line.remove_prefix(key.size());
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  return error == std::errc() && end == line.data() + line.size() ? std::optional(value)
                                                                  : std::nullopt;
}

std::string in_seconds(milliseconds time) {
  const auto tenths = time.count() / 100;
  return std::to_string(tenths / 10) + (tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10)) +
         " s";
}

}  // namespace

struct Supervisor::Child {
  ServiceSpec spec;
  RestartBackoff backoff;
  pid_t pid = 0;  // 0 = not running
  bool was_ever_ready = false;
  bool given_up = false;
  bool stopping = false;       // it said so
  std::string ended_for = {};  // by us; not empty: SIGABRT was sent
  std::optional<TimePoint> ready_since = std::nullopt;
  TimePoint restart_at{};
  TimePoint last_sign{};    // READY, or a watchdog ping
  TimePoint deadline{};     // to be ready; once it is ended or stopped, for its end
  milliseconds patience{};  // that the deadline was set with
  std::string last_end = {};

  bool ready() const { return ready_since.has_value(); }
  void give(milliseconds time) {
    patience = time;
    deadline = steady_now() + time;
  }
  ProcessState state() const {
    if (given_up) return ProcessState::kGivenUp;
    if (pid == 0) return ProcessState::kWaiting;
    return ready() ? ProcessState::kReady : ProcessState::kStarting;
  }
  Duty duty() const {
    if (spec.role == name_of(wire::Role::kRouter) || spec.role == name_of(wire::Role::kEdge))
      return Duty::kDoor;
    return spec.role == name_of(wire::Role::kDraft) ? Duty::kSpeed : Duty::kWork;
  }
};

Supervisor::Supervisor(SupervisorOptions options, std::vector<ServiceSpec> services)
    : options_(std::move(options)) {
  make_private_folder(options_.runtime_folder);
  make_folder(options_.log_folder);
  lock_fd_ = open_lock(options_.runtime_folder);
  notify_path_ = (options_.runtime_folder / "notify").string();
  notify_fd_ = open_notify_socket(notify_path_);

  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&signals, signal);
  if (!is_ignored(SIGHUP)) sigaddset(&signals, SIGHUP);  // its terminal is gone
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal_fd_ = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_fd_ < 0)
    throw std::runtime_error(std::string("cannot create a signalfd: ") + std::strerror(errno));
  for (auto& service : services) {
    const RestartBackoff backoff(service.optional ? options_.optional_restarts : options_.restarts);
    children_.push_back({.spec = std::move(service), .backoff = backoff});
  }
}

Supervisor::~Supervisor() {
  stop();
  ::unlink(notify_path_.c_str());
  remove_supervisor_state(options_.runtime_folder);
  for (int fd : {notify_fd_, signal_fd_}) ::close(fd);
  if (::ftruncate(lock_fd_, 0) != 0)
    std::fprintf(stderr, "cannot empty the pid file: %s\n", std::strerror(errno));
  ::close(lock_fd_);
}

void Supervisor::spawn(Child& child) {
  child.pid = start_process({.argv = child.spec.argv,
                             .log = log_path(options_, child.spec.name),
                             .how = child.backoff.n_restarts() == 0 ? ProcessSetup::Log::kBegin
                                                                    : ProcessSetup::Log::kGoOn,
                             .notify_path = notify_path_,
                             .watchdog = options_.watchdog});
  child.ready_since.reset();
  child.stopping = false;
  child.ended_for.clear();
  child.give(options_.ready_timeout);
}

void Supervisor::wait_for_event(milliseconds at_most, int reader_fd) {
  // Of a pipe's write end poll() reports POLLERR, unasked, when nothing reads it any more.
  pollfd fds[3] = {{signal_fd_, POLLIN, 0}, {notify_fd_, POLLIN, 0}, {reader_fd, 0, 0}};
  const int n = ::poll(fds, std::size(fds), static_cast<int>(at_most.count()));
  if (n > 0 && (fds[2].revents & POLLERR) != 0) stop_requested_ = true;
  if (n > 0 && (fds[0].revents & POLLIN) != 0) {
    signalfd_siginfo info{};
    while (::read(signal_fd_, &info, sizeof(info)) == sizeof(info))
      if (info.ssi_signo != SIGCHLD) take_stop_signal(static_cast<int>(info.ssi_signo));
  }
}

// The end of a session sends SIGTERM and SIGHUP, in either order, and the end of a terminal may
// send SIGHUP twice: each is one request to stop, so SIGHUP never counts as a second one.
void Supervisor::take_stop_signal(int signal) {
  stop_requested_ = true;
  if (signal == SIGHUP)
    hung_up_ = true;
  else
    ++n_stop_signals_;
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
      for (std::string line; std::getline(lines, line);) take(child, line, progress);
    }
  }
}

// A line of the notify protocol.
void Supervisor::take(Child& child, const std::string& line, const Progress& progress) {
  if (line == "READY=1" && !child.ready()) {
    child.ready_since = child.last_sign = steady_now();
    child.was_ever_ready = true;
    write_state();
    progress(child.spec.name, std::string(name_of(ProcessState::kReady)));
  } else if (line == "WATCHDOG=1") {
    child.last_sign = steady_now();
  } else if (line == "STOPPING=1") {
    child.stopping = true;
  } else if (line.starts_with("STATUS=") && (!child.ready() || stop_requested_)) {
    progress(child.spec.name, line.substr(7));
  } else if (const auto us = number_after("EXTEND_TIMEOUT_USEC=", line)) {
    const milliseconds more(std::min<std::uint64_t>(*us / 1000, 1ull << 40));
    const bool has_deadline = (!child.ready() || stop_requested_) && child.ended_for.empty();
    if (has_deadline && steady_now() + more > child.deadline) child.give(more);
  }
}

void Supervisor::reap(const Progress& progress) {
  int status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    read_notifications(progress);  // what it said before it ended still counts
    for (auto& child : children_) {
      if (child.pid != pid) continue;
      child.pid = 0;
      const auto ready_since = std::exchange(child.ready_since, std::nullopt);
      if (stop_requested_) continue;
      child.last_end = child.ended_for.empty() ? how_it_ended(status) : child.ended_for;
      start_again_or_give_up(child, kind_of(status), ready_since, progress);
    }
  }
}

void Supervisor::start_again_or_give_up(Child& child,
                                        FailureKind kind,
                                        std::optional<TimePoint> ready_since,
                                        const Progress& progress) {
  // What is wrong with its settings stays wrong; and a service that never came up will not come up
  // the next time.
  std::optional<TimePoint> again;
  if (kind != FailureKind::kConfiguration && child.was_ever_ready)
    again = child.backoff.ended(steady_now(), ready_since);
  if (again) {
    child.restart_at = *again;
    progress(child.spec.name, child.last_end + "; starts again in " +
                                  in_seconds(child.backoff.delay()) + " (restart " +
                                  std::to_string(child.backoff.n_restarts()) + ")");
  } else {
    give_up(child, kind, progress);
  }
  write_state();
}

// One that does not get ready in time, or whose pings stay away: it is ended, and started again as
// any that failed. SIGABRT first, so that there is a trace where cores are kept, and SIGCONT, for a
// stopped process takes no other signal.
void Supervisor::end_hung() {
  const TimePoint now = steady_now();
  for (auto& child : children_) {
    if (child.pid == 0) continue;
    if (!child.ended_for.empty()) {
      if (now > child.deadline) ::kill(child.pid, SIGKILL);
      continue;
    }
    const bool is_late = !child.ready() && now > child.deadline;
    const bool is_silent = child.ready() && options_.watchdog > milliseconds(0) &&
                           now > child.last_sign + options_.watchdog;
    if (!is_late && !is_silent) continue;
    child.ended_for = is_late ? "was ended: not ready and no sign for " + in_seconds(child.patience)
                              : "watchdog: no sign of life for " + in_seconds(options_.watchdog);
    child.give(options_.abort_timeout);
    ::kill(child.pid, SIGABRT);
    ::kill(child.pid, SIGCONT);
  }
}

// Waits for what happens, and looks at all that did. A supervisor that was itself stopped or
// starved has read no ping in that time: it counts for none.
void Supervisor::turn(milliseconds at_most, const Progress& progress, int reader_fd) {
  constexpr auto kOwnPause = std::chrono::seconds(1);
  wait_for_event(at_most, reader_fd);
  const TimePoint now = steady_now();
  if (last_turn_ != TimePoint{} && now - last_turn_ > at_most + kOwnPause)
    for (auto& child : children_) {
      child.last_sign += now - last_turn_;
      child.deadline += now - last_turn_;
    }
  last_turn_ = now;
  read_notifications(progress);
  reap(progress);
  end_hung();
}

// Drafts only cost speed, and of several targets one is enough; without any other service nothing
// can be served.
bool Supervisor::can_serve_without(const Child& child) const {
  if (!started_) return false;  // who asked for it should hear that it does not start
  if (child.spec.optional) return true;
  for (const auto& other : children_)
    if (&other != &child && other.spec.role == child.spec.role && !other.given_up) return true;
  return false;
}

void Supervisor::give_up(Child& child, FailureKind kind, const Progress& progress) {
  child.given_up = true;
  if (can_serve_without(child)) {
    progress(child.spec.name,
             child.last_end +
                 "; it is not started again and the others serve on without it; its log: " +
                 log_path(options_, child.spec.name).string());
    return;
  }
  const std::size_t n = child.backoff.n_restarts();
  failure_ = child.spec.name + " " + child.last_end +
             (n > 0 ? " after " + std::to_string(n) + " restarts" : "") +
             "; the end of its log:" + last_lines(log_path(options_, child.spec.name), 8);
  failure_kind_ = kind;
}

void Supervisor::restart_due(const Progress& progress) {
  for (auto& child : children_) {
    if (child.pid != 0 || child.given_up || steady_now() < child.restart_at) continue;
    try {
      spawn(child);
    } catch (const std::runtime_error& error) {  // a full disk, no process left: it may pass
      child.last_end = std::string("could not be started: ") + error.what();
      start_again_or_give_up(child, FailureKind::kEnvironment, std::nullopt, progress);
      continue;
    }
    write_state();
    progress(child.spec.name, std::string(name_of(ProcessState::kStarting)));
  }
}

// For `ps`: what the router cannot know, because who does not run does not register.
void Supervisor::write_state() const {
  OrderedJson services = OrderedJson::array();
  for (const auto& child : children_) {
    const std::string state(name_of(child.state()));
    const std::size_t n = child.backoff.n_restarts();
    std::string note;
    if (!child.last_end.empty())
      note =
          (child.given_up ? ""
                          : "restarted " + std::to_string(n) + (n == 1 ? " time; " : " times; ")) +
          child.last_end;
    if (child.given_up)
      note += "; not started again: see " + log_path(options_, child.spec.name).string();
    services.push_back({{"name", child.spec.name},
                        {"role", child.spec.role},
                        {"state", state},
                        {"pid", child.pid},
                        {"restarts", n},
                        {"note", note}});
  }
  write_supervisor_state(options_.runtime_folder, services);
}

StartReport Supervisor::start(const Progress& progress) {
  for (auto& child : children_) spawn(child);
  write_state();
  const auto all_ready = [&] {
    for (const auto& child : children_)
      if (!child.ready()) return false;
    return true;
  };
  StartReport report = run_until(all_ready, progress);
  started_ = report.ready;
  return report;
}

StartReport Supervisor::run_until(const std::function<bool()>& is_done,
                                  const Progress& progress,
                                  milliseconds pause) {
  bool done = is_done();
  while (!done && failure_.empty() && !stop_requested_) {
    turn(pause, progress, options_.reader_fd);
    if (!stop_requested_ && failure_.empty()) restart_due(progress);
    done = is_done();
  }
  if (stop_requested_) return {.failure = "interrupted", .kind = FailureKind::kInterrupted};
  if (!failure_.empty()) return {.failure = failure_, .kind = failure_kind_};
  return {.ready = true};
}

StartReport Supervisor::run(const Progress& progress) {
  while (!stop_requested_ && failure_.empty()) {
    turn(milliseconds(100), progress);
    if (!stop_requested_ && failure_.empty()) restart_due(progress);
  }
  return {.ready = failure_.empty(), .failure = failure_, .kind = failure_kind_};
}

void Supervisor::stop(const Progress& progress) {
  constexpr auto kLeast = std::chrono::seconds(5);  // to end, for those that have waited for others
  stop_requested_ = true;
  last_turn_ = {};
  // Those of the request that began this; one more ends all at once. A SIGTERM may follow SIGHUP.
  const std::size_t n_signals = hung_up_ ? 1 : std::min<std::size_t>(n_stop_signals_, 1);
  const TimePoint whole = steady_now() + options_.stop_timeout;
  bool at_once = false;
  turn(milliseconds(50), progress);  // one that stops already may just have said so
  for (const Duty duty : {Duty::kDoor, Duty::kWork, Duty::kSpeed}) {
    for (auto& child : children_) {
      if (at_once || child.pid == 0 || child.duty() != duty) continue;
      child.give(std::chrono::ceil<milliseconds>(std::max<Duration>(whole - steady_now(), kLeast)));
      // What stopped this process may have stopped all at once: a second signal would cut short.
      if (!child.stopping) ::kill(child.pid, SIGTERM);
    }
    const auto is_running = [&](const Child& child) {
      return child.pid != 0 && child.duty() == duty;
    };
    while (std::any_of(children_.begin(), children_.end(), is_running)) {
      turn(milliseconds(50), progress);
      if (!at_once && n_stop_signals_ > n_signals) {
        at_once = true;
        end_at_once();
      }
      for (const auto& child : children_)
        if (is_running(child) && steady_now() > child.deadline) ::kill(child.pid, SIGKILL);
    }
  }
}

// Two different signals: equal ones may be taken for one.
void Supervisor::end_at_once() {
  for (auto& child : children_) {
    if (child.pid == 0) continue;
    child.give(options_.abort_timeout);
    ::kill(child.pid, SIGTERM);
    ::kill(child.pid, SIGINT);
  }
}

}  // namespace foretoken::cli
