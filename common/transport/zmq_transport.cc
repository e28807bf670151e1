#include "common/transport/zmq_transport.h"

#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "common/base/check.h"
#include "common/transport/accept_guard.h"
#include "common/transport/client_relay.h"
#include "common/transport/endpoint.h"
#include "common/transport/file_lock.h"
#include "common/transport/zmq_auth.h"

namespace foretoken {
namespace {

constexpr std::int64_t kInternalPartBytes = std::int64_t{4} << 20;
constexpr std::int64_t kClientPartBytes = std::int64_t{1} << 20;
constexpr int kInternalQueue = 256;  // messages per connection and direction
constexpr int kClientQueue = 64;
// Answers inside libzmq, which counts messages and not bytes: the others wait outside (outbox.h).
constexpr int kClientAnswers = 128;
constexpr int kLingerMs = 500;
// Limits of the ZMTP handshake of a new connection. Without keys the connecting side may send as
// soon as it has the READY of the bound side. If the bound side then closes, because its peer's
// READY was late on a busy machine, those messages are lost without an error. So it waits as long
// as libzmq does by default. With keys the bound side sends its READY last and loses nothing, and a
// stranger should not hold a place for long. The connecting side has sent nothing before it has a
// READY: it reconnects, and a short limit gets it away from a stopped process.
constexpr auto kHandshakeOfBound = std::chrono::seconds(30);
constexpr auto kHandshakeOfBoundWithKeys = std::chrono::seconds(2);
constexpr auto kHandshakeOfConnecting = std::chrono::seconds(2);
// Between target and draft: every message is a hint or cumulative, and replaced by the next after a
// step. A draft that was stopped for a second would otherwise find hundreds of questions of the
// past before the one that counts, and its answers to them would hold up the one that counts. Short
// where it is sent; where it is received no connection should be stopped (see the heartbeats
// below).
constexpr int kDraftQueue = 16;
// Descriptors left to everything that is not a client: services, files, the threads' own.
constexpr std::size_t kReservedDescriptors = 64;
constexpr std::size_t kCorrelationBytes = 4;  // what libzmq's REQ sends with ZMQ_REQ_CORRELATE
// A door that wants a key may close before it has said so. One or two may belong to a router that
// was just ended.
constexpr int kCutShort = 3;
constexpr const char* kZapEndpoint = "inproc://zeromq.zap.01";

[[noreturn]] void fatal(ErrorCode code, const std::string& sentence) {
  throw FatalError(code, sentence);
}

Door door_of(std::string_view name) {
  for (const Door door : {Door::kClient, Door::kDraft})
    if (name == name_of(door)) return door;
  return Door::kInternal;
}

int in_ms(Duration time) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
}

enum class Outcome { kNothing, kDropped, kMessage };

}  // namespace

struct ZmqTransport::State {
  struct Socket {
    SocketId id = 0;
    zmq::socket_t socket;
    Door door = Door::kInternal;
    bool routed = false;  // ROUTER: the first part is the connection
    std::string endpoint;
    FileLock lock;
    std::unique_ptr<ClientRelay> relay;  // before a door for clients
    zmq::socket_t monitor;  // of a socket that takes keys: handshakes that never reached ZAP; of a
                            // watched one: its connection
    ConnectionState connection;
    bool may_need_key = false;  // the door that it is connected to may ask for one: not on ipc
    int n_cut_short = 0;        // connections in a row that ended in the middle of the greeting

    Socket() = default;
    Socket(Socket&&) = default;
    Socket& operator=(Socket&&) = default;
    ~Socket() { stop_monitor(); }
    // Before either socket is closed: a monitor that is not read would hold up the thread that
    // writes to it.
    void stop_monitor() const {
      if (monitor && socket)
        zmq_socket_monitor(const_cast<void*>(static_cast<const void*>(socket.handle())), nullptr,
                           0);
    }
  };

