#include "bench/schedule/delay_relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/transport/endpoint.h"

namespace foretoken::bench {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
constexpr std::size_t kMostWaiting = 4 * 1024 * 1024;  // a direction, before its sender waits

FatalError cannot(const std::string& what) {
  return FatalError(ErrorCode::kIo,
                    "the relay cannot " + what + ": " + std::string(std::strerror(errno)));
}

// Any address that sockets take.
struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};

Address tcp_address(const std::string& place, const std::string& port) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(static_cast<std::uint16_t>(std::stoul(port)));
  if (::inet_pton(AF_INET, place.c_str(), &in.sin_addr) != 1)
    throw FatalError(ErrorCode::kConfig,
                     "the relay takes addresses of version 4; this is none: " + place);
  Address address{.size = sizeof(in)};
  std::memcpy(&address.bytes, &in, sizeof(in));
  return address;
}

Address ipc_address(const std::string& path) {
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  if (path.size() >= sizeof(un.sun_path))
    throw FatalError(ErrorCode::kConfig, path + " has " + std::to_string(path.size()) +
                                             " bytes; a socket's path has at most 107");
  std::memcpy(un.sun_path, path.c_str(), path.size() + 1);
  Address address{.size = sizeof(un)};
  std::memcpy(&address.bytes, &un, sizeof(un));
  return address;
}

Address address_of(const std::string& text) {
  const Endpoint endpoint = value_or_throw(parse_endpoint(text));
  if (endpoint.scheme == Scheme::kIpc) return ipc_address(endpoint.place);
  if (endpoint.scheme == Scheme::kTcp && endpoint.port != "*")
    return tcp_address(endpoint.place, endpoint.port);
  throw FatalError(ErrorCode::kConfig, "the relay cannot connect to " + text +
                                           ": it takes tcp://ADDRESS:PORT and ipc://PATH");
}

void do_not_gather(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // fails where it is not TCP
}

// The bytes of one direction, and when each of them is due.
class DelayedBytes {
 public:
  bool has_room() const { return !has_end_ && n_waiting_ < kMostWaiting; }
  bool has_ended() const { return is_shut_; }
  std::optional<TimePoint> due() const {
    if (is_blocked_ || parts_.empty()) return std::nullopt;
    return parts_.front().due;
  }
  bool is_blocked() const { return is_blocked_; }  // the receiver takes no more for now

  // False: the connection is of no more use.
  bool read(int from, TimePoint due) {
    std::vector<char> bytes(kReadBytes);
    const ssize_t n = ::recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    has_end_ = n == 0;
    bytes.resize(static_cast<std::size_t>(n));
    n_waiting_ += bytes.size();
    parts_.push_back({due, std::move(bytes)});
    return true;
  }

  bool write(int to, TimePoint now) {
    is_blocked_ = false;
    while (!parts_.empty() && parts_.front().due <= now) {
      Part& part = parts_.front();
      if (part.bytes.empty()) {  // the end
        ::shutdown(to, SHUT_WR);
        is_shut_ = true;
        parts_.pop_front();
        continue;
      }
      const ssize_t n = ::send(to, part.bytes.data() + part.n_sent, part.bytes.size() - part.n_sent,
                               MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0) {
        is_blocked_ = errno == EAGAIN;
        return is_blocked_ || errno == EINTR;
      }
      n_waiting_ -= static_cast<std::size_t>(n);
      part.n_sent += static_cast<std::size_t>(n);
      if (part.n_sent == part.bytes.size()) parts_.pop_front();
    }
    return true;
  }

 private:
  struct Part {
    TimePoint due;
    std::vector<char> bytes;  // none: the end
    std::size_t n_sent = 0;
  };
  std::deque<Part> parts_;
  std::size_t n_waiting_ = 0;
  bool has_end_ = false, is_shut_ = false, is_blocked_ = false;
};

struct Connection {
  Fd near, far;
  DelayedBytes there = {}, back = {};  // from near to far, from far to near
  bool is_broken = false;

  bool is_over() const { return is_broken || (there.has_ended() && back.has_ended()); }
};

