// A bounded queue from one thread to one other. Full is an answer, never a wait. Indices run freely
// and are taken modulo the capacity; each side writes one of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace foretoken {

template <class T>
class SpscQueue {
 public:
  explicit SpscQueue(std::size_t capacity) : slots_(capacity) {}

  // Producer. Leaves `value` alone when it returns false.
  bool push(T& value) {
    const std::size_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_seq_cst) == slots_.size()) return false;
    slots_[tail % slots_.size()] = std::move(value);
    tail_.store(
        tail + 1,
        std::memory_order_seq_cst);  // before the producer looks whether the consumer sleeps
    return true;
  }
  bool full() const { return size() == slots_.size(); }

  // Both. Exact on neither side while the other is at work, but never beyond the capacity.
  std::size_t size() const {
    const std::size_t head = head_.load(std::memory_order_seq_cst);
    return tail_.load(std::memory_order_seq_cst) - head;
  }

  // Consumer.
  std::optional<T> pop() {
    const std::size_t head = head_.load(std::memory_order_relaxed);
    if (head == tail_.load(std::memory_order_seq_cst)) return std::nullopt;
    T value = std::exchange(slots_[head % slots_.size()], T{});
    head_.store(
        head + 1,
        std::memory_order_seq_cst);  // before the consumer looks whether the producer sleeps
    return value;
  }
  bool empty() const {
    return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_seq_cst);
  }

 private:
  std::vector<T> slots_;
  alignas(64) std::atomic<std::size_t> head_{0};
  alignas(64) std::atomic<std::size_t> tail_{0};
};

}  // namespace foretoken
