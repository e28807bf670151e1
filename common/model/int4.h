// Weights of four bits in groups: which matrices are held so, in which groups, and how a row of
// floats becomes one (kernels/include/types.h has the layout). Uses no file and no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "common/model/config.h"
#include "kernels/include/types.h"

namespace foretoken {

// Of the matrices of a model that is quantised to codes of this kind: all linears, but down
// projections only with kNonUniform, as evenly spaced values lose a third more with them. Others,
// and embedding and head, are held in int8.
bool is_held_in_int4(std::string_view tensor, Int4Kind kind);

// Floats of four bits (Int4Kind::kE2m1) that share an exponent in folders.
inline constexpr std::int64_t kMxfp4Group = 32;

// Weights that share a scale: 32 in a model of up to 1e9 parameters, 128 in a larger one. Halved
// while a row of a matrix is not whole groups, down projections counted only if they are of four
// bits.
std::int64_t int4_group(const ModelConfig& config, bool with_down_projections);

// Whether weights that are stored in groups of so many can be held as they are stored.
constexpr bool is_stored_int4_group(std::int64_t group) {
  return group == 32 || group == 64 || (group > 0 && group % 128 == 0);
}
// The groups that such weights are held in: those of a larger one share a scale.
constexpr std::int64_t held_int4_group(std::int64_t stored) { return stored < 128 ? stored : 128; }

// What scales are chosen for.
struct Int4Search {
  std::int64_t group = 0;
  // kF32: scales of eleven bits, as rows in memory have; kBf16 and kF16: those that the type holds.
  DType scale_type = DType::kF32;
  // How much the squared error of each column counts, [row.size()], none negative; empty: all
  // alike. Must be empty with kNonUniform.
  std::span<const float> importance = {};
  // What codes stand for. kZeroPoints: as kOffset, for zero points of 8.
  Int4Kind kind = Int4Kind::kOffset;
};

// Of each group a scale, and the codes of the values nearest to its weights; of kNonUniform,
// halfway, the larger one. The scale is the one with the least squared error of eight about
// (weight of largest magnitude) / -8, of kE2m1 over 12. Of kNonUniform three about that weight over
// the least value of the table make codes, for which the scale with the least squared error is
// computed; the best of these three. Of equal ones the first. False if a value is not finite.
// codes: [row.size()]. scales: one for each group.
[[nodiscard]] bool quantise_groups(std::span<const float> row,
                                   const Int4Search& search,
                                   std::span<std::uint8_t> codes,
                                   std::span<float> scales);

// A row as the kernels take it. Returns the row's scale, a power of two that puts the groups' into
// the range of float16, to which they are rounded (those of eleven bits or fewer are not changed,
// if they are not 2^24 times smaller than the largest). zeros: one for each group, or empty for a
// row without zero points. to: [row_bytes(DType::kI4, codes.size(), group, zeros)].
float write_int4_row(std::span<const std::uint8_t> codes,
                     std::span<const float> scales,
                     std::span<const std::uint8_t> zeros,
                     std::int64_t group,
                     std::byte* to);

// The two in turn; zero points are 8. Nothing if a value is not finite.
[[nodiscard]] std::optional<float> quantise_row_to_int4(std::span<const float> row,
                                                        std::int64_t group,
                                                        Int4Kind kind,
                                                        std::byte* to);

// Codes as compressed-tensors packs them: eight to a 32-bit word, the first in its lowest bits. The
// last word of a row is filled up with zeros. words: [ceil(codes.size() / 8)], little-endian.
void pack_int4_words(std::span<const std::uint8_t> codes, std::span<std::byte> words);
void unpack_int4_words(std::span<const std::byte> words, std::span<std::uint8_t> codes);

// What the weights of a row share in groups.
struct Int4RowGroups {
  std::int64_t size = 0;
  std::span<const float> scales;
  std::span<const std::uint8_t> zeros = {};      // empty: all 8
  std::span<const std::int32_t> of_column = {};  // the group of each; empty: column / size
  Int4Kind kind = Int4Kind::kOffset;
};

// weights[i] = what codes[i] stands for * scale, that of the group of column begin + i.
void dequantise_int4(std::span<const std::uint8_t> codes,
                     std::int64_t begin,
                     const Int4RowGroups& groups,
                     std::span<float> weights);

}  // namespace foretoken
