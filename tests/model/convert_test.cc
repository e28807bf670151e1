#include "common/model/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "common/model/digest.h"
#include "common/model/quantization.h"

namespace foretoken {
namespace {

std::span<const std::byte> bytes_of(std::span<const float> values) { return std::as_bytes(values); }

TEST(Convert, SixteenBitsThereAndBackKeepsWhatFits) {
  const float values[] = {0.0f, -0.0f, 1.0f, -1.5f, 0.15625f, 240.0f, 0x1p-14f};
  for (DType dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
    std::vector<std::byte> stored(std::size(values) * size_bytes(dtype));
    ASSERT_TRUE(narrow(values, dtype, stored));
    float back[std::size(values)];
    widen(dtype, stored, back);
    for (std::size_t i = 0; i < std::size(values); ++i) {
      EXPECT_EQ(back[i], values[i]);
      EXPECT_EQ(std::signbit(back[i]), std::signbit(values[i]));
    }
  }
}

TEST(Convert, RoundsToNearestEven) {
  // bf16 keeps 8 bits: 257 lies between 256 and 258, 259 between 258 and 260.
  const float values[] = {257.0f, 259.0f, 257.5f};
  std::vector<std::byte> stored(6);
  ASSERT_TRUE(narrow(values, DType::kBf16, stored));
  float back[3];
  widen(DType::kBf16, stored, back);
  EXPECT_EQ(back[0], 256.0f);
  EXPECT_EQ(back[1], 260.0f);
  EXPECT_EQ(back[2], 258.0f);
}

TEST(Convert, SaysWhenAValueDoesNotFit) {
  const float large[] = {1.0f, 70000.0f};
  std::vector<std::byte> stored(4);
  EXPECT_FALSE(narrow(large, DType::kF16, stored));
  EXPECT_TRUE(narrow(large, DType::kBf16, stored));
  const float infinite[] = {std::numeric_limits<float>::infinity(), 1.0f};
  EXPECT_TRUE(narrow(infinite, DType::kF16, stored)) << "it was infinite before";
}

TEST(Convert, Int8ErrorIsAtMostHalfAStepOfItsRow) {
  constexpr unsigned kSeed = 3;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  constexpr std::int64_t kRows = 9, kColumns = 33;
  std::vector<float> values(kRows * kColumns);
  for (std::int64_t r = 0; r < kRows; ++r)
    for (std::int64_t c = 0; c < kColumns; ++c)
      values[static_cast<std::size_t>(r * kColumns + c)] =
          normal(random) * std::pow(10.0f, static_cast<float>(r - 4));
  for (std::size_t c = 0; c < kColumns; ++c) values[c] = 0;  // a row of zeros
  QuantisedMatrix matrix;
  ASSERT_TRUE(quantise_rows(DType::kF32, bytes_of(values), kRows, kColumns, DType::kI8, matrix));
  for (std::size_t r = 0; r < kRows; ++r) {
    float largest = 0, error = 0;
    int largest_code = 0;
    for (std::size_t c = 0; c < kColumns; ++c) {
      const float value = values[r * kColumns + c];
      const auto code = static_cast<std::int8_t>(matrix.codes[r * kColumns + c]);
      largest = std::max(largest, std::fabs(value));
      largest_code = std::max(largest_code, std::abs(int{code}));
      error = std::max(error, std::fabs(value - matrix.scales[r] * static_cast<float>(code)));
    }
    EXPECT_LE(error, largest / 127 * 0.501f) << r;
    EXPECT_EQ(largest_code, r == 0 ? 0 : 127) << r;
  }
  values[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(quantise_rows(DType::kF32, bytes_of(values), kRows, kColumns, DType::kI8, matrix));
  EXPECT_FALSE(
      quantise_rows(DType::kF32, bytes_of(values), kRows, kColumns, DType::kF8E4M3, matrix));
}

TEST(Convert, ScalesOfInt8AreNumbersOfTheSourcesTypeAndNoCodeIsBeyondThem) {
  constexpr std::uint32_t kSeed = 12;
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  constexpr std::size_t kRows = 200, kColumns = 33;
  for (const DType type : {DType::kBf16, DType::kF16}) {
    SCOPED_TRACE(dtype_name(type));
    std::vector<float> values(kRows * kColumns);
    for (float& value : values) value = 0.02f * normal(random);
    for (std::size_t c = 0; c < kColumns; ++c) values[c] *= 1e-4f;  // below what f16 is fine at
    std::vector<std::byte> stored(values.size() * size_bytes(type));
    ASSERT_TRUE(narrow(values, type, stored));
    widen(type, stored, values);
    QuantisedMatrix matrix;
    ASSERT_TRUE(quantise_rows(type, stored, kRows, kColumns, DType::kI8, matrix));
    std::vector<std::byte> written(kRows * size_bytes(type));
    ASSERT_TRUE(narrow(matrix.scales, type, written));
    std::vector<float> scales(kRows);
    widen(type, written, scales);
    EXPECT_EQ(scales, matrix.scales) << "other programs read what was reckoned with";
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float scale = scales[i / kColumns];
      const auto code = static_cast<float>(static_cast<std::int8_t>(matrix.codes[i]));
      EXPECT_LE(std::fabs(values[i] - code * scale), scale * 0.501f) << i;
      EXPECT_LE(std::fabs(values[i]), 127 * scale) << i;
    }
  }
}

// The value of a code by its definition: sign, 4 bits of exponent with bias 7, 3 of mantissa.
double e4m3_by_definition(int code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code & 0x80 ? -size : size;
}

TEST(Convert, E4m3CodesAreWhatTheirBitsSay) {
  for (int code = 0; code < 256; ++code) {
    const std::byte byte = static_cast<std::byte>(code);
    float value = 0;
    widen(DType::kF8E4M3, std::span(&byte, 1), std::span(&value, 1));
    const bool no_number = (code & 0x7f) == 0x7f;
    EXPECT_EQ(std::isnan(value), no_number) << code;
    EXPECT_EQ(all_finite(DType::kF8E4M3, std::span(&byte, 1)), !no_number) << code;
    if (!no_number) {
      EXPECT_EQ(static_cast<double>(value), e4m3_by_definition(code)) << code;
    }
  }
}

// A row whose largest is 448 has the scale 1: its codes are the nearest ones.
TEST(Convert, E4m3RoundsToTheNearestAndTiesToEven) {
  std::vector<float> row{448.0f};
  for (int code = 0; code < 0x7e; ++code) {
    const double one = e4m3_by_definition(code), next = e4m3_by_definition(code + 1);
    for (double part : {0.0, 0.25, 0.4999, 0.5, 0.5001, 0.75})
      for (double sign : {1.0, -1.0})
        row.push_back(static_cast<float>(sign * (one + part * (next - one))));
  }
  QuantisedMatrix matrix;
  const auto n = static_cast<std::int64_t>(row.size());
  ASSERT_TRUE(quantise_rows(DType::kF32, bytes_of(row), 1, n, DType::kF8E4M3, matrix));
  ASSERT_EQ(matrix.scales.front(), 1.0f);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const auto value = static_cast<double>(row[i]);
    int best = 0;
    for (int code = 0; code < 0x7f; ++code) {
      const double error = std::abs(e4m3_by_definition(code) - std::abs(value));
      const double least = std::abs(e4m3_by_definition(best) - std::abs(value));
      if (error < least || (error == least && code % 2 == 0)) best = code;
    }
    EXPECT_EQ(static_cast<int>(matrix.codes[i]) & 0x7f, best) << value;
    EXPECT_EQ((static_cast<int>(matrix.codes[i]) & 0x80) != 0, std::signbit(row[i])) << value;
  }
}

TEST(Convert, PackedInt8ComesOutInOrderWithoutItsPadding) {
  // Two rows of five: words of four, the second of each row mostly padding.
  std::vector<std::byte> words;
  for (int code : {-128, -1, 0, 1, 127, 99, 99, 99, 5, 6, 7, 8, -9, 99, 99, 99})
    words.push_back(static_cast<std::byte>(code + 128));
  const auto codes = unpack_int8(words, 2, 5);
  const int expected[] = {-128, -1, 0, 1, 127, 5, 6, 7, 8, -9};
  ASSERT_EQ(codes.size(), std::size(expected));
  for (std::size_t i = 0; i < codes.size(); ++i)
    EXPECT_EQ(static_cast<int>(static_cast<std::int8_t>(codes[i])), expected[i]) << i;
}

TEST(Convert, FindsTheOneValueThatIsNotFinite) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    for (std::size_t n : {1u, 2u, 3u, 4u, 7u, 16u}) {
      std::vector<float> values(n, dtype == DType::kF16 ? -65504.0f : -3.3e38f);
      std::vector<std::byte> stored(n * size_bytes(dtype));
      ASSERT_TRUE(narrow(values, dtype, stored));
      EXPECT_TRUE(all_finite(dtype, stored)) << "the largest that are";
      for (std::size_t i = 0; i < n; ++i) {
        for (float bad : {inf, -inf, nan, -nan}) {
          auto poisoned = values;
          poisoned[i] = bad;
          ASSERT_TRUE(narrow(poisoned, dtype, stored));
          EXPECT_FALSE(all_finite(dtype, stored)) << dtype_name(dtype) << " " << i << " of " << n;
        }
      }
    }
  }
}

