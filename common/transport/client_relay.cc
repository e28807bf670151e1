#include "common/transport/client_relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/fd.h"
#include "common/base/log.h"
#include "common/base/rare_warning.h"
#include "common/base/running_clock.h"
#include "common/transport/message_meter.h"

namespace foretoken {
namespace {

constexpr int kClientBacklog = 1024;
constexpr int kRounds = 4;  // chunks copied for one connection before the others have their turn
constexpr int kArrivalsAtOnce = 64;
constexpr std::size_t kLastBytes =
    ClientRelay::kChunk;  // of a client that is gone; more is not read
constexpr std::size_t kMaxLeaving = 64;
constexpr int kInnerBuffer =
    8 << 10;  // small: what is in it when a client vanishes is still worked off
constexpr std::size_t kDescriptorsPerClient = 3;  // its own, and both ends of the way inside
constexpr int kClientBuffer = 256 << 10;          // of the kernel, each way
constexpr auto kTryAgain = std::chrono::milliseconds(5);
constexpr auto kAcceptPause = std::chrono::milliseconds(100);       // after accept() failed
constexpr auto kClientLookEvery = std::chrono::milliseconds(1000);  // for slow and silent clients
// While there is no room for more. A connection that has brought less than the whole greeting of
// ZMTP 3 has brought no message, so that nothing is lost when its client must connect again.
constexpr std::size_t kGreetingBytes = 64;
constexpr auto kGreetingPatience = std::chrono::seconds(2);
constexpr auto kLastWords = std::chrono::milliseconds(500);
// Of a pause between two looks at the last words: some turns happen, however busy the machine is.
constexpr auto kLongestTurn = std::chrono::milliseconds(20);
constexpr auto kUnplugged = std::chrono::seconds(30);

[[noreturn]] void fatal(const std::string& text) {
  const int why = errno;
  throw FatalError(ErrorCode::kIo, "cannot bind " + text + ": " + std::strerror(why));
}

sockaddr_un inner_address(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // Abstract: the first byte stays 0.
  std::memcpy(address.sun_path + 1, name.data(),
              std::min(name.size(), sizeof address.sun_path - 1));
  return address;
}

socklen_t inner_length(const std::string& name) {
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

void set(int fd, int level, int option, int value) {
  ::setsockopt(fd, level, option, &value, sizeof value);
}

Fd listen_tcp(const Endpoint& where, const std::string& text, std::string& endpoint) {
  const bool six = where.place.find(':') != std::string::npos;
  std::string place = where.place;
  if (place.starts_with('[')) place = place.substr(1, place.size() - 2);
  sockaddr_storage address{};
  const auto port =
      htons(where.port == "*" ? 0 : static_cast<std::uint16_t>(std::stoi(where.port)));
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
  address.ss_family = six ? AF_INET6 : AF_INET;
  ::inet_pton(address.ss_family, place.c_str(),
              six ? static_cast<void*>(&v6->sin6_addr) : static_cast<void*>(&v4->sin_addr));
  (six ? v6->sin6_port : v4->sin_port) = port;
  Fd listener(::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener) fatal(text);
  set(listener.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  socklen_t length = six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(listener.get(), kClientBacklog) != 0 ||
      ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    fatal(text);
  endpoint =
      "tcp://" + where.place + ":" + std::to_string(ntohs(six ? v6->sin6_port : v4->sin_port));
  return listener;
}

Fd listen_ipc(const Endpoint& where, const std::string& text) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, where.place.data(), where.place.size());
  Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener) fatal(text);
  ::unlink(where.place.c_str());   // of an ended process: the caller holds the lock of this address
  ::fchmod(listener.get(), 0700);  // before binding: it is never open to others
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.get(), kClientBacklog) != 0)
    fatal(text);
  return listener;
}

}  // namespace

