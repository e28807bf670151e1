#include "common/model/quantize.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/result.h"
#include "common/model/config.h"
#include "common/model/convert.h"
#include "common/model/families.h"
#include "common/model/held_weights.h"
#include "common/model/hf_folder.h"
#include "common/model/int4.h"
#include "common/model/quantization.h"
#include "common/model/quantization_config.h"
#include "common/model/safetensors.h"
#include "common/model/stored_tensor.h"
#include "common/model/tensor_set.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void cannot_write(const fs::path& file, const std::string& why) {
  throw FatalError(ErrorCode::kIo, file.string() + ": cannot write: " + why);
}

bool is_weights(const fs::path& file) {
  return file.extension() == ".safetensors" || file.filename() == "model.safetensors.index.json" ||
         file.filename() == "config.json";
}

std::int64_t group_of(const ModelConfig& config, const QuantizeOptions& options) {
  return options.group != 0 ? options.group : int4_group(config, options.with_down_projections);
}

// "int4 and int8".
std::string types_text(const QuantisedTypes& types) {
  std::string names = types.int4_group != 0 ? "int4" : "";
  if (types.in_8_bits)
    names += (names.empty() ? "" : " and ") + std::string(dtype_name(*types.in_8_bits));
  return names;
}

// What to do about a row that is no whole groups.
std::string way_out(std::string_view linear, std::int64_t group) {
  if (!is_held_in_int4(linear, Int4Kind::kOffset)) return "leave down projections in eight bits";
  return group > 32 ? "use smaller groups, or int8" : "use int8";
}

void copy_the_rest(const fs::path& source, const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(source)) {
    if (!entry.is_regular_file() || is_weights(entry.path())) continue;
    std::error_code error;
    fs::copy_file(entry.path(), folder / entry.path().filename(), error);
    if (error) cannot_write(folder / entry.path().filename(), error.message());
  }
  copy_additional_templates(source, folder);
}

Json quantization_of(const ModelConfig& config, const QuantizeOptions& options) {
  // Other programs have a module of that name for a tied head, too: it must stay as it is.
  const bool has_head = options.with_lm_head && !config.tie_word_embeddings;
  std::vector<std::string> ignore;
  if (!has_head) ignore.emplace_back("lm_head");
  if (options.to != DType::kI4)
    return quantization_json(std::array{QuantisedModules{options.to, 0, {"Linear"}}}, ignore);
  std::vector<std::string> in_8_bits;
  if (!options.with_down_projections) in_8_bits.emplace_back("re:.*[.]mlp[.]down_proj$");
  if (has_head) in_8_bits.emplace_back("lm_head");
  std::vector modules{QuantisedModules{DType::kI4, group_of(config, options), {"Linear"}}};
  if (!in_8_bits.empty()) modules.push_back({DType::kI8, 0, in_8_bits});
  return quantization_json(modules, ignore);
}

void write_config(const fs::path& source,
                  const fs::path& folder,
                  const ModelConfig& model,
                  const QuantizeOptions& options) {
  const std::string text = value_or_throw(read_text_file(source / "config.json", kMaxConfigBytes));
  Json config = value_or_throw(parse_json(text));
  Json quantization = quantization_of(model, options);
  // A float model may have scales for its cache: they stay, and what they are for.
  for (const char* key : {"compression_config", "quantization_config"}) {
    const auto old = config.find(key);
    if (old == config.end()) continue;
    if (old->is_object() && old->contains("kv_cache_scheme"))
      quantization["kv_cache_scheme"] = (*old)["kv_cache_scheme"];
    config.erase(key);
  }
  config["quantization_config"] = std::move(quantization);
  // The head in the file counted, and its codes may have another name.
  if (!model.tie_word_embeddings && config.contains("tie_word_embeddings"))
    config["tie_word_embeddings"] = false;
  std::ofstream out(folder / "config.json");
  out << to_text(config, 2) << "\n";
  if (!out.flush()) cannot_write(folder / "config.json", "the disk is full?");
}

// A folder under a name of its own until everything is in it. What was not finished is removed.
class Unfinished {
 public:
  explicit Unfinished(const fs::path& wanted)
      : wanted_(wanted), path_(wanted.string() + ".partial") {}
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  ~Unfinished() {
    std::error_code ignored;
    if (created_) fs::remove_all(path_, ignored);
  }

  const fs::path& path() const { return path_; }

