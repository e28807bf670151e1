// A decoder in double precision that also says how far an fp32 one may be from it: every number
// carries the variance of the rounding errors it has inherited and made, in whatever order sums
// were taken. First order; single roundings count as independent, of variance u^2 / 3 with u =
// 2^-24 relative to what was rounded (docs/tensor_parallel.md). Written from the formulas, one
// token after another, from the tensors of a folder; shares nothing with the decoder but the RoPE
// table. Float32 folders.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/model/config.h"
#include "common/model/rope.h"
#include "common/model/safetensors.h"

namespace foretoken::test {

struct Uncertain {
  double value = 0;
  double variance = 0;
};

class RoundedDecoder {
 public:
  RoundedDecoder(const std::filesystem::path& folder, const ModelConfig& config)
      : checkpoint_(folder),
        c_(config),
        rope_(make_rope_tables(config.rope, config.head_dim, config.max_model_len)),
        keys_(static_cast<std::size_t>(config.n_layers)),
        values_(static_cast<std::size_t>(config.n_layers)) {}

  // Logits after one more token.
  std::vector<Uncertain> next(TokenId token) {
    const auto n = static_cast<std::size_t>(c_.n_hidden);
    const auto table = tensor("model.embed_tokens.weight");
    Row hidden(n);
    for (std::size_t i = 0; i < n; ++i)
      hidden[i].value = static_cast<double>(table[static_cast<std::size_t>(token) * n + i]);
    for (int layer = 0; layer < c_.n_layers; ++layer) {
      const std::string at = "model.layers." + std::to_string(layer) + ".";
      add(hidden, attention(layer, at, norm(hidden, tensor(at + "input_layernorm.weight"))));
      const Row x = norm(hidden, tensor(at + "post_attention_layernorm.weight"));
      add(hidden, linear(gated(linear(x, at + "mlp.gate_proj", c_.mlp_bias),
                               linear(x, at + "mlp.up_proj", c_.mlp_bias)),
                         at + "mlp.down_proj", c_.mlp_bias));
    }
    ++position_;
    return product(norm(hidden, tensor("model.norm.weight")),
                   c_.tie_word_embeddings ? table : tensor("lm_head.weight"), {});
  }

 private:
  using Row = std::vector<Uncertain>;
  static constexpr double kRounding = 0x1p-48 / 3;  // variance of one, relative

  std::span<const float> tensor(const std::string& name) const {
    const auto bytes = checkpoint_.at(name).bytes;
    return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
  }

  // Sums of n products: partial sums are about as large as the root of the sum of squares, or as
  // the result; each is rounded once, each product at most once.
  static Row product(const Row& x, std::span<const float> w, std::span<const float> bias) {
    const std::size_t n = x.size();
    Row out(w.size() / n);
    for (std::size_t i = 0; i < out.size(); ++i) {
      double inherited = 0, squares = 0;
      for (std::size_t j = 0; j < n; ++j) {
        const auto weight = static_cast<double>(w[i * n + j]);
        const double term = weight * x[j].value;
        out[i].value += term;
        squares += term * term;
        inherited += weight * weight * x[j].variance;
      }
      if (!bias.empty()) out[i].value += static_cast<double>(bias[i]);
      const double size = squares + out[i].value * out[i].value;
      out[i].variance = inherited + kRounding * static_cast<double>(n + 1) * size;
    }
    return out;
  }
  Row linear(const Row& x, const std::string& name, bool has_bias) const {
    return product(x, tensor(name + ".weight"),
                   has_bias ? tensor(name + ".bias") : std::span<const float>());
  }

  Row norm(std::span<const Uncertain> x, std::span<const float> gain) const {
    const auto n = static_cast<double>(x.size());
    double squares = 0, weighted = 0;
    for (const Uncertain& one : x) {
      squares += one.value * one.value;
      weighted += one.value * one.value * one.variance;
    }
    const double mean = squares / n + static_cast<double>(c_.rms_norm_eps);
    Row out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double factor = static_cast<double>(gain[i]) / std::sqrt(mean);
      const double common = x[i].value / (n * mean);
      out[i].value = factor * x[i].value;
      out[i].variance = factor * factor * (x[i].variance + common * common * weighted) +
                        8 * kRounding * out[i].value * out[i].value;
    }
    return out;
  }

