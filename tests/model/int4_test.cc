#include "common/model/int4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "common/model/safetensors.h"
#include "kernels/include/numerics.h"
#include "kernels/include/types.h"
#include "tests/model/int4_rows.h"

namespace foretoken {
namespace {

using test::decoded;
using test::Int4Row;

struct Written {
  float scale = 0;
  std::vector<std::byte> row;
};

Written written(const std::vector<float>& values, std::int64_t group) {
  const auto n = static_cast<std::int64_t>(values.size());
  Written w;
  w.row.assign(static_cast<std::size_t>(row_bytes(DType::kI4, n, group)), std::byte{0xee});
  w.scale = quantise_row_to_int4(values, group, Int4Kind::kOffset, w.row.data()).value();
  return w;
}

double squared(double x) { return x * x; }

// What the nearest codes of a scale leave over.
double error_with(const std::vector<float>& values, std::size_t begin, std::size_t n, double s) {
  double error = 0;
  for (std::size_t i = begin; i < begin + n; ++i) {
    const double x = static_cast<double>(values[i]);
    error += squared(x - std::clamp(std::nearbyint(x / s), -8.0, 7.0) * s);
  }
  return error;
}

TEST(Int4, TheErrorIsTheLeastOfEightScales) {
  std::mt19937 random(5);
  for (const std::int64_t group : kInt4Groups)
    for (const float size : {1.0f, 0.02f, 1e-6f, 1e-30f, 1e30f})
      for (const std::size_t n : {1u, 31u, 128u, 300u}) {
        SCOPED_TRACE(testing::Message() << group << " " << size << " " << n);
        std::normal_distribution<float> normal(0, size);
        std::vector<float> values(n);
        for (float& x : values) x = normal(random);
        const Written w = written(values, group);
        int exponent = 0;
        EXPECT_EQ(std::frexp(w.scale, &exponent), 0.5f) << "a power of two";
        const Int4Row d = decoded(w.row, static_cast<std::int64_t>(n), group, w.scale);
        for (std::size_t g = 0; g < d.scales.size(); ++g) {
          const std::size_t begin = g * static_cast<std::size_t>(group),
                            some = std::min(static_cast<std::size_t>(group), n - begin);
          double got = 0, extreme = 0;
          for (std::size_t i = begin; i < begin + some; ++i) {
            got += squared(static_cast<double>(values[i]) - d.values[i]);
            if (std::fabs(values[i]) > std::fabs(extreme)) extreme = static_cast<double>(values[i]);
          }
          // Codes are chosen in float32, scales are float16: 2^-11 of a scale moves an error by
          // no more than that share of what a code can be off by.
          double least = 1e300;
          for (const double factor : {1.06, 1.01, 0.96, 0.91, 0.86, 0.81, 0.76, 0.71})
            least = std::min(least, error_with(values, begin, some, extreme / -8 * factor));
          const double doubt = squared(extreme) * 0x1p-9 * static_cast<double>(some) / 16;
          EXPECT_LE(got, least + doubt);
          EXPECT_LE(got, error_with(values, begin, some, d.scales[g]) + doubt);
        }
      }
}

TEST(Int4, TheLastGroupIsFilledUpWithZeros) {
  const Written w = written(std::vector<float>(33, 1.0f), 32);
  const Int4Row d = decoded(w.row, 33, 32, w.scale);
  EXPECT_THAT(std::vector<int>(d.codes.begin() + 33, d.codes.end()), testing::Each(8));
  EXPECT_EQ(d.scales.size(), 2u);
}

TEST(Int4, MultiplesOfAScaleKeepTheirCodes) {
  std::vector<float> values;
  for (int i = 0; i < 32; ++i) values.push_back(0.25f * static_cast<float>(i % 16 - 8));
  const Written w = written(values, 32);
  // 1.01 times and 0.96 times an eighth of the largest are candidates, an eighth is none: near it.
  const Int4Row d = decoded(w.row, 32, 32, w.scale);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(d.codes[i], static_cast<int>(i % 16));
}

TEST(Int4, RowsOfZerosAndOfTheSmallestNumbersStayFinite) {
  for (const float value : {0.0f, -0.0f, 1e-45f, 1.2e-38f, 3.4e38f, -3.4e38f}) {
    SCOPED_TRACE(value);
    const Written w = written(std::vector<float>(40, value), 32);
    // The nearest of the eight scales is 1.01 times the best one; the least scale is the least
    // float, beside which the least values become zero.
    for (const double x : decoded(w.row, 40, 32, w.scale).values)
      EXPECT_NEAR(x, static_cast<double>(value),
                  std::fabs(static_cast<double>(value)) / 64 + 8 * 0x1p-149);
  }
}

TEST(Int4, WhatIsNoNumberHasNoCode) {
  std::vector<std::byte> room(static_cast<std::size_t>(row_bytes(DType::kI4, 40, 32)));
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    std::vector<float> row(40, 1.0f);
    row[39] = bad;
    EXPECT_FALSE(quantise_row_to_int4(row, 32, Int4Kind::kOffset, room.data()));
  }
}

// The scale is the best one, of the eight, for the columns that count: here for one alone, of which
// each scale has another error.
TEST(Int4, ScalesAreChosenForTheColumnsThatCount) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> values(32);
  for (float& x : values) x = normal(random);
  const auto error_at = [&](std::size_t column, std::span<const float> importance) {
    std::vector<std::uint8_t> codes(values.size());
    std::vector<float> scales(1);
    EXPECT_TRUE(quantise_groups(values, {.group = 32, .importance = importance}, codes, scales));
    return std::fabs(static_cast<double>(values[column]) -
                     (codes[column] - 8) * static_cast<double>(scales[0]));
  };
  double extreme = 0;
  for (const float x : values)
    if (std::fabs(static_cast<double>(x)) > std::fabs(extreme)) extreme = static_cast<double>(x);
  int n_better = 0;
  for (std::size_t column = 0; column < values.size(); ++column) {
    std::vector<float> importance(values.size());
    importance[column] = 2.5f;
    double least = 1e300;
    for (const double factor : {1.06, 1.01, 0.96, 0.91, 0.86, 0.81, 0.76, 0.71}) {
      const double scale = extreme / -8 * factor, x = static_cast<double>(values[column]);
      const double code = std::clamp(std::nearbyint(x / scale), -8.0, 7.0);
      least = std::min(least, std::fabs(x - code * scale));
    }
    // A scale has eleven bits: its code, of 8 at most, is as far off.
    EXPECT_LE(error_at(column, importance), least + 8 * std::fabs(extreme) / 8 * 0x1p-11);
    n_better += error_at(column, importance) < error_at(column, {});
    const std::vector<float> nothing(values.size());
    EXPECT_EQ(error_at(column, nothing), error_at(column, {}));
  }
  EXPECT_GT(n_better, 16);
}

