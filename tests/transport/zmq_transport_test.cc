#include "common/transport/zmq_transport.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iomanip>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/transport/endpoint.h"
#include "common/transport/zmq_auth.h"
#include "tests/transport/folder.h"
#include "tests/transport/later.h"

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// A raw client, as any language would write it.
struct RawClient {
  zmq::context_t context;
  zmq::socket_t socket;
  RawClient(zmq::socket_type type, const std::string& endpoint) : socket(context, type) {
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::rcvtimeo, 10000);
    socket.connect(endpoint);
  }
};

TEST(ZmqTransport, AnswersReqClients) {
  ZmqTransport server;
  const SocketId bound = server.bind("tcp://127.0.0.1:*", Door::kClient);
  RawClient client(zmq::socket_type::req, server.endpoint(bound));
  client.socket.send(zmq::str_buffer("question"), zmq::send_flags::none);
  const auto question = server.receive(later());
  ASSERT_TRUE(question.has_value());
  EXPECT_EQ(question->frames, Frames{"question"});
  EXPECT_TRUE(question->peer.delimited);
  EXPECT_TRUE(question->peer.takes_one);
  ASSERT_EQ(server.send(question->peer, {"answer"}), SendResult::kSent);
  zmq::message_t answer;
  ASSERT_TRUE(client.socket.recv(answer).has_value());
  EXPECT_EQ(answer.to_string(), "answer");
}

TEST(ZmqTransport, AnswersDealersWithAndWithoutDelimiterInKind) {
  ZmqTransport server;
  const SocketId bound = server.bind("tcp://127.0.0.1:*", Door::kClient);
  RawClient client(zmq::socket_type::dealer, server.endpoint(bound));
  client.socket.send(zmq::str_buffer("plain"), zmq::send_flags::none);
  client.socket.send(zmq::str_buffer(""), zmq::send_flags::sndmore);
  client.socket.send(zmq::str_buffer("delimited"), zmq::send_flags::none);
  for (int i = 0; i < 2; ++i) {
    const auto question = server.receive(later());
    ASSERT_TRUE(question.has_value());
    EXPECT_FALSE(question->peer.takes_one) << "a DEALER takes a stream, delimited or not";
    ASSERT_EQ(server.send(question->peer, {"re " + question->frames[0]}), SendResult::kSent);
  }
  zmq::message_t part;
  ASSERT_TRUE(client.socket.recv(part).has_value());
  EXPECT_EQ(part.to_string(), "re plain");
  ASSERT_TRUE(client.socket.recv(part).has_value());
  EXPECT_EQ(part.size(), 0u);
  ASSERT_TRUE(client.socket.recv(part).has_value());
  EXPECT_EQ(part.to_string(), "re delimited");
}

// The service that answers clients says what is wrong; the transport only cuts and counts.
TEST(ZmqTransport, DeliversAClientsMessageOfAnyShape) {
  ZmqTransport server;
  const SocketId bound = server.bind("tcp://127.0.0.1:*", Door::kClient);
  RawClient client(zmq::socket_type::dealer, server.endpoint(bound));
  const auto send = [&](std::size_t n_parts, const char* part) {
    for (std::size_t i = 0; i < n_parts; ++i)
      client.socket.send(zmq::message_t(std::string(part)),
                         i + 1 < n_parts ? zmq::send_flags::sndmore : zmq::send_flags::none);
  };
  for (const std::size_t n_parts : {1u, 2u, 9u, 100u, 3000u}) {
    send(n_parts, "");
    const auto empty = server.receive(later());
    ASSERT_TRUE(empty.has_value()) << n_parts;
    EXPECT_EQ(empty->peer.delimited, n_parts > 1);
    EXPECT_EQ(empty->frames.size(),
              std::min<std::size_t>(std::max<std::size_t>(n_parts - 1, 1), 8));
    send(n_parts, "x");
    const auto full = server.receive(later());
    ASSERT_TRUE(full.has_value()) << n_parts;
    EXPECT_EQ(full->frames.size(), std::min<std::size_t>(n_parts, 8));
    ASSERT_EQ(server.send(full->peer, {"no"}), SendResult::kSent) << "an answer has a way back";
    zmq::message_t answer;
    ASSERT_TRUE(client.socket.recv(answer).has_value());
    EXPECT_EQ(answer.to_string(), "no");
  }
  EXPECT_EQ(server.counters()->of(Door::kClient).malformed, 5u) << "of 9 or more parts";
}

