#include "common/model/weight_loader.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "common/model/convert.h"
#include "common/model/families.h"
#include "common/model/fingerprint.h"
#include "common/model/kv_scales.h"
#include "common/model/quantization.h"
#include "common/model/rope.h"

namespace foretoken {

RankOf rank_of(const Collective* ranks) {
  return ranks == nullptr ? RankOf{} : RankOf{ranks->rank(), ranks->size()};
}

WeightLoader::WeightLoader(const ModelConfig& config,
                           const Checkpoint& checkpoint,
                           Backend& backend,
                           const LoadOptions& options,
                           std::shared_ptr<const PackedCache> cache)
    : config_(config),
      checkpoint_(checkpoint),
      backend_(backend),
      options_(options),
      who_(rank_of(options.ranks)),
      cache_(std::move(cache)) {
  if (cache_ != nullptr) digests_ = cache_->digests();
  for (ExpectedTensor& tensor : expected_tensors(config)) {
    for (const std::string& name : tensors_read_for(checkpoint, tensor))
      bytes_total_ += checkpoint.at(name).bytes.size();
    stored_.push_back(stored_as(checkpoint, tensor).dtype);
    shapes_[tensor.name] = std::move(tensor.shape);
  }
  float_dtype_ = float_dtype(config, checkpoint);
}

DType WeightLoader::dtype() const {
  return held_dtype(config_, "self_attn.q_proj.weight", first_stored_dtype(config_, checkpoint_),
                    options_.dtype, float_dtype_);
}

Fingerprint WeightLoader::fingerprint() const {
  if (options_.ranks == nullptr) return fingerprint_of(config_, checkpoint_, digests_);
  // Each is known to one rank and 0 to the others.
  std::vector<std::uint64_t> contents;
  for (const auto& [name, own] : digests_) contents.push_back(own);
  const auto all = options_.ranks->gather(std::span<const std::uint64_t>(contents));
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::uint64_t& one = contents[i % contents.size()];
    one = std::max(one, all[i]);
  }
  std::map<std::string, std::uint64_t> digests;
  std::size_t i = 0;
  for (const auto& [name, own] : digests_) digests.emplace(name, contents[i++]);
  return fingerprint_of(config_, checkpoint_, digests);
}

// One rank goes through a tensor from end to end, for its digest and for what is no number: by
// turns, as all ranks ask for tensors in the same order.
Checkpoint::Tensor WeightLoader::read(const std::string& name) {
  const Checkpoint::Tensor tensor = checkpoint_.at(name);
  const auto turn = static_cast<int>(digests_.size() % static_cast<std::size_t>(who_.n_ranks));
  const auto [place, is_new] = digests_.try_emplace(name, 0);
  if (!is_new) return tensor;
  if (turn == who_.rank) {
    place->second = digest_bytes(tensor.bytes);
    if (const auto sentence = what_is_not_finite(tensor))
      throw FatalError(ErrorCode::kMalformed, *sentence);
  }
  bytes_done_ += tensor.bytes.size();
  if (options_.on_progress) options_.on_progress(bytes_done_, bytes_total_);
  return tensor;
}

// With kept packed weights, small tensors are still read from the checkpoint: their contents must
// be those of the earlier load. A digest of 0 means that another rank has it.
void WeightLoader::check_as_kept(const Checkpoint::Tensor& tensor) const {
  if (cache_ == nullptr) return;
  const std::uint64_t kept = digests_.at(tensor.info->name);
  if (kept != 0 && kept != digest_bytes(tensor.bytes)) throw CacheDoesNotFit{};
}

std::vector<float> WeightLoader::read_floats(const std::string& name) {
  const Checkpoint::Tensor tensor = read(name);
  check_as_kept(tensor);
  std::vector<float> values(tensor.info->n_elements());
  widen(*dtype_of(tensor.info->type), tensor.bytes, values);
  return values;
}

Buffer WeightLoader::upload(std::span<const float> values) {
  Buffer buffer = backend_.allocate(values.size_bytes());
  backend_.upload(buffer.as<float>(), values.data(), values.size_bytes());
  backend_.synchronize();  // the host copy is about to go
  return buffer;
}

Buffer WeightLoader::vector(const std::string& name) {
  Buffer buffer = upload(read_floats(name));
  device_bytes_ += buffer.size_bytes();
  return buffer;
}

// Scales and zero points of `name`, those of this rank's rows.
void WeightLoader::read_parameters(const std::string& name, Split split, OwnedSource& held) {
  for (const std::string& part : {held.stored.scales, held.stored.zeros, held.stored.group_of})
    if (!part.empty()) read(part);
  const ExpectedTensor tensor{name, shapes_.at(name)};
  if (const auto sentence = what_is_wrong_in_parameters(config_, checkpoint_, tensor))
    throw FatalError(ErrorCode::kMalformed, *sentence);
  QuantizationParameters all = quantization_parameters(config_, checkpoint_, tensor);
  const std::int64_t n_out = tensor.shape[0];
  held.parameters = {.scales = own_rows(std::move(all.scales), n_out, split),
                     .zeros = own_rows(std::move(all.zeros), n_out, split),
                     .group_of = std::move(all.group_of)};
}

