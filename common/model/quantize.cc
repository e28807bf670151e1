#include "common/model/quantize.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <system_error>
#include <vector>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/result.h"
#include "common/model/batch_stage.h"
#include "common/model/config.h"
#include "common/model/families.h"
#include "common/model/hf_folder.h"
#include "common/model/quantization.h"
#include "common/model/quantization_config.h"
#include "common/model/safetensors.h"
#include "common/model/tensor_set.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kBlockTokens = 16;

[[noreturn]] void cannot_write(const fs::path& file, const std::string& why) {
  throw FatalError(ErrorCode::kIo, file.string() + ": cannot write: " + why);
}

bool is_weights(const fs::path& file) {
  return file.extension() == ".safetensors" || file.filename() == "model.safetensors.index.json" ||
         file.filename() == "config.json";
}

void copy_the_rest(const fs::path& source, const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(source)) {
    if (!entry.is_regular_file() || is_weights(entry.path())) continue;
    std::error_code error;
    fs::copy_file(entry.path(), folder / entry.path().filename(), error);
    if (error) cannot_write(folder / entry.path().filename(), error.message());
  }
}

void write_config(const fs::path& source, const fs::path& folder, const QuantizeOptions& options) {
  const std::string text = value_or_throw(read_text_file(source / "config.json", kMaxConfigBytes));
  Json config = value_or_throw(parse_json(text));
  std::vector<std::string> ignore;
  if (!options.with_lm_head) ignore.emplace_back("lm_head");
  Json quantization = quantization_json(options.to, ignore);
  // A float model may have scales for its cache: they stay, and what they are for.
  for (const char* key : {"compression_config", "quantization_config"}) {
    const auto old = config.find(key);
    if (old == config.end()) continue;
    if (old->is_object() && old->contains("kv_cache_scheme"))
      quantization["kv_cache_scheme"] = (*old)["kv_cache_scheme"];
    config.erase(key);
  }
  config["quantization_config"] = std::move(quantization);
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
  Writer(const fs::path& source, const fs::path& folder, const QuantizeOptions& options)
      : folder_(folder),
        options_(options),
        config_(read_model_config(source)),
        checkpoint_(source) {
    if (config_.quantized)
      throw FatalError(ErrorCode::kUnsupportedModel, source.string() + " is quantised already");
    check_tensor_set(config_, checkpoint_, source);
    for (const ExpectedTensor& tensor : expected_tensors(config_)) {
      if (tensor.shape.size() != 2 || tensor.name == names::kEmbedding ||
          (!options.with_lm_head && tensor.name == names::kHead))
        continue;
      const std::string file = checkpoint_.at(tensor.name).file->path().string();
      if (const auto why = rows_too_long(file, tensor.name, options.to, tensor.shape[1]))
        throw FatalError(ErrorCode::kUnsupportedModel, *why);
      linears_.insert({tensor.name, tensor.shape});
    }
  }

  QuantizeResult write();

 private:
  void write_file(const std::string& file, const std::vector<std::string>& tensors);

  const fs::path folder_;
  const QuantizeOptions& options_;
  ModelConfig config_;
  Checkpoint checkpoint_;
  std::map<std::string, std::vector<std::int64_t>, std::less<>> linears_;
  std::map<std::string, std::string> weight_map_;
  QuantizeResult result_;
  std::uint64_t done_ = 0;
};

QuantizeResult Writer::write() {
  result_.bytes_before = checkpoint_.total_bytes();
  std::map<std::string, std::vector<std::string>> by_file;
  for (const std::string& name : checkpoint_.names())
    by_file[checkpoint_.at(name).file->path().filename().string()].push_back(name);
  for (const auto& [file, tensors] : by_file) write_file(file, tensors);
  // A single file of another name is found by the index only.
  if (by_file.size() != 1 || !by_file.contains("model.safetensors"))
    write_safetensors_index(folder_, weight_map_, result_.bytes_after);
  checkpoint_.check_unchanged();
  return result_;
}

// Scales are small and wanted before the codes they belong to are: all codes of a file are made
// twice rather than kept, so that memory holds one tensor.
void Writer::write_file(const std::string& file, const std::vector<std::string>& tensors) {
  std::vector<SafetensorsWriter::Plan> plan;
  std::map<std::string, std::vector<float>> scales;
  QuantisedMatrix matrix;
  const auto quantise = [&](const std::string& name) {
    const Checkpoint::Tensor tensor = checkpoint_.at(name);
    const auto& shape = linears_.at(name);
    if (!quantise_rows(*dtype_of(tensor.info->type), tensor.bytes, shape[0], shape[1], options_.to,
                       matrix))
      throw FatalError(ErrorCode::kMalformed, *what_is_not_finite(tensor));
  };
  for (const std::string& name : tensors) {
    const TensorInfo& info = *checkpoint_.at(name).info;
    const auto linear = linears_.find(name);
    weight_map_[name] = file;
    if (linear == linears_.end()) {
      plan.push_back({name, info.type, info.shape});
      continue;
    }
    quantise(name);
    plan.push_back({name, tensor_type(options_.to), info.shape});
    plan.push_back({scale_name(name), TensorType::kF32, {linear->second[0], 1}});
    weight_map_[scale_name(name)] = file;
    scales[scale_name(name)] = matrix.scales;
    ++result_.n_quantised;
  }
  std::ranges::stable_sort(plan, std::ranges::greater{},
                           [](const auto& p) { return size_bytes(p.type); });
  SafetensorsWriter writer(folder_ / file, plan);
  for (const SafetensorsWriter::Plan& tensor : plan) {
    std::span<const std::byte> bytes;
    if (const auto scale = scales.find(tensor.name); scale != scales.end()) {
      bytes = std::as_bytes(std::span(scale->second));
    } else if (linears_.contains(tensor.name)) {
      quantise(tensor.name);
      bytes = matrix.codes;
    } else {
      bytes = checkpoint_.at(tensor.name).bytes;
    }
    writer.append(bytes);
    result_.bytes_after += bytes.size();
    if (checkpoint_.contains(tensor.name)) done_ += checkpoint_.at(tensor.name).bytes.size();
    if (options_.on_progress) options_.on_progress(done_, result_.bytes_before);
  }
  writer.finish();
}

