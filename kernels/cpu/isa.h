// The table of inner functions, one instance per instruction set. Ops in this folder are written
// once against it and know nothing of vectors; the files isa_*.cc fill it in from the templates
// inner_*.h. Every function does the work of one row or one tile with one fixed order of additions.
// avx2 and avx512 agree in every bit; scalar (no fma) and avx512_bf16 (products of bf16 pairs) are
// numerics of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/include/backend.h"
#include "kernels/include/types.h"

namespace foretoken::cpu {

inline constexpr int kPanel = 64;  // outputs side by side in packed weights
// What a panel reads in one step: 1, 2 or 4 values of k for 64 outputs.
inline constexpr int kStepBytes = 256;
inline constexpr std::int64_t kOutputBytes = kStepBytes / kPanel;  // of one output in a step
inline constexpr int kTileRows = 6;  // rows that share a weight while it is in vector registers
inline constexpr int kMostTileRows = 32;  // and in a matrix unit

// How a tile asks for weights ahead of time: not at all; for its own stream, a little further on or
// all of the next chunk; or, where several tiles share the next chunk, for a quarter or a half of
// it, which is one or two of the four lines of each step.
enum class Prefetch : std::uint8_t { kNone, kStream, kOneLine, kTwoLines };
inline constexpr int kPrefetches = 4;

// Weights of four bits: a step is eight values of k, and before the steps of each group of weights
// are its scales, float16, of the panel's 64 outputs, and then its zero points, a byte each, where
// there are some.
inline constexpr int kInt4StepValues = 8;
inline constexpr int kInt4ScaleBytes = kPanel * 2;
constexpr int int4_header_bytes(Int4Kind kind) {
  return kInt4ScaleBytes + (kind == Int4Kind::kZeroPoints ? kPanel : 0);
}

// In the place of a table, where codes are themselves the weights, but for what start takes away.
struct PlainCodes {};

// Consecutive values of a row that are rounded to 8 bits with one scale; 32 beside weights of four
// bits in groups of 32. Smaller ones round less and cost more: each is one more sum in floating
// point of every output.
inline constexpr int kGroupValues = 64;
struct RowGroup {
  float scale = 0;  // a value is its code times it
  // -128 times the sum of the codes: weights are stored as w + 128. With kI16Pairs the low ones
  // alone are, so the sum is over their codes.
  std::int32_t start = 0;
};
inline constexpr int kMostRowCode = 127;  // of a row; the least one is its negative
// Weights of four bits are stored as w + 8, or their zero point stands beside them: what start is
// over -8 times the sum of the codes, and over -1 times it. A table's values have 128 added where
// the processor's product takes weights without a sign, which is what start takes away.
inline constexpr std::int32_t kStartOverInt4 = 16, kStartOverSum = 128;

// Where byte products take weights without a sign, kNonUniformTable is kept as the distances of its
// values from the least one. They are small, so that several products with a row's codes fit a
// signed sum of 16 bits.
inline constexpr std::int32_t kLeastNonUniform = kNonUniformTable.front();
inline constexpr std::int32_t kMostNonUniformDistance = kNonUniformTable.back() - kLeastNonUniform;
static_assert(kLeastNonUniform < 0);

// Whether any sum of n_products products of a row's codes with weights of 0 to most_weight fits.
constexpr bool fits_i16(int n_products, int most_weight) {
  return n_products * kMostRowCode * most_weight <= 32767;
}

// In steps. Where several tiles share a panel, chunks of k are multiples of it: whole groups of
// every product, and whole tiles of a matrix unit.
inline constexpr int kChunkMultiple = 16;

// One tile: rows x one panel over n_steps steps, whole groups of them where there are some. Sums
// come from and go to c, [rows][kPanel].
struct TileArgs {
  const std::byte* a = nullptr;  // row 0 at the first step's k, in the kernel's activation format
  const RowGroup* groups = nullptr;  // of it; integers only
  std::int64_t a_stride = 0;         // bytes between rows, and between their groups
  const std::byte* w = nullptr;
  std::int64_t strip_bytes = 0;  // from a strip of the panel to the next, of w and of ahead
  std::int64_t n_steps = 0;
  const std::byte* ahead = nullptr;  // where to prefetch from: the next chunk, or this tile's share
  // With Product::pairs_panels, one row: from ahead to the second stream that is asked for.
  std::int64_t pair_bytes = 0;
  float* c = nullptr;
  bool first = false;  // start from zero instead of c
  int n_rows = 0;
  const std::int8_t* table = nullptr;  // of four bits: what codes stand for, [16]
};
using TileFunction = void (*)(const TileArgs&);

// kI16: the integers of kI8, widened once for the row instead of in every tile that reads it.
// kI16Pairs: of four such integers a0 to a3: a0, a2, a1 - 256 a0, a3 - 256 a2. A pair of weights is
// one number of 16 bits there, low + 256 high; times a0, it adds 256 high a0 to low a0, which high
// times a1 - 256 a0 takes away again. So the low weights need not be unpacked. They are stored as
// w + 128, the high ones as w. Codes reach kMostRowCode at most: with -128 the difference would not
// fit 16 bits.
enum class Activation : std::uint8_t { kF32, kBf16, kI8, kI16, kI16Pairs };
constexpr int activation_bytes(Activation activation) {
  return activation == Activation::kF32 ? 4 : activation == Activation::kI8 ? 1 : 2;
}
constexpr bool is_integer(Activation activation) {
  return activation == Activation::kI8 || activation == Activation::kI16 ||
         activation == Activation::kI16Pairs;
}

// What a step's four weights of 8 bits are stored with: 128 added, but for kI16Pairs to all.
constexpr std::uint32_t i8_flip(Activation activation) {
  return activation == Activation::kI16Pairs ? 0x00800080u : 0x80808080u;
}

// How weights of one dtype are multiplied.
struct Product {
  Activation activation = Activation::kF32;
  int k_per_step = 1;
  int k_multiple = 4;                       // n_in is padded to it
  int row_group = kGroupValues;             // values of a row that share a scale; integers only
  int weight_group = 0;                     // of four bits: weights that share a scale
  int group_header_bytes = 0;               // of four bits: what stands before the steps of a group
  const std::int8_t* int4_table = nullptr;  // where codes are looked up: TileArgs::table
  // Outputs whose first halves of a step stand before their second halves, for a kernel that takes
  // one half at a time; 0: those of an output stand together.
  int halves_of = 0;
  // Of a strip, outputs whose steps lie together: a panel is [kPanel / strip_outputs][step]
  // [strip_outputs]. A tile that keeps the sums of a strip reads its weights as they lie, and asks
  // for those of all strips by turns.
  int strip_outputs = kPanel;
  bool pairs_panels = false;  // of one row, two panels by turns in chunks of k
  int tile_rows = kTileRows;  // most rows of one tile
  int chunk_steps = 0;        // of k, at most, where several tiles share a panel
  // [rows - 1]: of k, at most, where one tile has the panel, or two by turns; 0: all at once.
  int stream_steps[kMostTileRows] = {};
  TileFunction tile[kMostTileRows][kPrefetches] = {};  // [rows - 1][prefetch]
  // c [n_rows][kPanel]: times scales, plus bias, [kPanel] each; either may be null.
  void (*scale)(const float* scales, const float* bias, std::int32_t n_rows, float* c) = nullptr;
  void (*leave)() =
      nullptr;  // each member calls it after its share: gives a matrix unit's state back
};

// Rows of one sequence and the query heads that share one KV head.
struct AttentionItem {
  const float* q = nullptr;   // head 0 of the group in row 0
  std::int64_t q_stride = 0;  // floats between rows
  float* out = nullptr;
  std::int64_t out_stride = 0;
  std::int32_t n_rows = 0;
  std::int32_t group = 0;                   // heads per KV head
  const std::int32_t* positions = nullptr;  // [n_rows]
  const std::int32_t* block_table = nullptr;
  const std::byte* keys = nullptr;  // this layer and KV head in block 0
  std::int64_t block_stride = 0;    // bytes between blocks
  std::int64_t values_offset = 0;   // bytes from a key to its value
  std::int32_t block_tokens = 0;
  std::int32_t head_dim = 0;
  float scale = 0;
  float key_scale = 1;  // fp8 caches
  float value_scale = 1;
  float* scratch = nullptr;  // attention_scratch_floats()
};
// Positions that share one step of the online softmax, whatever the block size; attention_by_pairs
// takes kMostSpan.
inline constexpr int kSpan = 16;
inline constexpr int kMostSpan = 32;
constexpr std::int64_t attention_scratch_floats(std::int32_t n_rows,
                                                std::int32_t group,
                                                std::int32_t head_dim) {
  const std::int64_t padded = (head_dim + 31) / 32 * 32;
  return 2 * kSpan * padded + static_cast<std::int64_t>(n_rows) * group * (2 * padded + 4 + 16) +
         64;
}

// The best id of a slice under (score, -id). token < 0: none above -infinity.
struct Best {
  double score = 0;
  std::int32_t token = -1;
};

struct NoiseKey {
  std::uint64_t seed = 0;
  std::uint32_t choice = 0;
  std::uint32_t position = 0;
  std::uint32_t first_id = 0;  // of the logits' first column; a multiple of 4
};

struct Isa {
  CpuIsa isa = CpuIsa::kScalar;
  const char* name = "";
  const char* numerics = "";  // equal where bits are equal
  Product f32, bf16, f16, i8;
  Product i4[kInt4Kinds][3];  // by Int4Kind and kInt4Groups

