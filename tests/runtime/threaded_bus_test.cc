#include "common/runtime/threaded_bus.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>

#include "common/base/result.h"
#include "common/transport/zmq_transport.h"
#include "tests/transport/folder.h"

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Posting kWaits{.patience = kAsLongAsItTakes};

std::unique_ptr<ThreadedBus> make_bus(std::size_t capacity = 64) {
  return std::make_unique<ThreadedBus>(std::make_unique<ZmqTransport>(), capacity);
}

void send_either_way(ThreadedBus& from, const Peer& to, const Frames& frames) {
  if (MemoryLinks::is_socket(to.socket))
    (void)from.try_send(to, frames);
  else
    from.send(to, frames, {});
}

// Sends until the connection is up, throwing away the reports of messages that came too early.
Delivery exchange(ThreadedBus& from, const Peer& to, const Frames& frames, ThreadedBus& at) {
  for (int i = 0; i < 2000; ++i) {
    send_either_way(from, to, frames);
    if (auto got = at.receive(at.now() + milliseconds(5))) return *got;
  }
  ADD_FAILURE() << "nothing arrived";
  return {};
}

TEST(ThreadedBus, CarriesMessagesBothWays) {
  const auto server = make_bus();
  const auto client = make_bus();
  const SocketId bound = server->bind("tcp://127.0.0.1:*", Door::kInternal);
  const SocketId dialled = client->connect(server->endpoint(bound));
  const Delivery question = exchange(*client, {dialled, "", false}, {"q", "1"}, *server);
  EXPECT_EQ(question.frames, (Frames{"q", "1"}));
  while (client->receive(TimePoint::min())) {
  }
  server->send(question.peer, {"a", "1"}, {});
  std::optional<Delivery> answer;
  do {
    answer = client->receive(client->now() + seconds(10));
  } while (answer && answer->kind != DeliveryKind::kMessage);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->frames, (Frames{"a", "1"}));
}

TEST(ThreadedBus, ReportsAPeerThatIsGone) {
  const auto server = make_bus();
  const SocketId bound = server->bind("tcp://127.0.0.1:*", Door::kInternal);
  server->send({bound, "nobody", false}, {"x", "y"}, {.ticket = {3, 4}});
  const auto report = server->receive(server->now() + seconds(10));
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->kind, DeliveryKind::kUndelivered);
  EXPECT_EQ(report->peer.routing, "nobody");
  EXPECT_EQ(report->ticket, (Ticket{3, 4}));
  EXPECT_TRUE(report->frames.empty());
}

TEST(ThreadedBus, ReportsWhatWasDropped) {
  const auto client = make_bus();
  const SocketId dialled = client->connect("ipc:///tmp/foretoken-nobody-serves-this");
  client->send({dialled, "", false}, {"x", "y"}, {.ticket = {3, 4}});
  const auto report = client->receive(client->now() + seconds(10));
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->kind, DeliveryKind::kDropped);
  EXPECT_EQ(report->ticket, (Ticket{3, 4}));
}

TEST(ThreadedBus, ThrowsWhereTheServiceAsked) {
  const auto bus = make_bus();
  EXPECT_THROW(bus->bind("tcp://localhost:5", Door::kInternal), FatalError);
  EXPECT_THROW(bus->connect("nonsense"), FatalError);
}

TEST(ThreadedBus, HoldsPeersBackWhenTheInboxIsFullAndLosesNothing) {
  const auto server = make_bus(8);
  const auto client = make_bus(1024);
  const SocketId bound = server->bind("tcp://127.0.0.1:*", Door::kInternal);
  const SocketId dialled = client->connect(server->endpoint(bound));
  (void)exchange(*client, {dialled, "", false}, {"up?"}, *server);
  while (server->receive(server->now() + milliseconds(50))) {
  }
  for (int i = 0; i < 200; ++i) client->send({dialled, "", false}, {std::to_string(i)}, kWaits);
  for (int i = 0; i < 200; ++i) {
    const auto got = server->receive(server->now() + seconds(10));
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(got->frames[0], std::to_string(i));
  }
}