  zmq::context_t context{1};
  ZmqOptions options;
  bool curve = false;
  CurveKeys keys;
  std::vector<CurvePeer> peers;
  std::optional<zmq::socket_t> zap;
  std::vector<Socket> sockets;
  std::vector<std::unique_ptr<ClientRelay>> closed_relays;  // that have last words to deliver
  bool clients_held = false;
  bool is_held(const Socket& socket) const { return clients_held && socket.door == Door::kClient; }
  std::size_t turn = 0;  // whose turn it is to be read first
  SocketId last_id = 0;
  int wake_fd = -1;
  std::shared_ptr<TransportCounters> counters = std::make_shared<TransportCounters>();

  Socket* find(SocketId id) {
    const auto found =
        std::find_if(sockets.begin(), sockets.end(), [&](const Socket& s) { return s.id == id; });
    return found == sockets.end() ? nullptr : &*found;
  }

  void set_options(zmq::socket_t& socket, Door door) {
    using namespace zmq::sockopt;  // NOLINT; `linger` is also a struct of <sys/socket.h>
    socket.set(
        zmq::sockopt::linger,
        kLingerMs);  // last replies and goodbyes may leave; the default of "for ever" hangs an exit
    socket.set(sndtimeo, 0);  // sending never blocks
    // A frame that announces more is cut before a byte is reserved: without it 9 bytes could
    // reserve 16 GiB.
    socket.set(maxmsgsize, door == Door::kClient ? kClientPartBytes : kInternalPartBytes);
    socket.set(sndhwm, door == Door::kClient  ? kClientAnswers
                       : door == Door::kDraft ? kDraftQueue
                                              : kInternalQueue);
    socket.set(rcvhwm, door == Door::kClient ? kClientQueue : kInternalQueue);
    // No heartbeats of libzmq: one that is due, or one to be answered, on a connection that broke
    // while a full queue had stopped it ends the process (4.3.4, stream_engine_base.cpp:
    // !_io_error). The kernel notices an unplugged peer, and services notice a stopped one by their
    // own heartbeats. Clients may set them: no connection of theirs breaks here (client_relay.h).
    socket.set(tcp_maxrt, 2000);
    socket.set(tcp_keepalive, 1);
    socket.set(tcp_keepalive_idle, 1);
    socket.set(tcp_keepalive_intvl, 1);
    socket.set(tcp_keepalive_cnt, 2);
    // A peer that comes back is found soon (back_within), without a storm. The kernel waits twice
    // as long after each SYN without an answer, up to a minute: a new try begins with the short
    // waits.
    socket.set(connect_timeout, in_ms(kConnectTry));
    socket.set(reconnect_ivl, in_ms(kConnectPause));
    socket.set(reconnect_ivl_max, in_ms(kLongestConnectPause));
  }

  void secure(zmq::socket_t& socket,
              const Endpoint& where,
              const std::string& text,
              bool binding,
              Door door) {
    // Only where asked for: on an IPv6 socket an IPv4 address comes back as another one.
    if (where.place.starts_with('[')) socket.set(zmq::sockopt::ipv6, 1);
    // Not ipc: file permissions say who may use it.
    if (where.scheme != Scheme::kTcp) return;
    if (!curve) {
      if (!where.loopback && !options.insecure)
        fatal(
            ErrorCode::kConfig,
            text +
                " is reachable from other machines and there are no keys: set bus.curve_secret and "
                "bus.curve_peers, or bus.insecure = true");
      return;
    }
    socket.set(zmq::sockopt::curve_publickey, keys.public_key);
    socket.set(zmq::sockopt::curve_secretkey, keys.secret_key);
    if (binding) {
      socket.set(zmq::sockopt::curve_server, true);
      socket.set(zmq::sockopt::zap_domain, std::string(name_of(door)));
      return;
    }
    const auto server = std::find_if(peers.begin(), peers.end(), [&](const CurvePeer& p) {
      return is_same_endpoint(p.endpoint, text);
    });
    if (server == peers.end())
      fatal(ErrorCode::kConfig,
            options.curve_peers_file + " lists no key for " + text + " (third word of a line)");
    socket.set(zmq::sockopt::curve_serverkey, server->key);
  }