  // A partial folder that is there is not touched: another run may be writing it.
  void create() {
    std::error_code error;
    if (fs::exists(wanted_, error))
      throw FatalError(ErrorCode::kConfig, wanted_.string() + " exists already");
    if (fs::exists(path_, error))
      throw FatalError(ErrorCode::kConfig, path_.string() +
                                               " exists: another run is writing it, or one was cut "
                                               "off; then remove it");
    created_ = fs::create_directories(path_, error);
    if (error) cannot_write(path_, error.message());
  }
  void finish() {
    std::error_code error;
    fs::rename(path_, wanted_, error);
    if (error) cannot_write(wanted_, error.message());
    created_ = false;
  }

 private:
  fs::path wanted_, path_;
  bool created_ = false;
};

class Writer {
 public:
  Writer(const fs::path& source, const fs::path& folder, const QuantizeOptions& options);

  const ModelConfig& config() const { return config_; }
  // Scales are chosen for these inputs, of each linear of four bits.
  void weigh_by(InputSquares inputs) { inputs_ = std::move(inputs); }
  QuantizeResult write();

 private:
  // A tensor of the folder, and what it is made from.
  struct Part {
    SafetensorsWriter::Plan plan;
    std::string source;
    enum class Content : std::uint8_t { kSource, kCodes, kSmall } content = Content::kSource;
  };
  // What is small is wanted before the codes it belongs to are, so it is kept; codes are made
  // twice, so that memory holds one matrix.
  using Small = std::map<std::string, std::vector<std::byte>>;

  DType stored_in(std::string_view linear) const;
  std::span<const float> importance_of(const std::string& linear) const;
  void quantise(const std::string& name);
  void add_linear(const std::string& name, std::vector<Part>& parts, Small& small);
  void write_file(const std::string& file, const std::vector<std::string>& tensors);

  const fs::path folder_;
  const QuantizeOptions& options_;
  InputSquares inputs_;  // empty: every column counts alike
  ModelConfig config_;
  Checkpoint checkpoint_;
  std::map<std::string, std::vector<std::int64_t>, std::less<>> linears_;
  std::map<std::string, std::string> weight_map_;
  QuantizeResult result_;
  std::uint64_t done_ = 0;
  QuantisedMatrix matrix_;  // what quantise() made
};

Writer::Writer(const fs::path& source, const fs::path& folder, const QuantizeOptions& options)
    : folder_(folder), options_(options), config_(read_model_config(source)), checkpoint_(source) {
  if (config_.quantized.any())
    throw FatalError(ErrorCode::kUnsupportedModel, source.string() + " is quantised already, to " +
                                                       types_text(config_.quantized) +
                                                       "; give a folder with float weights");
  check_tensor_set(config_, checkpoint_, source);
  for (const ExpectedTensor& tensor : expected_tensors(config_)) {
    if (tensor.shape.size() != 2 || tensor.name == names::kEmbedding ||
        (!options.with_lm_head && tensor.name == names::kHead))
      continue;
    const std::string file = checkpoint_.at(tensor.name).file->path().string();
    const DType to = stored_in(tensor.name);
    if (const auto why = rows_too_long(file, tensor.name, to, tensor.shape[1]))
      throw FatalError(ErrorCode::kUnsupportedModel, *why);
    // Others' loaders refuse a group that is not whole.
    if (const std::int64_t group = group_of(config_, options);
        to == DType::kI4 && tensor.shape[1] % group != 0)
      throw FatalError(ErrorCode::kUnsupportedModel,
                       file + ": tensor " + tensor.name + " has rows of " +
                           std::to_string(tensor.shape[1]) +
                           " elements, which are no whole groups of " + std::to_string(group) +
                           ": " + way_out(tensor.name, group));
    linears_.insert({tensor.name, tensor.shape});
  }
}

DType Writer::stored_in(std::string_view linear) const {
  const bool in_4_bits = is_held_in_int4(linear, Int4Kind::kOffset) ||
                         (options_.with_down_projections && linear != names::kHead);
  return options_.to != DType::kI4 || in_4_bits ? options_.to : DType::kI8;
}

QuantizeResult Writer::write() {
  result_.bytes_before = checkpoint_.total_bytes();
  std::map<std::string, std::vector<std::string>> by_file;
  for (const std::string& name : checkpoint_.names())
    by_file[checkpoint_.at(name).file->path().filename().string()].push_back(name);
  for (const auto& [file, tensors] : by_file) write_file(file, tensors);
  // Other loaders find a single file of another name by the index only.
  if (by_file.size() != 1 || !by_file.contains("model.safetensors"))
    write_safetensors_index(folder_, weight_map_, result_.bytes_after);
  checkpoint_.check_unchanged();
  return result_;
}

std::span<const float> Writer::importance_of(const std::string& linear) const {
  if (inputs_.empty()) return {};
  return inputs_.at(linear);
}

