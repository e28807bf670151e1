// Matrices in eight or four bits, as a checkpoint stores them (quantization_config.h reads what
// config.json says of them). The layout is that of compressed-tensors
// (github.com/vllm-project/compressed-tensors), which llm-compressor writes: beside each `X.weight`
// an `X.weight_scale`, per output channel or one for the matrix, w = code * scale. Codes packed
// into words are `X.weight_packed`, of four bits always, with a scale for each group of columns and
// perhaps a zero point, `X.weight_zero_point`. Uses no file and no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/int4.h"
#include "kernels/include/types.h"

namespace foretoken {

// "model.layers.0.mlp.down_proj.weight" -> "….weight_scale".
std::string scale_name(std::string_view weight);
std::string packed_name(std::string_view weight);
std::string zero_point_name(std::string_view weight);

// Names a quantised folder may have beside weights and scales, and that change nothing here: scales
// of activations. Those of a KV cache are kv_scales.h's; under other names they only matter there.
bool is_activation_scale(std::string_view name);

// A matrix in eight bits with one scale per output channel, or in words of four bits.
struct QuantisedMatrix {
  std::vector<std::byte> codes;  // [n_out, n_in] int8 or E4M3; [n_out, ceil(n_in / 8)] words
  std::vector<float> scales;     // [n_out]: w = code * scale; [n_out, groups]
};

// The largest magnitude of the row becomes the largest code: 127 or 448. Rounds to nearest even.
// Returns the scale, rounded up to one that scale_type can hold; nothing if a value is not finite.
// codes: [row.size()].
[[nodiscard]] std::optional<float> quantise_row(std::span<const float> row,
                                                DType to,
                                                std::byte* codes,
                                                DType scale_type = DType::kF32);

// Every row of a matrix. `bytes` hold [n_out, n_in] of a float type, in which the scales of int8
// are, too. False if any value is not finite.
[[nodiscard]] bool quantise_rows(DType stored,
                                 std::span<const std::byte> bytes,
                                 std::int64_t n_out,
                                 std::int64_t n_in,
                                 DType to,
                                 QuantisedMatrix& out);

// The same into words of four bits, with search.importance for each column; the scales are such as
// the type of the bytes, search.scale_type, can hold (quantise_groups).
[[nodiscard]] bool quantise_to_int4_words(const Int4Search& search,
                                          std::span<const std::byte> bytes,
                                          std::int64_t n_out,
                                          std::int64_t n_in,
                                          QuantisedMatrix& out);

// A code as words have it, plus 128.
constexpr std::byte unpacked_int8(std::byte code) { return code ^ std::byte{0x80}; }

// Codes out of 32-bit words: see StoredTensor. [n_out, n_in] from [n_out, ceil(n_in / 4)] words.
std::vector<std::byte> unpack_int8(std::span<const std::byte> words,
                                   std::int64_t n_out,
                                   std::int64_t n_in);

// The reverse; rows are filled up with zeros.
std::vector<std::byte> pack_int8(std::span<const std::byte> codes,
                                 std::int64_t n_out,
                                 std::int64_t n_in);

// Scales up to this leave every code finite in float32; of a file from outside they may be larger.
inline constexpr float kSafeScale = 1e35f;

// The first row of which a code times its scale is infinite.
std::optional<std::size_t> first_row_beyond_float(DType stored,
                                                  std::span<const std::byte> codes,
                                                  std::span<const float> scales,
                                                  std::int64_t n_in);

// The reverse of quantise_rows, into float32.
void dequantise_rows(DType stored,
                     std::span<const std::byte> codes,
                     std::span<const float> scales,
                     std::int64_t n_in,
                     std::span<float> out);

}  // namespace foretoken