// Everything that the thread touches.
class RelayLoop {
 public:
  RelayLoop(const std::string& to, Duration one_way)
      : to_(address_of(to)),
        one_way_(one_way),
        listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    const Address any = tcp_address("127.0.0.1", "0");
    if (!listener_ || ::bind(listener_.get(), any.get(), any.size) != 0 ||
        ::listen(listener_.get(), SOMAXCONN) != 0)
      throw cannot("listen on the loopback address");
  }

  std::string endpoint() const {
    sockaddr_in bound{};
    socklen_t size = sizeof(bound);
    if (::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0)
      throw cannot("read its own address");
    return "tcp://127.0.0.1:" + std::to_string(ntohs(bound.sin_port));
  }

  void run(int stop) {
    ::prctl(PR_SET_TIMERSLACK, 1UL);  // the usual 50 us would be added to each delay
    for (;;) {
      std::vector<pollfd> polled{{stop, POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      for (const Connection& each : connections_) add_to(polled, each);
      wait(polled);
      if (polled[0].revents != 0) return;
      std::size_t at = 2;
      for (Connection& each : connections_) {
        move_bytes(each, polled[at].revents, polled[at + 1].revents);
        at += 2;
      }
      std::erase_if(connections_, [](const Connection& each) { return each.is_over(); });
      if (polled[1].revents != 0) accept();
    }
  }

 private:
  static void add_to(std::vector<pollfd>& polled, const Connection& connection) {
    const auto events = [](const DelayedBytes& from_here, const DelayedBytes& to_here) {
      return static_cast<short>((from_here.has_room() ? POLLIN : 0) |
                                (to_here.is_blocked() ? POLLOUT : 0));
    };
    // One that has nothing to wait for is left out, or its hang-up would be reported without end.
    const auto add = [&](int fd, short wanted) {
      polled.push_back({wanted == 0 ? -1 : fd, wanted, 0});
    };
    add(connection.near.get(), events(connection.there, connection.back));
    add(connection.far.get(), events(connection.back, connection.there));
  }

  void wait(std::vector<pollfd>& polled) const {
    std::optional<TimePoint> due;
    for (const Connection& each : connections_)
      for (const DelayedBytes* bytes : {&each.there, &each.back})
        if (const auto its = bytes->due()) due = due ? std::min(*due, *its) : *its;
    timespec pause{};
    if (due) {
      const auto left = std::max(Duration{0}, *due - steady_now());
      const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
      pause = {.tv_sec = static_cast<time_t>(seconds.count()),
               .tv_nsec = static_cast<long>((left - seconds).count())};
    }
    if (::ppoll(polled.data(), polled.size(), due ? &pause : nullptr, nullptr) < 0)
      for (pollfd& each : polled) each.revents = 0;
  }

  void move_bytes(Connection& connection, int near_events, int far_events) const {
    const TimePoint now = steady_now();
    const TimePoint due = now + one_way_;
    const auto read = [&](DelayedBytes& bytes, const Fd& from, int events) {
      const bool is_due = (events & ~POLLOUT) != 0 && bytes.has_room();
      return !is_due || bytes.read(from.get(), due);
    };
    const bool is_fine = read(connection.there, connection.near, near_events) &&
                         read(connection.back, connection.far, far_events) &&
                         connection.there.write(connection.far.get(), now) &&
                         connection.back.write(connection.near.get(), now);
    connection.is_broken = !is_fine;
  }

  void accept() {
    Fd near(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!near) return;
    Fd far(::socket(to_.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // On this machine: it is taken or refused at once.
    if (!far || ::connect(far.get(), to_.get(), to_.size) != 0) return;
    do_not_gather(near.get());
    do_not_gather(far.get());
    connections_.push_back({.near = std::move(near), .far = std::move(far)});
  }

  const Address to_;
  const Duration one_way_;
  Fd listener_;
  std::list<Connection> connections_;
};

}  // namespace

DelayRelay::DelayRelay(const std::string& to, Duration one_way) : stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (!stop_) throw cannot("make an eventfd");
  auto loop = std::make_unique<RelayLoop>(to, one_way);
  endpoint_ = loop->endpoint();
  thread_ = std::thread([loop = std::move(loop), stop = stop_.get()] { loop->run(stop); });
}

DelayRelay::~DelayRelay() {
  const std::uint64_t one = 1;
  if (::write(stop_.get(), &one, sizeof(one)) == sizeof(one)) thread_.join();
}

}  // namespace foretoken::bench
