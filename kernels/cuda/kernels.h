// The launchers: what the .cu files offer to backend.cc. Plain C++; every pointer is a device
// address.
#pragma once

#include <cstdint>

#include "kernels/device/runtime.h"
#include "kernels/include/fragment.h"
#include "kernels/include/ops.h"

namespace foretoken::cuda {

inline constexpr std::int32_t kPassRows = 512;   // rows of one pass over the weights
inline constexpr std::int32_t kRingTokens = 16;  // most the ring kernel takes

// How rows are rounded for weights of a dtype: f32 as they are, bf16 for bf16, f16 for the others.
enum class Input : std::uint8_t { kF32, kBf16, kF16 };
constexpr Input input_of(DType weights) {
  return weights == DType::kF32    ? Input::kF32
         : weights == DType::kBf16 ? Input::kBf16
                                   : Input::kF16;
}

struct PrepareArgs {
  const float* x = nullptr;            // [*, n_in]
  const std::int32_t* rows = nullptr;  // [n_rows] or null: 0, 1, ...
  const float* norm = nullptr;         // [n_in] or null: no normalisation
  float norm_eps = 0;
  std::int32_t n_rows = 0;
  std::int32_t n_in = 0;
  std::int32_t n_groups = 0;  // of 8 tokens; rows beyond n_rows are zero
  Input input = Input::kF32;
  void* out = nullptr;  // fragment::x_offset, or [n_groups * 8][n_in] f32
  // For products that prepare rows themselves.
  const float* squares = nullptr;  // [*, squares_per_row(n_in)], with norm
  bool squares_of_tokens = false;  // one row of them a token, whatever `rows` says
  bool vectors = false;            // x and norm allow loads of four values
};
void prepare_rows(const Launch& launch, const PrepareArgs& args);
// out: [n_rows, squares_per_row(n_in)] f32, of the picked rows.
void row_squares(const Launch& launch, const PrepareArgs& args);

// Rotation and append as a kernel sees them.
struct RopeArgs {
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  const float* cos = nullptr;
  const float* sin = nullptr;
  const std::int32_t* positions = nullptr;
  const std::int32_t* slots = nullptr;
  KvGeometry geometry;
  std::byte* blocks = nullptr;
  const float* scales = nullptr;  // PagedKv::scales
  float* q = nullptr;
  float norm_eps = 0;
  std::int32_t n_heads = 0;
  std::int32_t layer = 0;
};

enum class Finish : std::uint8_t { kStore, kAdd, kSwiglu, kRope };

// What becomes of products: scale, bias, then store, add to what is there, silu(gate) * up, or the
// heads of a projection rotated and put where they belong (fast product only).
struct FinishArgs {
  Finish finish = Finish::kStore;
  const float* scales = nullptr;  // [packed rows] or null
  const float* bias = nullptr;    // [packed rows] or null
  float* out = nullptr;           // [n_tokens, n_columns]
  float* squares = nullptr;       // kAdd: [n_tokens, squares_per_row(n_columns)] of out, or null
  std::int32_t n_columns = 0;
  std::int32_t n_tokens = 0;
  RopeArgs rope;  // kRope
};
// Whether the heads of a projection lie in one row block each.
constexpr bool rope_fits(std::int32_t head_dim) { return fragment::kBlockRows % head_dim == 0; }

// Where the blocks of a product begin to read, for another that runs before it.
struct Prefetch {
  const std::byte* weights = nullptr;  // null: nothing to fetch
  std::int64_t row_block_bytes = 0;
  std::int32_t n_k_blocks = 0;
  std::int32_t n_parts = 1;
  std::int32_t n_blocks = 0;  // parts of the row blocks that start first
  std::int32_t bytes = 0;     // of each block, a multiple of its blocks of weights
};
inline constexpr std::int64_t kPrefetchBytes = std::int64_t{8} << 20;  // of L2's 50 MB
Prefetch plan_prefetch(const Linear& next, int n_multiprocessors);

struct MatmulArgs {
  DType dtype = DType::kBf16;
  const std::byte* weights = nullptr;
  const std::byte* x = nullptr;  // prepared, n_groups groups of tokens
  std::int32_t n_groups = 0;
  std::int32_t n_row_blocks = 0;
  std::int32_t n_k_blocks = 0;  // f32 weights: n_in instead
  std::int32_t n_parts = 1;
  float* parts = nullptr;  // [n_parts][n_groups * 8][n_row_blocks * 128]
  Prefetch next;           // the fast product only
};
// Groups that a block multiplies at once: 1, 2, 4 or 8. n_groups is a multiple of it.
constexpr std::int32_t group_tile(std::int32_t n_groups) {
  return n_groups <= 2 ? n_groups : n_groups <= 4 ? 4 : 8;
}
void matmul_simple(const Launch& launch, const MatmulArgs& args);
void matmul_f32(const Launch& launch, const MatmulArgs& args);
void finish_parts(const Launch& launch, const MatmulArgs& args, const FinishArgs& finish);
// Prepare + simple + finish in one kernel; at most kRingTokens tokens, sm_90 and later. What it
// writes must not overlap the rows it reads.
void matmul_ring(const Launch& launch,
                 const MatmulArgs& args,
                 const PrepareArgs& prepare,
                 const FinishArgs& finish);

void embed(const Launch& launch,
           const EmbedArgs& args,
           const std::byte* weights,
           const float* scales);
// qkv: [n_rows, (n_heads + 2 n_kv_heads) head_dim] as the projection left it.
void rope_append(const Launch& launch, const RopeArgs& args, const float* qkv, std::int32_t n_rows);

// Floats of working space for partial results, and whether they are worth it.
struct AttentionPlan {
  bool split = false;  // runs of positions apart, then merged; otherwise one after another
  std::int32_t n_runs = 0;
  std::int64_t n_tiles = 0;
  std::int64_t n_floats = 0;
};
AttentionPlan plan_attention(const AttnPagedArgs& args);
// arrivals: zeros, one for each tile and KV head; left so.
void attn_paged(const Launch& launch,
                const AttnPagedArgs& args,
                const AttentionPlan& plan,
                float* space,
                std::uint32_t* arrivals);

void spread(const Launch& launch, const SpreadArgs& args);

inline constexpr std::int32_t kChooseRows = 16;  // of one pass
std::int64_t choose_space_bytes(const ChooseArgs& args);
void choose(const Launch& launch, const ChooseArgs& args, void* space);
void accept(const Launch& launch, const AcceptArgs& args);
void advance(const Launch& launch, const AdvanceArgs& args);

}  // namespace foretoken::cuda
