// Functions of one row: norm, conversions of activations, SwiGLU, and what choosing a token needs.
// Included by isa_*.cc.
#pragma once

FT_INLINE Simd::V exp_lanes(Simd::V x) {  // relative error about 1e-7; zero below -87
  const Simd::V low = Simd::set1(-87.0f);
  const Simd::V y = Simd::max(
      Simd::sub(Simd::zero(), Simd::max(Simd::sub(Simd::zero(), x), Simd::set1(-88.0f))), low);
  const Simd::V magic = Simd::set1(0x1.8p23f);
  const Simd::V shifted = Simd::add(Simd::mul(y, Simd::set1(0x1.715476p0f)), magic);
  const Simd::V n = Simd::sub(shifted, magic);
  Simd::V r =
      Simd::fma(n, Simd::set1(-0x1.62e4p-1f), y);  // ln 2 in two parts; n times the first is exact
  r = Simd::fma(n, Simd::set1(-0x1.7f7d1cp-20f), r);
  Simd::V p = Simd::set1(0x1.6c16c2p-10f);  // 1/6!
  p = Simd::fma(p, r, Simd::set1(0x1.111112p-7f));
  p = Simd::fma(p, r, Simd::set1(0x1.555556p-5f));
  p = Simd::fma(p, r, Simd::set1(0x1.555556p-3f));
  p = Simd::fma(p, r, Simd::set1(0.5f));
  p = Simd::fma(p, r, Simd::set1(1.0f));
  p = Simd::fma(p, r, Simd::set1(1.0f));
  return Simd::zero_if_below(Simd::scale(p, shifted), x, -87.0f);
}

FT_INLINE Simd::V load_up_to(const float* p, std::int64_t n) {
  return n >= 16 ? Simd::load(p) : Simd::load_n(p, n);
}
FT_INLINE void store_up_to(float* p, Simd::V v, std::int64_t n) {
  if (n >= 16)
    Simd::store(p, v);
  else
    Simd::store_n(p, v, n);
}

void rms_norm(const float* x, const float* norm, float eps, std::int64_t n, float* out) {
  Simd::V s0 = Simd::zero(), s1 = Simd::zero();
  for (std::int64_t i = 0; i < n; i += 32) {
    const Simd::V a = load_up_to(x + i, n - i);
    s0 = Simd::fma(a, a, s0);
    if (i + 16 >= n) break;
    const Simd::V b = load_up_to(x + i + 16, n - i - 16);
    s1 = Simd::fma(b, b, s1);
  }
  const float mean = Simd::lane_sum(Simd::add(s0, s1)) / static_cast<float>(n);
  const Simd::V scale = Simd::set1(1.0f / __builtin_sqrtf(mean + eps));
  for (std::int64_t i = 0; i < n; i += 16) {
    const Simd::V y =
        Simd::mul(Simd::mul(load_up_to(x + i, n - i), scale), load_up_to(norm + i, n - i));
    store_up_to(out + i, y, n - i);
  }
}

void to_bf16(const float* x, std::int64_t n, std::uint16_t* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = f32_to_bf16(x[i]);
}

float max_of(const float* x, std::int64_t n) {
  const float least = -__builtin_inff();
  Simd::V m = Simd::set1(least);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) m = Simd::max(Simd::load(x + i), m);
  float best = Simd::lane_max(m);
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

// A group with an infinity or a NaN has no scale: its products become NaN, as they would in
// floating point.
RowGroup group_to_i8(const float* x, std::int64_t n, std::int8_t* out) {
  // Bits of magnitudes order like the magnitudes, infinities and NaNs last.
  std::uint32_t highest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = bits_as<std::uint32_t>(x[i]) & 0x7fffffffu;
    highest = magnitude > highest ? magnitude : highest;
  }
  const float largest = bits_as<float>(highest);
  const bool finite = highest < 0x7f800000u;
  const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
  if (!finite || !(inverse < __builtin_inff())) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = 0;
    return {finite ? largest / 127.0f : __builtin_nanf(""), 0};
  }
  std::int32_t sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const float rounded = (x[i] * inverse + 0x1.8p23f) - 0x1.8p23f;
    const std::int32_t code = static_cast<std::int32_t>(rounded);
    out[i] = static_cast<std::int8_t>(code);
    sum += code;
  }
  return {largest / 127.0f, -128 * sum};
}

void to_i8(const float* x, std::int64_t n, int group, std::int8_t* out, RowGroup* groups) {
  std::int64_t i = 0;
  for (; i + group <= n; i += group) *groups++ = group_to_i8(x + i, group, out + i);
  if (i < n) *groups = group_to_i8(x + i, n - i, out + i);
}