TEST(ZmqTransport, DropsMessagesOfTooManyPartsBetweenServicesAndCountsThem) {
  ZmqTransport server;
  const SocketId bound = server.bind("tcp://127.0.0.1:*", Door::kInternal);
  RawClient client(zmq::socket_type::dealer, server.endpoint(bound));
  for (int i = 0; i < 40; ++i) client.socket.send(zmq::str_buffer("x"), zmq::send_flags::sndmore);
  client.socket.send(zmq::str_buffer("x"), zmq::send_flags::none);
  client.socket.send(zmq::str_buffer("good"), zmq::send_flags::none);
  const auto good = server.receive(later());
  ASSERT_TRUE(good.has_value());
  EXPECT_EQ(good->frames, Frames{"good"});
  const DoorCounters& counts = server.counters()->of(Door::kInternal);
  EXPECT_EQ(counts.malformed, 1u);
  EXPECT_EQ(counts.received, 1u);
  EXPECT_EQ(server.counters()->of(Door::kClient).received, 0u);
}

TEST(ZmqTransport, ReturnsInTimeWhateverNoMessageArrives) {
  ZmqTransport server;
  const SocketId bound = server.bind("tcp://127.0.0.1:*", Door::kInternal);
  RawClient client(zmq::socket_type::dealer, server.endpoint(bound));
  const auto send_malformed = [&] {
    for (int i = 0; i < 40; ++i)
      client.socket.send(zmq::str_buffer("x"),
                         i < 39 ? zmq::send_flags::sndmore : zmq::send_flags::none);
  };
  for (int i = 0; i < 100; ++i) send_malformed();
  const DoorCounters& counts = server.counters()->of(Door::kInternal);
  while (counts.malformed < 100) {
    const std::uint64_t before = counts.malformed;
    EXPECT_FALSE(server.receive(TimePoint::min()).has_value());
    ASSERT_LE(counts.malformed, before + 2) << "a look, and one more";
  }
}

// How many messages wait between a sender and a receiver that does not read: what must not be late
// must not wait behind much.
TEST(ZmqTransport, KeepsLittleWaitingOnALinkOfADraft) {
  const Folder folder;
  const auto waiting = [&](Door door, const std::string& name) {
    ZmqTransport draft, target;
    const SocketId bound = draft.bind("ipc://" + (folder / name), door);
    const SocketId dialled = target.connect(draft.endpoint(bound), door);
    const Frames large{std::string(std::size_t{1} << 20, 'x')};  // the kernel's buffers hold none
    const TimePoint until = later();
    while (target.send({dialled, "", false}, large) == SendResult::kBusy && steady_now() < until)
      (void)target.receive(steady_now() + milliseconds(1));  // until it is connected
    int n = 1;
    for (int busy = 0; busy < 50;) {
      const bool sent = target.send({dialled, "", false}, large) == SendResult::kSent;
      busy = sent ? 0 : busy + 1;
      n += sent ? 1 : 0;
      if (!sent) (void)target.receive(steady_now() + milliseconds(2));
    }
    return n;
  };
  EXPECT_LE(waiting(Door::kDraft, "d"), 16 + 256 + 4);  // 16 to send, and what the receiver takes
}

