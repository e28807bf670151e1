// Every instruction that C++ does not spell, once: matrix products, bulk copies and their barriers,
// clusters, dependent launch, narrow floats. Kernels include this and nothing of CUDA beside it.
// The emulator (kernels/emu/machine.h) gives the same names a meaning on the CPU, so the very
// source of a kernel runs in the tests without a device.
#pragma once

#include <cstdint>

#include "kernels/include/numerics.h"

#if !defined(__CUDACC__)
#include "kernels/emu/machine.h"
#else

namespace foretoken::cuda {

struct Words4 {
  std::uint32_t w[4];
};

// --- Warps

__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x) % 32; }
__device__ __forceinline__ int warp_id() { return static_cast<int>(threadIdx.x) / 32; }
__device__ __forceinline__ float shuffle_xor(float x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
__device__ __forceinline__ double shuffle_xor(double x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
__device__ __forceinline__ std::int32_t shuffle_xor(std::int32_t x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
__device__ __forceinline__ float shuffle(float x, int lane) {
  return __shfl_sync(0xffffffffu, x, lane);
}
__device__ __forceinline__ std::int32_t shuffle(std::int32_t x, int lane) {
  return __shfl_sync(0xffffffffu, x, lane);
}
__device__ __forceinline__ void sync_warp() { __syncwarp(); }
__device__ __forceinline__ void sync_block() { __syncthreads(); }

// x, and nothing that is computed from it leaves the loop this is called in.
__device__ __forceinline__ std::int32_t not_hoisted(std::int32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}

// --- Memory

__device__ __forceinline__ Words4 load_weights(const void* at) {  // read once: leave no trace in L1
  Words4 x;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.w[0]), "=r"(x.w[1]), "=r"(x.w[2]), "=r"(x.w[3])
               : "l"(at));
  return x;
}
__device__ __forceinline__ Words4 load_words(const void* at) {
  const uint4 v = *static_cast<const uint4*>(at);
  return {{v.x, v.y, v.z, v.w}};
}
__device__ __forceinline__ void store_words(void* at, const Words4& x) {
  *static_cast<uint4*>(at) = {x.w[0], x.w[1], x.w[2], x.w[3]};
}
// Into L2, for a later load of the line.
__device__ __forceinline__ void prefetch_line(const void* at) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}
// Between blocks of one launch: what a thread wrote before publish() may be read, by
// load_published(), by a thread that has seen a later arrive().
__device__ __forceinline__ void publish() { __threadfence(); }
__device__ __forceinline__ std::uint32_t arrive(std::uint32_t* count) {
  const std::uint32_t before = atomicAdd(count, 1u);
  __threadfence();
  return before;
}
__device__ __forceinline__ float load_published(const float* at) { return __ldcg(at); }
__device__ __forceinline__ void add_shared_count(std::uint32_t* at, std::uint32_t n) {
  atomicAdd(at, n);
}

// --- Products: c += a b over 16 values of K

__device__ __forceinline__ void mma_bf16(float (&c)[4],
                                         const std::uint32_t* a,
                                         std::uint32_t b0,
                                         std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_f16(float (&c)[4],
                                        const std::uint32_t* a,
                                        std::uint32_t b0,
                                        std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// --- Four codes of a word to two pairs of halves, exactly

__device__ __forceinline__ void e4m3_to_halves(std::uint32_t codes,
                                               std::uint32_t& low,
                                               std::uint32_t& high) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
  asm("{ .reg .b16 a, b; mov.b32 {a, b}, %2; cvt.rn.f16x2.e4m3x2 %0, a; cvt.rn.f16x2.e4m3x2 %1, b; "
      "}"
      : "=r"(low), "=r"(high)
      : "r"(codes));
#else
  std::uint32_t l, h;
  e4m3_to_small_halves(codes, l, h);
  asm("mul.f16x2 %0, %1, %2;" : "=r"(low) : "r"(l), "r"(0x5c005c00u));
  asm("mul.f16x2 %0, %1, %2;" : "=r"(high) : "r"(h), "r"(0x5c005c00u));
#endif
}
__device__ __forceinline__ void i8_to_halves(std::uint32_t codes,
                                             std::uint32_t& low,
                                             std::uint32_t& high) {
  std::uint32_t l, h;
  i8_to_large_halves(codes, l, h);
  asm("sub.f16x2 %0, %1, %2;" : "=r"(low) : "r"(l), "r"(0x64806480u));
  asm("sub.f16x2 %0, %1, %2;" : "=r"(high) : "r"(h), "r"(0x64806480u));
}

// The largest half is a limit to finite values; an infinity and a NaN stay what they are.
__device__ __forceinline__ float limited_to_half(float x) {
  return x - x == 0.0f ? fminf(fmaxf(x, -65504.0f), 65504.0f) : x;
}
// A pair rounded to 16 bits, the first in the low half; with limits, to_halves.
__device__ __forceinline__ std::uint32_t round_pair(float low, float high, bool is_bf16) {
  std::uint32_t pair;
  if (is_bf16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ std::uint32_t to_halves(float low, float high, bool is_bf16) {
  if (is_bf16) return round_pair(low, high, true);
  return round_pair(limited_to_half(low), limited_to_half(high), false);
}

// --- Launches that overlap: nothing mutable may be touched before wait_for_earlier_kernels()

__device__ __forceinline__ void wait_for_earlier_kernels() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_kernel_start() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// --- Shared memory of a block; of its cluster

__device__ __forceinline__ std::byte* shared_memory() {
  extern __shared__ __align__(128) std::byte foretoken_shared[];
  return foretoken_shared;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void barrier_init(std::uint64_t* barrier, int n_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(n_arrivals)
               : "memory");
}
// Makes initialised barriers visible to the copy engine and to the cluster.
__device__ __forceinline__ void barrier_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
__device__ __forceinline__ void barrier_expect(std::uint64_t* barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
__device__ __forceinline__ void barrier_wait(std::uint64_t* barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
// Weights stream through: they leave L2 first. Activations stay: every block reads them.
__device__ __forceinline__ void bulk_copy_once(void* to,
                                               const void* from,
                                               int bytes,
                                               std::uint64_t* barrier) {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], "
      "%2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}
// Into L2, to be read by a later bulk copy.
__device__ __forceinline__ void bulk_prefetch(const void* from, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ int cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
__device__ __forceinline__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}
// The same at the end: what was stored since need not have arrived, only what was loaded.
__device__ __forceinline__ void leave_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::
                   : "memory");
}
// The floats at `p` in the shared memory of another block of the cluster.
class RankFloats {
 public:
  __device__ __forceinline__ RankFloats(const float* p, int rank) {
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(there_)
                 : "r"(shared_address(p)), "r"(rank));
  }
  __device__ __forceinline__ float load(int i) const {
    float x;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(there_ + 4 * i) : "memory");
    return x;
  }

 private:
  std::uint32_t there_;
};
#endif

}  // namespace foretoken::cuda

#endif  // __CUDACC__