void swiglu(const float* gate, const float* up, std::int64_t n, float* out) {
  const Simd::V one = Simd::set1(1.0f);
  for (std::int64_t i = 0; i < n; i += 16) {
    const Simd::V g = load_up_to(gate + i, n - i);
    const Simd::V denominator = Simd::add(one, exp_lanes(Simd::sub(Simd::zero(), g)));
    store_up_to(out + i, Simd::mul(Simd::div(g, denominator), load_up_to(up + i, n - i)), n - i);
  }
}

void add(const float* x, std::int64_t n, float* to) {
  for (std::int64_t i = 0; i < n; i += 16)
    store_up_to(to + i, Simd::add(load_up_to(to + i, n - i), load_up_to(x + i, n - i)), n - i);
}

void rotate(const float* cos, const float* sin, std::int64_t half, float* x) {
  for (std::int64_t i = 0; i < half; i += 16) {
    const std::int64_t n = half - i;
    const Simd::V a = load_up_to(x + i, n), b = load_up_to(x + half + i, n);
    const Simd::V c = load_up_to(cos + i, n), s = load_up_to(sin + i, n);
    store_up_to(x + i, Simd::sub(Simd::mul(a, c), Simd::mul(b, s)), n);
    store_up_to(x + half + i, Simd::add(Simd::mul(b, c), Simd::mul(a, s)), n);
  }
}

// Bits that are constants and a choice without a branch: vectors of any width can do that.
void keep_bits(const float* __restrict x,
               const std::uint32_t* words,
               std::int64_t n_words,
               float* __restrict out) {
  constexpr int kIds = 32;
  std::uint32_t bits[kIds];
  for (int i = 0; i < kIds; ++i) bits[i] = std::uint32_t{1} << i;
  for (std::int64_t w = 0; w < n_words; ++w)
    for (int i = 0; i < kIds; ++i) {
      const float value = x[kIds * w + i];
      out[kIds * w + i] = (words[w] & bits[i]) != 0 ? value : -__builtin_inff();
    }
}

Best argmax(const float* x, std::int64_t n) {
  const float largest = max_of(x, n);
  if (!(largest > -__builtin_inff())) return {};
  const Simd::V target = Simd::set1(largest);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const std::uint32_t mask = Simd::mask_ge(Simd::load(x + i), target);
    if (mask != 0) return {largest, static_cast<std::int32_t>(i + __builtin_ctz(mask))};
  }
  for (; i < n; ++i)
    if (x[i] >= largest) return {largest, static_cast<std::int32_t>(i)};
  return {};
}

// Only ids whose bound reaches the best score so far get their two logarithms. The margins cover
// fp32 rounding of the bound and of z = logit / temperature.
Best noisy_argmax(const float* logits,
                  std::int32_t begin,
                  std::int32_t end,
                  double inverse_temperature,
                  const NoiseKey& key,
                  double floor) {
  Best best{floor, -1};
  const auto threshold_of = [](double score) {
    const double magnitude = score < 0 ? -score : score;
    return score - 1e-3 - 0x1p-20 * magnitude;
  };
  // Where z could leave the range of fp32 the filter stands aside.
  const float largest = max_of(logits + begin, end - begin);
  const bool filter =
      inverse_temperature < 1e30 && largest < 1e30f && largest * inverse_temperature < 1e30;
  const Simd::V factor = Simd::set1(filter ? static_cast<float>(inverse_temperature) : 0.0f);
  double threshold = threshold_of(floor);
  const auto consider = [&](std::int32_t id, std::uint32_t word) {
    if (!(logits[id] > -__builtin_inff())) return;
    const double score = noisy_score(logits[id], inverse_temperature, word);
    if (score > best.score || (best.token < 0 && score >= best.score)) {
      best = {score, id};
      threshold = threshold_of(score);
    }
  };
  std::uint32_t words[16];
  for (std::int32_t id = begin & ~3; id < end; id += 16) {
    Simd::noise_words(key.first_id + static_cast<std::uint32_t>(id), key, words);
    std::uint32_t mask = 0xffffu;
    if (filter && id >= begin && id + 16 <= end) {
      const Simd::V z = Simd::mul(Simd::load(logits + id), factor);
      const Simd::V magnitude = Simd::max(z, Simd::sub(Simd::zero(), z));
      const Simd::V reach =
          Simd::fma(magnitude, Simd::set1(0x1p-20f), Simd::add(z, Simd::noise_bound(words)));
      // rounded down, so that no candidate is lost by the conversion
      const float limit = threshold > -1e30 ? static_cast<float>(threshold) : -1e30f;
      mask = Simd::mask_ge(reach, Simd::set1(limit - 0x1p-22f * (limit < 0 ? -limit : limit)));
    }
    for (; mask != 0; mask &= mask - 1) {
      const std::int32_t i = id + __builtin_ctz(mask);
      if (i >= begin && i < end) consider(i, words[i - id]);
    }
  }
  return best;
}

void exp_weights(const float* x, std::int64_t n, double factor, double shift, double* out) {
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = exp_poly(fma64(static_cast<double>(x[i]), factor, -shift));
}
