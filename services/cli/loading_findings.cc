#include "services/cli/loading_findings.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "common/config/models.h"
#include "common/config/resolve.h"
#include "common/model/load_model.h"
#include "common/model/shard.h"
#include "services/cli/model_storage.h"

namespace foretoken::cli {
namespace {

std::string setting_of(const std::string& key, const std::string& value) {
  return key + " = \"" + value + "\"";
}

bool holds_four_bits(const ModelInfo& info, WeightDType dtype) {
  return dtype == WeightDType::kI4 ||
         (dtype == WeightDType::kAuto &&
          std::ranges::find(info.stored, DType::kI4) != info.stored.end());
}

// Not by the words "demo" and "self:int4", for which there is another folder in each place.
bool is_configured(const std::filesystem::path& folder, const std::string& configured) {
  std::error_code missing;  // another host's, perhaps
  return std::filesystem::equivalent(folder, configured, missing);
}

}  // namespace

const ComputeSection& LoadedAs::compute() const {
  if (is_draft) return config.draft;
  return config.target;
}

std::string LoadedAs::key(const std::string& name) const {
  return (is_draft ? "draft." : "target.") + name;
}

bool LoadedAs::is_self_draft() const { return is_draft && config.model.draft == kSelfDraft; }

LoadedAs loaded_as(const std::filesystem::path& folder,
                   const ModelInfo& info,
                   const LoadedConfig& loaded) {
  const std::vector<ModelInstances> models = models_of(loaded);
  for (const ModelInstances& model : models)
    if (is_configured(folder, model.config.model.target)) return {model.config, false};
  for (const ModelInstances& model : models)
    if (is_configured(folder, model.config.model.draft)) return {model.config, true};
  return {models.front().config, !info.config.head_ids.empty()};
}

namespace {

// Beyond what its target needs.
std::vector<LoadingNeed> self_draft_needs(const ModelInfo& info, const LoadedAs& as) {
  std::vector<LoadingNeed> needs;
  if (const auto why = info.not_held.find(WeightDType::kI4); why != info.not_held.end())
    needs.push_back(
        {"another draft, or none: " + why->second, setting_of("model.draft", kSelfDraft)});
  if (const std::string& device = as.compute().device; device != "cpu")
    needs.push_back({"a CPU: GPUs multiply no weights of four bits, which the draft \"" +
                         std::string(kSelfDraft) + "\" has",
                     setting_of(as.key("device"), device)});
  return needs;
}

}  // namespace

std::vector<LoadingNeed> loading_needs(const ModelInfo& info,
                                       const Tokenizer* tokenizer,
                                       const LoadedAs& as) {
  if (as.is_self_draft()) return self_draft_needs(info, as);
  const Config& config = as.config;
  const WeightDType dtype = weight_dtype_from_name(config.model.dtype).value_or(WeightDType::kAuto);
  const std::string& device = as.compute().device;
  const std::string device_setting = setting_of(as.key("device"), device);
  std::vector<LoadingNeed> needs;
  if (std::string what = dtype_needs(info, dtype); !what.empty()) {
    LoadingNeed need{std::move(what)};
    if (info.not_held.contains(dtype))
      need.setting = setting_of("model.dtype", config.model.dtype);
    else if (device == "cpu")
      need.setting = device_setting;
    needs.push_back(std::move(need));
  }
  if (device != "cpu" && holds_four_bits(info, dtype))
    needs.push_back({"a CPU, or model.dtype = \"bfloat16\": GPUs multiply no weights of four bits",
                     device_setting});
  if (!info.config.head_ids.empty())
    needs.push_back({"the place of a draft: its head has " +
                         std::to_string(info.config.head_ids.size()) + " of " +
                         std::to_string(info.config.vocab_size) + " ids",
                     as.is_draft ? "" : setting_of("model.target", config.model.target)});
  if (tokenizer != nullptr && !tokenizer->untested_pattern().empty())
    needs.push_back({"model.patterns = \"any\": tokenizer.json has a pattern of no known tokenizer",
                     regex_policy_from_name(config.model.patterns) == RegexPolicy::kAny
                         ? ""
                         : setting_of("model.patterns", config.model.patterns)});
  if (!info.kv_scale_problems.empty())
    needs.push_back({"a kv_cache.dtype other than float8_e4m3: " + info.kv_scale_problems.front(),
                     kv_dtype_from_name(config.kv_cache.dtype) == DType::kF8E4M3
                         ? setting_of("kv_cache.dtype", config.kv_cache.dtype)
                         : ""});
  return needs;
}

std::vector<std::string> refused_numbers(const std::filesystem::path& folder,
                                         const ModelConfig& model,
                                         const LoadedAs& as) {
  std::vector<std::string> refused;
  // A draft makes no more proposals where its positions end.
  if (!as.is_draft)
    if (auto why = why_too_long(folder, model, as.config.model.max_model_len))
      refused.push_back(std::move(*why));
  if (const auto why = not_shardable(model, static_cast<int>(as.compute().tensor_parallel)))
    refused.push_back(as.key(*why));
  return refused;
}

ReadFolder read_folder(const std::string& folder) {
  return {folder, inspect_model(folder),
          value_or_throw(Tokenizer::load(folder, {.patterns = RegexPolicy::kAny}))};
}

LoadingFindings loading_findings(const ReadFolder& read, const LoadedAs& as) {
  LoadingFindings found{.info = read.info,
                        .numbers = refused_numbers(read.folder, read.info.config, as),
                        .settings = {},
                        .needs = {}};
  const auto n_ranks = static_cast<int>(as.compute().tensor_parallel);
  if (n_ranks > 1 && !not_shardable(read.info.config, n_ranks))
    found.info = inspect_model(read.folder, n_ranks);
  for (const LoadingNeed& need : loading_needs(found.info, read.tokenizer.get(), as)) {
    found.needs += (found.needs.empty() ? "" : "; ") + need.what;
    // A service with this configuration would refuse the folder.
    if (!need.setting.empty()) found.settings.push_back(need.setting + ": it needs " + need.what);
  }
  return found;
}

}  // namespace foretoken::cli