TEST(ZmqTransport, LeavesWhatClientsSendInTheirConnectionsWhileTheyAreHeld) {
  ZmqTransport server;
  const SocketId door = server.bind("tcp://127.0.0.1:*", Door::kClient);
  const SocketId inner = server.bind("tcp://127.0.0.1:*", Door::kInternal);
  RawClient client(zmq::socket_type::dealer, server.endpoint(door));
  RawClient service(zmq::socket_type::dealer, server.endpoint(inner));
  client.socket.send(zmq::str_buffer("1"));
  ASSERT_TRUE(server.receive(later()));
  server.hold_clients(true);
  client.socket.send(zmq::str_buffer("2"));
  service.socket.send(zmq::str_buffer("3"));
  auto got = server.receive(later());
  ASSERT_TRUE(got);
  EXPECT_EQ(got->frames, Frames{"3"});
  EXPECT_FALSE(server.receive(steady_now() + milliseconds(50)));
  server.hold_clients(false);
  got = server.receive(later());
  ASSERT_TRUE(got);
  EXPECT_EQ(got->frames, Frames{"2"});
}

TEST(ZmqTransport, DeliversWhatItTookBeforeItEnds) {
  auto server = std::make_unique<ZmqTransport>();
  const SocketId door = server->bind("tcp://127.0.0.1:*", Door::kClient);
  RawClient client(zmq::socket_type::dealer, server->endpoint(door));
  client.socket.send(zmq::str_buffer("hello"));
  const auto asked = server->receive(later());
  ASSERT_TRUE(asked);
  int n = 0;
  while (n < 2000 && server->send(asked->peer, {"x"}) == SendResult::kSent) ++n;
  server.reset();
  zmq::message_t got;
  for (int i = 0; i < n; ++i) ASSERT_TRUE(client.socket.recv(got)) << i;
}

// libzmq ends the process if one of its own heartbeats is due on a connection that broke while its
// full queue had stopped it. So none may be asked for: this waits longer than any would.
TEST(ZmqTransport, OutlivesConnectionsThatBreakWhileNothingIsRead) {
  const Folder folder;
  ZmqTransport server;
  const SocketId bound = server.bind("ipc://" + (folder / "a"), Door::kClient);
  {
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 8; ++i) {
      auto& socket = clients
                         .emplace_back(std::make_unique<RawClient>(zmq::socket_type::dealer,
                                                                   server.endpoint(bound)))
                         ->socket;
      socket.set(zmq::sockopt::linger, 0);
      const auto give_up = steady_now() + milliseconds(200);
      while (steady_now() < give_up)  // until nothing more goes in anywhere
        (void)socket.send(zmq::message_t(std::string(1 << 16, 'x')), zmq::send_flags::dontwait);
    }
  }
  std::this_thread::sleep_for(seconds(1));
  int n = 0;
  while (server.receive(steady_now() + milliseconds(100))) ++n;
  EXPECT_GE(n, 8 * 16) << "their queues were not full";
}

// A port of this host at which the kernel drops every SYN, as a network that is cut does: the queue
// of those to be accepted is full.
class DeafPort {
 public:
  DeafPort() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    auto* address = reinterpret_cast<sockaddr*>(&address_);
    if (::bind(listener_.get(), address, size) != 0 || ::listen(listener_.get(), 0) != 0 ||
        ::getsockname(listener_.get(), address, &size) != 0)
      throw std::runtime_error("no port of our own");
    for (bool taken = true; taken;) {
      if (fillers_.size() == 16)
        throw std::runtime_error(
            "the kernel answers 16 connections at a port whose queue holds one: it is not deaf");
      fillers_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      (void)::connect(fillers_.back().get(), address, size);
      pollfd connected{fillers_.back().get(), POLLOUT, 0};
      taken = ::poll(&connected, 1, 200) == 1;
    }
    fillers_.pop_back();  // the one that was not taken
  }
  std::string endpoint() const {
    return "tcp://127.0.0.1:" + std::to_string(ntohs(address_.sin_port));
  }
  // The ports from which a peer tries to connect now.
  std::set<std::string> callers() const {
    std::ostringstream here;
    here << "0100007F:" << std::hex << std::uppercase << std::setfill('0') << std::setw(4)
         << ntohs(address_.sin_port);
    std::set<std::string> found;
    std::ifstream table("/proc/self/net/tcp");
    for (std::string line; std::getline(table, line);) {
      std::istringstream words(line);
      std::string number, from, to, state;
      words >> number >> from >> to >> state;
      if (to == here.str() && state == "02") found.insert(from);  // SYN_SENT
    }
    return found;
  }

 private:
  sockaddr_in address_{};
  Fd listener_;
  std::vector<Fd> fillers_;
};