// One sequence in a cache of its own, a chunk at a time.
class Reading {
 public:
  Reading(Model& model, Backend& backend, std::size_t n_tokens)
      : model_(model), backend_(backend), stage_(model, backend) {
    kv_.geometry = model.kv_geometry(kBlockTokens);
    kv_.n_blocks = static_cast<std::int32_t>((n_tokens + kBlockTokens - 1) / kBlockTokens);
    blocks_ = backend.allocate(kv_.geometry.block_bytes() * static_cast<std::size_t>(kv_.n_blocks));
    kv_.blocks = blocks_.as<std::byte>();
    table_.resize(static_cast<std::size_t>(kv_.n_blocks));
    std::iota(table_.begin(), table_.end(), 0);
  }

  // Logits of every token, [tokens.size(), vocab].
  const std::vector<float>& next(std::span<const TokenId> tokens) {
    ForwardBatch batch;
    batch.tokens.assign(tokens.begin(), tokens.end());
    batch.slices = {{0, static_cast<std::uint32_t>(tokens.size()), length_, table_}};
    batch.logit_rows.resize(tokens.size());
    std::iota(batch.logit_rows.begin(), batch.logit_rows.end(), 0);
    values_.resize(tokens.size() * static_cast<std::size_t>(model_.config().vocab_size));
    const std::size_t bytes = values_.size() * sizeof(float);
    if (logits_.size_bytes() < bytes) logits_ = backend_.allocate(bytes);
    model_.forward(stage_.upload(batch, kv_), kv_, logits_.as<float>());
    backend_.download(values_.data(), logits_.as<float>(), bytes);
    length_ += static_cast<Position>(tokens.size());
    return values_;
  }

 private:
  Model& model_;
  Backend& backend_;
  BatchStage stage_;
  PagedKv kv_;
  Buffer blocks_, logits_;
  std::vector<std::int32_t> table_;
  std::vector<float> values_;
  Position length_ = 0;
};

double log_sum_exp(std::span<const float> logits) {
  const double largest = static_cast<double>(*std::ranges::max_element(logits));
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

void add_row(std::span<const float> reference, std::span<const float> other, LogitDifference& d) {
  const auto top = [](std::span<const float> row) {
    return std::ranges::max_element(row) - row.begin();
  };
  ++d.n_positions;
  d.n_same_top += top(reference) == top(other);
  const double reference_total = log_sum_exp(reference), other_total = log_sum_exp(other);
  double mean = 0;
  for (float logit : reference) mean += static_cast<double>(logit);
  mean /= static_cast<double>(reference.size());
  for (std::size_t v = 0; v < reference.size(); ++v) {
    const auto p = static_cast<double>(reference[v]), q = static_cast<double>(other[v]);
    d.rms += (q - p) * (q - p);
    d.rms_reference += (p - mean) * (p - mean);
    d.largest = std::max(d.largest, std::abs(q - p));
    d.mean_kl += std::exp(p - reference_total) * ((p - reference_total) - (q - other_total));
  }
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
  copy_the_rest(source, folder.path());
  const QuantizeResult result = writer.write();
  write_config(source, folder.path(), options);
  folder.finish();
  return result;
}

LogitDifference compare_logits(Model& reference,
                               Model& other,
                               Backend& backend,
                               std::span<const TokenId> tokens) {
  FORETOKEN_CHECK(reference.config().vocab_size == other.config().vocab_size);
  const auto vocab = static_cast<std::size_t>(reference.config().vocab_size);
  const auto chunk =
      static_cast<std::size_t>(std::min({reference.max_rows(), other.max_rows(), 64}));
  Reading one(reference, backend, tokens.size()), two(other, backend, tokens.size());
  LogitDifference d;
  for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const auto part = tokens.subspan(begin, std::min(chunk, tokens.size() - begin));
    const std::span<const float> p = one.next(part), q = two.next(part);
    for (std::size_t row = 0; row < part.size(); ++row)
      add_row(p.subspan(row * vocab, vocab), q.subspan(row * vocab, vocab), d);
  }
  const double n_rows = std::max(1.0, static_cast<double>(d.n_positions));
  const double n_logits = n_rows * static_cast<double>(vocab);
  d.rms = std::sqrt(d.rms / n_logits);
  d.rms_reference = std::sqrt(d.rms_reference / n_logits);
  d.mean_kl /= n_rows;
  return d;
}

}  // namespace foretoken
