#include "common/model/config.h"

#include <algorithm>
#include <cmath>

#include "common/model/families.h"

namespace foretoken {
namespace {

// A multiplication in attention takes as long as so many in a matrix product. With AMX, which our
// attention does not use, it was 10 (the 1 B shape, 2,048 and 8,192 rows); elsewhere it is less. A
// guess for when the context jumps: what a row costs where it stands is measured.
constexpr double kAttentionDearer = 4;

}  // namespace

std::string_view family_name(Family family) { return family_row(family).model_type; }

std::string_view rope_type_name(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return "default";
    case RopeType::kLinear:
      return "linear";
    case RopeType::kLlama3:
      return "llama3";
    case RopeType::kYarn:
      return "yarn";
  }
  return "?";
}

namespace {

std::int64_t trained_positions(const ModelConfig& config) {
  const auto stretched = [&](std::int64_t positions) {
    return static_cast<std::int64_t>(
        std::floor(static_cast<double>(positions) * config.rope.factor));
  };
  // Files with yarn give either the trained or the stretched length; the larger of the two is what
  // was meant.
  if (config.rope.type == RopeType::kYarn)
    return std::max(config.max_position_embeddings,
                    stretched(config.rope.original_max_position_embeddings));
  if (config.rope.type == RopeType::kLinear) return stretched(config.max_position_embeddings);
  return config.max_position_embeddings;
}

}  // namespace

std::int64_t context_length(const ModelConfig& config) {
  const std::int64_t positions = trained_positions(config);
  return config.sliding_window > 0 ? std::min(positions, config.sliding_window) : positions;
}

double equal_attention_context(const ModelConfig& config) {
  const double q_width = static_cast<double>(config.n_heads) * config.head_dim;
  const double kv_width = static_cast<double>(config.n_kv_heads) * config.head_dim;
  const double n_hidden = config.n_hidden;
  // Multiplications of a row in one layer: q and o, k and v, and the three of the feed-forward; and
  // for each token before it a score and a weighted value.
  const double matrices = n_hidden * (2 * q_width + 2 * kv_width + 3.0 * config.n_ffn);
  const double per_token = 2 * q_width * kAttentionDearer;
  return per_token > 0 ? matrices / per_token : 0;
}

std::size_t kv_bytes_per_token(const ModelConfig& config, DType kv_dtype) {
  return 2 * size_bytes(kv_dtype) * static_cast<std::size_t>(config.n_layers) *
         static_cast<std::size_t>(config.n_kv_heads) * static_cast<std::size_t>(config.head_dim);
}

}  // namespace foretoken
