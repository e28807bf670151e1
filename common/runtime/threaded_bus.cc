#include "common/runtime/threaded_bus.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <utility>

#include "common/base/check.h"
#include "common/base/result.h"

namespace foretoken {
namespace {

constexpr std::size_t kClientShare = 64;  // of the inbox: beyond, clients wait
constexpr auto kLongWait = std::chrono::seconds(1);
constexpr auto kBehindWait = std::chrono::milliseconds(1);  // for room on the way to the sockets
// At the end: for what the sockets refused until now. As long as libzmq waits for what it has.
constexpr auto kLinger = std::chrono::milliseconds(500);
constexpr int kTryAgainEvery = 64;  // messages

int new_eventfd() {
  const int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) throw FatalError(ErrorCode::kIo, "eventfd: no descriptor left");
  return fd;
}

void signal(int fd) {
  const std::uint64_t one = 1;
  (void)!::write(fd, &one, sizeof one);
}

void clear(int fd) {
  std::uint64_t count = 0;
  (void)!::read(fd, &count, sizeof count);
}

}  // namespace

ThreadedBus::ThreadedBus(std::unique_ptr<Transport> transport,
                         std::size_t queue_capacity,
                         MemoryLinkOptions memory)
    : transport_(std::move(transport)),
      queue_capacity_(queue_capacity),
      inbox_(2 * queue_capacity),
      to_sockets_(queue_capacity),
      send_directly_(
          [this](const Peer& to, const Frames& frames) { return transport_->send(to, frames); }),
      outbox_(send_directly_),
      memory_(std::move(memory)) {
  inbox_fd_ = new_eventfd();
  room_fd_ = new_eventfd();
  thread_ = std::thread([this] {
    try {
      run();
    } catch (...) {  // out of memory, above all: the work thread ends the process with a sentence
      fail(std::current_exception());
    }
  });
}

ThreadedBus::~ThreadedBus() {
  stop_ = true;
  transport_->wake();
  signal(room_fd_);
  thread_.join();
  if (!failed_) hand_over_all();
  // No socket signals that one of its peers has room again.
  for (const TimePoint until = steady_now() + kLinger;
       !failed_ && !outbox_.empty() && steady_now() < until;) {
    std::this_thread::sleep_for(Outbox::kFirstPause);
    outbox_.send_again(steady_now());
  }
  ::close(inbox_fd_);
  ::close(room_fd_);
}

void ThreadedBus::fail(std::exception_ptr failure) {
  {
    const std::unique_lock lock(command_mutex_);
    failure_ = std::move(failure);
    failed_ = true;
  }
  command_done_.notify_all();
  signal(inbox_fd_);
}

void ThreadedBus::rethrow_failure() const {
  if (failed_) std::rethrow_exception(failure_);
}

void ThreadedBus::run() {
  while (true) {
    run_command();
    if (stop_) return;
    hand_over_some();
    beat();
    wake_work_thread();
    if (!may_read()) {
      wait_for_room();
      continue;
    }
    for (int moved = 0; moved < 64 && may_read(); ++moved) {
      TimePoint deadline = TimePoint::min();
      if (moved == 0) {
        // Set the sleep flag, then check once more: a sender that adds after that look sees it
        // and wakes us.
        socket_sleeps_ = SocketSleep::kInTransport;
        if (to_sockets_.empty() && !stop_ && !has_command())
          deadline = std::min({steady_now() + kLongWait, next_pulse_, outbox_.due()});
      }
      transport_->hold_clients(must_hold_clients());
      auto delivery = transport_->receive(deadline);
      socket_sleeps_ = SocketSleep::kAwake;
      if (!delivery) break;
      observe(*delivery);
      deliver(std::move(*delivery));
    }
    wake_work_thread();
  }
}

void ThreadedBus::run_command() {
  {
    const std::unique_lock lock(command_mutex_);
    if (command_) std::exchange(command_, nullptr)();
  }
  command_done_.notify_all();
}

// Looks at the clock each time, but calls the pulses only when the first of them is due.
void ThreadedBus::beat() {
  const TimePoint now = steady_now();
  if (now < next_pulse_) return;
  next_pulse_ = TimePoint::max();
  for (const Pulse& pulse : pulses_)
    next_pulse_ = std::min(next_pulse_, pulse(now, send_directly_));
}

void ThreadedBus::add_pulse(Pulse pulse) {
  on_socket_thread([&](Transport&) {
    pulses_.push_back(std::move(pulse));
    next_pulse_ = TimePoint::min();
  });
}

void ThreadedBus::add_observer(SocketId socket, Observer observer) {
  on_socket_thread([&](Transport&) { observers_.emplace_back(socket, std::move(observer)); });
}

