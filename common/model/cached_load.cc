#include "common/model/cached_load.h"

#include <cstdio>
#include <system_error>
#include <utility>

#include "common/model/digest.h"

namespace foretoken {
namespace {

// Part of the key of kept weights: raised whenever rows of another type are made otherwise.
constexpr std::uint64_t kConversions = 1;

}  // namespace

CachedLoad::CachedLoad(const std::filesystem::path& folder,
                       const ModelConfig& config,
                       const Checkpoint& checkpoint,
                       Backend& backend,
                       const LoadOptions& options)
    : config_(config), checkpoint_(checkpoint), backend_(backend), options_(options) {
  if (options.packed_cache.folder.empty() || backend.packed_layout().empty()) return;
  file_ = file_of(folder);
  key_ = key();
}

LoadedWeights CachedLoad::load() const {
  if (const auto cache = open()) {
    try {
      LoadedWeights loaded = load_with(cache);
      report({.outcome = PackedCacheReport::Outcome::kUsed,
              .file = file_,
              .size_bytes = cache->size_bytes()});
      return loaded;
    } catch (const CacheDoesNotFit&) {
      report_failure(file_.string() + ": does not fit the model");
    }
  }
  return load_with(nullptr);
}

// One for each folder, type, layout and rank: a newer one takes the place of what is stale.
std::filesystem::path CachedLoad::file_of(const std::filesystem::path& folder) const {
  const auto whole = std::filesystem::weakly_canonical(folder);
  const RankOf who = rank_of(options_.ranks);
  const std::uint64_t name = Digest()
                                 .add(whole.string())
                                 .add(static_cast<std::uint64_t>(options_.dtype))
                                 .add(backend_.packed_layout())
                                 .add(static_cast<std::uint64_t>(who.rank))
                                 .add(static_cast<std::uint64_t>(who.n_ranks))
                                 .value();
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(name));
  return options_.packed_cache.folder / (whole.filename().string() + "-" + digits + ".packed");
}

std::uint64_t CachedLoad::key() const {
  Digest digest;
  add_config(config_, digest);
  digest.add(kConversions).add(options_.packed_cache.build).add(checkpoint_.identity());
  // An eight-bit cache has scales of the checkpoint, whose digests count.
  digest.add(static_cast<std::uint64_t>(options_.kv_dtype == DType::kF8E4M3));
  return digest.value();
}

std::shared_ptr<const PackedCache> CachedLoad::open() const {
  if (file_.empty()) return nullptr;
  auto opened = PackedCache::open(file_, key_);
  if (opened.ok()) {
    for (const auto& [name, digest] : (*opened)->digests())
      if (!checkpoint_.contains(name)) return nullptr;
    return *opened;
  }
  // A stale file is what an update leaves behind; it is about to be written again.
  const ErrorCode code = opened.error().code;
  if (code != ErrorCode::kNotFound && code != ErrorCode::kIncompatible)
    report_failure(opened.error().message);
  return nullptr;
}

LoadedWeights CachedLoad::load_with(std::shared_ptr<const PackedCache> cache) const {
  const bool is_cached = cache != nullptr;
  WeightLoader loader(config_, checkpoint_, backend_, options_, std::move(cache));
  LoadedWeights loaded{.weights = loader.load(),
                       .weight_types = loader.weight_types(),
                       .dtype = loader.dtype(),
                       .fingerprint = loader.fingerprint()};
  checkpoint_.check_unchanged();
  if (!is_cached) keep(loader, loaded.weights.n_bytes);
  return loaded;
}

// Whether it can be kept or not, the model is loaded.
void CachedLoad::keep(const WeightLoader& loader, std::uint64_t weight_bytes) const {
  if (file_.empty() || weight_bytes < options_.packed_cache.least_bytes) return;
  const std::uint64_t size = loader.packed().size_bytes();
  std::error_code unknown;
  std::filesystem::create_directories(file_.parent_path(), unknown);
  const auto space = std::filesystem::space(file_.parent_path(), unknown);
  if (!unknown && space.available / 2 < size)
    return report_failure(file_.string() + ": not written: " + std::to_string(size >> 20) +
                          " MiB would be more than half of the free " +
                          std::to_string(space.available >> 20));
  if (auto written = loader.packed().write(file_, key_, loader.digests()); !written.ok())
    return report_failure(written.error().message);
  report({.outcome = PackedCacheReport::Outcome::kWritten, .file = file_, .size_bytes = size});
}

void CachedLoad::report(const PackedCacheReport& what) const {
  if (options_.on_packed_cache) options_.on_packed_cache(what);
}

void CachedLoad::report_failure(std::string problem) const {
  report({.outcome = PackedCacheReport::Outcome::kFailed,
          .file = file_,
          .problem = std::move(problem)});
}

}  // namespace foretoken
