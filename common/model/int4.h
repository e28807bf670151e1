// Weights of four bits in groups: which matrices are held so, in which groups, and how a row of
// floats becomes one (kernels/include/types.h has the layout). Uses no file and no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "common/model/config.h"

namespace foretoken {

// Of the matrices of a model loaded with dtype int4: all linears but the down projection, which
// alone would be two fifths of the loss. Embedding and head are held in int8.
bool is_held_in_int4(std::string_view tensor);

// Weights that share a scale: 32 in a model of up to 1e9 parameters, 128 in a larger one. Halved
// while a row of a matrix is not whole groups.
std::int64_t int4_group(const ModelConfig& config);

// Of each group the scale, of eight about (value of largest magnitude) / -8, that has the least
// squared error; of equal ones the first. Returns the row's scale, a power of two that puts the
// groups' into the range of float16; nothing if a value is not finite.
// to: [row_bytes(DType::kI4, row.size(), group)].
[[nodiscard]] std::optional<float> quantise_row_to_int4(std::span<const float> row,
                                                        std::int64_t group,
                                                        std::byte* to);

}  // namespace foretoken
