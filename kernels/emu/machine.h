// A CUDA device made of plain C++: the names of kernels/cuda/device.cuh with a meaning on the CPU.
// Blocks (or clusters) run one after another; the threads of a block are fibers that take turns at
// every point of synchronisation, in an order shuffled from a seed, so that a missing barrier
// shows. Products follow the fragment table of the PTX manual, kept in machine.cc apart from the
// maps the kernels use. Shows wrong layouts, indices, masks and orders; says nothing of speed, of
// memory ordering between threads, or of a real unit's rounding. Launches of several
// threads take turns; tests only.
//
// A watched launch that overlaps runs each of its blocks as if everything in front of it were still
// under way: a thread that comes to the wait stays there until no other can go on, and until then
// only memory that no kernel ever writes may be read (kernels/emu/memory.h). And some thread has to
// wait, or the next kernel's wait for this one would not be one for those before.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

#include "kernels/include/numerics.h"

// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's words
#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__
// NOLINTEND(bugprone-reserved-identifier)

namespace foretoken::emu {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct Grid {
  Dim3 blocks;
  int n_threads = 32;
  std::size_t shared_bytes = 0;
  int cluster = 1;  // blocks along z that run together
  bool overlaps = false;
  bool is_watched = false;
  const char* name = "a kernel";
};

// Where the fiber that runs now is.
struct Place {
  Dim3 thread, block, grid;
  int rank = 0;  // of its block in the cluster
  std::byte* shared = nullptr;
};
extern Place here;

// Ends the program: the kernel that runs did this.
[[noreturn]] void die(const std::string& what);

void run(const Grid& grid, const std::function<void()>& kernel);
// Kernels run so far, and bytes prefetched, each place once.
std::int64_t n_launches();
std::int64_t n_prefetched();
void count_prefetched(const void* from, int bytes);
// Order in which fibers take turns from now on; from 2 on the order of blocks is shuffled too.
void set_schedule(std::uint64_t seed);

void wait_block();
void wait_warp();
void wait_cluster();
void wait_for_earlier_kernels();
void pass_turn();
// Something that another thread may wait for has changed.
void note_progress();
// Shows `value` to the warp and gives what lane `from` showed.
std::uint64_t exchange(std::uint64_t value, int from);
void product(
    float (&c)[4], const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1, bool is_bf16);
std::byte* shared_of_rank(int rank);

struct Barrier;  // lies in the 8 bytes a kernel gives it
void barrier_init(std::uint64_t* barrier, int n_arrivals);
void barrier_arrive(std::uint64_t* barrier);
void barrier_expect(std::uint64_t* barrier, int bytes);
void barrier_wait(std::uint64_t* barrier, int parity);
void barrier_complete(std::uint64_t* barrier, int bytes);

}  // namespace foretoken::emu

#define threadIdx ::foretoken::emu::here.thread
#define blockIdx ::foretoken::emu::here.block
#define gridDim ::foretoken::emu::here.grid

namespace foretoken::cuda {

struct Words4 {
  std::uint32_t w[4];
};

inline int lane_id() { return static_cast<int>(threadIdx.x) % 32; }
inline int warp_id() { return static_cast<int>(threadIdx.x) / 32; }
template <class T>
T exchange(T x, int from) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &x, sizeof x);
  bits = emu::exchange(bits, from);
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
template <class T>
T shuffle_xor(T x, int mask) {
  return exchange(x, lane_id() ^ mask);
}
inline float shuffle(float x, int lane) { return exchange(x, lane); }
inline std::int32_t shuffle(std::int32_t x, int lane) { return exchange(x, lane); }
inline void sync_warp() { emu::wait_warp(); }
inline void sync_block() { emu::wait_block(); }

inline std::int32_t not_hoisted(std::int32_t x) { return x; }

inline Words4 load_words(const void* at) {
  Words4 x;
  if (reinterpret_cast<std::uintptr_t>(at) % 16 != 0) std::abort();  // so would the device
  std::memcpy(&x, at, sizeof x);
  return x;
}
inline Words4 load_weights(const void* at) { return load_words(at); }
inline void store_words(void* at, const Words4& x) {
  if (reinterpret_cast<std::uintptr_t>(at) % 16 != 0) std::abort();
  std::memcpy(at, &x, sizeof x);
}
inline void prefetch_line(const void* at) {  // looks whether there is such memory
  static_cast<void>(*static_cast<const volatile std::byte*>(at));
}
inline void publish() {}
inline std::uint32_t arrive(std::uint32_t* count) { return (*count)++; }
inline float load_published(const float* at) { return *at; }
inline void add_shared_count(std::uint32_t* at, std::uint32_t n) { *at += n; }