// A client with as many messages as a peer reads, and a service with a few.
class Crowd final : public Transport {
 public:
  enum class Waits : std::uint8_t { kUntilTheDeadline, kUntilItIsWoken };
  explicit Crowd(Waits waits) : waits_(waits) {}
  SocketId bind(const std::string&, Door) override { return 1; }
  SocketId connect(const std::string&) override { return 1; }
  void close(SocketId) override {}
  std::string endpoint(SocketId) const override { return {}; }
  SendResult send(const Peer&, const Frames&) override { return SendResult::kSent; }
  std::optional<Delivery> receive(TimePoint deadline) override {
    std::unique_lock lock(mutex_);
    ++n_waits_;
    const auto may_give = [&] { return (!held_ && n_of_client_ > 0) || n_of_service_ > 0; };
    const auto is_over = [&] { return may_give() || awake_; };
    if (deadline > steady_now() && waits_ == Waits::kUntilTheDeadline)
      changed_.wait_until(lock, deadline, is_over);
    else if (deadline > steady_now())
      changed_.wait(lock, is_over);
    awake_ = false;
    if (!may_give()) return std::nullopt;
    Delivery delivery;
    delivery.frames = {n_of_service_ > 0 ? "service" : "client"};
    --(n_of_service_ > 0 ? n_of_service_ : n_of_client_);
    return delivery;
  }
  void hold_clients(bool held) override {
    const std::lock_guard lock(mutex_);
    held_ = held;
  }
  void wake() override {
    const std::lock_guard lock(mutex_);
    awake_ = true;
    changed_.notify_all();
  }
  void serve(int n) {
    const std::lock_guard lock(mutex_);
    n_of_service_ += n;
    changed_.notify_all();
  }
  int n_waits() {
    const std::lock_guard lock(mutex_);
    return n_waits_;
  }
  int n_left() {
    const std::lock_guard lock(mutex_);
    return n_of_client_;
  }

 private:
  const Waits waits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false, awake_ = false;
  int n_of_client_ = 1000, n_of_service_ = 0, n_waits_ = 0;
};

TEST(ThreadedBus, HoldsClientsBehindAFewOfTheirMessagesAndServicesPass) {
  auto transport = std::make_unique<Crowd>(Crowd::Waits::kUntilItIsWoken);
  Crowd& crowd = *transport;
  ThreadedBus bus(std::move(transport), 4096);
  const auto take = [&] {
    const auto got = bus.receive(bus.now() + seconds(60));
    return got ? got->frames.at(0) : Bytes("nothing");
  };
  while (crowd.n_left() > 1000 - 64) std::this_thread::yield();
  crowd.serve(1);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(take(), "client") << i;
  EXPECT_EQ(take(), "service") << "behind a few of the client's";
  for (int i = 64; i < 1000; ++i) ASSERT_EQ(take(), "client") << i;
}

TEST(ThreadedBus, SleepsWhileItHoldsClients) {
  auto transport = std::make_unique<Crowd>(Crowd::Waits::kUntilTheDeadline);
  Crowd& crowd = *transport;
  ThreadedBus bus(std::move(transport), 4096);
  while (crowd.n_left() > 1000 - 64) std::this_thread::yield();
  // A time in which nothing may happen: polling each millisecond would show as 100 waits.
  std::this_thread::sleep_for(milliseconds(100));
  const int n_waits = crowd.n_waits();
  EXPECT_LE(n_waits, 64 + 8) << "one for each message, and not one each millisecond";
  EXPECT_EQ(crowd.n_left(), 1000 - 64);
}

TEST(ThreadedBus, SendsWhatIsInTheOutboxBeforeItEnds) {
  const auto server = make_bus();
  auto client = make_bus();
  const SocketId bound = server->bind("tcp://127.0.0.1:*", Door::kInternal);
  const SocketId dialled = client->connect(server->endpoint(bound));
  (void)exchange(*client, {dialled, "", false}, {"up?"}, *server);
  client->send({dialled, "", false}, {"goodbye"}, {});
  client.reset();
  std::optional<Delivery> got;
  do {
    got = server->receive(server->now() + seconds(10));
  } while (got && got->frames[0] != "goodbye");
  EXPECT_TRUE(got.has_value());
}

