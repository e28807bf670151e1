#include "common/model/row_converter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "common/model/convert.h"
#include "common/model/int4.h"
#include "common/model/quantization.h"
#include "tests/model/int4_rows.h"

namespace foretoken {
namespace {

constexpr std::int64_t kRows = 7, kColumns = 21;
constexpr Range kWantedRows{2, 6}, kWantedColumns{3, 16};

std::vector<float> some_values() {
  constexpr unsigned kSeed = 11;
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  std::vector<float> values(kRows * kColumns);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<std::byte> stored_in(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * size_bytes(dtype));
  EXPECT_TRUE(narrow(values, dtype, bytes));
  return bytes;
}

// The wanted part of a matrix of floats, cut element by element.
std::vector<float> wanted(const std::vector<float>& values) {
  std::vector<float> part;
  for (std::int64_t r = kWantedRows.begin; r < kWantedRows.end; ++r)
    for (std::int64_t c = kWantedColumns.begin; c < kWantedColumns.end; ++c)
      part.push_back(values[static_cast<std::size_t>(r * kColumns + c)]);
  return part;
}

struct Read {
  std::vector<std::byte> bytes;
  std::vector<float> scales;
};

Read read_all(const RowConverter& rows, DType to) {
  const auto row_bytes = static_cast<std::size_t>(kWantedColumns.n()) * size_bytes(to);
  Read all{std::vector<std::byte>(row_bytes * static_cast<std::size_t>(kWantedRows.n())), {}};
  for (std::int64_t r = 0; r < kWantedRows.n(); ++r)
    all.scales.push_back(
        rows.read_one(r, all.bytes.data() + static_cast<std::size_t>(r) * row_bytes));
  return all;
}

std::vector<float> widened(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / size_bytes(dtype));
  widen(dtype, bytes, values);
  return values;
}

TEST(RowConverter, FloatsAreThoseOfTheWholeMatrix) {
  for (DType from : {DType::kF32, DType::kBf16, DType::kF16})
    for (DType to : {DType::kF32, DType::kBf16, DType::kF16}) {
      SCOPED_TRACE(std::string(dtype_name(from)) + " to " + dtype_name(to));
      const auto bytes = stored_in(from, some_values());
      const RowConverter rows({.dtype = from, .bytes = bytes, .n_in = kColumns}, to,
                              {kWantedRows, kWantedColumns});
      const Read all = read_all(rows, to);
      EXPECT_EQ(all.bytes, stored_in(to, wanted(widened(from, bytes))));
      EXPECT_EQ(all.scales, std::vector<float>(4, 1.0f));
      EXPECT_FALSE(rows.went_beyond_range() || rows.met_not_finite());
    }
}

// A rank's scale is that of its own columns.
TEST(RowConverter, CodesAreThoseOfTheMatrixThatWasCut) {
  for (DType to : {DType::kI8, DType::kF8E4M3}) {
    const auto bytes = stored_in(DType::kBf16, some_values());
    const RowConverter rows({.dtype = DType::kBf16, .bytes = bytes, .n_in = kColumns}, to,
                            {kWantedRows, kWantedColumns});
    const std::vector<float> part = wanted(widened(DType::kBf16, bytes));
    QuantisedMatrix expected;
    ASSERT_TRUE(quantise_rows(DType::kF32, std::as_bytes(std::span(part)), kWantedRows.n(),
                              kWantedColumns.n(), to, expected));
    const Read all = read_all(rows, to);
    EXPECT_EQ(all.bytes, expected.codes);
    EXPECT_EQ(all.scales, expected.scales);
  }
}

TEST(RowConverter, StoredCodesKeepTheirScalesPackedOrNot) {
  const auto values = some_values();
  QuantisedMatrix matrix;
  ASSERT_TRUE(quantise_rows(DType::kF32, std::as_bytes(std::span(values)), kRows, kColumns,
                            DType::kI8, matrix));
  constexpr std::int64_t kStored = 24;  // 21 in words of four
  std::vector<std::byte> words(kRows * kStored, std::byte{0x80});
  std::vector<std::byte> codes;
  for (std::int64_t r = 0; r < kRows; ++r)
    for (std::int64_t c = 0; c < kColumns; ++c) {
      const auto code =
          static_cast<std::int8_t>(matrix.codes[static_cast<std::size_t>(r * kColumns + c)]);
      words[static_cast<std::size_t>(r * kStored + c)] = static_cast<std::byte>(code + 128);
      if (r >= kWantedRows.begin && r < kWantedRows.end && c >= kWantedColumns.begin &&
          c < kWantedColumns.end)
        codes.push_back(static_cast<std::byte>(code));
    }
  const std::vector<float> scales(matrix.scales.begin() + kWantedRows.begin,
                                  matrix.scales.begin() + kWantedRows.end);
  std::vector<float> floats;
  for (std::size_t i = 0; i < codes.size(); ++i)
    floats.push_back(static_cast<float>(static_cast<std::int8_t>(codes[i])) *
                     scales[i / static_cast<std::size_t>(kWantedColumns.n())]);
  for (const bool packed : {false, true}) {
    const StoredMatrix stored{.dtype = DType::kI8,
                              .packed = packed,
                              .bytes = packed ? words : matrix.codes,
                              .n_in = kColumns,
                              .scales = scales};
    const RowConverter same(stored, DType::kI8, {kWantedRows, kWantedColumns});
    const Read all = read_all(same, DType::kI8);
    EXPECT_EQ(all.bytes, codes);
    EXPECT_EQ(all.scales, scales);
    const RowConverter wider(stored, DType::kBf16, {kWantedRows, kWantedColumns});
    EXPECT_EQ(read_all(wider, DType::kBf16).bytes, stored_in(DType::kBf16, floats));
  }
}

TEST(RowConverter, RemembersWhatItCouldNotConvert) {
  const auto read_with = [](float bad, DType to) {
    auto values = some_values();
    values[static_cast<std::size_t>(kWantedRows.begin * kColumns + kWantedColumns.begin)] = bad;
    const auto bytes = stored_in(DType::kF32, values);
    const RowConverter rows({.dtype = DType::kF32, .bytes = bytes, .n_in = kColumns}, to,
                            {kWantedRows, kWantedColumns});
    read_all(rows, to);
    return std::pair(rows.went_beyond_range(), rows.met_not_finite());
  };
  EXPECT_EQ(read_with(65504.0f, DType::kF16), std::pair(false, false));
  EXPECT_EQ(read_with(70000.0f, DType::kF16), std::pair(true, false));
  EXPECT_EQ(read_with(70000.0f, DType::kI8), std::pair(false, false));
  EXPECT_EQ(read_with(std::nanf(""), DType::kI8), std::pair(false, true));
}

// Codes and scales of a file in groups of 256, held in groups of 128 or widened: a rank's columns.
TEST(RowConverter, FourBitCodesAreThoseOfTheFile) {
  constexpr std::int64_t kAll = 600, kGroup = 256;
  constexpr Range kSomeRows{1, 3}, kSomeColumns{128, 530};
  std::mt19937 random(3);
  std::vector<std::uint8_t> codes(3 * kAll);
  for (auto& code : codes) code = static_cast<std::uint8_t>(random() % 16);
  const std::vector<float> scales{0.5f, 0.25f, 3.0f, 1.0f, 0.125f, 2.0f};  // of the wanted rows
  std::vector<std::byte> words(3 * kAll / 2);
  pack_int4_words(codes, words);
  const StoredMatrix stored{.dtype = DType::kI4,
                            .packed = true,
                            .bytes = words,
                            .n_in = kAll,
                            .scales = scales,
                            .group = kGroup};
  const RowConverter held(stored, DType::kI4, {kSomeRows, kSomeColumns, 128});
  const RowConverter floats(stored, DType::kF32, {kSomeRows, kSomeColumns});
  for (std::int64_t r = 0; r < kSomeRows.n(); ++r) {
    std::vector<std::byte> row(
        static_cast<std::size_t>(row_bytes(DType::kI4, kSomeColumns.n(), 128)));
    const float unit = held.read_one(r, row.data());
    const auto values = test::decoded(row, kSomeColumns.n(), 128, unit).values;
    std::vector<float> widened(values.size());
    EXPECT_EQ(floats.read_one(r, reinterpret_cast<std::byte*>(widened.data())), 1.0f);
    for (std::int64_t i = 0; i < kSomeColumns.n(); ++i) {
      const std::int64_t column = kSomeColumns.begin + i;
      const int code = codes[static_cast<std::size_t>((kSomeRows.begin + r) * kAll + column)] - 8;
      const float expected =
          static_cast<float>(code) * scales[static_cast<std::size_t>(r * 3 + column / kGroup)];
      EXPECT_EQ(values[static_cast<std::size_t>(i)], static_cast<double>(expected));
      EXPECT_EQ(widened[static_cast<std::size_t>(i)], expected);
    }
  }
}

// The same with zero points: held as they are, or 8 where the file has none, and widened in the
// groups that a list gives to the columns.
TEST(RowConverter, ZeroPointsOfAFileAreThoseOfTheirGroups) {
  constexpr std::int64_t kAll = 96;
  std::vector<std::uint8_t> codes(kAll);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i * 7 % 16);
  std::vector<std::byte> words(kAll / 2);
  pack_int4_words(codes, words);
  const std::vector<float> scales{0.5f, 0.25f, 3.0f};
  const std::vector<std::uint8_t> zeros{0, 15, 9};
  StoredMatrix stored{.dtype = DType::kI4,
                      .packed = true,
                      .bytes = words,
                      .n_in = kAll,
                      .scales = scales,
                      .group = 32,
                      .zeros = zeros};
  const Range columns{32, 96};
  const auto held = [&](const StoredMatrix& matrix) {
    const RowConverter rows(matrix, DType::kI4, {{0, 1}, columns, 32, Int4Kind::kZeroPoints});
    std::vector<std::byte> row(
        static_cast<std::size_t>(row_bytes(DType::kI4, 64, 32, Int4Kind::kZeroPoints)));
    const float unit = rows.read_one(0, row.data());
    return test::decoded(row, 64, 32, unit, Int4Kind::kZeroPoints);
  };
  const auto kept = held(stored);
  EXPECT_EQ(kept.zeros, (std::vector<int>{15, 9}));
  EXPECT_EQ(kept.scales, (std::vector<double>{0.25, 3.0}));
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(kept.codes[i], codes[32 + i]);

