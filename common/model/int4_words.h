// Weights of four bits as the folders of others have them, turned into rows (int4.h has those):
// where codes and zero points lie in 32-bit words. The layouts are those of compressed-tensors
// (quantization.h), of AutoGPTQ and GPTQModel, and of AutoAWQ's "gemm". Beside X.weight a float
// folder would have, the latter have X.qweight, X.qzeros and X.scales, which run along the inputs
// first, and GPTQ X.g_idx, the group of each input. Uses no file and no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/config.h"
#include "common/model/shard.h"

namespace foretoken {

// "model.layers.0.mlp.down_proj.weight", "qweight" -> "model.layers.0.mlp.down_proj.qweight".
std::string name_beside(std::string_view weight, std::string_view part);

// Whether codes have to be gathered from words that run along the outputs.
constexpr bool is_transposed(Int4Layout layout) { return layout != Int4Layout::kRows; }

// The shapes of a matrix' codes and of its zero points, as tensors of 32-bit words.
std::vector<std::int64_t> code_words_shape(Int4Layout layout,
                                           std::int64_t n_out,
                                           std::int64_t n_in);
std::vector<std::int64_t> zero_words_shape(Int4Layout layout,
                                           std::int64_t n_out,
                                           std::int64_t n_groups);

// The codes of some rows of a transposed layout, as pack_int4_words() has them.
// words: of code_words_shape(). Returns [rows.n()][ceil(n_in / 8)] words.
std::vector<std::byte> rows_of_words(Int4Layout layout,
                                     std::span<const std::byte> words,
                                     std::int64_t n_out,
                                     std::int64_t n_in,
                                     const Range& rows);

// words: of zero_words_shape(). Returns [n_out, n_groups].
std::vector<std::uint8_t> zeros_of_words(Int4Layout layout,
                                         std::span<const std::byte> words,
                                         std::int64_t n_out,
                                         std::int64_t n_groups);

// [n_groups, n_out] -> [n_out, n_groups].
std::vector<float> transposed(std::span<const float> scales,
                              std::int64_t n_groups,
                              std::int64_t n_out);

// Whether each group has the inputs that follow one another: of_input[i] = i / group.
bool is_in_order(std::span<const std::int32_t> of_input, std::int64_t group);

}  // namespace foretoken
