#include "common/transport/client_relay.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "common/base/fd.h"
#include "common/transport/zmq_transport.h"
#include "tests/support/dial.h"
#include "tests/transport/folder.h"
#include "tests/transport/later.h"

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using test::dial_tcp;

// ZMTP 3.1 by hand (rfc.zeromq.org/spec/37): what no library lets a client do.
std::string greeting_and_ready() {
  std::string bytes =
      "\xff" + std::string(8, '\0') + "\x7f\x03\x01" + "NULL" + std::string(16 + 1 + 31, '\0');
  const std::string property = std::string("\x0bSocket-Type\0\0\0\x06", 16) + "DEALER";
  const std::string command = "\x05READY" + property;
  return bytes + "\x04" + static_cast<char>(command.size()) + command;
}
constexpr std::size_t kGreetingBytes = 64;
std::string frame(const std::string& body) {
  return std::string(1, '\0') + static_cast<char>(body.size()) + body;
}
std::string ping() { return std::string("\x04\x07\x04PING\0\0", 9); }

// The name after the @ of ipc://@, as /proc/net/unix has it.
Fd dial_unix(const std::string& path, bool abstract) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + (abstract ? 1 : 0), path.data(), path.size());
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) return Fd();
  return fd;
}

void hear_ready(int fd) {
  std::string bytes(256, '\0'), heard;
  while (heard.find("READY") == std::string::npos) {
    const ssize_t n = ::recv(fd, bytes.data(), bytes.size(), 0);
    ASSERT_GT(n, 0);
    heard.append(bytes, 0, static_cast<std::size_t>(n));
  }
}

// Both sides have said READY: before that libzmq takes what follows for a part of the handshake.
void greet(int fd) {
  const std::string hello = greeting_and_ready();
  ASSERT_EQ(::send(fd, hello.data(), hello.size(), 0), static_cast<ssize_t>(hello.size()));
  hear_ready(fd);
}

// Ends with a reset and not with an orderly close.
void vanish(Fd fd) {
  const linger now{1, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

void write_until_full(int fd, const std::string& bytes) {
  for (int quiet = 0; quiet < 20;) {
    if (::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
      quiet = 0;
    } else {
      ++quiet;
      ::poll(nullptr, 0, 5);
    }
  }
}

// libzmq 4.3.4 aborts here without a relay, each time, while the queue is drained: the input of the
// connection had stopped, its end was reported, and a PING waits in what had been read.
class Flood : public ::testing::TestWithParam<const char*> {};

TEST_P(Flood, WithHeartbeatsThatVanishesEndsNobody) {
  const Folder folder;
  const bool tcp = std::string(GetParam()) == "tcp";
  ZmqTransport server;
  const SocketId door =
      server.bind(tcp ? "tcp://127.0.0.1:*" : "ipc://" + (folder / "a"), Door::kClient);
  std::string flood;
  for (int i = 0; i < 40; ++i) {
    for (int k = 0; k < 20; ++k) flood += frame("question");
    flood += ping();
  }
  for (int i = 0; i < 4; ++i) {
    Fd client = tcp ? dial_tcp(server.endpoint(door)) : dial_unix(folder / "a", false);
    ASSERT_TRUE(client);
    greet(client.get());
    write_until_full(client.get(), flood);
    vanish(std::move(client));
  }
  ::poll(nullptr, 0, 200);  // until its end is known here
  int n = 0;
  while (server.receive(steady_now() + milliseconds(100))) ++n;
  EXPECT_GE(n, 4 * 64) << "no queue was full: this proves nothing";
  // And another client is served.
  ZmqTransport client;
  const SocketId dialled = client.connect(server.endpoint(door), Door::kClient);
  const TimePoint until = later();
  while (client.send({dialled, "", false}, {"hello"}) != SendResult::kSent && steady_now() < until)
    (void)client.receive(steady_now() + milliseconds(1));
  const auto hello = server.receive(later());
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->frames, Frames{"hello"});
}

INSTANTIATE_TEST_SUITE_P(ClientRelay, Flood, ::testing::Values("tcp", "ipc"));

// A client of a busy machine: its READY comes late, and its messages right behind it.
TEST(ClientRelay, ReadsWhatComesBehindALateReady) {
  ZmqTransport server;
  const SocketId door = server.bind("tcp://127.0.0.1:*", Door::kClient);
  const Fd client = dial_tcp(server.endpoint(door));
  ASSERT_TRUE(client);
  const auto send = [&](const std::string& bytes) {
    return ::send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  };
  const std::string hello = greeting_and_ready();
  ASSERT_TRUE(send(hello.substr(0, kGreetingBytes)));
  hear_ready(client.get());
  ::poll(nullptr, 0, 2500);  // longer than the connecting side of a service waits
  ASSERT_TRUE(send(hello.substr(kGreetingBytes) + frame("question")));
  const auto question = server.receive(later());
  ASSERT_TRUE(question);
  EXPECT_EQ(question->frames, Frames{"question"});
}

// A relay in front of a listener of this test's own.
struct Relayed {
  std::string name =
      "foretoken-test-" + std::to_string(::getpid()) + "-" + std::to_string(++n_made);
  Fd listener;
  std::unique_ptr<ClientRelay> relay;
  static inline int n_made = 0;

  explicit Relayed(const ClientRelayLimits& limits = {})
      : listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address),
                     static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
              0);
    EXPECT_EQ(::listen(listener.get(), 16), 0);
    const Endpoint where{Scheme::kTcp, "127.0.0.1", "*", true};
    relay = std::make_unique<ClientRelay>(where, "tcp://127.0.0.1:*", name, limits);
  }
  // The inner end of the next client, or none within this time.
  Fd accept(int timeout_ms = 10'000) const {
    pollfd waiting{listener.get(), POLLIN, 0};
    return ::poll(&waiting, 1, timeout_ms) == 1
               ? Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC))
               : Fd();
  }
};