// What a file can hold is chosen among, so that all who read it compute with the same weights.
TEST(Int4, ScalesAreThoseOfTheTypeTheyAreStoredIn) {
  std::mt19937 random(6);
  for (const float size : {1.0f, 0.02f, 1e4f}) {
    std::normal_distribution<float> normal(0, size);
    std::vector<float> values(300);
    for (float& x : values) x = normal(random);
    for (const DType type : {DType::kBf16, DType::kF16, DType::kF32}) {
      SCOPED_TRACE(testing::Message() << size << " " << dtype_name(type));
      std::vector<std::uint8_t> codes(values.size());
      std::vector<float> scales(10);
      ASSERT_TRUE(quantise_groups(values, {.group = 32, .scale_type = type}, codes, scales));
      for (const float scale : scales) {
        const float held = type == DType::kBf16  ? bf16_to_f32(f32_to_bf16(scale))
                           : type == DType::kF16 ? f16_to_f32(f32_to_f16(scale))
                                                 : scale;
        EXPECT_EQ(scale, held);
      }
      for (std::size_t g = 0; g < scales.size(); ++g) {
        const std::size_t begin = g * 32, some = std::min<std::size_t>(32, values.size() - begin);
        double got = 0, extreme = 0, least = 1e300;
        for (std::size_t i = begin; i < begin + some; ++i) {
          got += squared(static_cast<double>(values[i]) -
                         (codes[i] - 8) * static_cast<double>(scales[g]));
          if (std::fabs(values[i]) > std::fabs(extreme)) extreme = static_cast<double>(values[i]);
        }
        for (const double factor : {1.06, 1.01, 0.96, 0.91, 0.86, 0.81, 0.76, 0.71})
          least = std::min(least, error_with(values, begin, some, extreme / -8 * factor));
        // bfloat16 moves a scale by 2^-9 of it.
        EXPECT_LE(got, least + squared(extreme) * 0x1p-7 * static_cast<double>(some) / 16);
      }
    }
  }
}

