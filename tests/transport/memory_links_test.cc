#include "common/transport/memory_links.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/transport/shared_ring.h"
#include "tests/transport/folder.h"

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// What arrives until something does, sleeping as a bus does, and a few rounds at least: one sees
// who comes, the next what it says. The time guards against a test that hangs; no link sees it.
std::optional<Delivery> receive(MemoryLinks& links, Duration at_most = seconds(10)) {
  const TimePoint until = steady_now() + at_most;
  const int least = at_most > milliseconds(0) ? 4 : 1;
  for (int round = 0; round < least || steady_now() < until; ++round) {
    if (auto delivery = links.receive()) return delivery;
    if (links.fall_asleep()) {
      std::vector<pollfd> waiting;
      links.add_to(waiting);
      ::poll(waiting.data(), waiting.size(), at_most > milliseconds(5) ? 5 : 1);
    }
    links.wake_up();
  }
  return std::nullopt;
}

class MemoryLinksTest : public testing::Test {
 protected:
  // Both ends open, and the first word said.
  void link() {
    door = server.bind(endpoint);
    dialled = {.socket = client.connect(endpoint), .routing = {}};
    greet(server, client);
    ASSERT_EQ(client.send(dialled, {"first", "word"}), SendResult::kSent);
    const auto first = receive(server);
    ASSERT_TRUE(first.has_value());
    ASSERT_EQ(first->frames, (Frames{"first", "word"}));
    accepted = first->peer;
  }
  void greet(MemoryLinks& a, MemoryLinks& b) {
    for (int i = 0; i < 50 && b.counters()->opened == 0; ++i) {
      EXPECT_FALSE(receive(a, milliseconds(2)).has_value());
      EXPECT_FALSE(receive(b, milliseconds(2)).has_value());
    }
    ASSERT_EQ(b.counters()->opened, 1u);
  }

  Folder folder;
  std::string endpoint = "shm://" + (folder / "door");
  // Stands still until a test lets a deadline pass.
  std::shared_ptr<ManualClock> clock = std::make_shared<ManualClock>();
  void lose_patience() { clock->advance(options.patience + milliseconds(1)); }
  MemoryLinkOptions options{.ring_bytes = 16384, .patience = seconds(2), .clock = clock};
  MemoryLinks server{options};
  MemoryLinks client{options};
  SocketId door = 0;
  Peer dialled, accepted;
};

TEST_F(MemoryLinksTest, AreToBeHadHere) { EXPECT_EQ(MemoryLinks::why_unavailable(), ""); }

TEST_F(MemoryLinksTest, CarryMessagesBothWays) {
  link();
  EXPECT_EQ(accepted.socket, door);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(client.send(dialled, {std::to_string(i), Bytes(1000, 'q')}), SendResult::kSent);
    const auto question = receive(server);
    ASSERT_TRUE(question.has_value());
    EXPECT_EQ(question->peer, accepted);
    EXPECT_EQ(question->frames, (Frames{std::to_string(i), Bytes(1000, 'q')}));
    ASSERT_EQ(server.send(accepted, {"a", std::to_string(i)}), SendResult::kSent);
    const auto answer = receive(client);
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->peer, dialled);
    EXPECT_EQ(answer->frames, (Frames{"a", std::to_string(i)}));
  }
}

TEST_F(MemoryLinksTest, AreBusyUntilGreeted) {
  server.bind(endpoint);
  const Peer peer{.socket = client.connect(endpoint), .routing = {}};
  EXPECT_EQ(client.send(peer, {"x"}), SendResult::kBusy);
}

TEST_F(MemoryLinksTest, HoldSixteenQuestionsAndNoLargeOnes) {
  link();
  for (std::size_t i = 0; i < MemoryLink::kMostQuestions; ++i)
    ASSERT_EQ(client.send(dialled, {"q"}), SendResult::kSent);
  EXPECT_EQ(client.send(dialled, {"q"}), SendResult::kBusy);
  EXPECT_EQ(server.send(accepted, {Bytes(16384, 'x')}), SendResult::kBusy);
  EXPECT_EQ(server.send(accepted, {"x"}), SendResult::kSent);
}

TEST_F(MemoryLinksTest, NoticeAtOnceThatThePeerIsGone) {
  link();
  client.close(dialled.socket);
  const auto event = receive(server);
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->kind, DeliveryKind::kClosed);
  EXPECT_EQ(event->peer, accepted);
  EXPECT_THAT(event->frames.at(0), HasSubstr("closed"));
  EXPECT_EQ(server.send(accepted, {"x"}), SendResult::kUnknown);
  EXPECT_EQ(server.counters()->ended, 1u);
}