// The kernel pauses twice as long after each SYN without an answer, for up to a minute: a peer
// would be back that much later than its network.
TEST(ZmqTransport, BeginsAConnectionAnewThatIsNotAnsweredInTime) {
  const DeafPort port;
  ZmqTransport client;
  const TimePoint begin = steady_now();
  client.connect(port.endpoint());
  std::set<std::string> tries;
  while (tries.size() < 3 && steady_now() < begin + seconds(30)) {
    tries.merge(port.callers());
    (void)client.receive(steady_now() + milliseconds(20));
  }
  EXPECT_GE(tries.size(), 3u) << "each try has a port of its own";
  EXPECT_GE(steady_now() - begin, seconds(3)) << "a dead network is not flooded";
}

TEST(ZmqTransport, CutsAPeerThatSendsTooLargeAPart) {
  ZmqTransport server;
  const SocketId bound = server.bind("tcp://127.0.0.1:*", Door::kClient);
  RawClient large(zmq::socket_type::dealer, server.endpoint(bound));
  large.socket.send(zmq::message_t(std::string((1 << 20) + 1, 'x')), zmq::send_flags::none);
  RawClient small(zmq::socket_type::dealer, server.endpoint(bound));
  small.socket.send(zmq::str_buffer("good"), zmq::send_flags::none);
  const auto good = server.receive(later());
  ASSERT_TRUE(good.has_value());
  EXPECT_EQ(good->frames, Frames{"good"});
}

TEST(ZmqTransport, RefusesASecondServerOnOneIpcPath) {
  const Folder folder;
  ZmqTransport first;
  first.bind("ipc://" + (folder / "a"), Door::kInternal);
  ZmqTransport second;
  try {
    second.bind("ipc://" + (folder / "a"), Door::kInternal);
    FAIL() << "bound twice";
  } catch (const FatalError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr("another process serves this address"));
  }
}

TEST(ZmqTransport, MakesIpcSocketsForThisUserOnly) {
  const Folder folder;
  ZmqTransport server;
  server.bind("ipc://" + (folder / "a"), Door::kInternal);
  struct stat info {};
  ASSERT_EQ(::stat((folder / "a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0077, 0u);
}

TEST(ZmqTransport, RefusesTcpBeyondLoopbackWithoutKeys) {
  ZmqTransport server;
  try {
    server.bind("tcp://0.0.0.0:*", Door::kInternal);
    FAIL() << "bound";
  } catch (const FatalError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("bus.curve_secret"));
  }
}

// A server that closes each connection before it has said a word, as one does that ends while it
// starts.
class Closing {
 public:
  template <class Address>
  explicit Closing(const Address& address)
      : fd_(::socket(reinterpret_cast<const sockaddr&>(address).sa_family,
                     SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                     0)) {
    const int on = 1;
    ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd_, 8), 0);
  }
  ~Closing() { ::close(fd_); }
  int port() const {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    return ntohs(address.sin_port);
  }
  // One more connection of a client that goes on trying.
  void turn_away(ZmqTransport& client) const {
    const TimePoint until = later();
    int connection = -1;
    while (connection < 0 && steady_now() < until) {
      (void)client.receive(steady_now() + milliseconds(5));
      connection = ::accept(fd_, nullptr, nullptr);
    }
    ASSERT_GE(connection, 0);
    ::close(connection);
  }

 private:
  int fd_;
};

template <class Condition>
bool comes_true(ZmqTransport& transport, const Condition& condition) {
  for (const TimePoint until = later(); !condition() && steady_now() < until;)
    (void)transport.receive(steady_now() + milliseconds(5));
  return condition();
}