TEST(Int4, ARowOfAFileKeepsCodesAndScales) {
  std::mt19937 random(7);
  for (const std::int64_t group : kInt4Groups)
    for (const std::size_t n : {8u, 64u, 136u, 300u}) {
      const auto n_groups =
          static_cast<std::size_t>(int4_groups_of(static_cast<std::int64_t>(n), group));
      std::vector<std::uint8_t> codes(n);
      for (auto& code : codes) code = static_cast<std::uint8_t>(random() % 16);
      std::vector<float> scales(n_groups);
      for (float& scale : scales)  // of bfloat16, 2^12 apart
        scale = bf16_to_f32(f32_to_bf16(std::ldexp(1.0f + static_cast<float>(random() % 128) / 128,
                                                   -static_cast<int>(random() % 12) - 20)));
      std::vector<std::byte> row(
          static_cast<std::size_t>(row_bytes(DType::kI4, static_cast<std::int64_t>(n), group)));
      const float unit = write_int4_row(codes, scales, {}, group, row.data());
      const Int4Row d = decoded(row, static_cast<std::int64_t>(n), group, unit);
      for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(d.codes[i], codes[i]);
      for (std::size_t g = 0; g < n_groups; ++g)
        EXPECT_EQ(d.scales[g], static_cast<double>(scales[g]));
    }
}

TEST(Int4, ARowKeepsItsZeroPointsBehindItsScales) {
  const std::vector<std::uint8_t> codes(70, 11), zeros{0, 15, 6};
  const std::vector<float> scales{1.0f, 0.5f, 2.0f};
  std::vector<std::byte> row(
      static_cast<std::size_t>(row_bytes(DType::kI4, 70, 32, Int4Kind::kZeroPoints)),
      std::byte{0xee});
  EXPECT_EQ(row.size(), 3u * 16 + 3 * 2 + 3);
  const float unit = write_int4_row(codes, scales, zeros, 32, row.data());
  const Int4Row d = decoded(row, 70, 32, unit, Int4Kind::kZeroPoints);
  EXPECT_EQ(d.values[0], 11);
  EXPECT_EQ(d.values[32], -2);
  EXPECT_EQ(d.values[69], 10);
}

TEST(Int4, WhatIsQuantisedAmongZeroPointsHasThemAt8) {
  const std::vector<float> values{1.0f, -2.0f, 0.5f, 0.25f};
  std::vector<std::byte> row(
      static_cast<std::size_t>(row_bytes(DType::kI4, 4, 32, Int4Kind::kZeroPoints)));
  const float scale = quantise_row_to_int4(values, 32, Int4Kind::kZeroPoints, row.data()).value();
  const Written symmetric = written(values, 32);
  EXPECT_EQ(scale, symmetric.scale);
  EXPECT_EQ(row.back(), std::byte{8});
  row.pop_back();
  EXPECT_EQ(row, symmetric.row);
}

TEST(Int4, TheTableHasTheFloatsOfTwoBitsOfExponentAndOneOfMantissa) {
  for (int code = 0; code < 16; ++code)
    EXPECT_EQ(kE2m1Table[static_cast<std::size_t>(code)], test::twice_e2m1(code)) << code;
}

