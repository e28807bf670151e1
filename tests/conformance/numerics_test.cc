// Known answers of the arithmetic that every build must reproduce bit for bit.
#include "kernels/include/numerics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace foretoken {
namespace {

void expect_words(
    const Philox4& got, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  EXPECT_EQ(got.word[0], a);
  EXPECT_EQ(got.word[1], b);
  EXPECT_EQ(got.word[2], c);
  EXPECT_EQ(got.word[3], d);
}

// The three vectors of Random123.
TEST(Philox, GivesThePublishedWords) {
  expect_words(philox(0, 0, 0, 0, 0, 0), 0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u);
  const std::uint32_t ones = 0xffffffffu;
  expect_words(philox(ones, ones, ones, ones, ones, ones), 0x408f276du, 0x41c83b0eu, 0xa20bc7c6u,
               0x6d5451fdu);
  expect_words(philox(0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u, 0xa4093822u, 0x299f31d0u),
               0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u);
}

TEST(Noise, GivesTheWordsAndGumbelsOfVersionOne) {
  const std::uint32_t words[] = {0x6d9c1d9eu, 0x6174d04bu, 0x53c585ceu, 0xc91e27cbu};
  const double gumbels[] = {0x1.29df395b8d2dap-1, 0x1.78b3e2cf83a52p-1, 0x1.d9d3ab0cd0486p-1,
                            -0x1.ba232ca87c892p-2};
  for (std::uint32_t i = 0; i < 4; ++i) {
    const std::uint32_t word = noise_word(0x0123456789abcdefu, 0, 100, 100 + i);
    EXPECT_EQ(word, words[i]);
    EXPECT_EQ(gumbel(word), gumbels[i]);
  }
  EXPECT_EQ(gumbel(0), 0x1.6dfb516f1cbbep+4);
  EXPECT_EQ(gumbel(0xffffffffu), -0x1.90a3aa159fe11p+1);
}

TEST(Noise, BoundIsNeverBelowTheGumbel) {
  std::mt19937 rng(20240601);
  for (int i = 0; i < 200000; ++i) {
    const auto word = static_cast<std::uint32_t>(i < 1000 ? static_cast<std::uint32_t>(i) : rng());
    EXPECT_LE(gumbel(word), static_cast<double>(gumbel_bound(word)) + 1e-4) << word;
  }
}

TEST(Noise, NeverRisesWithTheWord) {
  std::mt19937 rng(7);
  for (int i = 0; i < 100000; ++i) {
    const auto word = static_cast<std::uint32_t>(rng() & 0xfffffffeu);
    EXPECT_GE(gumbel(word), gumbel(word + 1));
  }
}

TEST(LogPoly, IsCloseToTheLibrary) {
  std::mt19937_64 rng(1);
  std::uniform_real_distribution<double> exponent(-700, 700);
  for (int i = 0; i < 100000; ++i) {
    const double x = std::exp(exponent(rng));
    EXPECT_NEAR(log_poly(x), std::log(x), 7e-12 + 4e-16 * std::fabs(std::log(x)));
  }
}

TEST(ExpPoly, IsWithinTwoUlpsAndZeroFarBelow) {
  std::mt19937_64 rng(2);
  std::uniform_real_distribution<double> any(-699, 699);
  for (int i = 0; i < 100000; ++i) {
    const double x = any(rng);
    EXPECT_NEAR(exp_poly(x) / std::exp(x), 1.0, 3 * std::numeric_limits<double>::epsilon()) << x;
  }
  EXPECT_EQ(exp_poly(0), 1.0);
  EXPECT_EQ(exp_poly(-701), 0.0);
  EXPECT_EQ(exp_poly(-std::numeric_limits<double>::infinity()), 0.0);
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(f32_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(1.00390625f), 0x3f80);  // halfway, down to even
  EXPECT_EQ(f32_to_bf16(1.01171875f), 0x3f82);  // halfway, up to even
  EXPECT_EQ(f32_to_bf16(3.4e38f), 0x7f80);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::nanf("")))));
  for (std::uint32_t h = 0; h < 0x10000u; ++h) {
    const float x = bf16_to_f32(static_cast<std::uint16_t>(h));
    if (std::isnan(x)) continue;
    EXPECT_EQ(f32_to_bf16(x), h);
  }
}

#if defined(__FLT16_MAX__)  // g++ has _Float16; the clang of clang-tidy does not
TEST(F16, AgreesWithTheCompiler) {
  for (std::uint32_t h = 0; h < 0x10000u; ++h) {
    const float x = f16_to_f32(static_cast<std::uint16_t>(h));
    const auto expected = static_cast<float>(bits_as<_Float16>(static_cast<std::uint16_t>(h)));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(x));
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(x))));
      continue;
    }
    EXPECT_EQ(x, expected);
    EXPECT_EQ(f32_to_f16(x), h);
  }
  std::mt19937 rng(3);
  for (int i = 0; i < 200000; ++i) {
    const float x = bits_as<float>(
        static_cast<std::uint32_t>(i % 2 == 0 ? rng() : 0x33000000u + rng() % 0x15000000u));
    if (std::isnan(x)) continue;
    EXPECT_EQ(f32_to_f16(x), bits_as<std::uint16_t>(static_cast<_Float16>(x))) << x;
  }
}
#endif

}  // namespace
}  // namespace foretoken
