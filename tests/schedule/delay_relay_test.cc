// The relay between two ends of a connection: bytes, order, delay and ends.
#include "bench/schedule/delay_relay.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <random>
#include <string>

#include "common/base/result.h"
#include "tests/support/dial.h"
#include "tests/support/temp_folder.h"

namespace foretoken::bench {
namespace {

using namespace std::chrono_literals;

constexpr int kPatienceMs = 30'000;  // only a failure waits so long

// What a relay hands on to.
class Listener {
 public:
  Listener() : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(socket_.get(), 4), 0);
  }
  std::string endpoint() const { return "ipc://" + path_; }
  Fd accept() const { return Fd(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }

 private:
  test::TempFolder folder_;
  std::string path_ = (folder_.path() / "listener").string();
  Fd socket_;
};

// Both ends of a connection through a relay.
struct Relayed {
  explicit Relayed(Duration one_way) : relay(listener.endpoint(), one_way) {}
  Listener listener;
  DelayRelay relay;
  Fd near = test::dial_tcp(relay.endpoint());
  Fd far = listener.accept();
};

// Reads until so many bytes are there or the other end is closed.
std::string read_from(const Fd& socket, std::size_t n_bytes) {
  std::string bytes;
  char part[65536];
  while (bytes.size() < n_bytes) {
    pollfd polled{socket.get(), POLLIN, 0};
    if (::poll(&polled, 1, kPatienceMs) != 1) return bytes;
    const ssize_t n = ::recv(socket.get(), part, std::min(sizeof(part), n_bytes - bytes.size()), 0);
    if (n <= 0) return bytes;
    bytes.append(part, static_cast<std::size_t>(n));
  }
  return bytes;
}

void write_to(const Fd& socket, const std::string& bytes) {
  EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

TEST(DelayRelay, HandsBytesOnBothWaysEachAfterItsDelay) {
  const Relayed ends(20ms);
  const TimePoint sent = steady_now();
  write_to(ends.near, "there");
  EXPECT_EQ(read_from(ends.far, 5), "there");
  EXPECT_GE(steady_now() - sent, 20ms);
  write_to(ends.far, "back");
  EXPECT_EQ(read_from(ends.near, 4), "back");
  EXPECT_GE(steady_now() - sent, 40ms);
}

// A delay is no limit of bandwidth: what is sent later travels beside what was sent before.
TEST(DelayRelay, KeepsManyBytesInOrderWhateverTheyAre) {
  const Relayed ends(1ms);
  std::mt19937_64 random(3);
  std::string bytes(std::size_t{12} << 20, '\0');  // more than the relay keeps
  for (char& byte : bytes) byte = static_cast<char>(random());
  std::thread writer([&] { write_to(ends.near, bytes); });
  EXPECT_TRUE(read_from(ends.far, bytes.size()) == bytes);
  writer.join();
}

TEST(DelayRelay, PassesAnEndOnAfterTheBytesBeforeIt) {
  const Relayed ends(5ms);
  write_to(ends.near, "last");
  ::shutdown(ends.near.get(), SHUT_WR);
  EXPECT_EQ(read_from(ends.far, 100), "last");
  write_to(ends.far, "answer");  // the other direction is still open
  EXPECT_EQ(read_from(ends.near, 6), "answer");
}

TEST(DelayRelay, ClosesAConnectionThatNobodyTakes) {
  std::string endpoint;
  {
    const Listener listener;
    endpoint = listener.endpoint();
  }
  const DelayRelay relay(endpoint, 0ms);
  const Fd near = test::dial_tcp(relay.endpoint());
  EXPECT_EQ(read_from(near, 1), "");
}

TEST(DelayRelay, RefusesAddressesThatItCannotConnectTo) {
  for (const char* text : {"tcp://127.0.0.1:*", "tcp://[::1]:5555", "inproc://name", "nonsense"})
    EXPECT_THROW(DelayRelay(text, 0ms), FatalError) << text;
}

}  // namespace
}  // namespace foretoken::bench