  // The way inside is open to this process alone, though its name may be known.
  void bind_behind_relay(Socket& socket, const Endpoint& where, const std::string& text) {
    std::uint64_t secret = 0;
    if (::getrandom(&secret, sizeof secret, 0) != sizeof secret)
      fatal(ErrorCode::kIo, "no random number for the address behind " + text);
    const pid_t self = ::getpid();
    const std::string inner = "foretoken-" + std::to_string(self) + "-" + std::to_string(secret);
    if (zmq_setsockopt(socket.socket.handle(), ZMQ_IPC_FILTER_PID, &self, sizeof self) != 0)
      throw zmq::error_t();
    socket.socket.set(zmq::sockopt::backlog, 1024);
    socket.socket.bind("ipc://@" + inner);
    const std::size_t room = clients_within_descriptor_limit(kReservedDescriptors);
    if (room == 0)
      fatal(ErrorCode::kIo, "cannot take clients at " + text +
                                ": this process may open too few files (ulimit -n), at least " +
                                std::to_string(kReservedDescriptors + 3) + " are needed");
    socket.relay = std::make_unique<ClientRelay>(where, text, inner,
                                                 ClientRelayLimits{.max_connections = room});
    socket.endpoint = socket.relay->endpoint();
  }

  void watch(Socket& socket, int events) {
    const std::string where = "inproc://monitor-" + std::to_string(socket.id);
    zmq_socket_monitor(socket.socket.handle(), where.c_str(), events);
    socket.monitor = zmq::socket_t(context, zmq::socket_type::pair);
    socket.monitor.set(zmq::sockopt::linger, 0);
    socket.monitor.set(zmq::sockopt::rcvhwm, 0);  // the thread that writes here must never wait
    socket.monitor.connect(where);
  }

  static SendResult send_now(Socket& socket, const Peer& to, const Frames& frames);

  void retire(Socket& socket) {
    if (!socket.relay) return;
    socket.relay->stop_listening();
    closed_relays.push_back(std::move(socket.relay));
  }

  Outcome read(Socket& from, Delivery& delivery);
  Outcome judge(Socket& from, Delivery& delivery, bool too_many);
  void serve_zap();
  bool read_monitor(Socket& socket);  // whether its connection changed
};

ZmqTransport::ZmqTransport(const ZmqOptions& options) : state_(std::make_unique<State>()) {
  zmq_ctx_set(state_->context.handle(), ZMQ_BLOCKY, 0);
  state_->options = options;
  prepare_to_turn_away();
  state_->wake_fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (state_->wake_fd < 0) fatal(ErrorCode::kIo, std::string("eventfd: ") + std::strerror(errno));
  if (options.curve_secret_file.empty()) return;
  state_->keys = value_or_throw(read_curve_keys(options.curve_secret_file));
  if (options.curve_peers_file.empty())
    fatal(ErrorCode::kConfig,
          "bus.curve_secret without bus.curve_peers: every peer would be refused");
  state_->peers = value_or_throw(read_curve_peers(options.curve_peers_file));
  state_->curve = true;
  // CURVE alone authenticates no peer: without a handler here any key pair would be let in.
  state_->zap.emplace(state_->context, zmq::socket_type::router);
  state_->zap->set(zmq::sockopt::linger, 0);
  state_->zap->bind(kZapEndpoint);
}

ZmqTransport::~ZmqTransport() {
  for (State::Socket& socket : state_->sockets) state_->retire(socket);
  state_->sockets.clear();
  state_->zap.reset();
  state_->context.close();
  state_->closed_relays.clear();  // what was sent until now is delivered first
  ::close(state_->wake_fd);
}

