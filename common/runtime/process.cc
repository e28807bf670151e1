#include "common/runtime/process.h"

#include <sys/random.h>
#include <sys/signalfd.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>

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

Notifier::Notifier() {
  std::uint64_t period_us = 0;
  if (sd_watchdog_enabled(0, &period_us) > 0) watchdog_ = std::chrono::microseconds(period_us);
}

void Notifier::ready() { sd_notify(0, "READY=1"); }
void Notifier::stopping() { sd_notify(0, "STOPPING=1"); }
void Notifier::status(const std::string& text) { sd_notify(0, ("STATUS=" + text).c_str()); }

void Notifier::extend_timeout(Duration by) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(by).count();
  sd_notify(0, ("EXTEND_TIMEOUT_USEC=" + std::to_string(us)).c_str());
}

void Notifier::alive(TimePoint now) {
  if (!watchdog_ || (last_alive_ != TimePoint{} && now - last_alive_ < *watchdog_ / 4)) return;
  last_alive_ = now;
  sd_notify(0, "WATCHDOG=1");
}

std::uint64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::uint64_t pages_all = 0;
  std::uint64_t pages_resident = 0;
  in >> pages_all >> pages_resident;
  return pages_resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
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
