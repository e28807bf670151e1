#include "common/model/load_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/model/cached_load.h"
#include "common/model/held_weights.h"
#include "common/model/hf_folder.h"
#include "common/model/kv_scales.h"
#include "common/model/load_decoder.h"
#include "common/model/pair.h"
#include "common/model/safetensors.h"
#include "common/model/shard.h"
#include "common/model/tensor_set.h"
#include "common/model/weight_loader.h"

namespace foretoken {
namespace {

void check_options(const ModelConfig& config,
                   const LoadOptions& options,
                   const std::filesystem::path& folder) {
  if (options.max_rows < 1 || options.max_rows > 1 << 16)
    throw FatalError(ErrorCode::kConfig,
                     "max_rows is " + std::to_string(options.max_rows) + "; it must be 1 to 65536");
  if (const auto why = why_too_long(folder, config, options.max_model_len))
    throw FatalError(ErrorCode::kConfig, *why);
  if (options.kv_dtype && !is_kv_dtype(*options.kv_dtype)) {
    throw FatalError(ErrorCode::kConfig,
                     std::string("kv_dtype is ") + dtype_name(*options.kv_dtype) +
                         "; supported: float32, bfloat16, float16, float8_e4m3");
  }
}

}  // namespace

std::string_view weight_dtype_name(WeightDType dtype) {
  switch (dtype) {
    case WeightDType::kAuto:
      return "auto";
    case WeightDType::kF32:
      return "float32";
    case WeightDType::kBf16:
      return "bfloat16";
    case WeightDType::kF16:
      return "float16";
    case WeightDType::kI8:
      return "int8";
    case WeightDType::kI4:
      return "int4";
  }
  FORETOKEN_CHECK(false, "unknown dtype");
}

std::optional<WeightDType> weight_dtype_from_name(std::string_view name) {
  const auto* found = std::ranges::find(kWeightDTypes, name, weight_dtype_name);
  return found == kWeightDTypes.end() ? std::nullopt : std::optional(*found);
}

std::optional<DType> kv_dtype_from_name(std::string_view name) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16, DType::kF8E4M3})
    if (name == dtype_name(dtype)) return dtype;
  return std::nullopt;
}

std::int64_t served_positions(const ModelConfig& config, const LoadOptions& options) {
  if (options.max_model_len > 0) return options.max_model_len;
  const std::int64_t longest = context_length(config);
  return options.most_model_len > 0 ? std::min(options.most_model_len, longest) : longest;
}

std::optional<std::string> why_too_long(const std::filesystem::path& folder,
                                        const ModelConfig& config,
                                        std::int64_t max_model_len) {
  const std::int64_t most = context_length(config);
  if (max_model_len >= 0 && max_model_len <= most) return std::nullopt;
  return "model.max_model_len is " + std::to_string(max_model_len) + "; " + folder.string() +
         (most == config.sliding_window
              ? " has a sliding window, and beyond it is not supported: at most "
              : " was made for at most ") +
         std::to_string(most) + " positions";
}

std::unique_ptr<Model> load_model(const std::filesystem::path& folder,
                                  Backend& backend,
                                  const LoadOptions& options) {
  return load_decoder(folder, backend, options, nullptr);
}

std::unique_ptr<Decoder> load_decoder(const std::filesystem::path& folder,
                                      Backend& backend,
                                      const LoadOptions& options,
                                      LinearInputObserver* observer) {
  ModelConfig config = read_model_config(folder);
  check_options(config, options, folder);
  config.max_model_len = served_positions(config, options);
  if (config.eos_token_ids.empty()) config.eos_token_ids = options.end_tokens;
  const RankOf who = rank_of(options.ranks);
  if (const auto why = not_shardable(config, who.n_ranks))
    throw FatalError(ErrorCode::kConfig, folder.string() + ": " + *why);
  const Checkpoint checkpoint(folder);
  check_tensor_set(config, checkpoint, folder);
  if (const auto sentence = why_not_held(config, checkpoint, options.dtype, who))
    throw FatalError(ErrorCode::kUnsupportedModel, *sentence);
  const auto estimate = estimate_memory(describe(config, checkpoint), options, who);
  if (auto fitting =
          fits(estimate, options.most_bytes.value_or(backend.free_bytes()), folder.string());
      !fitting.ok())
    throw FatalError(fitting.error().code, fitting.error().message);

  LoadedWeights loaded = CachedLoad(folder, config, checkpoint, backend, options).load();
  config.weight_types = std::move(loaded.weight_types);
  const DType kv_dtype = options.kv_dtype.value_or(default_kv_dtype(loaded.dtype));
  config.kv_scales = what_of_kv_scales(config, checkpoint, kv_dtype);
  const DecoderOptions decoder_options{.kv_dtype = kv_dtype,
                                       .max_rows = options.max_rows,
                                       .fingerprint = loaded.fingerprint,
                                       .ranks = who.n_ranks > 1 ? options.ranks : nullptr,
                                       .rank_tier = options.rank_tier,
                                       .observer = observer};
  return std::make_unique<Decoder>(std::move(config), std::move(loaded.weights), backend,
                                   decoder_options);
}

}  // namespace foretoken