SocketId ZmqTransport::bind(const std::string& endpoint, Door door) {
  const Endpoint where = value_or_throw(parse_endpoint(endpoint));
  State::Socket socket;
  socket.id = ++state_->last_id;
  socket.door = door;
  socket.routed = true;
  try {
    socket.socket = zmq::socket_t(state_->context, zmq::socket_type::router);
    state_->set_options(socket.socket, door);
    // The answers that a drain waited for are on their way when it ends, and clients may be slow.
    if (door == Door::kClient) socket.socket.set(zmq::sockopt::linger, 3000);
    socket.socket.set(zmq::sockopt::router_mandatory,
                      1);  // an unknown peer or a full queue is an answer, not silence
    socket.socket.set(zmq::sockopt::router_handover,
                      0);  // no peer takes over another's connection by naming it
    state_->secure(socket.socket, where, endpoint, true, door);
    const bool with_keys = socket.socket.get(zmq::sockopt::mechanism) == ZMQ_CURVE;
    socket.socket.set(zmq::sockopt::handshake_ivl,
                      in_ms(with_keys ? kHandshakeOfBoundWithKeys : kHandshakeOfBound));
    // A peer without a key, or with another mechanism, fails before the handler is asked about it.
    if (with_keys)
      state_->watch(socket,
                    ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL);
    if (where.scheme == Scheme::kIpc) socket.lock = FileLock(where.place + ".lock");
    if (door == Door::kClient && where.scheme != Scheme::kInproc) {
      state_->bind_behind_relay(socket, where, endpoint);
      state_->sockets.push_back(std::move(socket));
      return state_->last_id;
    }
    // Only this user may connect: the file is made by libzmq under our umask.
    const mode_t old_mask = ::umask(0077);
    try {
      socket.socket.bind(endpoint);
    } catch (...) {
      ::umask(old_mask);
      throw;
    }
    ::umask(old_mask);
    socket.endpoint = socket.socket.get(zmq::sockopt::last_endpoint);
  } catch (const zmq::error_t& error) {
    fatal(ErrorCode::kIo, "cannot bind " + endpoint + ": " + error.what());
  }
  state_->sockets.push_back(std::move(socket));
  return state_->last_id;
}

SocketId ZmqTransport::connect(const std::string& endpoint, Door door) {
  const Endpoint where = value_or_throw(parse_endpoint(endpoint));
  State::Socket socket;
  socket.id = ++state_->last_id;
  socket.door = door;
  socket.endpoint = endpoint;
  try {
    socket.socket = zmq::socket_t(state_->context, zmq::socket_type::dealer);
    state_->set_options(socket.socket, door);
    socket.socket.set(zmq::sockopt::handshake_ivl, in_ms(kHandshakeOfConnecting));
    socket.socket.set(zmq::sockopt::maxmsgsize, state_->options.max_part_bytes);
    socket.socket.set(zmq::sockopt::immediate,
                      1);  // queue only for connections that exist; else say busy
    state_->secure(socket.socket, where, endpoint, false, door);
    socket.may_need_key = where.scheme == Scheme::kTcp;
    if (state_->options.watch_connections)
      state_->watch(socket, ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED |
                                ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                ZMQ_EVENT_HANDSHAKE_FAILED_AUTH);
    socket.socket.connect(endpoint);
  } catch (const zmq::error_t& error) {
    fatal(ErrorCode::kIo, "cannot connect to " + endpoint + ": " + error.what());
  }
  state_->sockets.push_back(std::move(socket));
  return state_->last_id;
}

void ZmqTransport::close(SocketId socket) {
  if (State::Socket* found = state_->find(socket); found != nullptr) {
    found->stop_monitor();
    state_->retire(*found);
  }
  std::erase_if(state_->sockets, [&](const State::Socket& s) { return s.id == socket; });
}

std::string ZmqTransport::endpoint(SocketId socket) const {
  const State::Socket* found = state_->find(socket);
  return found == nullptr ? "" : found->endpoint;
}

SendResult ZmqTransport::send(const Peer& to, const Frames& frames) {
  FORETOKEN_CHECK(!frames.empty() && frames.size() <= kMaxParts, "a message has 1 to 8 parts");
  State& s = *state_;
  State::Socket* socket = s.find(to.socket);
  DoorCounters& counters = s.counters->of(socket ? socket->door : Door::kInternal);
  if (socket == nullptr) return ++counters.unknown_peer, SendResult::kUnknown;
  const SendResult result = State::send_now(*socket, to, frames);
  if (result == SendResult::kSent) return ++counters.sent, result;
  if (result == SendResult::kUnknown) return ++counters.unknown_peer, result;
  return ++counters.busy, SendResult::kBusy;
}