// In the scale that the search chose, whatever it is.
TEST(Int4, FloatsOfFourBitsAreTheNearestOnes) {
  std::vector<float> values{12};
  for (int i = 0; i < 31; ++i) values.push_back(12.0f - 0.77f * static_cast<float>(i));
  const std::int64_t n = std::ssize(values);
  std::vector<std::byte> row(static_cast<std::size_t>(row_bytes(DType::kI4, n, 32)));
  const auto unit = quantise_row_to_int4(values, 32, Int4Kind::kE2m1, row.data());
  ASSERT_TRUE(unit.has_value());
  const Int4Row d = decoded(row, n, 32, *unit, Int4Kind::kE2m1);
  EXPECT_GT(d.scales[0], 0.7);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = static_cast<double>(values[i]) / d.scales[0];
    double least = 100;
    for (const std::int8_t value : kE2m1Table) least = std::min(least, std::fabs(value - x));
    EXPECT_NEAR(std::fabs(d.values[i] / d.scales[0] - x), least, 1e-5) << i;
  }
}

struct Quantised {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
};

Quantised quantised(const std::vector<float>& values, std::int64_t group, Int4Kind kind) {
  Quantised q{std::vector<std::uint8_t>(values.size()),
              std::vector<float>(static_cast<std::size_t>(
                  int4_groups_of(static_cast<std::int64_t>(values.size()), group)))};
  EXPECT_TRUE(quantise_groups(values, {.group = group, .kind = kind}, q.codes, q.scales));
  return q;
}

double squared_error(const std::vector<float>& values,
                     std::int64_t group,
                     Int4Kind kind,
                     const Quantised& q) {
  std::vector<float> weights(values.size());
  dequantise_int4(q.codes, 0, {.size = group, .scales = q.scales, .kind = kind}, weights);
  double error = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    error += squared(static_cast<double>(values[i]) - static_cast<double>(weights[i]));
  return error;
}

TEST(Int4, TheTableOfNonUniformValuesAscendsAndHasZeroAtTheCodeThatFillsUp) {
  for (std::size_t code = 0; code < 16; ++code)
    EXPECT_EQ(kNonUniformTable[code], test::kNonUniform[code]);
  EXPECT_TRUE(std::ranges::is_sorted(kNonUniformTable, std::ranges::less_equal{}));
  EXPECT_EQ(kNonUniformTable[8], 0);
}

TEST(Int4, NonUniformValuesAreTheNearestOnes) {
  std::mt19937 random(11);
  for (const std::int64_t group : kInt4Groups) {
    std::normal_distribution<float> normal(0, 0.3f);
    std::vector<float> values(1280);
    for (float& x : values) x = normal(random);
    const Quantised q = quantised(values, group, Int4Kind::kNonUniform);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double x = static_cast<double>(values[i]) /
                       static_cast<double>(q.scales[i / static_cast<std::size_t>(group)]);
      double least = 100;
      for (const int value : test::kNonUniform) least = std::min(least, std::fabs(value - x));
      ASSERT_NEAR(std::fabs(test::kNonUniform[q.codes[i]] - x), least, 1e-5) << group << " " << i;
    }
  }
}

// A group whose scale is exactly 1: it holds what the table holds, and what lies between is too
// little to move the scale by half of its last bit.
TEST(Int4, HalfwayBetweenNonUniformValuesIsTheLargerOne) {
  std::vector<float> values(test::kNonUniform.begin(), test::kNonUniform.end());
  values.insert(values.end(), {-1.5f, -0.5f, 0.5f, 2.0f, std::nextafter(0.5f, 0.0f)});
  values.resize(128, -17);
  const Quantised q = quantised(values, 128, Int4Kind::kNonUniform);
  ASSERT_EQ(q.scales[0], 1);
  for (std::uint8_t code = 0; code < 16; ++code) EXPECT_EQ(q.codes[code], code);
  EXPECT_THAT(std::vector<int>(q.codes.begin() + 16, q.codes.begin() + 21),
              testing::ElementsAre(7, 8, 9, 10, 8));
}

// By how much: docs/adr/0037-non-uniform-values-of-four-bits.md. It is least in groups of 32: over
// samples of so many values the quotient is 0.9425 with a standard deviation of 0.0043, of which
// the bound is six away.
TEST(Int4, NonUniformValuesLeaveLessErrorThanUniformOnes) {
  std::mt19937 random(12);
  for (const std::int64_t group : kInt4Groups) {
    std::normal_distribution<float> normal(0, 0.02f);
    std::vector<float> values(128000);
    for (float& x : values) x = normal(random);
    const auto error = [&](Int4Kind kind) {
      return squared_error(values, group, kind, quantised(values, group, kind));
    };
    EXPECT_LT(error(Int4Kind::kNonUniform), 0.97 * error(Int4Kind::kOffset)) << group;
  }
}