// The matrix a RowConverter reads from.
StoredMatrix WeightLoader::stored_matrix(const std::string& name, const OwnedSource& held) const {
  const auto& shape = shapes_.at(name);
  const DType stored = held.stored.dtype;
  StoredMatrix matrix{.dtype = stored,
                      .packed = held.stored.packed,
                      .bytes = held.stored.tensor.bytes,
                      .n_out = shape[0],
                      .n_in = shape[1],
                      .scales = held.parameters.scales};
  if (stored != DType::kI4) return matrix;
  matrix.group = config_.quantized.int4_group;
  matrix.zeros = held.parameters.zeros;
  matrix.group_of = held.parameters.group_of;
  matrix.layout = config_.quantized.int4_layout;
  matrix.kind = config_.quantized.int4_kind;
  return matrix;
}

// Points held.source at this rank's rows in the type that they are to be held in: in the map itself
// if they are stored so and whole, else made while they are packed.
void WeightLoader::find_rows(const std::string& name, Split split, OwnedSource& held) {
  const auto [all_out, all_in] = std::pair(shapes_.at(name)[0], shapes_.at(name)[1]);
  held.stored = stored_as(checkpoint_, name, all_in);
  const DType stored = held.stored.dtype,
              to = held_dtype(config_, name, stored, options_.dtype, float_dtype_);
  const std::int64_t group = to == DType::kI4 ? held_group(config_) : 0;
  const std::span<const std::byte> bytes = read(held.stored.tensor.info->name).bytes;
  if (!backend_.holds(to)) {
    throw FatalError(ErrorCode::kUnsupportedModel,
                     held.stored.tensor.file->path().string() + ": tensor " + name + " is " +
                         dtype_name(to) + ", which " + backend_.description() +
                         " does not multiply; model.dtype = \"bfloat16\" widens it");
  }
  const Int4Kind kind = to == DType::kI4 ? held_int4_kind(config_) : Int4Kind::kOffset;
  const Range rows = rows_of(split, all_out, config_, who_);
  const Range columns = columns_of(split, all_in, config_, who_);
  held.source = {.dtype = to, .n_out = rows.n(), .n_in = columns.n(), .group = group, .kind = kind};
  if (cache_ != nullptr) return;
  if (is_quantised(stored)) read_parameters(name, split, held);
  if (stored == to && !held.stored.packed && columns.n() == all_in) {
    held.source.data =
        bytes.data() + static_cast<std::size_t>(rows.begin * all_in) * size_bytes(stored);
    if (is_quantised(to)) held.source.scales = held.parameters.scales.data();
    return;
  }
  held.rows.emplace(stored_matrix(name, held), to, WantedRows{rows, columns, group, kind});
  held.source.rows = &*held.rows;
}

std::string WeightLoader::weight_types() const {
  return held_types(config_, stored_, options_.dtype, float_dtype_);
}

Linear WeightLoader::linear(std::span<const std::string> names, bool bias, Stacking stacking) {
  std::vector<OwnedSource> held(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    find_rows(names[i] + ".weight", split_of(names[i] + ".weight"), held[i]);
    if (!bias) continue;
    std::vector<float> all = read_floats(names[i] + ".bias");
    const auto n_rows = static_cast<std::int64_t>(all.size());
    held[i].bias = own_rows(std::move(all), n_rows, split_of(names[i] + ".bias"));
    held[i].source.bias = held[i].bias.data();
  }
  return pack(held, stacking);
}

// Where ranks share the vocabulary, each has a slice of the head, also where the head is the
// embedding: of that every rank needs all, as any token may come.
Linear WeightLoader::head() {
  OwnedSource held;
  find_rows(std::string(config_.tie_word_embeddings ? names::kEmbedding : names::kHead),
            Split::kVocabulary, held);
  return pack(std::span(&held, 1), Stacking::kRows);
}

// Of as many values for each row. Zeros stand for a bias that rank 0 adds.
template <class T>
std::vector<T> WeightLoader::own_rows(std::vector<T> values,
                                      std::int64_t n_rows,
                                      Split split) const {
  if (split == Split::kFirstRank && who_.rank != 0) return std::vector<T>(values.size(), T{0});
  const Range rows = rows_of(split, n_rows, config_, who_);
  const std::int64_t n_in_row = static_cast<std::int64_t>(values.size()) / n_rows;
  return {values.begin() + rows.begin * n_in_row, values.begin() + rows.end * n_in_row};
}