TEST_F(MemoryLinksTest, HangUpOnOneConnection) {
  link();
  server.hang_up(accepted);
  EXPECT_EQ(server.send(accepted, {"x"}), SendResult::kUnknown);
  const auto event = receive(client);
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->kind, DeliveryKind::kClosed);
  EXPECT_FALSE(receive(server, milliseconds(5)).has_value()) << "it knows what it did";
  EXPECT_NO_THROW(client.connect(endpoint)) << "the door stays open";
}

TEST_F(MemoryLinksTest, EndWithAPeerThatDoesNotRead) {
  link();
  while (client.send(dialled, {"q"}) == SendResult::kSent) {
  }
  EXPECT_FALSE(receive(client, milliseconds(5)).has_value()) << "it has its time";
  lose_patience();
  const auto event = receive(client);
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->kind, DeliveryKind::kClosed);
  EXPECT_THAT(event->frames.at(0), HasSubstr("does not read"));
  EXPECT_EQ(client.counters()->broken, 1u);
}

TEST_F(MemoryLinksTest, HavePatienceWithAPeerThatHasReadAFullRingSince) {
  link();
  while (client.send(dialled, {"q"}) == SendResult::kSent) {
  }
  for (std::size_t i = 0; i < MemoryLink::kMostQuestions; ++i)
    ASSERT_TRUE(receive(server).has_value());
  lose_patience();  // neither side has anything to send
  EXPECT_FALSE(receive(client, milliseconds(5)).has_value());
  EXPECT_EQ(client.send(dialled, {"q"}), SendResult::kSent);
  EXPECT_EQ(client.counters()->broken, 0u);
}

TEST_F(MemoryLinksTest, CountPatienceFromTheLastFullRingThatNothingIsReadOf) {
  link();
  while (client.send(dialled, {"q"}) == SendResult::kSent) {
  }
  clock->advance(options.patience - milliseconds(1));
  ASSERT_TRUE(receive(server).has_value());
  while (client.send(dialled, {"q"}) == SendResult::kSent) {
  }
  clock->advance(options.patience - milliseconds(1));
  EXPECT_FALSE(receive(client, milliseconds(5)).has_value()) << "slow, but it reads";
  clock->advance(milliseconds(2));
  EXPECT_TRUE(receive(client).has_value());
  EXPECT_EQ(client.counters()->broken, 1u);
}

TEST_F(MemoryLinksTest, HearAFirstWordThatLayUnreadForLongerThanPatience) {
  server.bind(endpoint);
  dialled = {.socket = client.connect(endpoint), .routing = {}};
  greet(server, client);
  ASSERT_EQ(client.send(dialled, {"first", "word"}), SendResult::kSent);
  lose_patience();  // the server was busy with a step of its own
  const auto first = receive(server);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->frames, (Frames{"first", "word"}));
  EXPECT_EQ(server.counters()->broken, 0u);
}

TEST_F(MemoryLinksTest, ServeADoorUntilItIsClosed) {
  door = server.bind(endpoint);
  MemoryLinks other(options);
  EXPECT_THROW(other.bind(endpoint), FatalError);
  server.close(door);
  EXPECT_THROW(client.connect(endpoint), FatalError);
  other.bind(endpoint);
  EXPECT_NO_THROW(client.connect(endpoint));
  greet(other, client);
}

// ---- strangers at the door

