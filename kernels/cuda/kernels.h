// The launchers: what the .cu files offer to backend.cc. Plain C++; every pointer is a device
// address.
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime.h"
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
};
void prepare_rows(const Launch& launch, const PrepareArgs& args);

enum class Finish : std::uint8_t { kStore, kAdd, kSwiglu };

// What becomes of products: scale, bias, then store, add to what is there, or silu(gate) * up.
struct FinishArgs {
  Finish finish = Finish::kStore;
  const float* scales = nullptr;  // [packed rows] or null
  const float* bias = nullptr;    // [packed rows] or null
  float* out = nullptr;           // [n_tokens, n_columns]
  std::int32_t n_columns = 0;
  std::int32_t n_tokens = 0;
};

struct MatmulArgs {
  DType dtype = DType::kBf16;
  const std::byte* weights = nullptr;
  const std::byte* x = nullptr;  // prepared, n_groups groups of tokens
  std::int32_t n_groups = 0;
  std::int32_t n_row_blocks = 0;
  std::int32_t n_k_blocks = 0;  // f32 weights: n_in instead
  std::int32_t n_parts = 1;
  float* parts = nullptr;  // [n_parts][n_groups * 8][n_row_blocks * 128]
};
// Groups that a block multiplies at once: 1, 2, 4 or 8. n_groups is a multiple of it.
constexpr std::int32_t group_tile(std::int32_t n_groups) {
  return n_groups <= 2 ? n_groups : n_groups <= 4 ? 4 : 8;
}
void matmul_simple(const Launch& launch, const MatmulArgs& args);
void matmul_f32(const Launch& launch, const MatmulArgs& args);
void finish_parts(const Launch& launch, const MatmulArgs& args, const FinishArgs& finish);
// Simple + finish in one kernel; at most kRingTokens tokens, sm_90 and later.
void matmul_ring(const Launch& launch, const MatmulArgs& args, const FinishArgs& finish);

// Prepare + simple + finish in one kernel, for very few tokens; where the rows fit beside a ring.
inline constexpr std::int32_t kResidentTokens = 2;
bool resident_fits(const MatmulArgs& args, std::int32_t n_tokens);
void matmul_resident(const Launch& launch,
                     const MatmulArgs& args,
                     const PrepareArgs& prepare,
                     const FinishArgs& finish);

void embed(const Launch& launch,
           const EmbedArgs& args,
           const std::byte* weights,
           const float* scales);
// qkv: [n_rows, (n_heads + 2 n_kv_heads) head_dim] as the projection left it.
void rope_append(const Launch& launch, const QkvRopeAppendArgs& args, const float* qkv);

// Floats of working space for partial results, and whether they are worth it.
struct AttentionPlan {
  bool split = false;  // runs of positions apart, then merged; otherwise one after another
  std::int32_t n_runs = 0;
  std::int64_t n_floats = 0;
};
AttentionPlan plan_attention(const AttnPagedArgs& args);
void attn_paged(const Launch& launch,
                const AttnPagedArgs& args,
                const AttentionPlan& plan,
                float* space);

inline constexpr std::int32_t kChooseRows = 16;  // of one pass
std::int64_t choose_space_bytes(const ChooseArgs& args);
void choose(const Launch& launch, const ChooseArgs& args, void* space);
void accept(const Launch& launch, const AcceptArgs& args);

}  // namespace foretoken::cuda
