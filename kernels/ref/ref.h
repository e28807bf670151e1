// The oracle: every op in double precision, written like its formula, on host memory and plain
// row-major weights. No device is the judge of another; all are judged by this. Slow on purpose.
// Pointers in argument structs are host pointers here, and the Linear in them is ignored in favour
// of a Matrix.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/include/layout.h"
#include "kernels/include/ops.h"
#include "kernels/include/types.h"
#include "kernels/ref/real.h"

namespace foretoken::ref {

// What a device does to the rows it multiplies with weights of some dtype.
// kI8, kI8By32: to 8 bits with a scale for each 64 or 32 values.
enum class InputRounding : std::uint8_t { kNone, kBf16, kF16, kI8, kI8By32 };

// Stacked sources as one dense matrix; for gate and up, gate first.
struct Matrix {
  explicit Matrix(std::span<const LinearSource> sources);
  std::int64_t n_out = 0;
  std::int64_t n_in = 0;
  std::vector<double> weights;  // [n_out, n_in]
  std::vector<double> bias;     // [n_out], zero where there is none
  bool has_bias = false;
};

std::vector<Real> widen(const float* x, std::int64_t n);
std::vector<Real> rms_norm(std::span<const Real> x, const float* norm, float eps);
// One row: x Wᵀ + bias.
std::vector<Real> multiply(std::span<const Real> x, const Matrix& matrix, InputRounding rounding);

std::vector<Real> embed(const EmbedArgs& args, const Matrix& table);  // [n_rows, n_hidden]

struct Qkv {
  std::vector<Real> q;  // [n_rows, n_heads, head_dim]
  std::vector<Real> k;  // [n_rows, n_kv_heads, head_dim], rounded to the cache's dtype
  std::vector<Real> v;
};
Qkv qkv_rope_append(const QkvRopeAppendArgs& args, const Matrix& qkv, InputRounding rounding);

// What attention multiplies: f32; or, where the cache holds bf16, queries as the sum of two bf16
// and weights of the softmax rounded to one.
enum class AttentionOperands { kF32, kBf16Pairs };
// [n_rows, n_heads, head_dim]
std::vector<Real> attn_paged(const AttnPagedArgs& args, AttentionOperands operands);
// `before`: the residual as it was, [n_rows, n_out]; with args.partial it takes no part.
std::vector<Real> matmul_residual(const MatmulResidualArgs& args,
                                  const Matrix& weight,
                                  const float* before,
                                  InputRounding rounding);
std::vector<Real> gate_up_swiglu(const GateUpSwigluArgs& args,
                                 const Matrix& gate_up,
                                 InputRounding rounding);
std::vector<Real> lm_head(const LmHeadArgs& args, const Matrix& head, InputRounding rounding);

void spread(const SpreadArgs& args);

// Writes choices and top, exactly what every device must write but for the last digits of log
// probabilities.
void choose(const ChooseArgs& args);

void accept(const AcceptArgs& args);
void advance(const AdvanceArgs& args);

// Element i of the vector at byte `offset` of a KV cache, widened; before its scale.
double kv_element(const PagedKv& kv, std::size_t offset, std::int32_t i);
double kv_scale(const PagedKv& kv, std::int32_t layer, KvHalf half, std::int32_t head);

}  // namespace foretoken::ref