  std::vector<std::int32_t> group_of(kAll);
  for (std::size_t i = 0; i < group_of.size(); ++i) group_of[i] = static_cast<std::int32_t>(i % 3);
  stored.group_of = group_of;
  std::vector<float> widened(64);
  const RowConverter floats(stored, DType::kF32, {{0, 1}, columns});
  floats.read_one(0, reinterpret_cast<std::byte*>(widened.data()));
  for (std::size_t i = 0; i < widened.size(); ++i) {
    const std::size_t g = (32 + i) % 3;
    EXPECT_EQ(widened[i], static_cast<float>(codes[32 + i] - zeros[g]) * scales[g]);
  }

  stored.zeros = {};
  stored.group_of = {};
  EXPECT_EQ(held(stored).zeros, (std::vector<int>{8, 8}));
}

// Words that lie across the rows are gathered by runs of rows: as many as are asked for, and those.
TEST(RowConverter, RunsOfRowsAreTheSameInEveryLayout) {
  constexpr std::int64_t kOut = 75, kIn = 64;
  constexpr Range kRun{3, 70};
  std::mt19937 random(11);
  std::vector<std::uint8_t> codes(kOut * kIn);
  for (auto& code : codes) code = static_cast<std::uint8_t>(random() % 16);
  std::vector<std::byte> by_rows(kOut * kIn / 2);
  pack_int4_words(codes, by_rows);
  std::vector<std::uint32_t> gptq(kIn / 8 * kOut), awq(kIn * ((kOut + 7) / 8));
  constexpr std::array<int, 8> kAwqPlaces{0, 4, 1, 5, 2, 6, 3, 7};
  for (std::size_t r = 0; r < kOut; ++r)
    for (std::size_t c = 0; c < kIn; ++c) {
      const std::uint32_t code = codes[r * kIn + c];
      gptq[c / 8 * kOut + r] |= code << 4 * (c % 8);
      awq[c * ((kOut + 7) / 8) + r / 8] |= code << 4 * kAwqPlaces[r % 8];
    }
  std::vector<float> scales(kRun.n() * 2);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = 0.25f + static_cast<float>(i);
  const auto read = [&](Int4Layout layout, std::span<const std::byte> words, std::int64_t at_once) {
    const RowConverter rows({.dtype = DType::kI4,
                             .packed = true,
                             .layout = layout,
                             .bytes = words,
                             .n_out = kOut,
                             .n_in = kIn,
                             .scales = scales,
                             .group = 32},
                            DType::kI4, {kRun, {0, kIn}, 32});
    const auto bytes = static_cast<std::size_t>(row_bytes(DType::kI4, kIn, 32));
    std::pair<std::vector<std::byte>, std::vector<float>> all;
    all.first.resize(bytes * kRun.n());
    all.second.resize(kRun.n());
    for (std::int64_t r = 0; r < kRun.n(); r += at_once)
      rows.read(r, std::min(at_once, kRun.n() - r), all.first.data() + bytes * r,
                all.second.data() + r);
    return all;
  };
  const auto expected = read(Int4Layout::kRows, by_rows, 1);
  for (const std::int64_t at_once : {1, 5, 64, 67}) {
    SCOPED_TRACE(at_once);
    EXPECT_EQ(read(Int4Layout::kRows, by_rows, at_once), expected);
    EXPECT_EQ(read(Int4Layout::kGptq, std::as_bytes(std::span(gptq)), at_once), expected);
    EXPECT_EQ(read(Int4Layout::kAwq, std::as_bytes(std::span(awq)), at_once), expected);
  }
}

}  // namespace
}  // namespace foretoken