inline void mma_bf16(float (&c)[4], const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1) {
  emu::product(c, a, b0, b1, true);
}
inline void mma_f16(float (&c)[4], const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1) {
  emu::product(c, a, b0, b1, false);
}

// Each half of a pair, in f32 and back.
template <class Op>
std::uint32_t each_half(std::uint32_t pair, const Op& op) {
  const std::uint32_t low = f32_to_f16(op(f16_to_f32(static_cast<std::uint16_t>(pair))));
  return low | static_cast<std::uint32_t>(
                   f32_to_f16(op(f16_to_f32(static_cast<std::uint16_t>(pair >> 16)))))
                   << 16;
}
inline void e4m3_to_halves(std::uint32_t codes, std::uint32_t& low, std::uint32_t& high) {
  const auto grow = [](float x) { return x * 256.0f; };
  e4m3_to_small_halves(codes, low, high);
  low = each_half(low, grow);
  high = each_half(high, grow);
}
inline void i8_to_halves(std::uint32_t codes, std::uint32_t& low, std::uint32_t& high) {
  const auto centre = [](float x) { return x - 1152.0f; };
  i8_to_large_halves(codes, low, high);
  low = each_half(low, centre);
  high = each_half(high, centre);
}

inline float limited_to_half(float x) {
  return std::isfinite(x) ? std::fmin(std::fmax(x, -65504.0f), 65504.0f) : x;
}
inline std::uint32_t round_pair(float low, float high, bool is_bf16) {
  const auto half = [is_bf16](float x) -> std::uint32_t {
    return is_bf16 ? f32_to_bf16(x) : f32_to_f16(x);
  };
  return half(low) | half(high) << 16;
}
inline std::uint32_t to_halves(float low, float high, bool is_bf16) {
  if (is_bf16) return round_pair(low, high, true);
  return round_pair(limited_to_half(low), limited_to_half(high), false);
}

inline void wait_for_earlier_kernels() { emu::wait_for_earlier_kernels(); }
inline void let_next_kernel_start() {}
inline std::byte* shared_memory() { return emu::here.shared; }

inline void barrier_init(std::uint64_t* b, int n) { emu::barrier_init(b, n); }
inline void barrier_fence() {}
inline void barrier_arrive(std::uint64_t* b) { emu::barrier_arrive(b); }
inline void barrier_expect(std::uint64_t* b, int bytes) { emu::barrier_expect(b, bytes); }
inline void barrier_wait(std::uint64_t* b, int parity) { emu::barrier_wait(b, parity); }
inline void bulk_copy_once(void* to, const void* from, int bytes, std::uint64_t* barrier) {
  if ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) |
       static_cast<std::uintptr_t>(bytes)) %
          16 !=
      0)
    std::abort();
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
  emu::barrier_complete(barrier, bytes);
}
inline void bulk_prefetch(const void* from, int bytes) {  // looks whether there is such memory
  if (bytes <= 0 ||
      (reinterpret_cast<std::uintptr_t>(from) | static_cast<unsigned>(bytes)) % 16 != 0)
    std::abort();
  const auto* at = static_cast<const volatile std::byte*>(from);
  static_cast<void>(at[0]);
  static_cast<void>(at[bytes - 1]);
  emu::count_prefetched(from, bytes);
}
inline int cluster_rank() { return emu::here.rank; }
inline void sync_cluster() { emu::wait_cluster(); }
inline void leave_cluster() { emu::wait_cluster(); }
class RankFloats {
 public:
  RankFloats(const float* p, int rank)
      : there_(emu::shared_of_rank(rank) +
               (reinterpret_cast<const std::byte*>(p) - emu::here.shared)) {}
  float load(int i) const {
    float x;
    std::memcpy(&x, there_ + 4 * i, sizeof x);
    return x;
  }

 private:
  const std::byte* there_;
};

}  // namespace foretoken::cuda
