// A Hugging Face folder becomes a Model on a Backend. Reads, validates, packs, and closes every
// file again; the map is gone when this returns. Main alone calls it (and tests): no other code
// makes concrete choices. Blocks for as long as the disk takes; the callback runs on the calling
// thread.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/collective/collective.h"
#include "common/model/config.h"
#include "common/model/model.h"
#include "kernels/include/backend.h"

namespace foretoken {

// kAuto keeps the checkpoint's own dtype. kI8: every linear, embedding and head included, is
// quantised per output channel (symmetric) while loading. kI4: linears are quantised to four bits
// in groups (int4.h), embedding and head as with kI8. float32 <-> 16 bit conversions round to
// nearest even.
enum class WeightDType : std::uint8_t { kAuto, kF32, kBf16, kF16, kI8, kI4 };

inline constexpr std::array kWeightDTypes{WeightDType::kAuto, WeightDType::kF32, WeightDType::kBf16,
                                          WeightDType::kF16,  WeightDType::kI8,  WeightDType::kI4};

// "auto", "float32", "bfloat16", "float16", "int8", "int4"; nothing for any other word.
std::string_view weight_dtype_name(WeightDType dtype);
std::optional<WeightDType> weight_dtype_from_name(std::string_view name);

// "float32", "bfloat16", "float16", "float8_e4m3"; nothing, the default, for any other word.
std::optional<DType> kv_dtype_from_name(std::string_view name);

// Packed weights are kept for the next load (packed_cache.h) where the backend's layout allows it.
struct PackedCacheOptions {
  std::filesystem::path folder;  // empty: they are not kept, and kept ones are not used
  bool is_own = false;           // made by this program: other users are kept from writing to it
  std::string build;             // of this program: another one packs again
  std::string host;              // hosts that share the folder keep files of their own
  std::uint64_t least_bytes = std::uint64_t{64} << 20;  // of weights: less is packed soon enough
  // Of this host's files together; beyond it those that no process uses go, the longest unused
  // first. 0: a quarter of the disk.
  std::uint64_t most_bytes = 0;
  // A checkpoint that changed later than this before now may change once more within one tick of
  // the file system's clock, unseen: its weights are not kept yet.
  std::chrono::milliseconds least_age = std::chrono::seconds(2);
};

// The outcome of one load: a file that was used or written, or the reason why not. Before it come
// other files that were removed, each with the reason.
struct PackedCacheReport {
  enum class Outcome : std::uint8_t {
    kUsed,
    kWritten,
    kNotUsed,
    kNotWritten,
    kRemoved
  } outcome = Outcome::kUsed;
  std::filesystem::path file;
  std::uint64_t size_bytes = 0;
  std::string problem;
};

struct LoadOptions {
  WeightDType dtype = WeightDType::kAuto;
  std::optional<DType> kv_dtype = {};  // any but kI8; default: as the weights, bf16 for 8-bit ones
  std::int32_t max_rows = 512;         // most rows of one forward: sizes the scratch buffers
  std::int64_t max_model_len = 0;      // 0: context_length(config); larger than that is refused
  std::int64_t most_model_len = 0;     // if set: more than that is not wanted, less will do
  std::optional<std::uint64_t> most_bytes = {};  // default: what the backend has free
  std::vector<TokenId> end_tokens = {};  // where the folder's configuration names none; ascending
  std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)> on_progress = {};
  PackedCacheOptions packed_cache = {};
  std::function<void(const PackedCacheReport&)> on_packed_cache = {};
  // Where the model is spread over ranks: all of them load at once, each its own slices (shard.h).
  // Borrowed, outlives the model. Null: this process has all of it.
  Collective* ranks = nullptr;
  RankTier rank_tier = RankTier::kAuto;
};

// The longest sequence a load with these options serves; what RoPE tables are made for.
std::int64_t served_positions(const ModelConfig& config, const LoadOptions& options);

// Why a load for sequences of `max_model_len` tokens (0: as many as the model has positions) is
// refused, as a sentence with the limit; nothing if it is not.
std::optional<std::string> why_too_long(const std::filesystem::path& folder,
                                        const ModelConfig& config,
                                        std::int64_t max_model_len);

// Throws FatalError: kUnsupportedModel for what we refuse by name, kMalformed for broken files,
// kIo, kOutOfMemory (before anything is allocated, where it can be foreseen). The backend must
// outlive the model.
std::unique_ptr<Model> load_model(const std::filesystem::path& folder,
                                  Backend& backend,
                                  const LoadOptions& options = {});

}  // namespace foretoken
