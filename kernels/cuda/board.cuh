// An entry of a board, stored and loaded as one unit of 16 bytes at the scope of the system:
// whoever sees the tag sees the rest, and no fence is needed. Beside device.cuh; the emulator's
// meaning is at the end.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/include/verdict_board.h"

namespace foretoken::cuda {

#if defined(__CUDACC__)

// One access of 128 bits: by the PTX memory model it is whole or not there, for other processes'
// kernels too, and neither reads what an earlier one left in a cache that is not coherent.
__device__ __forceinline__ void store_entry(BoardEntry* to, const BoardEntry& entry) {
  const std::uint64_t verdict =
      static_cast<std::uint32_t>(entry.n_accepted) |
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(entry.next_token)) << 32;
  asm volatile(
      "{\n"
      ".reg .b128 entry;\n"
      "mov.b128 entry, {%1, %2};\n"
      "st.relaxed.sys.global.b128 [%0], entry;\n"
      "}" ::"l"(to),
      "l"(entry.tag), "l"(verdict)
      : "memory");
}
__device__ __forceinline__ BoardEntry load_entry(const BoardEntry* from) {
  std::uint64_t tag, verdict;
  asm volatile(
      "{\n"
      ".reg .b128 entry;\n"
      "ld.relaxed.sys.global.b128 entry, [%2];\n"
      "mov.b128 {%0, %1}, entry;\n"
      "}"
      : "=l"(tag), "=l"(verdict)
      : "l"(from)
      : "memory");
  return {tag, static_cast<std::int32_t>(static_cast<std::uint32_t>(verdict)),
          static_cast<std::int32_t>(static_cast<std::uint32_t>(verdict >> 32))};
}

#else

inline void store_entry(BoardEntry* to, const BoardEntry& entry) {
  if (reinterpret_cast<std::uintptr_t>(to) % 16 != 0) std::abort();  // so would the device
  *to = entry;
}
inline BoardEntry load_entry(const BoardEntry* from) {
  if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0) std::abort();
  return *from;
}

#endif

}  // namespace foretoken::cuda