void ThreadedBus::observe(const Delivery& delivery) {
  if (delivery.kind != DeliveryKind::kMessage) return;
  for (const auto& [socket, observer] : observers_)
    if (socket == delivery.peer.socket)
      next_pulse_ = std::min(next_pulse_, observer(delivery, steady_now(), send_directly_));
}

bool ThreadedBus::has_command() const {
  const std::unique_lock lock(command_mutex_);
  return static_cast<bool>(command_);
}

// A few of the clients' messages at a time: behind thousands of them a heartbeat or the tokens of a
// stream would come late. Sets clients_held_ before it counts again, so that take() on the other
// thread either changes this count or sees the flag and wakes the socket thread.
bool ThreadedBus::must_hold_clients() {
  if (inbox_.size() < kClientShare) {
    clients_held_ = false;
    return false;
  }
  clients_held_ = true;
  return inbox_.size() >= kClientShare;
}

// Until the work thread has taken enough, has something to send that can be sent, or asks for
// something else.
void ThreadedBus::wait_for_room() {
  socket_sleeps_ = SocketSleep::kForRoom;
  const bool can_send = (!to_sockets_.empty() || outbox_.has_lost()) && !inbox_.full();
  if (!may_read() && !can_send && !stop_ && !has_command()) {
    pollfd waiting{room_fd_, POLLIN, 0};
    const Duration left =
        std::min(std::min(next_pulse_, outbox_.due()) - steady_now(), Duration(kLongWait));
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(std::max(left, Duration{}));
    ::poll(&waiting, 1, static_cast<int>(wait.count()));
  }
  socket_sleeps_ = SocketSleep::kAwake;
  clear(room_fd_);
}

void ThreadedBus::hand_over(Outgoing outgoing) {
  switch (outgoing.what) {
    case Outgoing::What::kMessage:
      return outbox_.send(outgoing.to, std::move(outgoing.frames), outgoing.posting, steady_now());
    case Outgoing::What::kLost:
      return outbox_.lose(outgoing.to, outgoing.posting);
    case Outgoing::What::kForget:
      return outbox_.forget(outgoing.to);
  }
}

// Each message may come back as a report, so none is taken for which there would be no room.
void ThreadedBus::hand_over_some() {
  outbox_.send_again(steady_now());
  report_lost();
  for (int n = 1; !inbox_.full() && !outbox_.has_lost(); ++n) {
    auto outgoing = to_sockets_.pop();
    if (!outgoing) return;
    hand_over(std::move(*outgoing));
    // A flood of messages must not hide that their peer takes some.
    if (n % kTryAgainEvery == 0) outbox_.send_again(steady_now());
    report_lost();
  }
}

void ThreadedBus::hand_over_all() {
  while (auto outgoing = to_sockets_.pop()) hand_over(std::move(*outgoing));
  for (Outgoing& outgoing : std::exchange(behind_, {})) hand_over(std::move(outgoing));
  behind_bytes_ = 0;
}

void ThreadedBus::report_lost() {
  while (!inbox_.full() && outbox_.has_lost()) deliver(*outbox_.lost());
}

// Only where there is room: no other thread adds.
void ThreadedBus::deliver(Delivery delivery) {
  delivery.arrived = steady_now();
  FORETOKEN_CHECK(inbox_.push(delivery), "the inbox has room for what is delivered");
}

// Once for all that has come, before this thread may sleep: the two would take turns, message by
// message, and each turn costs more than a message does.
void ThreadedBus::wake_work_thread() {
  if (!inbox_.empty() && work_sleeps_.exchange(false)) signal(inbox_fd_);
}

void ThreadedBus::wake_socket_thread() const {
  const SocketSleep where = socket_sleeps_.exchange(SocketSleep::kAwake);
  if (where == SocketSleep::kInTransport) transport_->wake();
  if (where == SocketSleep::kForRoom) signal(room_fd_);
}

// Half of it free before a socket thread that waits for room is woken: not a switch of threads per
// message.
std::optional<Delivery> ThreadedBus::take() {
  auto delivery = inbox_.pop();
  if (delivery) last_arrival_ = delivery->arrived;
  if (delivery && socket_sleeps_ == SocketSleep::kForRoom && inbox_.size() <= queue_capacity_ / 2)
    wake_socket_thread();
  if (delivery && clients_held_ && inbox_.size() <= kClientShare / 2 &&
      clients_held_.exchange(false))
    transport_->wake();
  return delivery;
}

void ThreadedBus::on_socket_thread(const std::function<void(Transport&)>& what) const {
  std::exception_ptr thrown;
  bool done = false;
  std::unique_lock lock(command_mutex_);
  command_ = [&] {
    try {
      what(*transport_);
    } catch (...) {
      thrown = std::current_exception();
    }
    done = true;
  };
  transport_->wake();
  signal(room_fd_);
  command_done_.wait(lock, [&] { return done || failed_; });
  if (thrown) std::rethrow_exception(thrown);
  if (!done) {
    command_ = nullptr;  // it refers to what ends here
    rethrow_failure();
  }
}

