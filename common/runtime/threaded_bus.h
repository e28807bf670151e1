// The bus of a real service: a socket thread that owns the transport and only moves frames, two
// bounded queues, and the work thread, which calls everything here. Nothing is lost between them
// but what is beyond 64 MiB, which is reported: when the inbox is full the socket thread stops
// reading, and ZeroMQ's own bounded queues hold the peers back; the inbox keeps as much room again
// for reports of what was lost. What the sockets refuse waits in the Outbox of the socket thread.
// While the inbox has no room for reports, or the queue to the sockets none for messages, they wait
// on the work thread's side, bounded in bytes.
//
// Links through shared memory (shm:// endpoints) have no socket thread: the work thread writes to
// and reads from their rings itself, and sleeps where either can wake it.
#pragma once

#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/runtime/outbox.h"
#include "common/runtime/service.h"
#include "common/runtime/spsc_queue.h"
#include "common/transport/memory_links.h"

namespace foretoken {

class ThreadedBus final : public Bus {
 public:
  // The transport is handed to the socket thread, which calls it until the bus dies.
  explicit ThreadedBus(std::unique_ptr<Transport> transport,
                       std::size_t queue_capacity = 4096,
                       MemoryLinkOptions memory = {});
  ~ThreadedBus() override;  // gives what was sent before a moment to leave

  TimePoint now() const override { return std::chrono::steady_clock::now(); }
  SocketId bind(const std::string& endpoint, Door door) override;
  SocketId connect(const std::string& endpoint) override {
    return connect(endpoint, Door::kInternal);
  }
  SocketId connect(const std::string& endpoint, Door door) override;
  void close(SocketId socket) override;
  void hang_up(const Peer& peer) override { memory_.hang_up(peer); }
  std::string endpoint(SocketId socket) const override;
  void send(const Peer& to, Frames frames, const Posting& posting) override;
  [[nodiscard]] SendResult try_send(const Peer& to, const Frames& frames) override {
    return MemoryLinks::is_socket(to.socket) ? memory_.send(to, frames) : SendResult::kUnknown;
  }
  void forget(const Peer& peer) override;
  std::size_t n_waiting(SocketId socket) override;
  std::optional<Delivery> receive(TimePoint deadline) override;
  void add_pulse(Pulse pulse) override;
  void add_observer(SocketId socket, Observer observer) override;
  TimePoint received_until() const override { return inbox_.empty() ? now() : last_arrival_; }
  void wake() override;

  // Waits for a message, for `also` to become readable, or for the deadline; may end before any of
  // them. Takes nothing.
  void wait(TimePoint deadline, int also);
  std::shared_ptr<const MemoryLinkCounters> memory_counters() const { return memory_.counters(); }

 private:
  struct Outgoing {
    enum class What : std::uint8_t { kMessage, kLost, kForget };
    What what = What::kMessage;
    Peer to;
    Frames frames;
    Posting posting;
  };
  // Of messages that found no room on the way to the sockets. Beyond it they are lost.
  static constexpr std::size_t kMaxBehindBytes = std::size_t{64} << 20;

  // Where the socket thread sleeps, if it does: new work for it wakes it there.
  enum class SocketSleep : std::uint8_t { kAwake, kInTransport, kForRoom };

  void run();  // the socket thread
  void fail(std::exception_ptr failure);
  void rethrow_failure() const;
  void run_command();
  bool has_command() const;
  void hand_over(Outgoing outgoing);
  void hand_over_some();
  void hand_over_all();  // the work thread waits for it, or is the only one left
  void report_lost();
  void beat();
  void observe(const Delivery& delivery);
  void deliver(Delivery delivery);  // wake_work_thread() comes after it
  void wake_work_thread();
  bool must_hold_clients();
  bool may_read() const { return inbox_.size() < queue_capacity_; }
  void wait_for_room();
  // Of the work thread:
  void pass_on(Outgoing outgoing);
  void pass_on_behind();
  std::optional<Delivery> take();
  std::optional<Delivery> next();
  // Runs `what` on the socket thread and waits for it; rethrows what it throws.
  void on_socket_thread(const std::function<void(Transport&)>& what) const;
  void wake_socket_thread() const;

  std::unique_ptr<Transport> transport_;
  const std::size_t queue_capacity_;
  SpscQueue<Delivery> inbox_;  // twice the capacity: messages, and reports of what was lost
  SpscQueue<Outgoing> to_sockets_;
  int inbox_fd_ = -1;  // readable when the inbox has something for a sleeping work thread
  int room_fd_ = -1;   // readable when a socket thread that waits for room has to look again
  std::atomic<bool> work_sleeps_{false};
  mutable std::atomic<SocketSleep> socket_sleeps_{SocketSleep::kAwake};
  std::atomic<bool> clients_held_{false};  // until the work thread has taken enough
  std::atomic<bool> stop_{false};
  const DirectSend send_directly_;  // the socket thread's, as what follows
  Outbox outbox_;
  std::vector<Pulse> pulses_;
  std::vector<std::pair<SocketId, Observer>> observers_;
  TimePoint next_pulse_ = TimePoint::max();
  TimePoint last_arrival_{};     // the work thread's: of the last message it took
  std::deque<Outgoing> behind_;  // the work thread's: there was no room in to_sockets_
  std::size_t behind_bytes_ = 0;
  MemoryLinks memory_;  // the work thread's, as what follows
  bool memory_first_ = false;
  std::vector<pollfd> waiting_;
  mutable std::mutex command_mutex_;  // commands are rare: opening and closing sockets
  mutable std::condition_variable command_done_;
  mutable std::function<void()> command_;
  std::exception_ptr failure_;  // of the socket thread, which has ended; the work thread throws it
  std::atomic<bool> failed_{false};  // it is there
  std::thread thread_;
};

}  // namespace foretoken
