#include "bench/gpu/step.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace foretoken::bench {
namespace {

constexpr std::int32_t kBlockTokens = 16;

template <class T>
Buffer device_copy(Backend& backend, const std::vector<T>& host) {
  Buffer buffer = backend.allocate(host.size() * sizeof(T));
  backend.upload(buffer.as<T>(), host.data(), host.size() * sizeof(T));
  backend.synchronize();
  return buffer;
}

}  // namespace

SyntheticMatrix::SyntheticMatrix(DType dtype,
                                 std::int64_t n_out,
                                 std::int64_t n_in,
                                 std::uint64_t seed)
    : dtype_(dtype), n_out_(n_out), n_in_(n_in) {
  const auto bytes = static_cast<std::size_t>(n_out * n_in) * size_bytes(dtype);
  bits_.resize((bytes + 7) / 8);
  // Signs and mantissas are random, magnitudes about 1/64 (bf16) or up to 7.5 times the scale
  // (fp8).
  const std::uint64_t keep =
      dtype == DType::kBf16 ? 0x807f807f807f807full : 0xcfcfcfcfcfcfcfcfull & 0xbfbfbfbfbfbfbfbfull;
  const std::uint64_t set = dtype == DType::kBf16 ? 0x3c803c803c803c80ull : 0;
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (std::uint64_t& word : bits_) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    word = (state & keep) | set;
  }
  if (dtype == DType::kF8E4M3)
    scales_.assign(static_cast<std::size_t>(n_out), 1.0f / std::sqrt(static_cast<float>(n_in)));
}

LinearSource SyntheticMatrix::source() const {
  return {dtype_, bits_.data(), n_out_, n_in_, scales_.empty() ? nullptr : scales_.data(), nullptr};
}

Linear synthetic_linear(Backend& backend, DType dtype, const Matrix& m, std::uint64_t seed) {
  if (!m.gate_up) {
    const SyntheticMatrix matrix(dtype, m.n_out, m.n_in, seed);
    const LinearSource source = matrix.source();
    return backend.pack({&source, 1});
  }
  const SyntheticMatrix gate(dtype, m.n_out / 2, m.n_in, seed),
      up(dtype, m.n_out / 2, m.n_in, seed + 1);
  const LinearSource sources[] = {gate.source(), up.source()};
  return backend.pack(sources, Stacking::kGateUp);
}

Linear copy_of(Backend& backend, const Linear& from) {
  Linear to;
  to.dtype = from.dtype;
  to.stacking = from.stacking;
  to.n_out = from.n_out;
  to.n_in = from.n_in;
  const auto copy = [&](const Buffer& buffer) {
    Buffer other = backend.allocate(buffer.size_bytes());
    backend.copy(other.as<std::byte>(), buffer.as<std::byte>(), buffer.size_bytes());
    return other;
  };
  to.weights = copy(from.weights);
  if (from.scales) to.scales = copy(from.scales);
  if (from.bias) to.bias = copy(from.bias);
  return to;
}

