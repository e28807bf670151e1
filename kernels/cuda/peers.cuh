// Packets between devices: three floats and a tag, stored and loaded as one unit of 16 bytes, so
// that whoever reads the tag has the floats and no fence is needed. Beside device.cuh; the
// emulator's meaning is at the end.
#pragma once

#include "kernels/cuda/device.cuh"

namespace foretoken::cuda {

struct Packet {
  float value[3];
  std::uint32_t tag;
};
static_assert(sizeof(Packet) == 16);

#if defined(__CUDACC__)

// One access of 128 bits: by the PTX memory model it is whole or not there, also across devices.
__device__ __forceinline__ void store_packet(Packet* to, const Packet& p) {
  const std::uint64_t low = bits_as<std::uint32_t>(p.value[0]) |
                            static_cast<std::uint64_t>(bits_as<std::uint32_t>(p.value[1])) << 32;
  const std::uint64_t high = bits_as<std::uint32_t>(p.value[2]) | static_cast<std::uint64_t>(p.tag)
                                                                      << 32;
  asm volatile(
      "{\n"
      ".reg .b128 packet;\n"
      "mov.b128 packet, {%1, %2};\n"
      "st.relaxed.sys.global.b128 [%0], packet;\n"
      "}" ::"l"(to),
      "l"(low), "l"(high)
      : "memory");
}
__device__ __forceinline__ Packet load_packet(const Packet* from) {
  std::uint64_t low, high;
  asm volatile(
      "{\n"
      ".reg .b128 packet;\n"
      "ld.relaxed.sys.global.b128 packet, [%2];\n"
      "mov.b128 {%0, %1}, packet;\n"
      "}"
      : "=l"(low), "=l"(high)
      : "l"(from)
      : "memory");
  return {{bits_as<float>(static_cast<std::uint32_t>(low)),
           bits_as<float>(static_cast<std::uint32_t>(low >> 32)),
           bits_as<float>(static_cast<std::uint32_t>(high))},
          static_cast<std::uint32_t>(high >> 32)};
}
// The value before; seen by the whole device.
__device__ __forceinline__ std::uint32_t add_global_count(std::uint32_t* at, std::uint32_t n) {
  return atomicAdd(at, n);
}
__device__ __forceinline__ void fence_device() { __threadfence(); }
__device__ __forceinline__ void let_others_run() {}

#else

inline void store_packet(Packet* to, const Packet& p) {
  if (reinterpret_cast<std::uintptr_t>(to) % 16 != 0) std::abort();
  *to = p;
  emu::note_progress();
}
inline Packet load_packet(const Packet* from) { return *from; }
inline std::uint32_t add_global_count(std::uint32_t* at, std::uint32_t n) {
  const std::uint32_t before = *at;
  *at += n;
  return before;
}
inline void fence_device() {}
inline void let_others_run() { emu::pass_turn(); }

#endif

}  // namespace foretoken::cuda