SocketId ThreadedBus::bind(const std::string& endpoint, Door door) {
  if (MemoryLinks::is_endpoint(endpoint)) return memory_.bind(endpoint);
  SocketId id = 0;
  on_socket_thread([&](Transport& transport) {
    id = transport.bind(endpoint, door);
    outbox_.add(id, door);
  });
  return id;
}

SocketId ThreadedBus::connect(const std::string& endpoint, Door door) {
  if (MemoryLinks::is_endpoint(endpoint)) return memory_.connect(endpoint);
  SocketId id = 0;
  on_socket_thread([&](Transport& transport) {
    id = transport.connect(endpoint, door);
    outbox_.add(id, door);
  });
  return id;
}

void ThreadedBus::close(SocketId socket) {
  if (MemoryLinks::is_socket(socket)) return memory_.close(socket);
  // What was sent before must leave before: commands overtake the queue otherwise.
  on_socket_thread([&](Transport& transport) {
    hand_over_all();
    transport.close(socket);
    outbox_.remove(socket);
  });
}

std::string ThreadedBus::endpoint(SocketId socket) const {
  std::string text;
  on_socket_thread([&](Transport& transport) { text = transport.endpoint(socket); });
  return text;
}

void ThreadedBus::send(const Peer& to, Frames frames, const Posting& posting) {
  FORETOKEN_CHECK(!MemoryLinks::is_socket(to.socket), "over a link through memory: try_send");
  pass_on({Outgoing::What::kMessage, to, std::move(frames), posting});
}

void ThreadedBus::forget(const Peer& peer) { pass_on({Outgoing::What::kForget, peer, {}, {}}); }

std::size_t ThreadedBus::n_waiting(SocketId socket) {
  std::size_t n = 0;
  on_socket_thread([&](Transport&) {
    hand_over_all();
    n = outbox_.n_waiting(socket);
  });
  return n;
}

void ThreadedBus::pass_on(Outgoing outgoing) {
  pass_on_behind();
  if (behind_.empty() && to_sockets_.push(outgoing)) return wake_socket_thread();
  std::size_t n_bytes = waiting_bytes(outgoing.frames);
  if (outgoing.what == Outgoing::What::kMessage && behind_bytes_ + n_bytes > kMaxBehindBytes) {
    outgoing.what = Outgoing::What::kLost;
    outgoing.frames.clear();
    n_bytes = kMessageBytes;
  }
  behind_bytes_ += n_bytes;
  behind_.push_back(std::move(outgoing));
}

void ThreadedBus::pass_on_behind() {
  bool has_moved = false;
  while (!behind_.empty()) {
    const std::size_t n_bytes = waiting_bytes(behind_.front().frames);
    if (!to_sockets_.push(behind_.front())) break;
    behind_bytes_ -= n_bytes;
    behind_.pop_front();
    has_moved = true;
  }
  if (has_moved) wake_socket_thread();
}

// By turns: a flood on the one may not starve the other.
std::optional<Delivery> ThreadedBus::next() {
  memory_first_ = !memory_first_;
  if (!memory_first_)
    if (auto delivery = take()) return delivery;
  if (auto delivery = memory_.receive()) return delivery;
  return memory_first_ ? take() : std::nullopt;
}

std::optional<Delivery> ThreadedBus::receive(TimePoint deadline) {
  rethrow_failure();
  pass_on_behind();
  // Again until then: a signal for a message that was taken without sleeping may come late, and
  // end a wait for the next one.
  while (true) {
    if (auto delivery = next()) return delivery;
    if (deadline <= now()) return std::nullopt;
    wait(deadline, -1);
    rethrow_failure();
  }
}

// A descriptor remembers it if the work thread is not asleep.
void ThreadedBus::wake() { signal(inbox_fd_); }

void ThreadedBus::wait(TimePoint deadline, int also) {
  pass_on_behind();
  if (!behind_.empty()) deadline = std::min(deadline, now() + kBehindWait);
  // Both set the sleep flag before they check once more: a sender that adds after that look sees
  // it.
  work_sleeps_ = true;
  const bool quiet = memory_.fall_asleep() && inbox_.empty();
  if (quiet) {
    const TimePoint start = now();
    const Duration left = deadline > start ? deadline - start : Duration::zero();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec timeout{static_cast<time_t>(std::min<std::int64_t>(seconds.count(), 3600)),
                           static_cast<long>((left - seconds).count())};
    waiting_.assign(1, {inbox_fd_, POLLIN, 0});
    if (also >= 0) waiting_.push_back({also, POLLIN, 0});
    memory_.add_to(waiting_);
    ::ppoll(waiting_.data(), waiting_.size(), &timeout, nullptr);
  }
  work_sleeps_ = false;
  memory_.wake_up();
  clear(inbox_fd_);
}

}  // namespace foretoken
