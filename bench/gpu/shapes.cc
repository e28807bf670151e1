#include "bench/gpu/report.h"
#include "common/base/json_writer.h"

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

std::span<const std::int32_t> contexts(bool small) {
  static constexpr std::int32_t kContexts[] = {128, 1024, 4096};
  static constexpr std::int32_t kSmall[] = {40};
  return small ? std::span<const std::int32_t>(kSmall) : std::span<const std::int32_t>(kContexts);
}

std::string shapes_json(bool small) {
  JsonWriter out;
  out.begin_object().key("contexts").begin_array();
  for (const std::int32_t n : contexts(small)) out.value(n);
  out.end_array().field("rope_theta", 500000).field("norm_eps", 1e-5, 5);
  out.key("models").begin_array();
  for (const Model& m : models(small))
    out.begin_object()
        .field("name", m.name)
        .field("n_layers", m.n_layers)
        .field("n_hidden", m.n_hidden)
        .field("n_ffn", m.n_ffn)
        .field("n_heads", m.n_heads)
        .field("n_kv_heads", m.n_kv_heads)
        .field("head_dim", m.head_dim)
        .field("vocab", m.vocab)
        .end_object();
  return out.end_array().end_object().text() + "\n";
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