// What the nearest values of the table leave over of a group with this scale.
double non_uniform_error(const std::vector<float>& values, double scale) {
  double error = 0;
  for (const float x : values) {
    double nearest = 1e300;
    for (const int value : test::kNonUniform)
      nearest = std::min(nearest, std::fabs(value * scale - static_cast<double>(x)));
    error += squared(nearest);
  }
  return error;
}

// For its codes no scale has less error than the computed one, so none of the three that codes are
// made for has. Its rounding to eleven bits adds at most 2^-22 of the squares, and sums of 24 bits
// at most 2^-19. Beside the best of all scales from half of to 1.2 times what has the largest value
// at the table's end: over so many groups the quotient is 1.0375 with a standard deviation of
// 0.0026, of which the bound is almost five away.
TEST(Int4, ThreeScalesAreEnoughForNonUniformValues) {
  std::mt19937 random(13);
  std::normal_distribution<float> normal(0, 1);
  double got = 0, least_of_all = 0;
  for (int n = 0; n < 500; ++n) {
    std::vector<float> values(32);
    for (float& x : values) x = normal(random);
    const Quantised q = quantised(values, 32, Int4Kind::kNonUniform);
    const double error = squared_error(values, 32, Int4Kind::kNonUniform, q);
    double extreme = 0, squares = 0, least = 1e300;
    for (const float x : values) {
      if (std::fabs(x) > std::fabs(extreme)) extreme = static_cast<double>(x);
      squares += squared(static_cast<double>(x));
    }
    for (const double factor : {1.05, 0.92, 0.8})
      EXPECT_LE(error, non_uniform_error(values, extreme / -17 * factor) + 0x1p-18 * squares);
    for (int percent = 50; percent <= 120; ++percent)
      least = std::min(least, non_uniform_error(values, extreme / -17 * percent / 100));
    got += error;
    least_of_all += least;
  }
  EXPECT_LE(got, 1.05 * least_of_all);
}

