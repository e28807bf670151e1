#include "common/transport/accept_guard.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <thread>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/rare_warning.h"

namespace foretoken {
namespace {

constexpr auto kNothingCouldBeDone = std::chrono::milliseconds(1);

std::mutex spare_mutex;
int spare = -1;
RareWarning turned_away{std::chrono::minutes(1)};
std::atomic<std::uint64_t> n_turned_away{0};

void open_spare() {
  if (spare < 0) spare = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

// Accepts the next peer with the descriptor in reserve and closes it at once. If another thread
// takes the free descriptor first, no peer is turned away; libzmq then calls accept4() again.
void turn_away_from(int listener) {
  const std::lock_guard lock(spare_mutex);
  if (spare >= 0) ::close(spare);
  spare = -1;
  const auto peer =
      static_cast<int>(::syscall(SYS_accept4, listener, nullptr, nullptr, SOCK_CLOEXEC));
  if (peer >= 0) ::close(peer);
  open_spare();
  // libzmq calls again at once; without a pause that would be a busy loop.
  if (peer < 0) return std::this_thread::sleep_for(kNothingCouldBeDone);
  ++n_turned_away;
  if (const auto n = turned_away.count(steady_now()))
    log_warning("no descriptor left: connections are turned away (ulimit -n)",
                {{"since_start", *n}});
}

}  // namespace

void prepare_to_turn_away() {
  const std::lock_guard lock(spare_mutex);
  open_spare();
}

std::uint64_t connections_turned_away() { return n_turned_away; }

}  // namespace foretoken

// ECONNABORTED: the peer left before it was accepted. libzmq goes on after this error at every
// door.
extern "C" __attribute__((visibility("default"))) int accept4(int listener,
                                                              struct sockaddr* address,
                                                              socklen_t* length,
                                                              int flags) {
  const auto peer = static_cast<int>(::syscall(SYS_accept4, listener, address, length, flags));
  if (peer >= 0 || (errno != EMFILE && errno != ENFILE)) return peer;
  foretoken::turn_away_from(listener);
  errno = ECONNABORTED;
  return -1;
}