SendResult ZmqTransport::State::send_now(Socket& socket, const Peer& to, const Frames& frames) {
  std::vector<std::string_view> parts;
  if (socket.routed) parts.emplace_back(to.routing);
  if (!to.correlation.empty()) parts.emplace_back(to.correlation);
  if (to.delimited) parts.emplace_back();
  parts.insert(parts.end(), frames.begin(), frames.end());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const int flags = ZMQ_DONTWAIT | (i + 1 < parts.size() ? ZMQ_SNDMORE : 0);
    int rc = 0;
    do {
      rc = zmq_send(socket.socket.handle(), parts[i].data(), parts[i].size(), flags);
    } while (rc < 0 && errno == EINTR);
    if (rc >= 0) continue;
    // Only the first part can be refused; libzmq then takes or drops the rest as a whole.
    return errno == EAGAIN ? SendResult::kBusy : SendResult::kUnknown;
  }
  return SendResult::kSent;
}

Outcome ZmqTransport::State::read(Socket& from, Delivery& delivery) {
  Frames parts;
  bool more = true;
  bool too_many = false;
  bool may_be_req = true;  // inproc, and clients of before ZMTP 3, do not say
  std::string user;
  while (more) {
    zmq::message_t part;
    try {
      if (!from.socket.recv(
              part, parts.empty() && !too_many ? zmq::recv_flags::dontwait : zmq::recv_flags::none))
        return Outcome::kNothing;
    } catch (const zmq::error_t& error) {
      if (error.num() == EINTR) continue;
      return Outcome::kNothing;
    }
    more = part.more();
    // A routing id and a delimiter come on top of our own parts.
    too_many = too_many || parts.size() >= kMaxParts + 2;
    if (too_many) continue;
    if (curve && user.empty()) {
      const char* id = zmq_msg_gets(part.handle(), "User-Id");
      if (id != nullptr) user = id;
    }
    if (const char* type = zmq_msg_gets(part.handle(), "Socket-Type"))
      may_be_req = std::string_view(type) == "REQ";
    parts.emplace_back(static_cast<const char*>(part.data()), part.size());
  }
  auto body = parts.begin();
  delivery = Delivery{};
  delivery.peer.socket = from.id;
  if (from.routed && !parts.empty()) delivery.peer.routing = std::move(*body++);
  auto left = std::distance(body, parts.end());
  if (from.door == Door::kClient && left >= 3 && body->size() == kCorrelationBytes &&
      std::next(body)->empty())
    delivery.peer.correlation = std::move(*body++), --left;
  // A delimiter comes before something: alone it is an empty request.
  if (from.door == Door::kClient && left >= 2 && body->empty()) {
    delivery.peer.delimited = true;
    delivery.peer.takes_one = may_be_req;
    ++body;
  }
  delivery.frames.assign(std::make_move_iterator(body), std::make_move_iterator(parts.end()));
  delivery.user = std::move(user);
  return judge(from, delivery, too_many);
}

// A client gets an error that says what is wrong with its message; between services it is only
// counted.
Outcome ZmqTransport::State::judge(Socket& from, Delivery& delivery, bool too_many) {
  DoorCounters& counts = counters->of(from.door);
  if (!too_many && delivery.frames.size() <= kMaxParts && !delivery.frames.empty())
    return ++counts.received, Outcome::kMessage;
  ++counts.malformed;
  if (from.door != Door::kClient || delivery.frames.empty()) return Outcome::kDropped;
  delivery.frames.resize(std::min(delivery.frames.size(), kMaxParts));
  return Outcome::kMessage;
}

bool ZmqTransport::State::read_monitor(Socket& socket) {
  ConnectionState& connection = socket.connection;
  bool changed = false;
  zmq::message_t part;
  while (socket.monitor.recv(part, zmq::recv_flags::dontwait)) {
    // An event is two parts: what happened, 16 bits before a value of 32, and where.
    std::uint16_t event = 0;
    std::uint32_t value = 0;
    if (!part.more() || part.size() < sizeof event + sizeof value) continue;
    std::memcpy(&event, part.data(), sizeof event);
    std::memcpy(&value, part.data<char>() + sizeof event, sizeof value);
    if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
      changed = connection.up = true;
      connection.refused = Refusal::kNone;
      socket.n_cut_short = 0;
    } else if (event == ZMQ_EVENT_DISCONNECTED) {
      changed = true;
      if (std::exchange(connection.up, false))
        ++connection.losses;
      else if (socket.may_need_key && ++socket.n_cut_short >= kCutShort &&
               connection.refused == Refusal::kNone)
        connection.refused = Refusal::kUnsaid;
    } else if (socket.routed) {
      ++counters->of(socket.door).handshakes_refused;
    } else if (socket.may_need_key) {
      changed = true;
      const bool other_mechanism = event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL &&
                                   value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH;
      connection.refused = curve && other_mechanism ? Refusal::kNoKeys : Refusal::kKey;
    }
  }
  return changed;
}