TEST(ZmqTransport, CallsADoorThatCutsGreetingsRefusingUntilItLetsItIn) {
  auto closing = std::make_unique<Closing>(sockaddr_in{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}});
  const std::string endpoint = "tcp://127.0.0.1:" + std::to_string(closing->port());
  ZmqTransport client(ZmqOptions{.watch_connections = true});
  const SocketId socket = client.connect(endpoint);
  const auto state = [&] { return client.connection(socket); };
  for (int i = 0; i < 3; ++i) closing->turn_away(client);
  EXPECT_TRUE(comes_true(client, [&] { return state().refused == Refusal::kUnsaid; }));
  closing.reset();
  auto server = std::make_unique<ZmqTransport>();
  const SocketId bound = server->bind(endpoint, Door::kInternal);
  EXPECT_TRUE(comes_true(client, [&] { return state().up; }));
  EXPECT_EQ(state().refused, Refusal::kNone) << "it was a server that ended while it started";
  server->close(bound);
  EXPECT_TRUE(comes_true(client, [&] { return state().losses == 1; }));
  EXPECT_EQ(state().refused, Refusal::kNone) << "this loss is the first of its kind";
}

TEST(ZmqTransport, NoDoorOnIpcWantsAKey) {
  Folder folder;
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string path = folder / "door";
  ASSERT_LT(path.size(), sizeof address.sun_path);
  path.copy(address.sun_path, path.size());
  const Closing closing(address);
  ZmqTransport client(ZmqOptions{.watch_connections = true});
  const SocketId socket = client.connect("ipc://" + path);
  for (int i = 0; i < 5; ++i) closing.turn_away(client);
  EXPECT_EQ(client.connection(socket).refused, Refusal::kNone);
}

TEST(ZmqTransport, WakesFromAnotherThread) {
  ZmqTransport server;
  server.bind("tcp://127.0.0.1:*", Door::kInternal);
  std::thread waker([&] { server.wake(); });
  EXPECT_FALSE(server.receive(TimePoint::max()).has_value());
  waker.join();
}

TEST(Endpoint, TakesOnlyWhatIsNumericAndKnown) {
  for (const char* good :
       {"tcp://127.0.0.1:5555", "tcp://10.0.0.7:*", "tcp://[::1]:80", "ipc:///run/a", "inproc://x"})
    EXPECT_TRUE(parse_endpoint(good).ok()) << good;
  for (const char* bad :
       {"", "tcp://", "tcp://localhost:1", "tcp://eth0:5555", "tcp://*:5555", "tcp://1.2.3.4",
        "tcp://1.2.3.4:0", "tcp://1.2.3.4:65536", "tcp://1.2.3.4:x", "pgm://1.2.3.4:5", "ipc://",
        "ipc://@name", "udp://1.2.3.4:5", "tcp://::1:5555", "tcp://fd00::1",
        "tcp://[127.0.0.1]:5555"})
    EXPECT_FALSE(parse_endpoint(bad).ok()) << bad;
  EXPECT_THAT(parse_endpoint("tcp://::1:5555").error().message,
              HasSubstr("must have its address of IPv6 in brackets"));
  EXPECT_FALSE(parse_endpoint("ipc:///" + std::string(200, 'x')).ok());
  EXPECT_TRUE(parse_endpoint("tcp://127.1.2.3:5")->loopback);
  EXPECT_FALSE(parse_endpoint("tcp://192.168.0.1:5")->loopback);
  EXPECT_TRUE(parse_endpoint("tcp://[::1]:5")->loopback);
}

