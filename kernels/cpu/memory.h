// Host memory as a backend wants it: zeroed, aligned, in huge pages where it is large; and how much
// more there could be.
#pragma once

#include <cstddef>
#include <istream>
#include <string>

namespace foretoken::cpu {

// Null if the system has no more. Aligned to 64 bytes, zero.
void* allocate_zeroed(std::size_t bytes);
void release(void* address, std::size_t bytes) noexcept;

// The smaller of what the system has available and what the memory limits of our control groups
// leave.
std::size_t free_memory_bytes();

// Its two halves, of texts and folders like those of the kernel. `meminfo` is /proc/meminfo:
// without MemAvailable, which some containers leave out, free pages and caches count; 0 if it says
// nothing.
std::size_t available_memory(std::istream& meminfo);
// `groups` is /proc/self/cgroup, `root` where control groups are mounted. Every group from ours up
// may have a limit; pages of files on a disk count as free. The largest number if none has.
std::size_t left_in_groups(std::istream& groups, const std::string& root);

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
