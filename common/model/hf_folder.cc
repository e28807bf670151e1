#include "common/model/hf_folder.h"

#include <algorithm>
#include <system_error>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/model/config_fields.h"
#include "common/model/families.h"
#include "common/model/head_ids.h"
#include "common/model/quantization_config.h"
#include "common/model/rope_fields.h"
#include "common/model/safetensors.h"

namespace foretoken {
namespace {

Json parse_object(std::string_view text, const std::string& file) {
  auto parsed =
      parse_json(text, {.max_bytes = kMaxConfigBytes, .max_depth = 32, .max_nodes = 100'000});
  if (!parsed.ok()) throw FatalError(parsed.error().code, file + ": " + parsed.error().message);
  if (!parsed->is_object())
    throw FatalError(ErrorCode::kMalformed, file + ": must be a JSON object");
  return std::move(parsed).value();
}

std::string architecture_of(const ConfigFields& fields) {
  const Json* list = fields.find("architectures");
  if (list == nullptr) return {};
  if (!list->is_array() || list->empty() || !list->front().is_string())
    fields.expected("architectures", "a list that begins with a class name");
  return list->front().get<std::string>();
}

const FamilyRow& family_of(const ConfigFields& fields, std::string& architecture) {
  architecture = architecture_of(fields);
  const std::string model_type = fields.text_or("model_type", "");
  const FamilyRow* row = find_family(architecture, model_type);
  if (row == nullptr) {
    const std::string found =
        architecture.empty() ? "model_type \"" + model_type + "\"" : architecture;
    throw FatalError(
        ErrorCode::kUnsupportedModel,
        fields.file() + ": " + found + " is not supported; supported: " + supported_families());
  }
  if (architecture.empty()) architecture = row->architecture;
  return *row;
}

// What would change the arithmetic in a way we do not compute.
void refuse_unsupported(const ConfigFields& fields) {
  for (const char* field :
       {"num_local_experts", "num_experts", "n_routed_experts", "moe_intermediate_size"}) {
    const Json* value = fields.find(field);
    if (value != nullptr && !(value->is_number() && value->get<double>() == 0))
      fields.refuse(ErrorCode::kUnsupportedModel, field,
                    "is set: mixtures of experts are not supported");
  }
  const std::string act = fields.text_or("hidden_act", "silu");
  if (act != "silu" && act != "swish")
    fields.refuse(ErrorCode::kUnsupportedModel, "hidden_act",
                  "is \"" + act.substr(0, 40) + "\"; supported: silu");
  if (fields.flag_or("rope_interleaved", false))
    fields.refuse(ErrorCode::kUnsupportedModel, "rope_interleaved",
                  "is true; supported: RoPE that pairs the halves of a head");
  if (fields.number_or("partial_rotary_factor", 0, 1, 1) != 1)
    fields.refuse(ErrorCode::kUnsupportedModel, "partial_rotary_factor",
                  "is not 1: partial rotation is not supported");
}

// Whether any layer is of the type "sliding_attention"; other types but "full_attention" are
// refused.
bool has_sliding_layer(const ConfigFields& fields, const Json& types, std::int32_t n_layers) {
  if (!types.is_array()) fields.expected("layer_types", "a list");
  if (types.size() != static_cast<std::size_t>(n_layers))
    fields.expected("layer_types", "a list of " + std::to_string(n_layers) + " types");
  bool found = false;
  for (const Json& type : types) {
    if (type == "sliding_attention")
      found = true;
    else if (type != "full_attention")
      fields.refuse(ErrorCode::kUnsupportedModel, "layer_types",
                    "has " + to_text(type).substr(0, 60) +
                        "; supported: \"full_attention\", \"sliding_attention\"");
  }
  return found;
}

// The sliding window that is in force in some layer; 0: none is. The reference's config classes
// have a window of 4096 where the file has no such key; null means none.
std::int64_t read_window(const ConfigFields& fields, const FamilyRow& row, std::int32_t n_layers) {
  constexpr std::int64_t kDefaultWindow = 4096;
  const Json* types = fields.find("layer_types");
  const bool slides = types != nullptr && has_sliding_layer(fields, *types, n_layers);
  const bool switched_on =
      row.window == WindowRule::kIfSwitch && fields.flag_or("use_sliding_window", false);
  if (slides && row.window != WindowRule::kIfSet && !switched_on)
    fields.refuse(ErrorCode::kUnsupportedModel, "layer_types",
                  "has \"sliding_attention\", and no window is switched on");
  if (row.window == WindowRule::kNone) return 0;
  if (row.window == WindowRule::kIfSwitch) {
    if (!switched_on) return 0;
    if (types != nullptr && !slides) return 0;  // the list, not the count below, decides
    // Absent, Qwen's default of 28 layers counts.
    if (types == nullptr && fields.integer_or("max_window_layers", 0, 1 << 20, 28) >= n_layers)
      return 0;
  }
  if (!fields.object().contains("sliding_window")) return kDefaultWindow;
  return fields.has("sliding_window") ? fields.integer("sliding_window", 1, kMaxPositions) : 0;
}

void read_shape(const ConfigFields& fields, const FamilyRow& row, ModelConfig& c) {
  const auto dimension = [&](const char* field, std::int64_t low, std::int64_t high) {
    return static_cast<std::int32_t>(fields.integer(field, low, high));
  };
  c.n_layers = dimension("num_hidden_layers", 1, 1024);
  c.n_hidden = dimension("hidden_size", 1, 1 << 17);
  c.n_heads = dimension("num_attention_heads", 1, 1024);
  c.n_ffn = dimension("intermediate_size", 1, 1 << 20);
  c.vocab_size = dimension("vocab_size", 2, 1 << 22);
  c.n_kv_heads = row.needs_n_kv_heads || fields.has("num_key_value_heads")
                     ? dimension("num_key_value_heads", 1, c.n_heads)
                     : c.n_heads;
  if (c.n_heads % c.n_kv_heads != 0)
    fields.expected("num_key_value_heads",
                    "a divisor of num_attention_heads, " + std::to_string(c.n_heads));
  constexpr std::int32_t kMostHeadDim = 512;
  const std::string supported = "; supported: even numbers to " + std::to_string(kMostHeadDim);
  if (fields.has("head_dim")) {
    c.head_dim = dimension("head_dim", 1, 1 << 17);
    if (c.head_dim % 2 != 0 || c.head_dim > kMostHeadDim)
      fields.refuse(ErrorCode::kUnsupportedModel, "head_dim",
                    "is " + std::to_string(c.head_dim) + supported);
    return;
  }
  c.head_dim = row.default_head_dim;
  if (c.head_dim != 0) return;
  if (c.n_hidden % c.n_heads != 0)
    fields.expected("hidden_size", "a multiple of num_attention_heads, " +
                                       std::to_string(c.n_heads) + ", or head_dim given");
  c.head_dim = c.n_hidden / c.n_heads;
  if (c.head_dim % 2 != 0 || c.head_dim > kMostHeadDim)
    fields.refuse(
        ErrorCode::kUnsupportedModel, "hidden_size",
        "divided by num_attention_heads gives heads of " + std::to_string(c.head_dim) + supported);
}

DType read_dtype(const ConfigFields& fields) {
  const char* field = fields.has("dtype") ? "dtype" : "torch_dtype";
  const std::string name = fields.text_or(field, "float32");
  for (DType dtype : {DType::kF32, DType::kBf16, DType::kF16})
    if (dtype_name(dtype) == name) return dtype;
  fields.refuse(ErrorCode::kUnsupportedModel, field,
                "is \"" + name.substr(0, 40) + "\"; supported: float32, bfloat16, float16");
}

std::vector<TokenId> read_token_ids(const ConfigFields& fields,
                                    const char* field,
                                    std::int32_t vocab_size) {
  const Json* value = fields.find(field);
  if (value == nullptr) return {};
  const Json list = value->is_array() ? *value : Json::array({*value});
  std::vector<TokenId> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() >= vocab_size)
      fields.expected(field,
                      "a token id, or a list of them, from 0 to " + std::to_string(vocab_size - 1));
    ids.push_back(id.get<TokenId>());
  }
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

void read_generation(const ConfigFields& fields, ModelConfig& c) {
  if (fields.has("eos_token_id"))
    c.eos_token_ids = read_token_ids(fields, "eos_token_id", c.vocab_size);
  auto& g = c.generation;
  if (fields.has("temperature"))
    g.temperature = static_cast<float>(fields.number("temperature", 0, 100));
  // A file that says do_sample: false wants greedy, whatever temperature it also carries.
  if (fields.has("do_sample") && !fields.flag_or("do_sample", false)) g.temperature = 0.0f;
  if (fields.has("top_k"))
    g.top_k = static_cast<std::uint32_t>(fields.integer("top_k", 0, 0x7fffffff));
  if (fields.has("top_p")) g.top_p = static_cast<float>(fields.number("top_p", 1e-6, 1));
  if (fields.has("min_p")) g.min_p = static_cast<float>(fields.number("min_p", 0, 0.999999));
  if (fields.has("repetition_penalty"))
    g.repetition_penalty = static_cast<float>(fields.number("repetition_penalty", 1e-6, 100));
}

}  // namespace

ModelConfig parse_model_config(std::string_view config,
                               std::string_view generation,
                               std::string_view folder_name) {
  const std::string file = (std::filesystem::path(folder_name) / "config.json").string();
  const Json object = parse_object(config, file);
  const ConfigFields fields(object, file);

  ModelConfig c;
  const FamilyRow& row = family_of(fields, c.architecture);
  c.family = row.family;
  refuse_unsupported(fields);
  read_shape(fields, row, c);
  c.sliding_window = read_window(fields, row, c.n_layers);
  c.rms_norm_eps = static_cast<float>(fields.number_or("rms_norm_eps", 0, 1, 1e-6));
  c.max_position_embeddings = fields.integer("max_position_embeddings", 1, kMaxPositions);
  c.rope = read_rope(fields, c.max_position_embeddings);
  c.tie_word_embeddings = fields.flag_or("tie_word_embeddings", false);
  const bool attention_bias = row.reads_attention_bias && fields.flag_or("attention_bias", false);
  c.qkv_bias = row.qkv_bias_in_code || attention_bias;
  c.o_bias = attention_bias;
  c.mlp_bias = row.reads_mlp_bias && fields.flag_or("mlp_bias", false);
  c.qk_norm = row.qk_norm;
  c.checkpoint_dtype = read_dtype(fields);
  // The second spelling is that of older compressed-tensors.
  for (const char* field : {"quantization_config", "compression_config"})
    if (const Json* value = fields.find(field); value != nullptr && !c.quantized.any()) {
      const Quantization quantization = parse_quantization(*value, file);
      c.quantized = quantization.linears;
      if (!c.kv_scheme.is_given) c.kv_scheme = quantization.kv;
    }
  if (fields.has("bos_token_id")) {
    const auto bos = read_token_ids(fields, "bos_token_id", c.vocab_size);
    if (!bos.empty()) c.bos_token_id = bos.front();
  }
  c.eos_token_ids = read_token_ids(fields, "eos_token_id", c.vocab_size);
  if (!generation.empty()) {
    const std::string generation_file =
        (std::filesystem::path(folder_name) / "generation_config.json").string();
    const Json generation_object = parse_object(generation, generation_file);
    read_generation(ConfigFields(generation_object, generation_file), c);
  }
  if (context_length(c) > kMaxPositions)
    fields.expected("max_position_embeddings",
                    "at most " + std::to_string(kMaxPositions) + " after RoPE scaling");
  c.max_model_len = context_length(c);
  return c;
}

void copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", "added_tokens.json", "tokenizer_config.json",
        "special_tokens_map.json", "chat_template.jinja"}) {
    std::error_code error;
    if (!std::filesystem::exists(from / name, error)) continue;
    std::filesystem::copy_file(from / name, to / name,
                               std::filesystem::copy_options::overwrite_existing, error);
    if (error)
      throw FatalError(ErrorCode::kIo, (to / name).string() + ": cannot write: " + error.message());
  }
  copy_additional_templates(from, to);
}