TEST(Endpoint, IsTheSameInEverySpellingOfItsAddress) {
  EXPECT_TRUE(is_same_endpoint("tcp://[FD00:0:0:0::2]:05601", "tcp://[fd00::2]:5601"));
  EXPECT_TRUE(is_same_endpoint("tcp://10.0.0.2:5601", "tcp://10.0.0.2:05601"));
  EXPECT_TRUE(is_same_endpoint("ipc:///run/a", "ipc:///run/a"));
  for (const char* other : {"tcp://[fd00::3]:5601", "tcp://[fd00::2]:5602", "ipc:///run/a", ""})
    EXPECT_FALSE(is_same_endpoint("tcp://[fd00::2]:5601", other)) << other;
  EXPECT_FALSE(is_same_endpoint("", ""));
}

// One server with keys, and a peers file that lists those that the test says.
class Curve : public ::testing::Test {
 protected:
  Curve()
      : server_keys_(new_curve_keys()),
        draft_keys_(new_curve_keys()),
        stranger_keys_(new_curve_keys()) {
    folder_.write("server.secret", curve_key_file(server_keys_));
    folder_.write("draft.secret", curve_key_file(draft_keys_));
    folder_.write("stranger.secret", curve_key_file(stranger_keys_));
  }

  void start(const std::string& role_of_draft, Door door = Door::kInternal) {
    folder_.write("peers", "# keys\n" + draft_keys_.public_key + " " + role_of_draft + "\n");
    server_ = std::make_unique<ZmqTransport>(
        ZmqOptions{folder_ / "server.secret", folder_ / "peers", false});
    bound_ = server_->bind("tcp://127.0.0.1:*", door);
    door_ = door;
  }

  // Does a message of the owner of this key arrive, and as whom?
  std::optional<std::string> user_of(const std::string& secret_file,
                                     const std::string& server_key) {
    folder_.write("client-peers",
                  server_key + " router:router-0 " + server_->endpoint(bound_) + "\n");
    ZmqTransport client(ZmqOptions{folder_ / secret_file, folder_ / "client-peers", false});
    const SocketId dialled = client.connect(server_->endpoint(bound_), door_);
    const auto refused_before = refused();
    const TimePoint until = steady_now() + seconds(3);
    while (steady_now() < until && refused() == refused_before) {
      (void)client.send({dialled, "", false}, {"hello", secret_file});
      const auto got = server_->receive(steady_now() + milliseconds(5));
      // A client before this one may have sent more than was read of it.
      if (got && got->frames.back() == secret_file) return got->user;
    }
    return std::nullopt;
  }

  std::uint64_t refused() const { return server_->counters()->of(door_).handshakes_refused; }

  Folder folder_;
  CurveKeys server_keys_;
  CurveKeys draft_keys_;
  CurveKeys stranger_keys_;
  std::unique_ptr<ZmqTransport> server_;
  SocketId bound_ = 0;
  Door door_ = Door::kInternal;
};

TEST_F(Curve, LetsAListedKeyInUnderItsName) {
  start("draft:draft-0");
  EXPECT_EQ(user_of("draft.secret", server_keys_.public_key), "draft:draft-0");
}

TEST_F(Curve, RefusesAKeyThatIsNotListed) {
  start("draft:draft-0");
  EXPECT_EQ(user_of("stranger.secret", server_keys_.public_key), std::nullopt);
  EXPECT_GE(refused(), 1u);
}

TEST_F(Curve, RefusesARoleAtTheWrongDoor) {
  start("client:alice");
  EXPECT_EQ(user_of("draft.secret", server_keys_.public_key), std::nullopt);
  EXPECT_GE(refused(), 1u);
}

TEST_F(Curve, RefusesAPeerWithoutCurveAndCountsIt) {
  start("draft:draft-0");
  RawClient plain(zmq::socket_type::dealer, server_->endpoint(bound_));
  plain.socket.send(zmq::str_buffer("x"), zmq::send_flags::none);
  const TimePoint until = later();
  while (refused() == 0 && steady_now() < until)
    EXPECT_FALSE(server_->receive(steady_now() + milliseconds(10)).has_value());
  EXPECT_GE(refused(), 1u);
  server_->close(bound_);  // with strangers at the door
}