  // Halves of a head, turned against one another.
  void rotate(std::span<Uncertain> head) const {
    const std::size_t half = head.size() / 2;
    for (std::size_t i = 0; i < half; ++i) {
      const auto at = static_cast<std::size_t>(position_) * half + i;
      const auto cosine = static_cast<double>(rope_.cos[at]);
      const auto sine = static_cast<double>(rope_.sin[at]);
      const Uncertain a = head[i], b = head[i + half];
      const double extra = 4 * kRounding * (a.value * a.value + b.value * b.value);
      head[i] = {a.value * cosine - b.value * sine,
                 cosine * cosine * a.variance + sine * sine * b.variance + extra};
      head[i + half] = {b.value * cosine + a.value * sine,
                        cosine * cosine * b.variance + sine * sine * a.variance + extra};
    }
  }
  void turn_heads(Row& row, const std::string& norm_name) const {
    const auto d = static_cast<std::size_t>(c_.head_dim);
    for (std::size_t at = 0; at < row.size(); at += d) {
      const auto head = std::span(row).subspan(at, d);
      if (c_.qk_norm) {
        const Row normed = norm(head, tensor(norm_name));
        std::copy(normed.begin(), normed.end(), head.begin());
      }
      rotate(head);
    }
  }

  Row attention(int layer, const std::string& at, const Row& x) {
    Row q = linear(x, at + "self_attn.q_proj", c_.qkv_bias);
    Row k = linear(x, at + "self_attn.k_proj", c_.qkv_bias);
    turn_heads(q, at + "self_attn.q_norm.weight");
    turn_heads(k, at + "self_attn.k_norm.weight");
    const auto l = static_cast<std::size_t>(layer);
    keys_[l].push_back(std::move(k));
    values_[l].push_back(linear(x, at + "self_attn.v_proj", c_.qkv_bias));
    const auto d = static_cast<std::size_t>(c_.head_dim);
    Row out(q.size());
    for (std::size_t h = 0; h < static_cast<std::size_t>(c_.n_heads); ++h)
      attend(l, std::span(q).subspan(h * d, d),
             h / static_cast<std::size_t>(c_.n_heads / c_.n_kv_heads) * d,
             std::span(out).subspan(h * d, d));
    return linear(out, at + "self_attn.o_proj", c_.o_bias);
  }

  void attend(std::size_t layer,
              std::span<const Uncertain> q,
              std::size_t from,
              std::span<Uncertain> out) const {
    const std::size_t n = keys_[layer].size(), d = q.size();
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    std::vector<Uncertain> p(n);
    double total = 0;
    for (std::size_t t = 0; t < n; ++t) {
      double score = 0, squares = 0, inherited = 0;
      for (std::size_t i = 0; i < d; ++i) {
        const Uncertain& k = keys_[layer][t][from + i];
        score += q[i].value * k.value;
        squares += q[i].value * k.value * q[i].value * k.value;
        inherited += q[i].value * q[i].value * k.variance + k.value * k.value * q[i].variance;
      }
      // The exponential and what surrounds it: relative errors of a few units.
      p[t].variance =
          scale * scale *
              (inherited + kRounding * static_cast<double>(d + 2) * (squares + score * score)) +
          64 * kRounding;
      total += p[t].value = std::exp(scale * score);
    }
    for (std::size_t i = 0; i < d; ++i) {
      double sum = 0, squares = 0, variance = 0;
      for (std::size_t t = 0; t < n; ++t) {
        const double term = p[t].value / total * values_[layer][t][from + i].value;
        sum += term;
        squares += term * term;
      }
      for (std::size_t t = 0; t < n; ++t) {
        const double weight = p[t].value / total;
        const Uncertain& v = values_[layer][t][from + i];
        variance +=
            weight * weight * (v.variance + (v.value - sum) * (v.value - sum) * p[t].variance);
      }
      out[i] = {sum, variance + kRounding * static_cast<double>(n + 4) * (squares + sum * sum)};
    }
  }

  static Row gated(const Row& gate, const Row& up) {
    Row out(gate.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double g = gate[i].value, sigmoid = 1 / (1 + std::exp(-g));
      const double slope = sigmoid * (1 + g * (1 - sigmoid)) * up[i].value;
      out[i].value = g * sigmoid * up[i].value;
      out[i].variance = slope * slope * gate[i].variance +
                        g * sigmoid * g * sigmoid * up[i].variance +
                        64 * kRounding * out[i].value * out[i].value;
    }
    return out;
  }
  static void add(Row& hidden, const Row& more) {
    for (std::size_t i = 0; i < hidden.size(); ++i) {
      hidden[i].value += more[i].value;
      hidden[i].variance += more[i].variance + kRounding * hidden[i].value * hidden[i].value;
    }
  }

  Checkpoint checkpoint_;
  ModelConfig c_;
  RopeTables rope_;
  std::vector<std::vector<Row>> keys_, values_;  // [layer][position]
  int position_ = 0;
};

}  // namespace foretoken::test
