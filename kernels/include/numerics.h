// Arithmetic that must have the same bits everywhere: Philox noise, its logarithm, exponentials,
// 16-bit floats. Only correctly rounded add, multiply, fma and conversions; no library call decides
// a bit. Host and CUDA compile this file. Everything is forced inline: a copy compiled for one
// instruction set must never be the one another file links to.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define FORETOKEN_HD __host__ __device__ __forceinline__
#else
#define FORETOKEN_HD __attribute__((always_inline)) inline
#endif

namespace foretoken {

inline constexpr int kNoiseVersion = 1;

template <class To, class From>
FORETOKEN_HD To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}

FORETOKEN_HD double fma64(double a, double b, double c) { return __builtin_fma(a, b, c); }
FORETOKEN_HD float fma32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// --- Philox4x32-10
// -------------------------------------------------------------------------------------------------

struct Philox4 {
  std::uint32_t word[4];
};

FORETOKEN_HD Philox4 philox(std::uint32_t c0,
                            std::uint32_t c1,
                            std::uint32_t c2,
                            std::uint32_t c3,
                            std::uint32_t k0,
                            std::uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// What a word of noise is for. Words of different domains never meet.
enum class NoiseDomain : std::uint32_t { kTarget = 0 };

FORETOKEN_HD std::uint32_t noise_word(std::uint64_t seed,
                                      std::uint32_t choice,
                                      std::uint32_t position,
                                      std::uint32_t id,
                                      NoiseDomain domain = NoiseDomain::kTarget) {
  return philox(id >> 2, position, choice, static_cast<std::uint32_t>(domain),
                static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32))
      .word[id & 3];
}

// --- Logarithm, Gumbel noise, score
// --------------------------------------------------------------------------------

// Natural logarithm of a positive normal number, within about 7e-12.
FORETOKEN_HD double log_poly(double x) {
  const std::int64_t b = bits_as<std::int64_t>(x);
  const std::int64_t k = (b - 0x3FE6A09E667F3BCD) >> 52;  // arithmetic shift
  const double f = bits_as<double>(b - k * (std::int64_t{1} << 52)) - 1.0;
  double q = -0x1.8e19896e9415fp-5;
  q = fma64(q, f, 0x1.736ddf636ad9bp-4);
  q = fma64(q, f, -0x1.79dadfb6e7fc9p-4);
  q = fma64(q, f, 0x1.72486dd2aa993p-4);
  q = fma64(q, f, -0x1.9595ac5990e11p-4);
  q = fma64(q, f, 0x1.c6f00215b91d9p-4);
  q = fma64(q, f, -0x1.0018f07ce1289p-3);
  q = fma64(q, f, 0x1.249408b273046p-3);
  q = fma64(q, f, -0x1.5554c939e6e03p-3);
  q = fma64(q, f, 0x1.9999907fdc231p-3);
  q = fma64(q, f, -0x1.00000092d2b44p-2);
  q = fma64(q, f, 0x1.5555555b184ecp-2);
  q = fma64(q, f, -0x1.ffffffffcc90fp-2);
  return fma64(f, fma64(f, q, 1.0), static_cast<double>(k) * 0x1.62e42fefa39efp-1);
}

// A word as a number in (0, 1): t = 1 - u with u = (word + 1/2) * 2^-32, exact.
FORETOKEN_HD double uniform_complement(std::uint32_t word) {
  return static_cast<double>((std::int64_t{1} << 33) - 1 - 2 * static_cast<std::int64_t>(word)) *
         0x1p-33;
}

FORETOKEN_HD double gumbel(std::uint32_t word) {
  return -log_poly(-log_poly(uniform_complement(word)));
}

// Never below gumbel(word) by more than fp32 rounding: E >= u, hence G <= -ln u, read from the
// exponent of u as float.
FORETOKEN_HD float gumbel_bound(std::uint32_t word) {
  const float y = static_cast<float>(static_cast<std::int32_t>(word >> 1));
  const float i = static_cast<float>(bits_as<std::int32_t>(y));
  return 0.69314718f * (158.0f - i * 0x1p-23f);
}

// The number whose maximum over ids (ties to the smaller id) is the token.
FORETOKEN_HD double noisy_score(float logit, double inverse_temperature, std::uint32_t word) {
  return fma64(static_cast<double>(logit), inverse_temperature, gumbel(word));
}

// --- Exponentials
// --------------------------------------------------------------------------------------------------

// e^x for x <= 700; below -700 zero. Error under 2 ulp.
FORETOKEN_HD double exp_poly(double x) {
  const double clamped = x < -700.0 ? -700.0 : (x > 700.0 ? 700.0 : x);
  const double magic = 0x1.8p52;  // adding it leaves the nearest integer in the low bits
  const double shifted = fma64(clamped, 0x1.71547652b82fep0, magic);
  const double n = shifted - magic;
  double r =
      fma64(n, -0x1.62e42fefa0000p-1, clamped);  // ln 2 in two parts; n times the first is exact
  r = fma64(n, -0x1.cf79abc9e3b3ap-40, r);
  double p = 0x1.6124613a86d09p-33;  // 1/13!
  p = fma64(p, r, 0x1.1eed8eff8d898p-29);
  p = fma64(p, r, 0x1.ae64567f544e4p-26);
  p = fma64(p, r, 0x1.27e4fb7789f5cp-22);
  p = fma64(p, r, 0x1.71de3a556c734p-19);
  p = fma64(p, r, 0x1.a01a01a01a01ap-16);
  p = fma64(p, r, 0x1.a01a01a01a01ap-13);
  p = fma64(p, r, 0x1.6c16c16c16c17p-10);
  p = fma64(p, r, 0x1.1111111111111p-7);
  p = fma64(p, r, 0x1.5555555555555p-5);
  p = fma64(p, r, 0x1.5555555555555p-3);
  p = fma64(p, r, 0.5);
  p = fma64(p, r, 1.0);
  p = fma64(p, r, 1.0);
  const std::uint64_t scaled = bits_as<std::uint64_t>(p) + (bits_as<std::uint64_t>(shifted) << 52);
  const double y = bits_as<double>(scaled);
  return x < -700.0 ? 0.0 : y;
}