// On this host too: it has other users.
TEST_F(Curve, ADoorForClientsOnLoopbackTakesListedKeysOnly) {
  start("client:alice", Door::kClient);
  EXPECT_EQ(user_of("draft.secret", server_keys_.public_key), "client:alice");
  EXPECT_EQ(refused(), 0u);
  EXPECT_EQ(user_of("stranger.secret", server_keys_.public_key), std::nullopt);
  EXPECT_GE(refused(), 1u);
  const auto before = refused();
  RawClient plain(zmq::socket_type::dealer, server_->endpoint(bound_));
  plain.socket.send(zmq::str_buffer("x"), zmq::send_flags::none);
  const TimePoint until = later();
  while (refused() == before && steady_now() < until)
    EXPECT_FALSE(server_->receive(steady_now() + milliseconds(10)).has_value());
  EXPECT_GT(refused(), before);
}

TEST_F(Curve, NeedsBothFiles) {
  EXPECT_THROW(ZmqTransport(ZmqOptions{folder_ / "server.secret", "", false}), FatalError);
  EXPECT_THROW(ZmqTransport(ZmqOptions{folder_ / "missing", folder_ / "peers", false}), FatalError);
}

TEST_F(Curve, KnowsNoKeyForAnEndpointThatIsNotListed) {
  folder_.write("peers", "");
  ZmqTransport client(ZmqOptions{folder_ / "server.secret", folder_ / "peers", false});
  EXPECT_THROW(client.connect("tcp://127.0.0.1:5999"), FatalError);
}

// A draft announces its endpoint as the kernel spells it.
TEST_F(Curve, KnowsTheKeyForAnEndpointThatIsListedInAnotherSpelling) {
  folder_.write("peers",
                server_keys_.public_key + " draft:draft-0 tcp://[0:0:0:0:0:0:0:1]:05999\n");
  ZmqTransport client(ZmqOptions{folder_ / "server.secret", folder_ / "peers", false});
  EXPECT_NO_THROW(client.connect("tcp://[::1]:5999"));
  EXPECT_THROW(client.connect("tcp://[::2]:5999"), FatalError);
}

TEST(CurveFiles, WithASecretMustNotBeOpenToOthers) {
  const Folder folder;
  const std::string file = folder.write("k", curve_key_file(new_curve_keys()));
  for (const auto& [mode, good] :
       {std::pair{0600u, true}, {0400u, true}, {0640u, false}, {0604u, false}, {0666u, false}}) {
    ASSERT_EQ(::chmod(file.c_str(), mode), 0);
    const auto keys = read_curve_keys(file);
    EXPECT_EQ(keys.ok(), good) << std::oct << mode;
    if (!keys.ok()) {
      EXPECT_THAT(keys.error().message, HasSubstr("it must be 0600"));
    }
  }
}

TEST(CurveFiles, SayWhatIsWrongWithoutSayingTheSecret) {
  const Folder folder;
  const auto keys = new_curve_keys();
  const auto broken =
      read_curve_keys(folder.write("k", "public = \"" + keys.public_key + "\"\nsecret = \"" +
                                            keys.secret_key.substr(1) + "\"\n"));
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.error().message, Not(HasSubstr(keys.secret_key.substr(1))));
  const auto peers =
      read_curve_peers(folder.write("p", keys.public_key + " draft:a\nnonsense draft:b\n"));
  ASSERT_FALSE(peers.ok());
  EXPECT_THAT(peers.error().message, HasSubstr("line 2"));
}

TEST(Zap, RefusesWhatItDoesNotUnderstand) {
  for (const Frames& request :
       {Frames{}, Frames{"1.0"},
        Frames{"2.0", "1", "internal", "a", "", "CURVE", std::string(32, 'k')},
        Frames{"1.0", "1", "internal", "a", "", "PLAIN", "u", "p"},
        Frames{"1.0", "1", "internal", "a", "", "CURVE", "short"}})
    EXPECT_EQ(answer_zap(request, {})[2], "400");
}

}  // namespace
}  // namespace foretoken
