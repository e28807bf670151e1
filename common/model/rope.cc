#include "common/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace foretoken {
namespace {

// Llama 3.1: wavelengths shorter than the trained context stay, much longer ones are stretched by
// `factor`, and those between the two thresholds blend smoothly.
double llama3_frequency(const RopeSpec& rope, double frequency) {
  const double context = static_cast<double>(rope.original_max_position_embeddings);
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < context / rope.high_freq_factor) return frequency;
  if (wavelength > context / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth = (context / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

// YaRN: which pair of dimensions turns `rotations` times within the trained context.
double yarn_dimension(const RopeSpec& rope, double head_dim, double rotations) {
  const double context = static_cast<double>(rope.original_max_position_embeddings);
  return head_dim * std::log(context / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(rope.theta));
}

// Pairs below `low` keep their frequency, pairs above `high` are stretched by `factor`, a linear
// ramp joins them.
struct YarnRange {
  double low;
  double high;
};

YarnRange yarn_range(const RopeSpec& rope, std::int32_t head_dim) {
  double low = yarn_dimension(rope, head_dim, rope.beta_fast);
  double high = yarn_dimension(rope, head_dim, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(head_dim - 1));
  return {low, low == high ? high + 0.001 : high};
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

}  // namespace

double rope_attention_factor(const RopeSpec& rope) {
  if (rope.type != RopeType::kYarn) return 1.0;
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.mscale != 0 && rope.mscale_all_dim != 0)
    return yarn_mscale(rope.factor, rope.mscale) / yarn_mscale(rope.factor, rope.mscale_all_dim);
  return yarn_mscale(rope.factor, 1.0);
}

std::vector<double> rope_inverse_frequencies(const RopeSpec& rope, std::int32_t head_dim) {
  std::vector<double> frequencies(static_cast<std::size_t>(head_dim / 2));
  const YarnRange range =
      rope.type == RopeType::kYarn ? yarn_range(rope, head_dim) : YarnRange{0, 1};
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double base = std::pow(rope.theta, -2.0 * static_cast<double>(i) / head_dim);
    switch (rope.type) {
      case RopeType::kDefault:
        frequencies[i] = base;
        break;
      case RopeType::kLinear:
        frequencies[i] = base / rope.factor;
        break;
      case RopeType::kLlama3:
        frequencies[i] = llama3_frequency(rope, base);
        break;
      case RopeType::kYarn: {
        const double ramp =
            std::clamp((static_cast<double>(i) - range.low) / (range.high - range.low), 0.0, 1.0);
        frequencies[i] = base / rope.factor * ramp + base * (1 - ramp);
        break;
      }
    }
  }
  return frequencies;
}

RopeTables make_rope_tables(const RopeSpec& rope, std::int32_t head_dim, std::int64_t n_positions) {
  const std::vector<double> frequencies = rope_inverse_frequencies(rope, head_dim);
  const double scale = rope_attention_factor(rope);
  const std::size_t n = static_cast<std::size_t>(n_positions) * frequencies.size();
  RopeTables tables;
  tables.cos.reserve(n);
  tables.sin.reserve(n);
  for (std::int64_t position = 0; position < n_positions; ++position) {
    for (double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      tables.cos.push_back(static_cast<float>(scale * std::cos(angle)));
      tables.sin.push_back(static_cast<float>(scale * std::sin(angle)));
    }
  }
  return tables;
}

}  // namespace foretoken