std::string read_all(int fd) {
  std::string bytes(1 << 16, '\0'), all;
  for (ssize_t n = 0; (n = ::recv(fd, bytes.data(), bytes.size(), 0)) > 0;)
    all.append(bytes, 0, static_cast<std::size_t>(n));
  return all;
}

TEST(ClientRelay, CarriesEveryByteBothWaysAndThenTheEnd) {
  const Relayed relayed;
  Fd client = dial_tcp(relayed.relay->endpoint());
  const Fd inner = relayed.accept();
  ASSERT_TRUE(inner);
  std::string many;
  for (int i = 0; many.size() < (3u << 20); ++i) many += std::to_string(i) + " ";
  for (const auto& [from, to] :
       {std::pair{client.get(), inner.get()}, {inner.get(), client.get()}}) {
    std::thread sender([&, fd = from] {
      for (std::size_t at = 0; at < many.size();)
        at +=
            static_cast<std::size_t>(::send(fd, many.data() + at, many.size() - at, MSG_NOSIGNAL));
    });
    std::string got(many.size(), '\0');
    EXPECT_EQ(::recv(to, got.data(), got.size(), MSG_WAITALL), static_cast<ssize_t>(many.size()));
    EXPECT_EQ(got, many);
    sender.join();
  }
  ASSERT_EQ(::send(client.get(), "goodbye", 7, 0), 7);
  client = Fd();
  EXPECT_EQ(read_all(inner.get()), "goodbye");
}

// Or a flood of clients that come and go would leave more and more to work off.
TEST(ClientRelay, HandsOnLittleOfWhatAVanishedClientHadSent) {
  const Relayed relayed;
  Fd client = dial_tcp(relayed.relay->endpoint());
  const Fd inner = relayed.accept();
  ASSERT_TRUE(inner);
  write_until_full(client.get(), std::string(1 << 16, 'x'));
  vanish(std::move(client));
  ::poll(nullptr, 0, 100);  // until its end is known
  EXPECT_LE(read_all(inner.get()).size(), 3 * ClientRelay::kChunk);
}

