#include "common/model/init_random.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <vector>

#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/model/convert.h"
#include "common/model/digest.h"
#include "common/model/families.h"
#include "common/model/hf_folder.h"
#include "common/model/safetensors.h"
#include "common/model/tensor_set.h"

namespace foretoken {
namespace {

constexpr std::size_t kPieceElements =
    1u << 20;  // what is generated at once: a 1B shape needs no gigabytes

// Nearly normal noise with mean 0 and deviation 1 by integer arithmetic and one exact conversion,
// so that every machine makes the same bytes: the sum of four 16-bit uniforms.
class Noise {
 public:
  Noise(std::uint64_t seed, std::string_view tensor)
      : key_(Digest().add(seed).add(tensor).value()) {}

  float at(std::uint64_t index) const {
    const std::uint64_t x = mix64(key_ + (index + 1) * kGoldenRatio64);
    const auto sum = static_cast<std::int32_t>((x & 0xffff) + ((x >> 16) & 0xffff) +
                                               ((x >> 32) & 0xffff) + (x >> 48));
    return static_cast<float>(sum - 2 * 65535) *
           (1.0f / 37837.227f);  // deviation of the sum: 2^16 / sqrt(3)
  }

 private:
  std::uint64_t key_;
};

struct Spread {
  float mean;
  float deviation;
};

// Unit gain per matrix, norms and biases away from 1 and 0: leaving any tensor out changes the
// logits.
Spread spread_of(const ExpectedTensor& tensor, const RandomModelRecipe& recipe) {
  const std::string& name = tensor.name;
  const bool tied = recipe.config.tie_word_embeddings;
  // A tied head likes the token it was given; small embeddings let the layers have their say.
  if (name == names::kEmbedding) return {0, tied ? 0.15f : 0.7f};
  if (name == names::kFinalNorm) return {tied ? 2.0f : 1.0f, 0.1f};
  if (name.ends_with("norm.weight")) return {1, 0.1f};
  if (name.ends_with(".bias")) return {0, 0.2f};
  const float unit = recipe.weight_scale / std::sqrt(static_cast<float>(tensor.shape[1]));
  if (name == names::kHead) return {0, 2 * unit};
  return {0, unit};
}

OrderedJson rope_json(const RopeSpec& rope) {
  OrderedJson json = {{"rope_type", rope_type_name(rope.type)}, {"rope_theta", rope.theta}};
  if (rope.type != RopeType::kDefault) json["factor"] = rope.factor;
  if (rope.type == RopeType::kLlama3) {
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
    json["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  }
  if (rope.type == RopeType::kYarn) {
    json["original_max_position_embeddings"] = rope.original_max_position_embeddings;
    json["beta_fast"] = rope.beta_fast;
    json["beta_slow"] = rope.beta_slow;
    if (rope.attention_factor) json["attention_factor"] = *rope.attention_factor;
    if (rope.mscale != 0) json["mscale"] = rope.mscale;
    if (rope.mscale_all_dim != 0) json["mscale_all_dim"] = rope.mscale_all_dim;
    if (!rope.truncate) json["truncate"] = false;
  }
  return json;
}

std::string config_json(const ModelConfig& c, DType dtype) {
  const FamilyRow& row = family_row(c.family);
  OrderedJson json = {{"architectures", {row.architecture}},
                      {"model_type", row.model_type},
                      {"num_hidden_layers", c.n_layers},
                      {"hidden_size", c.n_hidden},
                      {"num_attention_heads", c.n_heads},
                      {"num_key_value_heads", c.n_kv_heads},
                      {"head_dim", c.head_dim},
                      {"intermediate_size", c.n_ffn},
                      {"vocab_size", c.vocab_size},
                      {"max_position_embeddings", c.max_position_embeddings},
                      {"rms_norm_eps", shortest(c.rms_norm_eps)},
                      {"hidden_act", "silu"},
                      {"rope_parameters", rope_json(c.rope)},
                      {"tie_word_embeddings", c.tie_word_embeddings},
                      {"dtype", dtype_name(dtype)}};
  if (row.reads_attention_bias) json["attention_bias"] = c.o_bias;
  if (row.reads_mlp_bias) json["mlp_bias"] = c.mlp_bias;
  if (row.window == WindowRule::kIfSet) json["sliding_window"] = nullptr;
  if (row.window == WindowRule::kIfSwitch) json["use_sliding_window"] = false;
  if (c.bos_token_id) json["bos_token_id"] = *c.bos_token_id;
  if (!c.eos_token_ids.empty()) json["eos_token_id"] = c.eos_token_ids;
  return to_text(json, 2) + "\n";
}

std::string generation_json(const ModelConfig& c) {
  OrderedJson json = OrderedJson::object();
  if (c.bos_token_id) json["bos_token_id"] = *c.bos_token_id;
  if (!c.eos_token_ids.empty()) json["eos_token_id"] = c.eos_token_ids;
  if (c.generation != SamplingDefaults{})
    SamplingDefaults::fields(c.generation, [&](int, const char* key, auto value, const char*) {
      if constexpr (std::is_floating_point_v<decltype(value)>)
        json[key] = shortest(value);
      else
        json[key] = value;
    });
  return to_text(json, 2) + "\n";
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) throw FatalError(ErrorCode::kIo, path.string() + ": cannot write");
}

void create_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw FatalError(ErrorCode::kIo, folder.string() + ": cannot create: " + error.message());
}

std::uint64_t n_elements(const std::vector<std::int64_t>& shape) {
  std::uint64_t n = 1;
  for (std::int64_t dimension : shape) n *= static_cast<std::uint64_t>(dimension);
  return n;
}

// values(begin, out) fills out with elements begin, begin + 1, … of the tensor.
template <class Values>
void append_elements(SafetensorsWriter& writer, std::uint64_t n, DType dtype, Values values) {
  std::vector<float> piece;
  std::vector<std::byte> bytes;
  for (std::uint64_t begin = 0; begin < n; begin += piece.size()) {
    piece.resize(std::min<std::uint64_t>(kPieceElements, n - begin));
    values(begin, piece);
    bytes.resize(piece.size() * size_bytes(dtype));
    if (!narrow(piece, dtype, bytes))
      throw FatalError(ErrorCode::kConfig,
                       std::string("a weight is beyond the range of ") + dtype_name(dtype));
    writer.append(bytes);
  }
}

std::string shard_name(std::int32_t number, std::int32_t n_shards) {
  if (n_shards == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", number + 1, n_shards);
  return name;
}

// Neighbouring tensors share a shard; each shard has about the same number of bytes and at least
// one tensor.
std::vector<std::vector<ExpectedTensor>> cut_into_shards(std::vector<ExpectedTensor> tensors,
                                                         std::int32_t n_shards) {
  std::uint64_t total = 0;
  for (const ExpectedTensor& tensor : tensors) total += n_elements(tensor.shape);
  std::vector<std::vector<ExpectedTensor>> shards(1);
  std::uint64_t done = 0;
  const std::size_t n = tensors.size();
  for (std::size_t i = 0; i < n; ++i) {
    const auto wanted = static_cast<std::size_t>(n_shards);
    const bool full = done * wanted >= total * shards.size();
    const bool needed = n - i <= wanted - shards.size();  // one tensor for each shard still to come
    if (shards.size() < wanted && !shards.back().empty() && (full || needed)) shards.emplace_back();
    done += n_elements(tensors[i].shape);
    shards.back().push_back(std::move(tensors[i]));
  }
  return shards;
}

void check_recipe(const RandomModelRecipe& recipe) {
  const auto n_tensors = expected_tensors(recipe.config).size();
  if (recipe.n_shards < 1 || static_cast<std::size_t>(recipe.n_shards) > n_tensors) {
    throw FatalError(ErrorCode::kConfig, "cannot write " + std::to_string(recipe.n_shards) +
                                             " shards; 1 to " + std::to_string(n_tensors) +
                                             " are possible");
  }
  if (recipe.dtype != DType::kF32 && recipe.dtype != DType::kBf16 && recipe.dtype != DType::kF16)
    throw FatalError(ErrorCode::kConfig, "random models are float32, bfloat16 or float16");
}

// What we could not read back we do not write.
ModelConfig read_back(const std::filesystem::path& folder,
                      const std::string& config,
                      const std::string& generation) {
  try {
    return parse_model_config(config, generation, "");
  } catch (const FatalError& error) {
    throw FatalError(error.code(),
                     folder.string() + " is not written, as it could not be read: " + error.what());
  }
}

}  // namespace

ModelConfig tiny_config(Family family) {
  const FamilyRow& row = family_row(family);
  ModelConfig c;
  c.family = family;
  c.architecture = row.architecture;
  c.n_layers = 2;
  c.n_hidden = 64;
  c.n_heads = 4;
  c.n_kv_heads = 2;
  c.head_dim = 16;
  c.n_ffn = 160;
  c.vocab_size = 256;
  c.rms_norm_eps = 1e-5f;
  c.qkv_bias = row.qkv_bias_in_code;
  c.qk_norm = row.qk_norm;
  c.max_position_embeddings = 2048;
  c.max_model_len = 2048;
  c.bos_token_id = 1;
  c.eos_token_ids = {2};
  return c;
}

void write_random_model(const std::filesystem::path& folder, const RandomModelRecipe& recipe) {
  check_recipe(recipe);
  const std::string config = config_json(recipe.config, recipe.dtype);
  const std::string generation = generation_json(recipe.config);
  if (expected_tensors(read_back(folder, config, generation)).size() !=
      expected_tensors(recipe.config).size())
    throw FatalError(ErrorCode::kConfig, "a " + std::string(family_name(recipe.config.family)) +
                                             " cannot have these biases and norms");
  create_folder(folder);
  write_text(folder / "config.json", config);
  write_text(folder / "generation_config.json", generation);

  const auto shards = cut_into_shards(expected_tensors(recipe.config), recipe.n_shards);
  std::map<std::string, std::string> weight_map;
  std::uint64_t total_bytes = 0;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const std::string file = shard_name(static_cast<std::int32_t>(s), recipe.n_shards);
    std::vector<SafetensorsWriter::Plan> plan;
    for (const ExpectedTensor& tensor : shards[s]) {
      plan.push_back({tensor.name, tensor_type(recipe.dtype), tensor.shape});
      weight_map[tensor.name] = file;
      total_bytes += n_elements(tensor.shape) * size_bytes(recipe.dtype);
    }
    SafetensorsWriter writer(folder / file, plan);
    for (const ExpectedTensor& tensor : shards[s]) {
      const Noise noise(recipe.seed, tensor.name);
      const Spread spread = spread_of(tensor, recipe);
      append_elements(writer, n_elements(tensor.shape), recipe.dtype,
                      [&](std::uint64_t begin, std::span<float> out) {
                        for (std::size_t i = 0; i < out.size(); ++i)
                          out[i] = spread.mean + spread.deviation * noise.at(begin + i);
                      });
    }
    writer.finish();
  }
  if (recipe.n_shards > 1) write_safetensors_index(folder, weight_map, total_bytes);
}

void write_perturbed_model(const std::filesystem::path& source,
                           const std::filesystem::path& folder,
                           float amplitude,
                           std::uint64_t seed) {
  ModelConfig config = read_model_config(source);
  const Checkpoint checkpoint(source);
  check_tensor_set(config, checkpoint, source);
  if (config.quantized.any())
    throw FatalError(ErrorCode::kUnsupportedModel,
                     source.string() + " is quantised: only float models can be perturbed");
  std::error_code same;
  if (std::filesystem::equivalent(source, folder, same))
    throw FatalError(ErrorCode::kConfig,
                     folder.string() + ": a model cannot be perturbed in place");
  create_folder(folder);
  for (const char* file : {"config.json", "generation_config.json"}) {
    std::error_code error;
    if (!std::filesystem::exists(source / file, error)) continue;
    std::filesystem::copy_file(source / file, folder / file,
                               std::filesystem::copy_options::overwrite_existing, error);
    if (error)
      throw FatalError(ErrorCode::kIo,
                       (folder / file).string() + ": cannot write: " + error.message());
  }
  copy_tokenizer_files(source, folder);
  std::vector<SafetensorsWriter::Plan> plan;
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    const TensorInfo& info = *checkpoint.at(tensor.name).info;
    plan.push_back({info.name, info.type, info.shape});
  }
  std::ranges::stable_sort(plan, std::ranges::greater{},
                           [](const auto& p) { return size_bytes(p.type); });
  SafetensorsWriter writer(folder / "model.safetensors", plan);
  for (const SafetensorsWriter::Plan& tensor : plan) {
    const Checkpoint::Tensor stored = checkpoint.at(tensor.name);
    const DType dtype = *dtype_of(tensor.type);
    std::vector<float> values(stored.info->n_elements());
    widen(dtype, stored.bytes, values);
    double sum_of_squares = 0;
    for (float value : values)
      sum_of_squares += static_cast<double>(value) * static_cast<double>(value);
    const auto step =
        amplitude *
        static_cast<float>(std::sqrt(sum_of_squares / static_cast<double>(values.size())));
    const Noise noise(seed, "perturb " + tensor.name);
    append_elements(writer, values.size(), dtype, [&](std::uint64_t begin, std::span<float> out) {
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = values[begin + i] + step * noise.at(begin + i);
    });
  }
  writer.finish();
  checkpoint.check_unchanged();
}

}  // namespace foretoken
