#include "common/model/row_converter.h"

#include <algorithm>

#include "common/model/convert.h"
#include "common/model/int4.h"
#include "common/model/int4_words.h"
#include "common/model/quantization.h"

namespace foretoken {

std::span<const std::byte> RowConverter::elements(std::int64_t row, std::byte* codes) const {
  const std::size_t element = size_bytes(stored_.dtype);
  const std::int64_t n_stored = stored_.packed ? (stored_.n_in + 3) / 4 * 4 : stored_.n_in;
  const auto begin =
      static_cast<std::size_t>((rows_.begin + row) * n_stored + columns_.begin) * element;
  const auto bytes = stored_.bytes.subspan(begin, static_cast<std::size_t>(columns_.n()) * element);
  if (!stored_.packed) return bytes;
  std::ranges::transform(bytes, codes, [](std::byte code) { return unpacked_int8(code); });
  return {codes, bytes.size()};
}

float RowConverter::read_int4(std::int64_t row,
                              std::span<const std::byte> words,
                              std::byte* to) const {
  std::vector<std::uint8_t> whole(static_cast<std::size_t>(stored_.n_in));
  unpack_int4_words(words, whole);
  const auto codes = std::span(whole).subspan(static_cast<std::size_t>(columns_.begin),
                                              static_cast<std::size_t>(columns_.n()));
  const auto n_scales =
      static_cast<std::size_t>((stored_.n_in + stored_.group - 1) / stored_.group);
  const std::size_t first = static_cast<std::size_t>(row) * n_scales;
  Int4RowGroups groups{.size = stored_.group, .scales = stored_.scales.subspan(first, n_scales)};
  if (!stored_.zeros.empty()) groups.zeros = stored_.zeros.subspan(first, n_scales);
  groups.of_column = stored_.group_of;
  groups.kind = stored_.kind;
  if (to_ == DType::kI4) return keep_int4(codes, groups, to);
  std::vector<float> values(codes.size());
  dequantise_int4(codes, columns_.begin, groups, values);
  return convert(values, to);
}

float RowConverter::keep_int4(std::span<const std::uint8_t> codes,
                              const Int4RowGroups& groups,
                              std::byte* to) const {
  std::vector<float> scales;
  std::vector<std::uint8_t> zeros;
  for (std::int64_t column = columns_.begin; column < columns_.end; column += group_) {
    const auto group = static_cast<std::size_t>(column / groups.size);
    scales.push_back(groups.scales[group]);
    if (kind_ == Int4Kind::kZeroPoints)
      zeros.push_back(groups.zeros.empty() ? std::uint8_t{8} : groups.zeros[group]);
  }
  return write_int4_row(codes, scales, zeros, group_, to);
}

void RowConverter::read(std::int64_t first, std::int64_t n, std::byte* to, float* scales) const {
  const auto bytes = static_cast<std::size_t>(row_bytes(to_, columns_.n(), group_, kind_));
  if (stored_.dtype != DType::kI4) {
    for (std::int64_t r = 0; r < n; ++r, to += bytes) scales[r] = read_row(first + r, to);
    return;
  }
  const Range rows{rows_.begin + first, rows_.begin + first + n};
  const auto word_bytes = static_cast<std::size_t>((stored_.n_in + 7) / 8 * 4);
  std::vector<std::byte> gathered;
  std::span<const std::byte> words = stored_.bytes;
  if (is_transposed(stored_.layout))
    words = gathered =
        rows_of_words(stored_.layout, stored_.bytes, stored_.n_out, stored_.n_in, rows);
  else
    words = words.subspan(static_cast<std::size_t>(rows.begin) * word_bytes);
  for (std::int64_t r = 0; r < n; ++r, to += bytes)
    scales[r] = read_int4(first + r,
                          words.subspan(static_cast<std::size_t>(r) * word_bytes, word_bytes), to);
}

float RowConverter::read_row(std::int64_t row, std::byte* to) const {
  const auto n = static_cast<std::size_t>(columns_.n());
  const float scale = stored_.scales.empty() ? 1.0f : stored_.scales[static_cast<std::size_t>(row)];
  std::vector<std::byte> codes(stored_.packed ? n : 0);
  const auto bytes = elements(row, codes.data());
  if (stored_.dtype == to_) {
    std::ranges::copy(bytes, to);
    return scale;
  }
  std::vector<float> values(n);
  if (is_quantised(stored_.dtype))
    dequantise_rows(stored_.dtype, bytes, std::span(&scale, 1), columns_.n(), values);
  else
    widen(stored_.dtype, bytes, values);
  return convert(values, to);
}

float RowConverter::convert(std::span<const float> values, std::byte* to) const {
  if (!is_quantised(to_)) {
    if (!narrow(values, to_, {to, values.size() * size_bytes(to_)})) beyond_range_ = true;
    return 1;
  }
  const auto scale = to_ == DType::kI4 ? quantise_row_to_int4(values, group_, kind_, to)
                                       : quantise_row(values, to_, to);
  if (!scale) not_finite_ = true;
  return scale.value_or(0.0f);
}

}  // namespace foretoken