// --- 16-bit floats
// -------------------------------------------------------------------------------------------------

FORETOKEN_HD float bf16_to_f32(std::uint16_t h) {
  return bits_as<float>(static_cast<std::uint32_t>(h) << 16);
}

// To nearest, ties to even; a NaN stays a NaN.
FORETOKEN_HD std::uint16_t f32_to_bf16(float x) {
  const std::uint32_t u = bits_as<std::uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40u);
  return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

FORETOKEN_HD float f16_to_f32(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t rest = static_cast<std::uint32_t>(h & 0x7fffu);
  if (rest >= 0x7c00u) {  // infinity; a NaN becomes quiet, as the instruction does
    const std::uint32_t quiet = rest > 0x7c00u ? 0x400000u : 0u;
    return bits_as<float>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13) | quiet);
  }
  if (rest < 0x400u)  // subnormal: an integer number of 2^-24
    return bits_as<float>(sign | bits_as<std::uint32_t>(static_cast<float>(rest) * 0x1p-24f));
  return bits_as<float>(sign | ((rest << 13) + 0x38000000u));
}

// To nearest, ties to even; beyond 65504 to infinity.
FORETOKEN_HD std::uint16_t f32_to_f16(float x) {
  const std::uint32_t u = bits_as<std::uint32_t>(x);
  const std::uint32_t sign = (u >> 16) & 0x8000u;
  const std::uint32_t rest = u & 0x7fffffffu;
  if (rest > 0x7f800000u)
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((rest >> 13) & 0x3ffu));
  if (rest >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (rest < 0x38800000u) {  // result subnormal: let one addition round to a multiple of 2^-24
    const float rounded = bits_as<float>(rest) + 0.5f;
    return static_cast<std::uint16_t>(sign | (bits_as<std::uint32_t>(rounded) - 0x3f000000u));
  }
  const std::uint32_t even = rest + 0xfffu + ((rest >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((even - 0x38000000u) >> 13));
}

// --- 8-bit floats, E4M3: no infinity, NaN is 0x7f and 0xff, largest 448
// -------------------------------------------------------------------------------------------------

FORETOKEN_HD bool e4m3_is_nan(std::uint8_t code) { return (code & 0x7fu) == 0x7fu; }

// The half with the same bits shifted is 2^-8 times the number, subnormals included.
FORETOKEN_HD float e4m3_to_f32(std::uint8_t code) {
  const auto half = static_cast<std::uint16_t>(((code & 0x80u) << 8) | ((code & 0x7fu) << 7));
  return e4m3_is_nan(code) ? bits_as<float>(0x7fc00000u) : f16_to_f32(half) * 256.0f;
}

// To nearest even; beyond 448 the largest, a NaN stays one.
FORETOKEN_HD std::uint8_t f32_to_e4m3(float x) {
  const auto bits = bits_as<std::uint32_t>(x);
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint8_t>(sign | 0x7fu);
  if (magnitude >= 0x43e00000u) return static_cast<std::uint8_t>(sign | 0x7eu);  // 448
  if (magnitude < 0x3c800000u) {  // below 2^-6: steps of 2^-9; adding 2^14 leaves their count below
    const auto sum = bits_as<std::uint32_t>(bits_as<float>(magnitude) + 16384.0f);
    return static_cast<std::uint8_t>(sign | (sum - 0x46800000u));
  }
  const std::uint32_t even = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);  // 20 bits go
  const std::uint32_t code = (even - 0x3c000000u) >> 20;  // exponent 2^-6 becomes 1: 121 - 1 = 120
  return static_cast<std::uint8_t>(sign | (code > 0x7eu ? 0x7eu : code));
}

// Four codes of a word as two pairs of halves of 2^-8 times their value.
FORETOKEN_HD void e4m3_to_small_halves(std::uint32_t codes,
                                       std::uint32_t& low,
                                       std::uint32_t& high) {
  const std::uint32_t even = (codes & 0xffu) << 8 | (codes & 0xff00u) << 16;
  const std::uint32_t odd = (codes & 0xff0000u) >> 8 | (codes & 0xff000000u);
  low = (even & 0x80008000u) | (even & 0x7f007f00u) >> 1;
  high = (odd & 0x80008000u) | (odd & 0x7f007f00u) >> 1;
}

// Four 8-bit integers of a word as two pairs of halves of 1152 plus their value: the last bit of a
// half between 1024 and 2048 is one.
FORETOKEN_HD void i8_to_large_halves(std::uint32_t codes, std::uint32_t& low, std::uint32_t& high) {
  const std::uint32_t biased = codes ^ 0x80808080u;
  low = (biased & 0xffu) | (biased & 0xff00u) << 8 | 0x64006400u;
  high = (biased & 0xff0000u) >> 16 | (biased & 0xff000000u) >> 8 | 0x64006400u;
}

}  // namespace foretoken