void Writer::quantise(const std::string& name) {
  const Checkpoint::Tensor tensor = checkpoint_.at(name);
  const auto& shape = linears_.at(name);
  const DType from = *dtype_of(tensor.info->type), to = stored_in(name);
  const bool is_finite =
      to == DType::kI4
          ? quantise_to_int4_words({group_of(config_, options_), from, importance_of(name)},
                                   tensor.bytes, shape[0], shape[1], matrix_)
          : quantise_rows(from, tensor.bytes, shape[0], shape[1], to, matrix_);
  if (!is_finite) throw FatalError(ErrorCode::kMalformed, *what_is_not_finite(tensor));
  if (to == DType::kI8) matrix_.codes = pack_int8(matrix_.codes, shape[0], shape[1]);
}

// Codes of integers are words, with the shape beside; those of floats have the tensor's own name.
void Writer::add_linear(const std::string& name, std::vector<Part>& parts, Small& small) {
  const auto& shape = linears_.at(name);
  const std::int64_t n_out = shape[0], n_in = shape[1];
  const DType to = stored_in(name);
  const bool is_int4 = to == DType::kI4;
  quantise(name);
  const auto add_small = [&](const std::string& part, TensorType type,
                             std::vector<std::int64_t> part_shape,
                             std::span<const std::byte> bytes) {
    parts.push_back({{part, type, std::move(part_shape)}, name, Part::Content::kSmall});
    small[part] = {bytes.begin(), bytes.end()};
  };
  if (to == DType::kF8E4M3) {
    parts.push_back({{name, tensor_type(to), shape}, name, Part::Content::kCodes});
  } else {
    parts.push_back(
        {{packed_name(name), TensorType::kI32, {n_out, is_int4 ? (n_in + 7) / 8 : (n_in + 3) / 4}},
         name,
         Part::Content::kCodes});
    add_small(name + "_shape", TensorType::kI64, {2}, std::as_bytes(std::span(shape)));
  }
  const DType type =
      to == DType::kF8E4M3 ? DType::kF32 : *dtype_of(checkpoint_.at(name).info->type);
  std::vector<std::byte> scales(matrix_.scales.size() * size_bytes(type));
  // The scales were chosen among those that the type has.
  FORETOKEN_CHECK(narrow(matrix_.scales, type, scales));
  const std::int64_t n_groups = is_int4 ? n_in / group_of(config_, options_) : 1;
  add_small(scale_name(name), tensor_type(type), {n_out, n_groups}, scales);
  ++result_.n_quantised;
  result_.n_in_8_bits += !is_int4;
}

void Writer::write_file(const std::string& file, const std::vector<std::string>& tensors) {
  std::vector<Part> parts;
  Small small;
  for (const std::string& name : tensors) {
    const TensorInfo& info = *checkpoint_.at(name).info;
    if (linears_.contains(name))
      add_linear(name, parts, small);
    else
      parts.push_back({{name, info.type, info.shape}, name});
  }
  std::ranges::stable_sort(parts, std::ranges::greater{},
                           [](const Part& part) { return size_bytes(part.plan.type); });
  std::vector<SafetensorsWriter::Plan> plan;
  for (const Part& part : parts) {
    plan.push_back(part.plan);
    weight_map_[part.plan.name] = file;
  }
  SafetensorsWriter writer(folder_ / file, plan);
  for (const Part& part : parts) {
    std::span<const std::byte> bytes = checkpoint_.at(part.source).bytes;
    if (part.content != Part::Content::kSmall) done_ += bytes.size();
    if (part.content == Part::Content::kSmall) bytes = small.at(part.plan.name);
    if (part.content == Part::Content::kCodes) {
      quantise(part.source);
      bytes = matrix_.codes;
    }
    writer.append(bytes);
    result_.bytes_after += bytes.size();
    if (options_.on_progress) options_.on_progress(done_, result_.bytes_before);
  }
  writer.finish();
}

}  // namespace

QuantizeResult quantize_model(const fs::path& source,
                              const fs::path& out,
                              const QuantizeOptions& options) {
  FORETOKEN_CHECK(is_quantised(options.to));
  const fs::path wanted = out.has_filename() ? out : out.parent_path();  // "out/" is "out"
  Unfinished folder(wanted);
  Writer writer(source, folder.path(), options);
  folder.create();
  if (options.measure_inputs) writer.weigh_by(options.measure_inputs());
  copy_the_rest(source, folder.path());
  const QuantizeResult result = writer.write();
  write_config(source, folder.path(), writer.config(), options);
  folder.finish();
  return result;
}

}  // namespace foretoken
