#include "bench/gpu/report.h"

namespace foretoken::bench {

std::span<const Model> models(bool small) {
  // Llama shapes, synthetic weights.
  static constexpr Model kModels[] = {
      {"1B", 16, 2048, 8192, 32, 8, 64, 128256},
      {"8B", 32, 4096, 14336, 32, 8, 128, 128256},
      {"70B", 80, 8192, 28672, 64, 8, 128, 128256},
  };
  static constexpr Model kSmall[] = {{"tiny", 2, 256, 512, 8, 2, 64, 1000}};
  return small ? std::span<const Model>(kSmall) : std::span<const Model>(kModels);
}

std::vector<Matrix> matrices_of(const Model& m) {
  const std::int64_t q = std::int64_t{m.n_heads} * m.head_dim;
  return {{"qkv", q + 2 * std::int64_t{m.n_kv_heads} * m.head_dim, m.n_hidden, false},
          {"o", m.n_hidden, q, false},
          {"gate_up", 2 * std::int64_t{m.n_ffn}, m.n_hidden, true},
          {"down", m.n_hidden, m.n_ffn, false},
          {"lm_head", m.vocab, m.n_hidden, false}};
}

}  // namespace foretoken::bench