TEST(ThreadedBus, PulsesGoOnWhileTheWorkThreadComputesAndWhileTheInboxIsFull) {
  std::atomic<int> n_pulses{0};
  auto server = make_bus(8);
  const auto client = make_bus(64);
  const SocketId bound = server->bind("tcp://127.0.0.1:*", Door::kInternal);
  const SocketId dialled = client->connect(server->endpoint(bound));
  const Peer back = exchange(*client, {dialled, "", false}, {"up?"}, *server).peer;
  for (int i = 0; i < 40; ++i)  // more than the server's inbox holds; its work thread reads nothing
    client->send({dialled, "", false}, {"x"}, {});
  server->add_pulse([&](TimePoint now, const Bus::DirectSend& send) {
    ++n_pulses;
    EXPECT_EQ(send(back, {"pulse"}), SendResult::kSent);
    return now + milliseconds(1);
  });
  for (int i = 0; i < 5; ++i) {
    std::optional<Delivery> got;
    do {
      got = client->receive(client->now() + seconds(20));
    } while (got && got->kind != DeliveryKind::kMessage);
    ASSERT_TRUE(got.has_value()) << i;
    EXPECT_EQ(got->frames[0], "pulse");
  }
  EXPECT_GE(n_pulses.load(), 5);
  server.reset();  // its pulses end while the client is still there
}

TEST(ThreadedBus, AnObserverSeesItsSocketWhileTheWorkThreadReceivesNothing) {
  const auto server = make_bus();
  const auto client = make_bus();
  const SocketId bound = server->bind("tcp://127.0.0.1:*", Door::kInternal);
  const SocketId other = server->bind("tcp://127.0.0.1:*", Door::kInternal);
  server->add_observer(bound, [](const Delivery& delivery, TimePoint, const Bus::DirectSend& send) {
    EXPECT_EQ(send(delivery.peer, {"seen " + delivery.frames[0]}), SendResult::kSent);
    return TimePoint::max();
  });
  const SocketId dialled = client->connect(server->endpoint(bound));
  const SocketId unseen = client->connect(server->endpoint(other));
  const TimePoint until = client->now() + seconds(20);
  std::optional<Delivery> got;
  // Few, and with pauses: an observer sees nothing while the inbox is full.
  for (int i = 0; !got && client->now() < until; ++i) {
    if (i < 4) client->send({unseen, "", false}, {"one"}, {});
    client->send({dialled, "", false}, {"two"}, {});
    const TimePoint next = client->now() + milliseconds(50);
    while (!got && client->now() < next) {
      got = client->receive(next);
      if (got && got->kind != DeliveryKind::kMessage) got.reset();
    }
  }
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->frames[0], "seen two");
  for (bool has_two = false; !has_two;) {
    const auto kept = server->receive(server->now() + seconds(20));
    ASSERT_TRUE(kept.has_value()) << "the work thread receives it, too";
    has_two = kept->frames[0] == "two";
  }
}

TEST(ThreadedBus, PulsesAreCalledWhenAnObserverWantsThem) {
  std::atomic<int> n_pulses{0};
  auto server = make_bus();
  const auto client = make_bus();
  const SocketId bound = server->bind("tcp://127.0.0.1:*", Door::kInternal);
  server->add_pulse([&](TimePoint, const Bus::DirectSend&) {
    ++n_pulses;
    return TimePoint::max();
  });
  server->add_observer(bound, [](const Delivery&, TimePoint now, const Bus::DirectSend&) {
    return now + milliseconds(1);
  });
  const SocketId dialled = client->connect(server->endpoint(bound));
  const auto wait_for = [&](int n) {
    // Pulses run on the bus's own thread, which has nothing to wait on from here: poll, 20 s at
    // most.
    for (const TimePoint until = client->now() + seconds(20);
         n_pulses < n && client->now() < until;)
      std::this_thread::sleep_for(milliseconds(1));
    return n_pulses >= n;
  };
  ASSERT_TRUE(wait_for(1)) << "once when it is added";
  (void)exchange(*client, {dialled, "", false}, {"up?"}, *server);
  EXPECT_TRUE(wait_for(2));
  server.reset();
}

