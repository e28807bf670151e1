#include "common/runtime/threaded_bus.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <exception>
#include <utility>

#include "common/base/result.h"

namespace foretoken {
namespace {

constexpr auto kLongWait = std::chrono::seconds(1);
constexpr auto kFullInboxNap = std::chrono::microseconds(200);

void signal(int fd) {
  const std::uint64_t one = 1;
  (void)!::write(fd, &one, sizeof one);
}

}  // namespace

ThreadedBus::ThreadedBus(std::unique_ptr<Transport> transport, std::size_t queue_capacity)
    : transport_(std::move(transport)), inbox_(queue_capacity), outbox_(queue_capacity) {
  inbox_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (inbox_fd_ < 0) throw FatalError(ErrorCode::kIo, "eventfd: no descriptor left");
  thread_ = std::thread([this] { run(); });
}

ThreadedBus::~ThreadedBus() {
  stop_ = true;
  transport_->wake();
  thread_.join();
  ::close(inbox_fd_);
}

void ThreadedBus::run() {
  while (true) {
    {
      const std::unique_lock lock(command_mutex_);
      if (command_) std::exchange(command_, nullptr)();
    }
    command_done_.notify_all();
    const bool last = stop_;
    flush_outbox();
    if (last) return;
    for (int moved = 0; moved < 64; ++moved) {
      if (inbox_.full()) {
        std::this_thread::sleep_for(kFullInboxNap);
        break;
      }
      TimePoint deadline = TimePoint::min();
      if (moved == 0) {
        // Say that we sleep, then look once more: whoever adds after that look sees it and wakes
        // us.
        socket_sleeps_ = true;
        bool work = !outbox_.empty() || stop_;
        if (!work) {
          const std::unique_lock lock(command_mutex_);
          work = static_cast<bool>(command_);
        }
        if (!work) deadline = std::chrono::steady_clock::now() + kLongWait;
      }
      auto delivery = transport_->receive(deadline);
      socket_sleeps_ = false;
      if (!delivery) break;
      deliver(std::move(*delivery));
    }
  }
}

void ThreadedBus::flush_outbox() {
  while (auto outgoing = outbox_.pop()) {
    const SendResult result = transport_->send(outgoing->to, outgoing->frames);
    if (result == SendResult::kSent) continue;
    Delivery report;
    report.kind = result == SendResult::kBusy ? DeliveryKind::kDropped : DeliveryKind::kUndelivered;
    report.peer = std::move(outgoing->to);
    report.frames = std::move(outgoing->frames);
    deliver(std::move(report));
  }
}

void ThreadedBus::deliver(Delivery delivery) {
  if (!inbox_.push(delivery)) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (work_sleeps_.exchange(false)) signal(inbox_fd_);
}

void ThreadedBus::wake_socket_thread() const {
  if (socket_sleeps_.exchange(false)) transport_->wake();
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
  command_done_.wait(lock, [&] { return done; });
  if (thrown) std::rethrow_exception(thrown);
}

SocketId ThreadedBus::bind(const std::string& endpoint, Door door) {
  SocketId id = 0;
  on_socket_thread([&](Transport& transport) { id = transport.bind(endpoint, door); });
  return id;
}

SocketId ThreadedBus::connect(const std::string& endpoint) {
  SocketId id = 0;
  on_socket_thread([&](Transport& transport) { id = transport.connect(endpoint); });
  return id;
}

void ThreadedBus::close(SocketId socket) {
  // What was sent before must leave before: commands overtake the outbox otherwise.
  on_socket_thread([&](Transport& transport) {
    flush_outbox();
    transport.close(socket);
  });
}

std::string ThreadedBus::endpoint(SocketId socket) const {
  std::string text;
  on_socket_thread([&](Transport& transport) { text = transport.endpoint(socket); });
  return text;
}

SendResult ThreadedBus::send(const Peer& to, Frames frames) {
  Outgoing outgoing{to, std::move(frames)};
  if (!outbox_.push(outgoing)) return SendResult::kBusy;
  wake_socket_thread();
  return SendResult::kSent;
}

std::optional<Delivery> ThreadedBus::receive(TimePoint deadline) {
  if (auto delivery = inbox_.pop()) return delivery;
  if (deadline <= now()) return std::nullopt;
  wait(deadline, -1);
  return inbox_.pop();
}

void ThreadedBus::wait(TimePoint deadline, int also) {
  work_sleeps_ = true;
  if (inbox_.empty()) {
    const TimePoint start = now();
    const Duration left = deadline > start ? deadline - start : Duration::zero();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec timeout{static_cast<time_t>(std::min<std::int64_t>(seconds.count(), 3600)),
                           static_cast<long>((left - seconds).count())};
    std::array<pollfd, 2> fds{{{inbox_fd_, POLLIN, 0}, {also, POLLIN, 0}}};
    ::ppoll(fds.data(), also >= 0 ? 2 : 1, &timeout, nullptr);
  }
  work_sleeps_ = false;
  std::uint64_t count = 0;
  (void)!::read(inbox_fd_, &count, sizeof count);
}

}  // namespace foretoken