// The pages of the checkpoint that were read are given back: they would count as ours beside the
// packed matrix.
Linear WeightLoader::pack(std::span<const OwnedSource> held, Stacking stacking) {
  std::vector<LinearSource> sources;
  for (const OwnedSource& one : held) sources.push_back(one.source);
  Linear packed = cache_ == nullptr ? backend_.pack(sources, stacking) : adopt(sources, stacking);
  for (const OwnedSource& one : held) {
    check_converted(one);
    one.stored.tensor.file->release(*one.stored.tensor.info);
  }
  packed_.add(packed);
  device_bytes_ +=
      packed.weights.size_bytes() + packed.scales.size_bytes() + packed.bias.size_bytes();
  return packed;
}

Linear WeightLoader::adopt(std::span<const LinearSource> sources, Stacking stacking) {
  if (n_adopted_ == cache_->n_matrices()) throw CacheDoesNotFit{};
  auto adopted = backend_.adopt(sources, stacking, cache_->matrix(n_adopted_++), cache_);
  if (!adopted) throw CacheDoesNotFit{};
  return std::move(*adopted);
}

void WeightLoader::check_converted(const OwnedSource& held) const {
  if (!held.rows) return;
  // Where it was another rank's turn to read the tensor, this one has not looked.
  if (held.rows->met_not_finite())
    throw FatalError(ErrorCode::kMalformed, what_is_not_finite(held.stored.tensor).value());
  if (held.rows->went_beyond_range())
    throw FatalError(ErrorCode::kUnsupportedModel,
                     held.stored.tensor.file->path().string() + ": tensor " +
                         held.stored.tensor.info->name + " has values beyond the range of " +
                         dtype_name(held.source.dtype) + "; use bfloat16 or float32");
}

LayerWeights WeightLoader::layer(std::int32_t number) {
  const auto name = [&](std::string_view rest) { return names::layer(number, rest); };
  LayerWeights w;
  w.input_norm = vector(name("input_layernorm.weight"));
  const std::array qkv{name("self_attn.q_proj"), name("self_attn.k_proj"),
                       name("self_attn.v_proj")};
  w.qkv = linear(qkv, config_.qkv_bias);
  if (config_.qk_norm) {
    w.q_norm = vector(name("self_attn.q_norm.weight"));
    w.k_norm = vector(name("self_attn.k_norm.weight"));
  }
  w.o = linear(std::array{name("self_attn.o_proj")}, config_.o_bias);
  w.post_norm = vector(name("post_attention_layernorm.weight"));
  const std::array gate_up{name("mlp.gate_proj"), name("mlp.up_proj")};
  w.gate_up = linear(gate_up, config_.mlp_bias, Stacking::kGateUp);
  w.down = linear(std::array{name("mlp.down_proj")}, config_.mlp_bias);
  return w;
}

// Of this rank's KV heads, for a cache in eight bits. What is used is part of the fingerprint.
Buffer WeightLoader::kv_scales() {
  if (options_.kv_dtype != DType::kF8E4M3) return {};
  const KvScales all = read_kv_scales(config_, checkpoint_);
  if (!all.problems.empty())
    throw FatalError(ErrorCode::kMalformed,
                     all.problems.front() + "; any other kv_cache.dtype does without");
  for (const std::string& name : all.tensors) check_as_kept(read(name));
  const Range heads = kv_heads_of(config_, who_);
  std::vector<float> own;
  for (auto at = all.values.begin(); at != all.values.end(); at += config_.n_kv_heads)
    own.insert(own.end(), at + heads.begin, at + heads.end);
  return own.empty() ? Buffer() : upload(own);
}

DecoderWeights WeightLoader::load() {
  DecoderWeights weights;
  weights.kv_scales = kv_scales();
  const auto stem = [](std::string_view name) {
    return std::string(name.substr(0, name.rfind(".weight")));
  };
  weights.embedding = linear(std::array{stem(names::kEmbedding)}, false);
  for (std::int32_t l = 0; l < config_.n_layers; ++l) weights.layers.push_back(layer(l));
  weights.final_norm = vector(std::string(names::kFinalNorm));
  if (!config_.tie_word_embeddings || who_.n_ranks > 1) weights.head = head();
  const RopeTables tables = make_rope_tables(config_.rope, config_.head_dim, config_.max_model_len);
  weights.rope_cos = upload(tables.cos);
  weights.rope_sin = upload(tables.sin);
  weights.n_bytes = device_bytes_;
  if (cache_ != nullptr && n_adopted_ != cache_->n_matrices()) throw CacheDoesNotFit{};
  if (cache_ != nullptr && options_.on_progress) options_.on_progress(bytes_total_, bytes_total_);
  return weights;
}

}  // namespace foretoken