TEST(ThreadedBus, SaysUntilWhenItHasHeard) {
  const auto server = make_bus();
  const auto client = make_bus();
  const SocketId bound = server->bind("tcp://127.0.0.1:*", Door::kInternal);
  const SocketId dialled = client->connect(server->endpoint(bound));
  (void)exchange(*client, {dialled, "", false}, {"up?"}, *server);
  while (server->receive(server->now() + milliseconds(50))) {
  }
  const TimePoint quiet = server->now();
  EXPECT_GE(server->received_until(), quiet) << "nothing waits";
  for (int i = 0; i < 2; ++i) client->send({dialled, "", false}, {"x"}, {});
  const auto first = server->receive(server->now() + seconds(20));
  ASSERT_TRUE(first.has_value());
  server->wait(server->now() + seconds(20), -1);  // the second is there
  EXPECT_EQ(server->received_until(), first->arrived);
  EXPECT_GE(first->arrived, quiet);
}

// Before the wait and during it: a wake-up is never missed.
TEST(ThreadedBus, AWakeFromAnyThreadEndsAWait) {
  const auto bus = make_bus();
  const TimePoint begin = bus->now();
  bus->wake();
  bus->wait(begin + seconds(100), -1);
  std::thread other([&] { bus->wake(); });
  bus->wait(begin + seconds(100), -1);
  other.join();
  EXPECT_LT(bus->now(), begin + seconds(90));
}