TEST(Digest, EveryBitAndTheLengthCount) {
  std::vector<std::byte> bytes(200, std::byte{7});
  const std::uint64_t digest = digest_bytes(bytes);
  EXPECT_EQ(digest_bytes(bytes), digest);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= std::byte{0x10};
    EXPECT_NE(digest_bytes(bytes), digest) << i;
    bytes[i] ^= std::byte{0x10};
  }
  std::swap(bytes[0], bytes[64]);
  EXPECT_EQ(digest_bytes(bytes), digest);
  bytes[0] = std::byte{8};
  const std::uint64_t first = digest_bytes(bytes);
  std::swap(bytes[0], bytes[64]);
  EXPECT_NE(digest_bytes(bytes), first) << "places in one lane are not interchangeable";
  EXPECT_NE(digest_bytes(std::span(bytes).first(199)), digest_bytes(bytes));
  const std::vector<std::byte> zeros(64);
  EXPECT_NE(digest_bytes(std::span(zeros).first(8)), digest_bytes(std::span(zeros).first(16)));
}

TEST(Digest, BoundariesBetweenStringsCount) {
  EXPECT_NE(Digest().add("ab").add("c").value(), Digest().add("a").add("bc").value());
  EXPECT_NE(Digest().add(std::uint64_t{1}).add(std::uint64_t{2}).value(),
            Digest().add(std::uint64_t{2}).add(std::uint64_t{1}).value());
}

}  // namespace
}  // namespace foretoken