// What the abort needs is a connection that reports its end by itself. A half that is closed does
// not.
TEST(ClientRelay, NeverReportsAnEndInsideThatNobodyReads) {
  const Relayed relayed;
  Fd client = dial_tcp(relayed.relay->endpoint());
  const Fd inner = relayed.accept();
  ASSERT_TRUE(inner);
  const std::string words(1000, 'x');
  ASSERT_EQ(::send(client.get(), words.data(), words.size(), 0), 1000);
  write_until_full(inner.get(), words);  // answers that it never reads
  vanish(std::move(client));
  pollfd waiting{inner.get(), POLLRDHUP, 0};
  ASSERT_EQ(::poll(&waiting, 1, 10'000), 1);
  EXPECT_EQ(waiting.revents & (POLLHUP | POLLERR), 0);
  // Answers on their way are discarded, and hold up no other client.
  for (int i = 0; i < 3000; ++i)
    ASSERT_EQ(::send(inner.get(), words.data(), words.size(), MSG_NOSIGNAL), 1000)
        << std::strerror(errno);
  waiting.revents = 0;
  ::poll(&waiting, 1, 0);
  EXPECT_EQ(waiting.revents & (POLLHUP | POLLERR), 0);
}

TEST(ClientRelay, DisconnectsAClientThatTakesNothingForTooLong) {
  const Relayed relayed({.patience = milliseconds(300)});
  const Fd client = dial_tcp(relayed.relay->endpoint());
  const Fd inner = relayed.accept();
  ASSERT_TRUE(inner);
  write_until_full(inner.get(), std::string(1 << 16, 'x'));
  pollfd waiting{inner.get(), POLLRDHUP, 0};
  EXPECT_EQ(::poll(&waiting, 1, 10'000), 1) << "still connected";
  EXPECT_EQ(relayed.relay->counters().cut_slow, 1u);
}

// In a process of its own, which can be stopped.
TEST(ClientRelay, TakesAPauseOfItsOwnForNoSilenceOfAClient) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const Fd told(ends[0]), tells(ends[1]);
  const pid_t stopped = ::fork();
  if (stopped == 0) {
    const Relayed relayed({.patience = std::chrono::seconds(3)});
    const std::string& endpoint = relayed.relay->endpoint();
    (void)!::write(tells.get(), endpoint.data(), endpoint.size());
    const Fd inner = relayed.accept();
    if (inner) write_until_full(inner.get(), std::string(1 << 16, 'x'));
    (void)!::write(tells.get(), "full", 4);
    ::pause();
    ::_exit(0);
  }
  std::string bytes(1 << 16, '\0');
  const auto heard = [&] {
    const ssize_t n = ::read(told.get(), bytes.data(), bytes.size());
    return bytes.substr(0, static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  };
  const Fd client = dial_tcp(heard());
  EXPECT_EQ(heard(), "full");
  ::kill(stopped, SIGSTOP);
  ::poll(nullptr, 0, 4000);
  ::kill(stopped, SIGCONT);
  pollfd waiting{client.get(), POLLIN, 0};
  ssize_t n = 1;
  while (n > 0 && ::poll(&waiting, 1, 300) == 1)
    n = ::recv(client.get(), bytes.data(), bytes.size(), 0);
  EXPECT_GT(n, 0) << "it was disconnected";
  ::kill(stopped, SIGKILL);
  ::waitpid(stopped, nullptr, 0);
}

TEST(ClientRelay, KeepsAClientThatTakesALittleNowAndThen) {
  const Relayed relayed({.patience = std::chrono::seconds(2)});
  const Fd client = dial_tcp(relayed.relay->endpoint());
  const Fd inner = relayed.accept();
  ASSERT_TRUE(inner);
  std::thread sender([&] {
    const std::string many(4 << 20, 'x');
    for (std::size_t at = 0; at < many.size();) {
      const ssize_t n = ::send(inner.get(), many.data() + at, many.size() - at, MSG_NOSIGNAL);
      if (n <= 0) return;
      at += static_cast<std::size_t>(n);
    }
    ::shutdown(inner.get(), SHUT_WR);
  });
  std::string bytes(1 << 20, '\0');
  std::size_t read = 0;
  for (ssize_t n = 0; (n = ::recv(client.get(), bytes.data(), bytes.size(), 0)) > 0;
       ::poll(nullptr, 0, 300))
    read += static_cast<std::size_t>(n);
  sender.join();
  EXPECT_EQ(read, std::size_t{4} << 20);
  EXPECT_EQ(relayed.relay->counters().cut_slow, 0u);
}

std::string part_with_more_to_come(std::size_t n) {
  std::string bytes = "\x03";
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(n >> shift & 0xff);
  return bytes + std::string(n, 'x');
}

TEST(ClientRelay, DisconnectsAClientWhoseMessageIsLargerThanItsLimit) {
  const Relayed relayed({.max_message_bytes = 4096});
  const Fd client = dial_tcp(relayed.relay->endpoint());
  const Fd inner = relayed.accept();
  ASSERT_TRUE(inner);
  const auto send = [&](const std::string& bytes) {
    EXPECT_EQ(::send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    return bytes;
  };
  // Arrives as a whole: the parts of a message with an end.
  std::string whole = send(greeting_and_ready());
  for (int i = 0; i < 3; ++i) whole += send(part_with_more_to_come(3000) + frame("question"));
  std::string got(whole.size(), '\0');
  EXPECT_EQ(::recv(inner.get(), got.data(), got.size(), MSG_WAITALL),
            static_cast<ssize_t>(whole.size()));
  EXPECT_EQ(got, whole);
  EXPECT_EQ(relayed.relay->counters().cut_too_large, 0u);
  send(part_with_more_to_come(5000));
  EXPECT_EQ(read_all(client.get()), "");  // until its end
  EXPECT_LE(read_all(inner.get()).size(), 4096u);
  EXPECT_EQ(relayed.relay->counters().cut_too_large, 1u);
}

// libzmq would keep all of it, and hand on nothing.
TEST(ClientRelay, TakesNoMessageWithoutAnEnd) {
  ZmqTransport server;
  const SocketId door = server.bind("tcp://127.0.0.1:*", Door::kClient);
  const Fd client = dial_tcp(server.endpoint(door));
  ASSERT_TRUE(client);
  greet(client.get());
  const std::string part = part_with_more_to_come(std::size_t{1} << 20);
  int n_parts = 0;  // the limit, and what the buffers of the kernel hold
  while (n_parts < 32 && ::send(client.get(), part.data(), part.size(), MSG_NOSIGNAL) > 0)
    ++n_parts;
  EXPECT_LT(n_parts, 32);
}

TEST(ClientRelay, LetsAFurtherClientWaitUntilOneLeaves) {
  const Relayed relayed({.max_connections = 1});
  Fd first = dial_tcp(relayed.relay->endpoint());
  Fd inner = relayed.accept();
  ASSERT_TRUE(inner);
  const Fd second = dial_tcp(relayed.relay->endpoint());
  EXPECT_FALSE(relayed.accept(200));
  vanish(std::move(first));
  EXPECT_EQ(read_all(inner.get()), "");
  inner = Fd();
  EXPECT_TRUE(relayed.accept());
}

TEST(ClientRelay, DisconnectsClientsWithoutAGreetingWhereOthersWaitForRoom) {
  const Relayed relayed({.max_connections = 2});
  const Fd late = dial_tcp(relayed.relay->endpoint());  // its READY is late, not its greeting
  const Fd late_inner = relayed.accept();
  const Fd silent = dial_tcp(relayed.relay->endpoint());
  Fd silent_inner = relayed.accept();
  ASSERT_TRUE(late_inner && silent_inner);
  const std::string greeting = greeting_and_ready().substr(0, kGreetingBytes);
  ASSERT_EQ(::send(late.get(), greeting.data(), kGreetingBytes, 0),
            static_cast<ssize_t>(kGreetingBytes));
  ASSERT_EQ(::send(silent.get(), greeting.data(), kGreetingBytes - 1, 0),
            static_cast<ssize_t>(kGreetingBytes - 1));
  const Fd third = dial_tcp(relayed.relay->endpoint());
  EXPECT_EQ(read_all(silent.get()), "");  // until its end
  EXPECT_EQ(read_all(silent_inner.get()), greeting.substr(0, kGreetingBytes - 1));
  silent_inner = Fd();
  EXPECT_TRUE(relayed.accept());
  EXPECT_EQ(relayed.relay->counters().cut_silent, 1u);
  char byte = 0;
  EXPECT_EQ(::recv(late.get(), &byte, 1, MSG_DONTWAIT), -1) << "it was disconnected";
}

TEST(ClientRelay, KeepsClientsWithoutAGreetingWhereThereIsRoom) {
  const Relayed relayed({.max_connections = 3});
  const Fd silent = dial_tcp(relayed.relay->endpoint());
  const Fd inner = relayed.accept();
  ASSERT_TRUE(inner);
  const Fd second = dial_tcp(relayed.relay->endpoint());
  ASSERT_TRUE(relayed.accept());
  pollfd waiting{silent.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 4000), 0) << "it was disconnected";
}

// The inner address is abstract: every process of this machine can find it.
TEST(ClientRelay, LeadsNobodyInsideButItself) {
  ZmqTransport server;
  server.bind("tcp://127.0.0.1:*", Door::kClient);
  const std::string mine = "@foretoken-" + std::to_string(::getpid()) + "-";
  std::string name, line;
  for (std::ifstream in("/proc/net/unix"); std::getline(in, line);)
    if (const auto at = line.find(mine); at != std::string::npos) name = line.substr(at + 1);
  ASSERT_FALSE(name.empty());
  const auto greeted = [&] {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address),
                  static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())) != 0)
      return false;
    char byte = 0;
    return ::recv(fd, &byte, 1, 0) == 1;  // libzmq greets first
  };
  EXPECT_TRUE(greeted());
  const pid_t stranger = ::fork();
  if (stranger == 0) ::_exit(greeted() ? 1 : 0);
  int status = -1;
  ::waitpid(stranger, &status, 0);
  EXPECT_EQ(status, 0) << "another process was let in";
}

}  // namespace
}  // namespace foretoken