TEST(ThreadedBus, WaitsForAnotherDescriptorToo) {
  const auto bus = make_bus();
  const int fd = ::eventfd(0, EFD_NONBLOCK);
  const TimePoint soon = bus->now() + milliseconds(30);
  bus->wait(soon, fd);
  EXPECT_GE(bus->now(), soon) << "nothing was readable";
  const std::uint64_t one = 1;
  ASSERT_EQ(::write(fd, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  const TimePoint late = bus->now() + seconds(20);  // only one that does not look waits for it
  bus->wait(late, fd);
  EXPECT_LT(bus->now(), late);
  ::close(fd);
}

// A client that is connected to a bus and reads when the test says so.
struct SlowClient {
  explicit SlowClient(ThreadedBus& server)
      : peer{.socket = transport->connect(
                 server.endpoint(server.bind("tcp://127.0.0.1:*", Door::kClient)))} {
    std::optional<Delivery> hello;
    for (int i = 0; i < 2000 && !hello; ++i) {
      (void)transport->send(peer, {"hello"});
      hello = server.receive(server.now() + milliseconds(5));
    }
    if (hello) seen = hello->peer;
  }
  std::optional<Delivery> read() { return transport->receive(steady_now() + seconds(20)); }

  std::unique_ptr<ZmqTransport> transport = std::make_unique<ZmqTransport>();
  Peer peer;
  Peer seen;  // as the server knows it
};

TEST(ThreadedBus, KeepsASecondOfAnswersForAClientThatIsBusyAndNoMore) {
  const auto server = make_bus(4096);
  SlowClient client(*server);
  const Frames piece{std::string(1024, 'x')};  // it reads none of them
  std::size_t n_sent = 0;
  std::optional<Delivery> lost;
  while (!lost && n_sent < 64 * 1024) {
    for (int i = 0; i < 64; ++i, ++n_sent)
      server->send(client.seen, piece,
                   {.ticket = {0, 7},
                    .patience = seconds(20),
                    .part = n_sent == 0 ? Part::kFirst : Part::kNext});
    while ((lost = server->receive(server->now() + milliseconds(1))) &&
           lost->kind == DeliveryKind::kMessage) {
    }
  }
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->ticket, (Ticket{0, 7}));
  server->send(client.seen, {"end"}, {.patience = seconds(20), .room = Room::kReserved});
  // It reads after all: what is before the hole, and the end.
  std::size_t n_read = 0;
  std::optional<Delivery> got;
  while ((got = client.read()) && got->frames == piece) ++n_read;
  ASSERT_TRUE(got);
  EXPECT_EQ(got->frames, Frames{"end"});
  EXPECT_GE(n_read * 1024, kClientLimits.of_one * 3 / 4);
  EXPECT_LE(n_read, n_sent);
  EXPECT_LT(n_read * 1024, kClientLimits.of_one_taking + kClientLimits.of_one)
      << "the client's own queue and the kernel's buffers on top";
  EXPECT_FALSE(server->receive(TimePoint::min())) << "one report for all of them";
}

TEST(ThreadedBus, SendsWhatWaitsForAClientInOrderEvenWhenItEnds) {
  auto server = make_bus(4096);
  SlowClient client(*server);
  constexpr int kMany = 5000;  // more than libzmq keeps
  for (int i = 0; i < kMany; ++i) server->send(client.seen, {std::to_string(i)}, kWaits);
  std::jthread end([&] { server.reset(); });
  for (int i = 0; i < kMany; ++i) {
    const auto got = client.read();
    ASSERT_TRUE(got) << i;
    ASSERT_EQ(got->frames, Frames{std::to_string(i)});
  }
}

// Nothing arrives until the test says so; what is sent has the outcome the test chose.
class ScriptedTransport final : public Transport {
 public:
  SocketId bind(const std::string&, Door) override { return 1; }
  SocketId connect(const std::string&) override { return 1; }
  void close(SocketId) override { closed = true; }
  std::string endpoint(SocketId) const override { return {}; }
  SendResult send(const Peer&, const Frames&) override {
    ++*n_sends;
    return closed ? SendResult::kUnknown : outcome.load();
  }
  std::optional<Delivery> receive(TimePoint deadline) override {
    if (has_no_memory) throw std::bad_alloc();
    std::unique_lock lock(mutex);
    changed.wait_until(lock, std::min(deadline, std::chrono::steady_clock::now() + seconds(1)),
                       [&] { return woken || n_to_come > 0; });
    woken = false;
    if (n_to_come == 0) return std::nullopt;
    --n_to_come;
    Delivery delivery;
    delivery.frames = {"message"};
    return delivery;
  }
  void wake() override {
    const std::unique_lock lock(mutex);
    woken = true;
    changed.notify_all();
  }
  void let_come(int n) {
    const std::unique_lock lock(mutex);
    n_to_come += n;
    changed.notify_all();
  }

  std::atomic<SendResult> outcome{SendResult::kSent};
  // Of its own life: who asks how a bus ended asks when its transport is gone.
  std::shared_ptr<std::atomic<int>> n_sends = std::make_shared<std::atomic<int>>(0);
  std::atomic<bool> closed{false};
  std::atomic<bool> has_no_memory{false};
  std::mutex mutex;
  std::condition_variable changed;
  bool woken = false;
  int n_to_come = 0;
};

struct ScriptedBus {
  explicit ScriptedBus(std::size_t capacity) {
    auto owned = std::make_unique<ScriptedTransport>();
    transport = owned.get();
    bus = std::make_unique<ThreadedBus>(std::move(owned), capacity);
  }
  ScriptedTransport* transport = nullptr;
  std::unique_ptr<ThreadedBus> bus;
};

TEST(ThreadedBus, LosesNoReportHoweverFewAreTaken) {
  for (const auto outcome : {SendResult::kBusy, SendResult::kUnknown}) {
    const ScriptedBus scripted(4);
    scripted.transport->outcome = outcome;
    for (std::uint64_t i = 1; i <= 200; ++i)
      scripted.bus->send({1, "", false}, {"x"}, {.ticket = {0, i}});
    for (std::uint64_t i = 1; i <= 200; ++i) {
      const auto report = scripted.bus->receive(scripted.bus->now() + seconds(20));
      ASSERT_TRUE(report.has_value()) << "of " << i;
      EXPECT_EQ(report->kind,
                outcome == SendResult::kBusy ? DeliveryKind::kDropped : DeliveryKind::kUndelivered);
      EXPECT_EQ(report->ticket, (Ticket{0, i}));
      EXPECT_TRUE(report->frames.empty());
    }
  }
}

TEST(ThreadedBus, KeepsWhatHasPatienceUntilTheSocketTakesIt) {
  const ScriptedBus scripted(4);
  scripted.transport->outcome = SendResult::kBusy;
  for (int i = 0; i < 100; ++i)
    scripted.bus->send({1, "", false}, {"x"}, {.patience = kAsLongAsItTakes});
  EXPECT_EQ(scripted.bus->n_waiting(1), 100u);
  EXPECT_EQ(scripted.bus->n_waiting(2), 0u);
  scripted.transport->outcome = SendResult::kSent;
  const TimePoint until = scripted.bus->now() + seconds(20);
  while (scripted.bus->n_waiting(1) > 0) {
    ASSERT_LT(scripted.bus->now(), until);
    EXPECT_FALSE(scripted.bus->receive(scripted.bus->now() + milliseconds(1)));
  }
  scripted.transport->outcome = SendResult::kBusy;
  scripted.bus->send({1, "", false}, {"x"}, {.patience = kAsLongAsItTakes});
  EXPECT_EQ(scripted.bus->n_waiting(1), 1u);
  scripted.bus->forget({1, "", false});
  EXPECT_EQ(scripted.bus->n_waiting(1), 0u);
}

// A work thread that sends and does not receive: what does not fit is bounded and reported.
TEST(ThreadedBus, BoundsWhatWaitsForItsOwnQueue) {
  const ScriptedBus scripted(1);
  scripted.transport->let_come(10);
  scripted.bus->wait(scripted.bus->now() + seconds(20), -1);
  scripted.transport->outcome = SendResult::kBusy;
  const Frames large{std::string(std::size_t{16} << 20, 'x')};
  for (std::uint64_t i = 1; i <= 12; ++i)
    scripted.bus->send({1, "", false}, large, {.ticket = {0, i}});
  std::uint64_t n_reports = 0;
  for (int i = 0; i < 22; ++i) {
    const auto got = scripted.bus->receive(scripted.bus->now() + seconds(20));
    ASSERT_TRUE(got.has_value()) << i;
    if (got->kind != DeliveryKind::kDropped) continue;
    EXPECT_EQ(got->ticket, (Ticket{0, ++n_reports})) << "in order, whatever lost it";
  }
  EXPECT_EQ(n_reports, 12u);
}

TEST(ThreadedBus, SendsAndClosesWhileTheInboxIsFull) {
  const ScriptedBus scripted(4);
  scripted.transport->let_come(100);
  scripted.bus->wait(scripted.bus->now() + seconds(20), -1);
  while (*scripted.transport->n_sends < 50)  // more than any queue here holds
    scripted.bus->send({1, "", false}, {"x"}, {});
  scripted.bus->close(1);
  EXPECT_TRUE(scripted.transport->closed);
  for (int i = 0; i < 100; ++i) {
    const auto got = scripted.bus->receive(scripted.bus->now() + seconds(20));
    ASSERT_TRUE(got.has_value()) << i;
    EXPECT_EQ(got->frames, (Frames{"message"})) << i;
  }
}

// A signal may come after its message was taken; that must not end a later wait with nothing.
TEST(ThreadedBus, ReceivesNothingOnlyAtTheDeadline) {
  constexpr int kMany = 20000;
  const ScriptedBus scripted(64);
  std::jthread sender([&] {
    for (int i = 0; i < kMany; ++i) scripted.transport->let_come(1);
  });
  int n_early = 0;
  for (int i = 0; i < kMany;) {
    const TimePoint deadline = scripted.bus->now() + seconds(20);
    if (scripted.bus->receive(deadline)) {
      ++i;
    } else {
      ++n_early;
      ASSERT_LT(scripted.bus->now(), deadline) << "message " << i << " never came";
    }
  }
  EXPECT_EQ(n_early, 0);
}

TEST(ThreadedBus, EndsWhateverIsFull) {
  ScriptedBus scripted(2);
  scripted.transport->outcome = SendResult::kBusy;
  scripted.transport->let_come(100);
  const auto n_sends = scripted.transport->n_sends;
  for (int i = 0; i < 1000; ++i) scripted.bus->send({1, "", false}, {"x"}, {});
  scripted.bus.reset();  // or the test's time limit says so
  EXPECT_EQ(*n_sends, 1000) << "each was tried";
}

// Thrown there it would end the process without a sentence.
TEST(ThreadedBus, ThrowsToTheWorkThreadWhatEndedTheSocketThread) {
  ScriptedBus scripted(2);
  scripted.transport->has_no_memory = true;
  scripted.transport->let_come(1);
  EXPECT_THROW(while (scripted.bus->receive(scripted.bus->now() + seconds(60))){}, std::bad_alloc);
  EXPECT_THROW(scripted.bus->bind("tcp://127.0.0.1:*", Door::kInternal), std::bad_alloc);
}

TEST(SpscQueue, RefusesWhenFullAndKeepsTheValue) {
  SpscQueue<std::string> queue(2);
  std::string a = "a", b = "b", c = "c";
  EXPECT_TRUE(queue.push(a));
  EXPECT_TRUE(queue.push(b));
  EXPECT_FALSE(queue.push(c));
  EXPECT_EQ(c, "c");
  EXPECT_EQ(queue.pop(), "a");
  EXPECT_TRUE(queue.push(c));
  EXPECT_EQ(queue.pop(), "b");
  EXPECT_EQ(queue.pop(), "c");
  EXPECT_EQ(queue.pop(), std::nullopt);
}

TEST(SpscQueue, CarriesEverythingInOrderBetweenTwoThreads) {
  SpscQueue<int> queue(7);
  constexpr int kMany = 20000;
  std::thread producer([&] {
    for (int i = 0; i < kMany; ++i) {
      int value = i;
      while (!queue.push(value)) std::this_thread::yield();
    }
  });
  for (int expected = 0; expected < kMany;) {
    const auto got = queue.pop();
    if (!got) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(*got, expected++);
  }
  producer.join();
}

// ---- links through memory, on the work thread itself

std::string memory_door() {
  static const Folder folder;
  static int n = 0;
  return "shm://" + (folder / std::to_string(++n));
}

TEST(ThreadedBus, CarriesMessagesThroughMemoryBothWaysAndWakesSleepers) {
  constexpr int kRounds = 300;
  const std::string door = memory_door();
  std::atomic<bool> is_bound{false};
  std::jthread other([&] {  // joins whatever fails: its own waits end
    const auto server = make_bus();
    server->bind(door, Door::kDraft);
    is_bound = true;
    for (int i = 0; i < kRounds; ++i) {
      const auto question = server->receive(server->now() + seconds(20));
      if (!question || question->kind != DeliveryKind::kMessage) return;
      EXPECT_EQ(server->try_send(question->peer, {question->frames.at(0), "answer"}),
                SendResult::kSent);
    }
  });
  while (!is_bound) std::this_thread::yield();
  const auto client = make_bus();
  const Peer peer{.socket = client->connect(door, Door::kDraft), .routing = {}};
  const TimePoint until = client->now() + seconds(20);
  int i = 0;
  while (i < kRounds && client->now() < until) {
    if (client->try_send(peer, {std::to_string(i)}) != SendResult::kSent) {
      (void)client->receive(client->now() + milliseconds(1));  // it greets
      continue;
    }
    const auto answer = client->receive(until);
    ASSERT_TRUE(answer.has_value());
    ASSERT_EQ(answer->kind, DeliveryKind::kMessage);
    EXPECT_EQ(answer->frames, (Frames{std::to_string(i), "answer"}));
    ++i;
  }
  ASSERT_EQ(i, kRounds);
  other.join();
  const auto end = client->receive(until);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->kind, DeliveryKind::kClosed) << "the other bus is gone";
  EXPECT_EQ(client->try_send(peer, {"x"}), SendResult::kUnknown);
}