class ClientRelay::Loop {
 public:
  Loop(Fd listener, std::string inner_name, std::string text, const ClientRelayLimits& limits)
      : listener_(std::move(listener)),
        inner_name_(std::move(inner_name)),
        text_(std::move(text)),
        limits_(limits),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)),
        wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!epoll_ || !wake_) fatal(text_);
    watch(EPOLL_CTL_ADD, wake_.get(), kWake, EPOLLIN);
    watch(EPOLL_CTL_ADD, listener_.get(), kListener, EPOLLIN);
    thread_ = std::thread([this] { run(); });
  }

  ~Loop() {
    ask(Wish::kFinish);
    thread_.join();
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void stop_listening() {
    ask(Wish::kNoMore);
    listens_.wait(true);
  }
  const ClientRelayCounters& counters() const { return counters_; }

 private:
  enum class Wish : std::uint8_t { kServe, kNoMore, kFinish };
  static constexpr std::uint64_t kWake = 0, kListener = 1;  // below every connection's

  // One side of a connection.
  struct Side {
    Fd fd;
    std::string unsent;           // for this side; while there is any, the other is not read
    bool ended = false;           // nothing more comes from it
    bool deaf = false;            // nothing more can be sent to it
    bool too_large = false;       // a message from it is larger than the limit
    bool hung = false;            // its end was reported: what is left is read, nothing waited for
    std::size_t left = SIZE_MAX;  // bytes that may still be read from it
    std::size_t n_read = 0;       // bytes read from it
    std::uint32_t events = 0;     // what epoll watches
    std::optional<MessageMeter> meter;  // of what a client sends
  };
  struct Connection {
    Side client, router;
    bool leaving = false;   // its client is gone, and the socket has not closed its side yet
    bool waits = false;     // the client has not taken everything
    TimePoint took_last{};  // when it last took something, if it waits; by patience_clock_
    TimePoint since{};      // its arrival, by patience_clock_
  };

  void watch(int operation, int fd, std::uint64_t key, std::uint32_t events) const {
    epoll_event event{};
    event.events = events;
    event.data.u64 = key;
    ::epoll_ctl(epoll_.get(), operation, fd, &event);
  }

  void ask(Wish wish) {
    wish_ = wish;
    const std::uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
  }

  void run() {
    std::array<epoll_event, 128> events{};
    while (true) {
      const TimePoint now = steady_now();
      if (wish_ != Wish::kServe && listener_) {
        listener_ = Fd();
        arrivals_.clear();
        listens_ = false;
        listens_.notify_all();
      }
      if (wish_ == Wish::kFinish) {
        const TimePoint counted = finish_clock_.at(now);
        if (finish_at_ == TimePoint{}) finish_at_ = counted + kLastWords;
        if (connections_.empty() || counted >= finish_at_) return;
      }
      resume_accepting(now);
      lead_arrivals_inside();
      look_at_clients(now);
      const int n =
          ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout());
      for (int i = 0; i < n; ++i) on_event(events[static_cast<std::size_t>(i)]);
    }
  }

  int timeout() const {
    if (wish_ == Wish::kFinish || !arrivals_.empty()) return static_cast<int>(kTryAgain.count());
    if (accept_again_ != TimePoint{}) return static_cast<int>(kAcceptPause.count());
    return n_waiting_ > 0 || full_ ? static_cast<int>(kClientLookEvery.count()) : -1;
  }

  void on_event(const epoll_event& event) {
    if (event.data.u64 == kWake) {
      std::uint64_t count = 0;
      (void)!::read(wake_.get(), &count, sizeof count);
    } else if (event.data.u64 == kListener) {
      accept_clients();
    } else if (const auto found = connections_.find(event.data.u64 >> 1);
               found != connections_.end()) {
      Connection& connection = found->second;
      Side& side = (event.data.u64 & 1) == 0 ? connection.client : connection.router;
      if ((event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
        side.hung = true;
        watch(EPOLL_CTL_DEL, side.fd.get(), 0, 0);
        side.events = 0;
        if (&side == &connection.client) {
          be_deaf(side);  // no ZeroMQ client closes one half only
          side.left = kLastBytes;
        }
      }
      turn(found->first, connection);
    }
  }

  // ---- arrivals

  // What clients that left had asked is worked off before more are let in than can be.
  bool has_room() const {
    return connections_.size() + arrivals_.size() < limits_.max_connections &&
           n_leaving_ < kMaxLeaving;
  }

  void accept_clients() {
    for (int i = 0; i < kArrivalsAtOnce && listener_; ++i) {
      if (!has_room()) {
        if (no_room_.count(steady_now()))
          log_warning("no room for more clients: further ones wait until one leaves (ulimit -n)",
                      {{"endpoint", text_}, {"limit", limits_.max_connections}});
        full_ = true;
        return watch(EPOLL_CTL_MOD, listener_.get(), kListener, 0);
      }
      // Not accept4(), which turns away (accept_guard.h): clients of this door wait.
      Fd client(static_cast<int>(
          ::syscall(SYS_accept4, listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
      if (!client) {
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
        if (!refused_)
          log_warning("cannot accept clients",
                      {{"endpoint", text_}, {"reason", std::strerror(errno)}});
        refused_ = true;
        accept_again_ = steady_now() + kAcceptPause;
        return watch(EPOLL_CTL_MOD, listener_.get(), kListener, 0);
      }
      refused_ = false;
      prepare(client.get());
      ++counters_.accepted;
      arrivals_.push_back(std::move(client));
    }
  }

  static void prepare(int fd) {
    // The kernel's own sizes would grow to megabytes a connection.
    set(fd, SOL_SOCKET, SO_SNDBUF, kClientBuffer);
    set(fd, SOL_SOCKET, SO_RCVBUF, kClientBuffer);
    // Not of TCP: no harm on a Unix socket. An unplugged client is missed within about 30 s, also
    // while nothing is under way: Linux then ends the probes by TCP_USER_TIMEOUT and not by
    // TCP_KEEPCNT. The limit counts against a client that only reads slowly, too.
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
    set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
        static_cast<int>(std::chrono::milliseconds(kUnplugged).count()));
  }

  void resume_accepting(TimePoint now) {
    if (!listener_) return;
    const bool room = has_room();
    const bool rested = accept_again_ != TimePoint{} && now >= accept_again_;
    if (!(full_ && room) && !rested) return;
    full_ = full_ && !room;
    if (rested) accept_again_ = TimePoint{};
    if (!full_ && accept_again_ == TimePoint{})
      watch(EPOLL_CTL_MOD, listener_.get(), kListener, EPOLLIN);
  }

  // Refused for a moment when the one who listens inside has not caught up.
  void lead_arrivals_inside() {
    const sockaddr_un address = inner_address(inner_name_);
    while (!arrivals_.empty()) {
      Fd inner(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      if (!inner) return;
      set(inner.get(), SOL_SOCKET, SO_SNDBUF, kInnerBuffer);
      if (::connect(inner.get(), reinterpret_cast<const sockaddr*>(&address),
                    inner_length(inner_name_)) != 0) {
        if (errno == EAGAIN || errno == EINTR) return;
        arrivals_.pop_front();  // the inner socket is closed
        continue;
      }
      const std::uint64_t number = ++last_number_;
      Connection& connection = connections_[number];
      connection.since = patience_clock_.at(steady_now());
      connection.client.meter.emplace(limits_.max_message_bytes);
      connection.client.fd = std::move(arrivals_.front());
      connection.router.fd = std::move(inner);
      arrivals_.pop_front();
      counters_.connections = connections_.size();
      watch(EPOLL_CTL_ADD, connection.client.fd.get(), number << 1, 0);
      watch(EPOLL_CTL_ADD, connection.router.fd.get(), number << 1 | 1, 0);
      turn(number, connection);
    }
  }

  // ---- copying

  static void be_deaf(Side& side) {
    side.deaf = true;
    side.unsent.clear();
  }

  void drop_client(Connection& connection) const {
    connection.client.fd = Fd();
    connection.client.ended = true;
    connection.client.events = 0;
    be_deaf(connection.client);
  }

  // What waits for this side, and then as much of `bytes` as it takes; the rest is kept.
  static bool give(Side& side, const char* bytes, std::size_t n) {
    if (side.deaf) return false;
    const ssize_t sent = ::send(side.fd.get(), bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return be_deaf(side), false;
    const std::size_t taken = sent < 0 ? 0 : static_cast<std::size_t>(sent);
    if (bytes == side.unsent.data())
      side.unsent.erase(0, taken);
    else
      side.unsent.assign(bytes + taken, n - taken);
    return taken > 0;
  }

  // From one side to the other until one has enough. True if `to` took something.
  bool copy(Side& from, Side& to) {
    bool took = false;
    if (!to.unsent.empty()) took = give(to, to.unsent.data(), to.unsent.size());
    // The last bytes for a client that takes none go at once: no event reports them.
    const bool discard = from.hung && to.deaf;
    if (from.left == 0) from.ended = true;
    for (int i = 0; (i < kRounds || discard) && to.unsent.empty() && !from.ended; ++i) {
      const ssize_t n =
          ::recv(from.fd.get(), chunk_.data(), std::min(chunk_.size(), from.left), MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) {
        if (from.hung) from.ended = true;
        break;
      }
      if (n <= 0) {
        from.ended = true;
        break;
      }
      from.n_read += static_cast<std::size_t>(n);
      if (from.hung) from.left -= static_cast<std::size_t>(n);
      from.too_large =
          from.meter && !from.meter->fits({chunk_.data(), static_cast<std::size_t>(n)});
      if (from.too_large) break;
      took = give(to, chunk_.data(), static_cast<std::size_t>(n)) || took;
    }
    return took;
  }

  void turn(std::uint64_t number, Connection& connection) {
    Side& client = connection.client;
    Side& router = connection.router;
    copy(client, router);
    if (client.fd && client.too_large) cut_too_large(connection);
    const bool took = copy(router, client);
    const bool waited = std::exchange(connection.waits, !client.unsent.empty());
    n_waiting_ += static_cast<std::size_t>(connection.waits);
    n_waiting_ -= static_cast<std::size_t>(waited);
    if (router.ended && client.unsent.empty()) return end(number);
    if (router.ended) client.ended = true;
    if (client.ended && !std::exchange(connection.leaving, true)) ++n_leaving_;
    // Everything the client said is inside: its end may follow. Never a full close, see the header.
    if (client.ended && router.unsent.empty() && !router.deaf) {
      ::shutdown(router.fd.get(), SHUT_WR);
      router.deaf = true;
    }
    if (connection.waits && (took || !waited))
      connection.took_last = patience_clock_.at(steady_now());
    want(number << 1, client, router);
    want(number << 1 | 1, router, client);
  }

  void want(std::uint64_t key, Side& side, const Side& other) const {
    if (!side.fd || side.hung) return;
    std::uint32_t events = 0;
    if (!side.ended && other.unsent.empty()) events |= EPOLLIN;
    // The other's last bytes, of which no event will tell, go on when this one takes more.
    if (!side.unsent.empty() || (other.hung && !other.ended && !side.deaf)) events |= EPOLLOUT;
    if ((key & 1) == 0) events |= EPOLLRDHUP;
    if (events == side.events) return;
    side.events = events;
    watch(EPOLL_CTL_MOD, side.fd.get(), key, events);
  }

  void end(std::uint64_t number) {
    if (connections_.at(number).leaving) --n_leaving_;
    connections_.erase(number);
    counters_.connections = connections_.size();
  }

  // At those who take nothing of what waits for them, and, where others wait for room, at those who
  // have sent no greeting.
  void look_at_clients(TimePoint now) {
    if (n_waiting_ == 0 && !full_) return;
    const TimePoint counted = patience_clock_.at(now);
    if (now < look_at_) return;
    look_at_ = now + kClientLookEvery;
    std::vector<std::uint64_t> slow, silent;
    for (const auto& [number, connection] : connections_) {
      if (connection.waits && counted - connection.took_last >= limits_.patience)
        slow.push_back(number);
      else if (full_ && !connection.leaving && connection.client.n_read < kGreetingBytes &&
               counted - connection.since >= kGreetingPatience)
        silent.push_back(number);
    }
    for (const std::uint64_t number : slow) {
      ++counters_.cut_slow;
      log_warning("a client is disconnected: it takes nothing of what waits for it",
                  {{"endpoint", text_},
                   {"patience_s", std::chrono::duration<double>(limits_.patience).count()},
                   {"bytes", connections_.at(number).client.unsent.size()}});
      disconnect(number);
    }
    for (const std::uint64_t number : silent) disconnect(number);
    counters_.cut_silent += silent.size();
    if (!silent.empty() && made_room_.count(now))
      log_warning("clients without a greeting are disconnected: further ones wait for room",
                  {{"endpoint", text_}, {"clients", silent.size()}});
  }

  void cut_too_large(Connection& connection) {
    ++counters_.cut_too_large;
    if (const auto n = too_large_.count(steady_now()))
      log_warning(
          "a client is disconnected: its message is too large",
          {{"endpoint", text_}, {"limit_bytes", limits_.max_message_bytes}, {"since_start", *n}});
    drop_client(connection);
  }

  void disconnect(std::uint64_t number) {
    Connection& connection = connections_.at(number);
    drop_client(connection);
    turn(number, connection);
  }

  Fd listener_;
  const std::string inner_name_;
  const std::string text_;
  const ClientRelayLimits limits_;
  Fd epoll_;
  Fd wake_;
  std::atomic<Wish> wish_{Wish::kServe};
  std::atomic<bool> listens_{true};
  ClientRelayCounters counters_;
  // The thread's own:
  std::unordered_map<std::uint64_t, Connection> connections_;
  std::deque<Fd> arrivals_;  // accepted, and not yet led inside
  std::vector<char> chunk_ = std::vector<char>(kChunk);
  std::uint64_t last_number_ = 0;
  std::size_t n_leaving_ = 0;
  std::size_t n_waiting_ = 0;  // clients that bytes wait for
  bool full_ = false;
  bool refused_ = false;
  TimePoint accept_again_{};
  RareWarning no_room_{std::chrono::minutes(1)};
  RareWarning made_room_{std::chrono::minutes(1)};
  RareWarning too_large_{std::chrono::minutes(1)};
  TimePoint look_at_{};
  RunningClock patience_clock_{
      kClientLookEvery};  // while there are clients to look at a turn comes as often
  RunningClock finish_clock_{kLongestTurn};
  TimePoint finish_at_{};  // by finish_clock_
  std::thread thread_;
};

ClientRelay::ClientRelay(const Endpoint& where,
                         const std::string& text,
                         std::string inner_name,
                         const ClientRelayLimits& limits)
    : endpoint_(text) {
  Fd listener =
      where.scheme == Scheme::kTcp ? listen_tcp(where, text, endpoint_) : listen_ipc(where, text);
  loop_ = std::make_unique<Loop>(std::move(listener), std::move(inner_name), endpoint_, limits);
}

ClientRelay::~ClientRelay() = default;
void ClientRelay::stop_listening() { loop_->stop_listening(); }
const ClientRelayCounters& ClientRelay::counters() const { return loop_->counters(); }

std::size_t clients_within_descriptor_limit(std::size_t n_reserved) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_cur == RLIM_INFINITY) return ClientRelayLimits{}.max_connections;
  const auto n = static_cast<std::size_t>(limit.rlim_cur);
  return n <= n_reserved ? 0
                         : std::min(ClientRelayLimits{}.max_connections,
                                    (n - n_reserved) / kDescriptorsPerClient);
}

}  // namespace foretoken