template <class T>
std::vector<T> tensor_of(const SafetensorsFile& file, const std::string& name) {
  for (const TensorInfo& info : file.tensors()) {
    if (info.name != name) continue;
    std::vector<T> values(info.n_elements());
    std::memcpy(values.data(), file.bytes(info).data(), values.size() * sizeof(T));
    return values;
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

// A row in which other factors, and another table, would change something (make_int4_rows.py).
TEST(Int4, NonUniformValuesAreThoseOfTheReference) {
  const SafetensorsFile golden(std::filesystem::path(FORETOKEN_SOURCE_DIR) /
                               "tests/fixtures/int4/non_uniform.safetensors");
  const auto values = tensor_of<float>(golden, "values");
  const std::int64_t n = std::ssize(values);
  for (const std::int64_t group : kInt4Groups) {
    SCOPED_TRACE(group);
    const std::string of_group = "/" + std::to_string(group);
    std::vector<std::byte> row(static_cast<std::size_t>(row_bytes(DType::kI4, n, group)));
    const auto scale = quantise_row_to_int4(values, group, Int4Kind::kNonUniform, row.data());
    ASSERT_TRUE(scale.has_value());
    EXPECT_EQ(std::vector{*scale}, tensor_of<float>(golden, "row_scale" + of_group));
    const Int4Row d = decoded(row, n, group, *scale, Int4Kind::kNonUniform);
    const auto codes = tensor_of<std::uint8_t>(golden, "codes" + of_group);
    EXPECT_EQ(std::vector<int>(d.codes.begin(), d.codes.begin() + n),
              std::vector<int>(codes.begin(), codes.end()));
    std::vector<std::uint16_t> halves(static_cast<std::size_t>(int4_groups_of(n, group)));
    std::memcpy(halves.data(), row.data() + int4_code_bytes(n, group), 2 * halves.size());
    EXPECT_EQ(halves, tensor_of<std::uint16_t>(golden, "scales" + of_group));
  }
}

TEST(Int4, NonUniformValuesOfANegatedRowHaveTheSameCodes) {
  std::mt19937 random(14);
  std::normal_distribution<float> normal(0, 5);
  std::vector<float> values(300), negated(300);
  for (float& x : values) x = normal(random);
  std::ranges::transform(values, negated.begin(), std::negate<>{});
  const Quantised q = quantised(values, 64, Int4Kind::kNonUniform),
                  n = quantised(negated, 64, Int4Kind::kNonUniform);
  for (std::size_t g = 0; g < q.scales.size(); ++g) EXPECT_EQ(q.scales[g], -n.scales[g]);
  EXPECT_EQ(q.codes, n.codes);
}

TEST(Int4, NonUniformValuesOfZerosAndOfTheSmallestNumbersStayFinite) {
  for (const float value : {0.0f, -0.0f, 1e-45f, 1.2e-38f, 3.4e38f, -3.4e38f}) {
    SCOPED_TRACE(value);
    const std::vector<float> values(40, value);
    std::vector<std::byte> row(static_cast<std::size_t>(row_bytes(DType::kI4, 40, 32)));
    const auto scale = quantise_row_to_int4(values, 32, Int4Kind::kNonUniform, row.data());
    ASSERT_TRUE(scale.has_value());
    // A scale has eleven bits; the least one is the least float, beside which the least values
    // become zero.
    for (const double x : decoded(row, 40, 32, *scale, Int4Kind::kNonUniform).values)
      EXPECT_NEAR(x, static_cast<double>(value),
                  std::fabs(static_cast<double>(value)) * 0x1p-10 + 17 * 0x1p-149);
  }
}

TEST(Int4, WordsHaveEightCodesTheFirstInTheLowestBits) {
  const std::vector<std::uint8_t> codes{1, 2, 3, 4, 5, 6, 7, 8, 15, 0, 9};
  std::vector<std::byte> words(8);
  pack_int4_words(codes, words);
  std::uint32_t numbers[2];
  std::memcpy(numbers, words.data(), sizeof numbers);
  EXPECT_EQ(numbers[0], 0x87654321u);
  EXPECT_EQ(numbers[1], 0x90fu);
  std::vector<std::uint8_t> back(codes.size());
  unpack_int4_words(words, back);
  EXPECT_EQ(back, codes);
}

TEST(Int4, EmbeddingHeadAndEvenlySpacedDownProjectionsAreHeldInEightBits) {
  for (const Int4Kind kind :
       {Int4Kind::kOffset, Int4Kind::kZeroPoints, Int4Kind::kE2m1, Int4Kind::kNonUniform}) {
    EXPECT_TRUE(is_held_in_int4("model.layers.3.self_attn.o_proj.weight", kind));
    EXPECT_TRUE(is_held_in_int4("model.layers.0.mlp.gate_proj.weight", kind));
    EXPECT_FALSE(is_held_in_int4("model.embed_tokens.weight", kind));
    EXPECT_FALSE(is_held_in_int4("lm_head.weight", kind));
    EXPECT_EQ(is_held_in_int4("model.layers.0.mlp.down_proj.weight", kind),
              kind == Int4Kind::kNonUniform);
  }
}

TEST(Int4, LargeModelsHaveLargerGroupsWhereTheirRowsAreWholeOnes) {
  ModelConfig config{.n_layers = 2,
                     .n_hidden = 256,
                     .n_heads = 4,
                     .n_kv_heads = 2,
                     .head_dim = 64,
                     .n_ffn = 512,
                     .vocab_size = 1000};
  EXPECT_EQ(int4_group(config, true), 32);
  config.vocab_size = 4000000;  // 256 times that is more than 1e9
  EXPECT_EQ(int4_group(config, true), 128);
  config.n_ffn = 480;
  EXPECT_EQ(int4_group(config, true), 32);
  EXPECT_EQ(int4_group(config, false), 128);
  config.n_ffn = 512;
  config.n_hidden = 320;
  EXPECT_EQ(int4_group(config, true), 64);
  config.n_hidden = 328;
  EXPECT_EQ(int4_group(config, true), 32);
}

}  // namespace
}  // namespace foretoken
