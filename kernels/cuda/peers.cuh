// Packets between devices: three floats and a tag, so that a reader of the tag has the floats.
// Beside whole.cuh; the emulator's meaning is at the end.
#pragma once

#include "kernels/cuda/whole.cuh"

namespace foretoken::cuda {

struct Packet {
  float value[3];
  std::uint32_t tag;
};
static_assert(sizeof(Packet) == 16);

#if defined(__CUDACC__)

__device__ __forceinline__ void store_packet(Packet* to, const Packet& p) { store_whole(to, p); }
// The value before; seen by the whole device.
__device__ __forceinline__ std::uint32_t add_global_count(std::uint32_t* at, std::uint32_t n) {
  return atomicAdd(at, n);
}
__device__ __forceinline__ void fence_device() { __threadfence(); }
__device__ __forceinline__ void let_others_run() {}

#else

inline void store_packet(Packet* to, const Packet& p) {
  store_whole(to, p);
  emu::note_progress();
}
inline std::uint32_t add_global_count(std::uint32_t* at, std::uint32_t n) {
  const std::uint32_t before = *at;
  *at += n;
  return before;
}
inline void fence_device() {}
inline void let_others_run() { emu::pass_turn(); }

#endif

}  // namespace foretoken::cuda