ModelConfig read_model_config(const std::filesystem::path& folder) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(folder, error);
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw FatalError(ErrorCode::kIo, folder.string() + ": cannot be read: " + error.message());
  if (!is_folder)
    throw FatalError(ErrorCode::kIo,
                     folder.string() + ": is not a folder; expected a Hugging Face model folder");
  const std::string config =
      value_or_throw(read_text_file(folder / "config.json", kMaxConfigBytes));
  const auto generation_path = folder / "generation_config.json";
  std::string generation;
  if (std::filesystem::exists(generation_path, error))
    generation = value_or_throw(read_text_file(generation_path, kMaxConfigBytes));
  ModelConfig parsed = parse_model_config(config, generation, folder.string());
  for (const SeparateQuantizationFile& file : kSeparateQuantizationFiles)
    if (const auto path = folder / file.name;
        !parsed.quantized.any() && std::filesystem::exists(path, error)) {
      const std::string text = value_or_throw(read_text_file(path, kMaxConfigBytes));
      const Json object = parse_object(text, path.string());
      parsed.quantized = parse_separate_quantization(file, object, path.string()).linears;
    }
  parsed.head_ids = read_head_ids(folder, parsed);
  return parsed;
}

void copy_additional_templates(const std::filesystem::path& from, const std::filesystem::path& to) {
  const std::filesystem::path name = "additional_chat_templates";
  std::error_code error;
  if (!std::filesystem::is_directory(from / name, error)) return;
  // Without `recursive` nothing of a folder is copied, and that is no error.
  std::filesystem::copy(
      from / name, to / name,
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing,
      error);
  if (error)
    throw FatalError(ErrorCode::kIo, (to / name).string() + ": cannot write: " + error.message());
}

}  // namespace foretoken
