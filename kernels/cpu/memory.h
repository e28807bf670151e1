// Host memory as a backend wants it: zeroed, aligned, in huge pages where it is large; and how much
// more there could be.
#pragma once

#include <cstddef>

namespace foretoken::cpu {

// Null if the system has no more. Aligned to 64 bytes, zero.
void* allocate_zeroed(std::size_t bytes);
void release(void* address, std::size_t bytes) noexcept;

// The smaller of MemAvailable and what the memory limits of our control groups leave.
std::size_t free_memory_bytes();

// Memory that grows and is never given back; contents are lost when it grows.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { release(address_, size_); }

  template <class T>
  T* at_least(std::size_t n) {
    return static_cast<T*>(bytes(n * sizeof(T)));
  }

 private:
  void* bytes(std::size_t n);
  void* address_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace foretoken::cpu