void ZmqTransport::State::serve_zap() {
  for (int served = 0; served < 64; ++served) {
    Frames parts;
    zmq::message_t part;
    do {
      if (!zap->recv(part, zmq::recv_flags::dontwait)) return;
      if (parts.size() < kMaxParts + 2)
        parts.emplace_back(static_cast<const char*>(part.data()), part.size());
    } while (part.more());
    if (parts.size() < 2) continue;
    // libzmq asks as a REQ would: routing id, empty part, request.
    const std::string asked_about = parts.size() > 4 ? parts[4] : "";  // the domain
    Frames answer = answer_zap(Frames(parts.begin() + 2, parts.end()), peers);
    if (answer[2] != "200") ++counters->of(door_of(asked_about)).handshakes_refused;
    answer.insert(answer.begin(), {parts[0], ""});
    for (std::size_t i = 0; i < answer.size(); ++i)
      zap->send(zmq::buffer(answer[i]),
                i + 1 < answer.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
}

std::optional<Delivery> ZmqTransport::receive(TimePoint deadline) {
  State& s = *state_;
  // What arrives and is no message takes time as well: the deadline holds whatever it is, after a
  // second look at every socket.
  bool looked = false;
  while (true) {
    for (std::size_t i = 0; i < s.sockets.size(); ++i) {
      Delivery delivery;
      State::Socket& from = s.sockets[(s.turn + i) % s.sockets.size()];
      if (s.is_held(from)) continue;
      const Outcome outcome = s.read(from, delivery);
      if (outcome == Outcome::kNothing) continue;
      s.turn = (s.turn + i + 1) % s.sockets.size();
      if (outcome == Outcome::kMessage) return delivery;
    }
    const TimePoint now = steady_now();
    const bool was_late = looked && now >= deadline;
    looked = true;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        deadline > now ? deadline - now : Duration::zero());
    const auto timeout = std::min<std::int64_t>(left.count(), 60'000);
    std::vector<zmq::pollitem_t> items;
    items.push_back({nullptr, s.wake_fd, ZMQ_POLLIN, 0});
    if (s.zap) items.push_back({s.zap->handle(), 0, ZMQ_POLLIN, 0});
    for (auto& socket : s.sockets) {
      if (!s.is_held(socket)) items.push_back({socket.socket.handle(), 0, ZMQ_POLLIN, 0});
      if (socket.monitor) items.push_back({socket.monitor.handle(), 0, ZMQ_POLLIN, 0});
    }
    const int ready =
        zmq_poll(items.data(), static_cast<int>(items.size()), static_cast<long>(timeout));
    if (s.zap) s.serve_zap();
    bool changed = false;
    for (auto& socket : s.sockets)
      if (socket.monitor) changed = s.read_monitor(socket) || changed;
    if ((items[0].revents & ZMQ_POLLIN) != 0) {
      std::uint64_t count = 0;
      (void)!::read(s.wake_fd, &count, sizeof count);
      return std::nullopt;
    }
    if (changed || was_late || (ready <= 0 && steady_now() >= deadline)) return std::nullopt;
  }
}

void ZmqTransport::hold_clients(bool held) { state_->clients_held = held; }

void ZmqTransport::wake() {
  const std::uint64_t one = 1;
  (void)!::write(state_->wake_fd, &one, sizeof one);
}

ConnectionState ZmqTransport::connection(SocketId socket) const {
  const State::Socket* found = state_->find(socket);
  return found == nullptr ? ConnectionState{} : found->connection;
}

std::shared_ptr<const TransportCounters> ZmqTransport::counters() const { return state_->counters; }

}  // namespace foretoken