  void (*rms_norm)(const float* x, const float* norm, float eps, std::int64_t n, float* out) =
      nullptr;
  void (*to_bf16)(const float* x, std::int64_t n, std::uint16_t* out) = nullptr;
  // out = round(x / scale) with scale = max|x| / 127 of each `group` values; the last are fewer.
  void (*to_i8)(const float* x, std::int64_t n, int group, std::int8_t* out, RowGroup* groups) =
      nullptr;
  void (*swiglu)(const float* gate, const float* up, std::int64_t n, float* out) = nullptr;
  void (*add)(const float* x, std::int64_t n, float* to) = nullptr;  // to += x
  // Element i turns with element i + half.
  void (*rotate)(const float* cos, const float* sin, std::int64_t half, float* x) = nullptr;
  void (*attention[5])(const AttentionItem&) = {};  // by KV dtype: kF32, kBf16, kF16, none, kF8E4M3

  // 32 values a word: those whose bit is 1, -infinity in the place of the others.
  void (*keep_bits)(const float* x,
                    const std::uint32_t* words,
                    std::int64_t n_words,
                    float* out) = nullptr;
  float (*max)(const float* x, std::int64_t n) = nullptr;  // -infinity for none; NaN is passed over
  Best (*argmax)(const float* x, std::int64_t n) = nullptr;  // first of the largest
  // Maximum of (noisy score, -id) over ids [begin, end), skipping what cannot beat `floor`, a score
  // already reached.
  Best (*noisy_argmax)(const float* logits,
                       std::int32_t begin,
                       std::int32_t end,
                       double inverse_temperature,
                       const NoiseKey& key,
                       double floor) = nullptr;
  // out[i] = exp(x[i] * factor - shift)
  void (*exp_weights)(const float* x, std::int64_t n, double factor, double shift, double* out) =
      nullptr;

  // group and kind: of kI4.
  const Product& product(DType dtype, std::int64_t group, Int4Kind kind) const {
    const int by_group = group == 32 ? 0 : group == 64 ? 1 : 2;
    return dtype == DType::kI4     ? i4[static_cast<int>(kind)][by_group]
           : dtype == DType::kF32  ? f32
           : dtype == DType::kBf16 ? bf16
           : dtype == DType::kF16  ? f16
                                   : i8;
  }
};

const Isa* isa_scalar();
const Isa* isa_avx2();  // null where the file was not compiled
const Isa* isa_avx512();
const Isa* isa_avx512_bf16();
const Isa* isa_amx();

bool machine_has(CpuIsa isa);
// The table to use. Throws FatalError if the machine lacks what was asked for.
const Isa& select_isa(CpuIsa wanted);

}  // namespace foretoken::cpu
