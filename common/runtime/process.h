// This process among others: signals as data, and the notices to systemd. Everything is harmless
// without systemd.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/clock.h"

namespace foretoken {

// Blocks SIGTERM, SIGINT and SIGHUP for this and all later threads and makes them readable; ignores
// SIGPIPE. Create it before any thread starts.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  int fd() const { return fd_; }
  std::optional<int> next();  // never waits

 private:
  int fd_ = -1;
};

// The notification protocol of systemd, over $NOTIFY_SOCKET. Any thread; alive() from one.
class Notifier {
 public:
  Notifier();
  ~Notifier();
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;
  void ready();
  void stopping();
  void status(const std::string& text);
  // The start (or stop) timeout begins anew, with this much left.
  void extend_timeout(Duration by);
  // Call while there is progress: sends WATCHDOG=1, at most four times per watchdog period.
  void alive(TimePoint now);
  // How often alive() must be called at least; nothing if no watchdog waits.
  std::optional<Duration> watchdog_period() const { return watchdog_; }

 private:
  // Never waits: the receiver may itself be stopped, and its queue full.
  void say(const std::string& text) const;

  std::optional<Duration> watchdog_;
  TimePoint last_alive_{};
  int fd_ = -1;  // connected to the socket, if there is one
};

std::uint64_t resident_bytes();  // of this process
double cpu_seconds();            // that this process has had, on all its threads
std::uint64_t random_u64();      // from the kernel
std::string host_name();
std::string boot_id();  // of the running kernel, the same in its containers; "" where it is hidden

}  // namespace foretoken