class Stranger {
 public:
  explicit Stranger(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    timeval patience{5, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  explicit Stranger(int accepted) : fd_(accepted), connected_(accepted >= 0) {}
  ~Stranger() {
    if (map_ != nullptr) ::munmap(map_, size_);
    ::close(fd_);
  }
  bool connected() const { return connected_; }
  int fd() const { return fd_; }

  void greet(std::uint32_t ring_bytes,
             const std::vector<int>& fds,
             const char* magic = "FTKNSHM1") {
    std::array<char, 16> greeting{};
    std::memcpy(greeting.data(), magic, 8);
    std::memcpy(greeting.data() + 8, &ring_bytes, 4);
    iovec data{greeting.data(), greeting.size()};
    std::vector<char> control(CMSG_SPACE(sizeof(int) * fds.size()));
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* part = CMSG_FIRSTHDR(&message);
      part->cmsg_level = SOL_SOCKET;
      part->cmsg_type = SCM_RIGHTS;
      part->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
      std::memcpy(CMSG_DATA(part), fds.data(), sizeof(int) * fds.size());
    }
    ASSERT_EQ(::sendmsg(fd_, &message, MSG_NOSIGNAL), 16);
  }
  // A proper region that the stranger can write to.
  std::byte* greet_well(std::uint32_t ring_bytes) {
    size_ = kRingHeadBytes + ring_bytes;
    const int file = ::memfd_create("stranger", MFD_ALLOW_SEALING);
    EXPECT_EQ(::ftruncate(file, static_cast<off_t>(size_)), 0);
    map_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    EXPECT_EQ(::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    greet(ring_bytes, {file});
    ::close(file);
    return static_cast<std::byte*>(map_);
  }
  bool was_cut() {
    std::array<char, 64> bytes{};
    while (true) {
      const ssize_t n = ::recv(fd_, bytes.data(), bytes.size(), 0);
      if (n <= 0) return n == 0 || errno == ECONNRESET;
    }
  }

 private:
  int fd_;
  bool connected_ = false;
  void* map_ = nullptr;
  std::size_t size_ = 0;
};

std::size_t n_open_files() {
  std::size_t n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++n;
  return n;
}

TEST_F(MemoryLinksTest, TurnAwayWhoeverGreetsInAnotherWay) {
  server.bind(endpoint);
  const std::string path = folder / "door";
  const std::size_t before = n_open_files();
  const auto file_of = [](std::size_t n_bytes, int seals) {
    const int file = ::memfd_create("stranger", MFD_ALLOW_SEALING);
    EXPECT_EQ(::ftruncate(file, static_cast<off_t>(n_bytes)), 0);
    EXPECT_EQ(::fcntl(file, F_ADD_SEALS, seals), 0);
    return file;
  };
  const std::size_t good = kRingHeadBytes + 16384;
  const auto refused = [&](const char* what, std::uint32_t ring, const std::vector<int>& fds,
                           const char* magic = "FTKNSHM1") {
    Stranger stranger(path);
    ASSERT_TRUE(stranger.connected());
    stranger.greet(ring, fds, magic);
    for (const int fd : fds) ::close(fd);
    EXPECT_FALSE(receive(server, milliseconds(20)).has_value()) << what;
    EXPECT_TRUE(stranger.was_cut()) << what;
  };
  refused("another magic", 16384, {file_of(good, F_SEAL_SHRINK)}, "GET / HT");
  refused("no memory", 16384, {});
  refused("two files", 16384, {file_of(good, F_SEAL_SHRINK), file_of(good, F_SEAL_SHRINK)});
  refused("five files", 16384,
          std::vector<int>{file_of(good, 2), file_of(good, 2), file_of(good, 2), file_of(good, 2),
                           file_of(good, 2)});
  refused("not a power of two", 16383, {file_of(kRingHeadBytes + 16383, F_SEAL_SHRINK)});
  refused("too small", 2048, {file_of(kRingHeadBytes + 2048, F_SEAL_SHRINK)});
  refused("too large", 1u << 31, {file_of(good, F_SEAL_SHRINK)});
  refused("nothing", 0, {file_of(good, F_SEAL_SHRINK)});
  refused("smaller than it says", 16384, {file_of(good - 1, F_SEAL_SHRINK)});
  refused("larger than it says", 16384, {file_of(good + 4096, F_SEAL_SHRINK)});
  refused("could be cut short under our feet", 16384, {file_of(good, F_SEAL_GROW)});
  refused("an ordinary file", 16384, {::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)});
  refused("a pipe", 16384, {::open("/dev/null", O_RDWR | O_CLOEXEC)});
  EXPECT_EQ(server.counters()->opened, 0u);
  EXPECT_EQ(n_open_files(), before) << "every descriptor that came was closed";
}

TEST_F(MemoryLinksTest, TurnAwayWhoeverSaysNothing) {
  server.bind(endpoint);
  Stranger silent(folder / "door");
  Stranger wordless(folder / "door");
  wordless.greet_well(16384);
  EXPECT_FALSE(receive(server, milliseconds(5)).has_value());
  EXPECT_EQ(server.counters()->opened, 1u);
  EXPECT_EQ(server.counters()->refused + server.counters()->broken, 0u) << "they have their time";
  lose_patience();
  EXPECT_FALSE(receive(server, milliseconds(5)).has_value());
  EXPECT_EQ(server.counters()->refused, 1u);
  EXPECT_EQ(server.counters()->broken, 1u);
  EXPECT_TRUE(silent.was_cut());
  EXPECT_TRUE(wordless.was_cut());
}

TEST_F(MemoryLinksTest, LetSomebodyInThoughStrangersFillTheDoor) {
  link();
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (std::size_t i = 0; i < MemoryLinks::kMaxLinks; ++i) {
    crowd.push_back(std::make_unique<Stranger>(folder / "door"));
    ASSERT_TRUE(crowd.back()->connected());
    if (i % 8 == 0) {  // the backlog is short
      EXPECT_FALSE(server.receive().has_value());
    }
    server.wake_up();
  }
  MemoryLinks late(options);
  const Peer peer{.socket = late.connect(endpoint), .routing = {}};
  greet(server, late);
  ASSERT_EQ(late.send(peer, {"hello"}), SendResult::kSent);
  const auto heard = receive(server);
  ASSERT_TRUE(heard.has_value());
  EXPECT_EQ(heard->frames, Frames{"hello"});
  ASSERT_EQ(client.send(dialled, {"still", "here"}), SendResult::kSent);
  EXPECT_EQ(receive(server)->frames, (Frames{"still", "here"}));
  EXPECT_GT(server.counters()->refused, 0u) << "the door was full";
}

TEST_F(MemoryLinksTest, CutOffWhoeverRingsWithoutAMessage) {
  server.bind(endpoint);
  Stranger stranger(folder / "door");
  stranger.greet_well(16384);
  const Bytes rings(1024, '!');
  for (int i = 0; i < 100 && server.counters()->broken == 0; ++i) {
    (void)!::send(stranger.fd(), rings.data(), rings.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    EXPECT_FALSE(receive(server, milliseconds(2)).has_value());
  }
  EXPECT_EQ(server.counters()->broken, 1u);
}

// A peer that writes anything anywhere in its memory, at any time: its own link ends, another's
// goes on.
TEST_F(MemoryLinksTest, OutliveAPeerThatScribbles) {
  link();
  std::mt19937_64 random(20261121);
  for (int life = 0; life < 50; ++life) {
    Stranger stranger(folder / "door");
    ASSERT_TRUE(stranger.connected());
    std::byte* memory = stranger.greet_well(4096);
    for (int i = 0; i < 50; ++i) {
      for (int k = 0; k < 40; ++k)
        memory[random() % 3 == 0 ? random() % 256 : random() % 8192] =
            static_cast<std::byte>(random());
      (void)!::send(stranger.fd(), "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
      while (auto delivery = receive(server, milliseconds(i == 0 ? 2 : 0)))
        if (delivery->kind == DeliveryKind::kMessage) (void)server.send(delivery->peer, {"what?"});
    }
    ASSERT_EQ(client.send(dialled, {"still", std::to_string(life)}), SendResult::kSent);
    std::optional<Delivery> got;
    do {
      got = receive(server);
      ASSERT_TRUE(got.has_value());
    } while (got->peer != accepted);
    EXPECT_EQ(got->frames, (Frames{"still", std::to_string(life)}));
  }
  EXPECT_GT(server.counters()->broken + server.counters()->refused, 25u);
}

// The same from the other side: what answers at the door may be any process.
TEST_F(MemoryLinksTest, OutliveADoorThatScribbles) {
  std::mt19937_64 random(20261122);
  std::size_t n_ended = 0;
  for (int life = 0; life < 30; ++life) {
    server.bind(endpoint);
    const Peer peer{.socket = client.connect(endpoint), .routing = {}};
    server.~MemoryLinks();  // the door is gone, its backlog with it
    new (&server) MemoryLinks(options);
    const auto event = receive(client);
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->kind, DeliveryKind::kClosed) << "left before greeting";
    EXPECT_EQ(client.send(peer, {"x"}), SendResult::kUnknown);

    const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = folder / "door";
    std::memcpy(address.sun_path, path.data(), path.size());
    ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(listener, 1), 0);
    const Peer hostile{.socket = client.connect(endpoint), .routing = {}};
    Stranger stranger(::accept(listener, nullptr, nullptr));
    ::close(listener);
    ::unlink(path.c_str());
    std::byte* memory = stranger.greet_well(4096);
    for (int i = 0; i < 200; ++i) {
      (void)client.send(hostile, {"question", std::to_string(i)});
      for (int k = 0; k < 20; ++k)
        memory[random() % 3 == 0 ? random() % 256 : random() % 8192] =
            static_cast<std::byte>(random());
      const auto got = receive(client, milliseconds(i == 0 ? 2 : 0));
      if (!got || got->kind != DeliveryKind::kClosed) continue;
      ++n_ended;
      break;
    }
    client.close(hostile.socket);
    EXPECT_EQ(client.send(hostile, {"x"}), SendResult::kUnknown);
  }
  EXPECT_GT(n_ended, 20u);
}

}  // namespace
}  // namespace foretoken