TEST(ThreadedBus, WaitsForBothWaysAtOnceAndPrefersNeither) {
  const std::string door = memory_door();
  const auto server = make_bus();
  const auto client = make_bus();
  const SocketId bound = server->bind("tcp://127.0.0.1:*", Door::kInternal);
  const SocketId dialled = client->connect(server->endpoint(bound));
  const SocketId opened = server->bind(door, Door::kDraft);
  const Peer beside{.socket = client->connect(door, Door::kDraft), .routing = {}};
  exchange(*client, {dialled, "", false}, {"up", ""}, *server);
  const TimePoint until = client->now() + seconds(20);
  while (client->try_send(beside, {"up", ""}) != SendResult::kSent && client->now() < until) {
    (void)client->receive(client->now() + milliseconds(1));
    (void)server->receive(server->now() + milliseconds(1));
  }
  int by_memory = 0, by_zmq = 0;
  while ((by_memory < 50 || by_zmq < 50) && client->now() < until) {
    // A flood on either is no reason not to hear the other.
    while (client->try_send(beside, {"m", ""}) == SendResult::kSent) {
    }
    for (int i = 0; i < 4; ++i) client->send({dialled, "", false}, {"z", ""}, {});
    for (int i = 0; i < 8; ++i) {
      const auto got = server->receive(server->now() + milliseconds(20));
      if (!got || got->kind != DeliveryKind::kMessage) break;
      ++(got->peer.socket == opened ? by_memory : by_zmq);
    }
  }
  EXPECT_GE(by_memory, 50);
  EXPECT_GE(by_zmq, 50);
}

}  // namespace
}  // namespace foretoken
