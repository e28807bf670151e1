// The bus of a real service: a socket thread that owns the transport and only moves frames, two
// bounded queues, and the work thread, which calls everything here. When the inbox is full the
// socket thread stops reading, and ZeroMQ's own bounded queues hold the peers back.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/runtime/service.h"
#include "common/runtime/spsc_queue.h"

namespace foretoken {

class ThreadedBus final : public Bus {
 public:
  // The transport is handed to the socket thread, which calls it until the bus dies.
  explicit ThreadedBus(std::unique_ptr<Transport> transport, std::size_t queue_capacity = 4096);
  ~ThreadedBus() override;  // sends what is still in the outbox first

  TimePoint now() const override { return std::chrono::steady_clock::now(); }
  SocketId bind(const std::string& endpoint, Door door) override;
  SocketId connect(const std::string& endpoint) override;
  void close(SocketId socket) override;
  std::string endpoint(SocketId socket) const override;
  [[nodiscard]] SendResult send(const Peer& to, Frames frames) override;
  std::optional<Delivery> receive(TimePoint deadline) override;

  // Waits for a message, for `also` to become readable, or for the deadline. Takes nothing.
  void wait(TimePoint deadline, int also);
  std::size_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  struct Outgoing {
    Peer to;
    Frames frames;
  };

  void run();  // the socket thread
  void flush_outbox();
  void deliver(Delivery delivery);
  // Runs `what` on the socket thread and waits for it; rethrows what it throws.
  void on_socket_thread(const std::function<void(Transport&)>& what) const;
  void wake_socket_thread() const;

  std::unique_ptr<Transport> transport_;
  SpscQueue<Delivery> inbox_;
  SpscQueue<Outgoing> outbox_;
  int inbox_fd_ = -1;  // readable when the inbox has something for a sleeping work thread
  std::atomic<bool> work_sleeps_{false};
  mutable std::atomic<bool> socket_sleeps_{false};
  std::atomic<bool> stop_{false};
  std::atomic<std::size_t> dropped_{
      0};                             // reports of undelivered messages that found the inbox full
  mutable std::mutex command_mutex_;  // commands are rare: opening and closing sockets
  mutable std::condition_variable command_done_;
  mutable std::function<void()> command_;
  std::thread thread_;
};

}  // namespace foretoken