Step::Step(Backend& b, const Model& model, DType dtype, std::int32_t context) : model_(model) {
  const std::vector<Matrix> matrices = matrices_of(model);
  std::vector<Linear>* const lists[] = {&qkv_, &o_, &gate_up_, &down_};
  for (int i = 0; i < 4; ++i) {
    lists[i]->push_back(synthetic_linear(b, dtype, matrices[static_cast<std::size_t>(i)],
                                         static_cast<std::uint64_t>(10 + 2 * i)));
    for (int layer = 1; layer < model.n_layers; ++layer)
      lists[i]->push_back(copy_of(b, lists[i]->front()));
    weight_bytes_ +=
        static_cast<std::int64_t>(lists[i]->front().weights.size_bytes()) * model.n_layers;
  }
  table_ = synthetic_linear(b, dtype, matrices[4], 99);
  weight_bytes_ += static_cast<std::int64_t>(table_.weights.size_bytes());
  geometry_ = {DType::kBf16, model.n_layers, model.n_kv_heads, model.head_dim, kBlockTokens};
  n_blocks_ = (context + kMaxRows + kBlockTokens) / kBlockTokens;
  kv_ = b.allocate(static_cast<std::size_t>(n_blocks_) * geometry_.block_bytes());
  const SyntheticMatrix block(DType::kBf16, 1,
                              static_cast<std::int64_t>(geometry_.block_bytes() / 2), 123);
  b.upload(kv_.as<std::byte>(), block.source().data, geometry_.block_bytes());
  for (std::int32_t i = 1; i < n_blocks_; ++i)
    b.copy(kv_.as<std::byte>() + static_cast<std::size_t>(i) * geometry_.block_bytes(),
           kv_.as<std::byte>(), geometry_.block_bytes());
  std::vector<float> cos, sin;
  for (std::int32_t p = 0; p < n_blocks_ * kBlockTokens; ++p)
    for (std::int32_t i = 0; i < model.head_dim / 2; ++i) {
      const double angle = p * std::pow(500000.0, -2.0 * i / model.head_dim);
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  cos_ = device_copy(b, cos);
  sin_ = device_copy(b, sin);
  norm_ = device_copy(b, std::vector<float>(static_cast<std::size_t>(model.n_hidden), 1.0f));
  const auto floats = [&](std::int64_t n) {
    return b.allocate(static_cast<std::size_t>(n) * sizeof(float));
  };
  const std::int64_t width = std::int64_t{model.n_heads} * model.head_dim;
  hidden_ = floats(std::int64_t{kMaxRows} * model.n_hidden);
  squares_ = floats(kMaxRows * squares_per_row(model.n_hidden));
  q_ = floats(kMaxRows * width);
  attended_ = floats(kMaxRows * width);
  ffn_ = floats(std::int64_t{kMaxRows} * model.n_ffn);
  logits_ = floats(std::int64_t{kMaxRows} * model.vocab);
  std::vector<std::int32_t> rows(kMaxRows), blocks(static_cast<std::size_t>(n_blocks_));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int32_t>(i);
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::int32_t>(i);
  rows_ = device_copy(b, rows);
  table_of_blocks_ = device_copy(b, blocks);
  no_ends_ = floats(2);
  inputs_ = b.allocate(sizeof(Inputs));
  results_ = b.allocate(sizeof(Results));
  set_rows(b, {1}, context);
  b.synchronize();  // another backend may be the next to use all this
}

void Step::set_rows(Backend& b,
                    const std::vector<std::int32_t>& tokens,
                    std::int32_t first_position) {
  Inputs in{};
  const std::size_t n = tokens.size();
  for (std::size_t i = 0; i < n; ++i) {
    in.tokens[i] = tokens[i];
    in.positions[i] = in.slots[i] =
        first_position + static_cast<std::int32_t>(i);  // block i holds 16 i ...
  }
  for (std::size_t i = 0; i < 2 * kMaxRows; ++i) {  // a chain chooses beyond its rows
    in.rules[i].temperature = 1;
    in.rules[i].seed = 7;
    in.rules[i].position =
        static_cast<std::uint32_t>(first_position) + static_cast<std::uint32_t>(i) + 1;
  }
  in.row_begin[1] = static_cast<std::int32_t>(n);
  in.one_row[1] = 1;
  in.moving[0] = in.tokens[n - 1];
  in.moving[1] = in.moving[2] = in.positions[n - 1];
  in.moving[3] = 2 * kMaxRows;
  b.upload(inputs_.as<Inputs>(), &in, sizeof in);
}

std::int32_t Step::columns(std::int32_t context) const {
  return context == 0 ? n_blocks_
                      : std::min(n_blocks_, (context + kMaxRows + kBlockTokens) / kBlockTokens);
}

void Step::run(Backend& b, std::int32_t n_rows, std::int32_t context) const {
  auto* in = inputs_.as<Inputs>();
  run_rows(b,
           {n_rows, in->tokens, in->positions, in->slots, in->row_begin, in->rules,
            results_.as<Results>()->choices},
           context);
}

void Step::verify(Backend& b, std::int32_t n_rows, std::int32_t context) const {
  run(b, n_rows, context);
  auto* out = results_.as<Results>();
  b.accept({.choices = out->choices,
            .tokens = inputs_.as<Inputs>()->tokens,
            .n_rows = n_rows,
            .n_sequences = 1,
            .row_begin = inputs_.as<Inputs>()->row_begin,
            .verdicts = &out->verdict});
}

void Step::chain(Backend& b,
                 std::int32_t n_rows,
                 std::int32_t n_steps,
                 std::int32_t context) const {
  run(b, n_rows, context);
  auto* in = inputs_.as<Inputs>();
  auto* out = results_.as<Results>();
  const Choice* last = out->choices + n_rows - 1;
  for (std::int32_t k = 1; k < n_steps; ++k) {
    b.advance({.choices = last,
               .n_sequences = 1,
               .end_begin = no_ends_.as<std::int32_t>(),
               .block_tables = table_of_blocks_.as<std::int32_t>(),
               .max_blocks = columns(context),
               .block_tokens = kBlockTokens,
               .tokens = in->moving,
               .positions = in->moving + 1,
               .slots = in->moving + 2,
               .n_left = in->moving + 3});
    run_rows(b,
             {1, in->moving, in->moving + 1, in->moving + 2, in->one_row,
              in->rules + n_rows - 1 + k, out->chained + k},
             context);
    last = out->chained + k;
  }
}

void Step::run_rows(Backend& b, const Rows& r, std::int32_t context) const {
  const std::int32_t n = r.n;
  const PagedKv kv{geometry_, kv_.as<std::byte>(), n_blocks_};
  float* hidden = hidden_.as<float>();
  float* squares = squares_.as<float>();
  const float* norm = norm_.as<float>();
  b.embed(
      {.table = &table_, .tokens = r.tokens, .n_rows = n, .hidden = hidden, .squares = squares});
  for (int layer = 0; layer < model_.n_layers; ++layer) {
    const auto l = static_cast<std::size_t>(layer);
    b.qkv_rope_append({.hidden = hidden,
                       .n_rows = n,
                       .norm = norm,
                       .norm_eps = 1e-5f,
                       .qkv = &qkv_[l],
                       .n_heads = model_.n_heads,
                       .rope_cos = cos_.as<float>(),
                       .rope_sin = sin_.as<float>(),
                       .n_positions = n_blocks_ * kBlockTokens,
                       .positions = r.positions,
                       .slots = r.slots,
                       .kv = kv,
                       .layer = layer,
                       .q = q_.as<float>(),
                       .squares = squares,
                       .next = &o_[l]});
    b.attn_paged({.q = q_.as<float>(),
                  .n_rows = n,
                  .n_heads = model_.n_heads,
                  .positions = r.positions,
                  .n_sequences = 1,
                  .row_begin = r.row_begin,
                  .block_tables = table_of_blocks_.as<std::int32_t>(),
                  .max_blocks = columns(context),
                  .kv = kv,
                  .layer = layer,
                  .scale = 1.0f / std::sqrt(static_cast<float>(model_.head_dim)),
                  .out = attended_.as<float>()});
    b.matmul_residual({.x = attended_.as<float>(),
                       .n_rows = n,
                       .weight = &o_[l],
                       .residual = hidden,
                       .squares = squares,
                       .next = &gate_up_[l]});
    b.gate_up_swiglu({.hidden = hidden,
                      .n_rows = n,
                      .norm = norm,
                      .norm_eps = 1e-5f,
                      .gate_up = &gate_up_[l],
                      .out = ffn_.as<float>(),
                      .squares = squares,
                      .next = &down_[l]});
    b.matmul_residual({.x = ffn_.as<float>(),
                       .n_rows = n,
                       .weight = &down_[l],
                       .residual = hidden,
                       .squares = squares,
                       .next = l + 1 < qkv_.size() ? &qkv_[l + 1] : &table_});
  }
  b.lm_head({.hidden = hidden,
             .rows = rows_.as<std::int32_t>(),
             .n_rows = n,
             .norm = norm,
             .norm_eps = 1e-5f,
             .head = &table_,
             .logits = logits_.as<float>(),
             .squares = squares,
             .next = &qkv_.front()});
  b.choose({.logits = logits_.as<float>(),
            .n_rows = n,
            .vocab = model_.vocab,
            .n_valid = model_.vocab,
            .rules = r.rules,
            .choices = r.choices});
}

Step::Results Step::results(Backend& b) const {
  Results out;
  b.download(&out, results_.as<Results>(), sizeof out);
  return out;
}

std::vector<float> Step::logits(Backend& b, std::int32_t n) const {
  std::vector<float> host(static_cast<std::size_t>(n) * static_cast<std::size_t>(model_.vocab));
  b.download(host.data(), logits_.as<float>(), host.size() * sizeof(float));
  return host;
}

}  // namespace foretoken::bench
