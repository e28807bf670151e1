#include "common/runtime/process.h"

#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "common/base/log.h"
#include "common/base/result.h"

namespace foretoken {

Signals::Signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  fd_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd_ < 0)
    throw FatalError(ErrorCode::kInternal, std::string("signalfd: ") + std::strerror(errno));
}

Signals::~Signals() { ::close(fd_); }

std::optional<int> Signals::next() {
  signalfd_siginfo info{};
  if (::read(fd_, &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

namespace {

// A path, or a name in the abstract space behind '@'. -1: no address, or no receiver there.
int connect_to_notify_socket() {
  const char* name = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t size = name == nullptr ? 0 : std::strlen(name);
  if (size < 2 || size >= sizeof address.sun_path) return -1;
  std::memcpy(address.sun_path, name, size);
  if (name[0] == '@') address.sun_path[0] = '\0';
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + size);
  if (fd >= 0 && ::connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0) return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}

}  // namespace

Notifier::Notifier() : fd_(connect_to_notify_socket()) {
  std::uint64_t period_us = 0;
  if (sd_watchdog_enabled(0, &period_us) > 0) watchdog_ = std::chrono::microseconds(period_us);
}

Notifier::~Notifier() {
  if (fd_ >= 0) ::close(fd_);
}

void Notifier::say(const std::string& text) const {
  if (fd_ >= 0) (void)::send(fd_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Notifier::ready() {
  // Waits: it must arrive. Where it does not, this process is ended as one that never got ready.
  if (const int sent = sd_notify(0, "READY=1"); sent < 0)
    log_warning("READY=1 did not reach the service manager (NOTIFY_SOCKET)",
                {{"reason", std::strerror(-sent)}});
}

void Notifier::stopping() { say("STOPPING=1"); }
void Notifier::status(const std::string& text) { say("STATUS=" + text); }

void Notifier::extend_timeout(Duration by) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(by).count();
  say("EXTEND_TIMEOUT_USEC=" + std::to_string(us));
}

void Notifier::alive(TimePoint now) {
  if (!watchdog_ || (last_alive_ != TimePoint{} && now - last_alive_ < *watchdog_ / 4)) return;
  last_alive_ = now;
  say("WATCHDOG=1");
}

std::uint64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::uint64_t pages_all = 0;
  std::uint64_t pages_resident = 0;
  in >> pages_all >> pages_resident;
  return pages_resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

std::uint64_t random_u64() {
  std::uint64_t value = 0;
  while (::getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value)) {
  }
  return value;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

std::string boot_id() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(in, id);
  return id;
}

}  // namespace foretoken
