#include "common/model/cached_load.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <system_error>
#include <utility>

#include "common/base/own_folder.h"
#include "common/model/digest.h"
#include "common/model/fingerprint.h"

namespace foretoken {
namespace {

// Part of the key of kept weights: raised whenever other rows are made of a checkpoint.
constexpr std::uint64_t kConversions = 3;

// "cpu/avx2/1" and "cpu/avx2/2" of "cpu/avx2/3" (Backend::packed_layout).
std::vector<std::string> layouts_before(const std::string& layout) {
  const std::size_t number = layout.rfind('/') + 1;
  std::vector<std::string> before;
  for (int i = 1; i < std::atoi(layout.c_str() + number); ++i)
    before.push_back(layout.substr(0, number) + std::to_string(i));
  return before;
}

}  // namespace

CachedLoad::CachedLoad(const std::filesystem::path& folder,
                       const ModelConfig& config,
                       const Checkpoint& checkpoint,
                       Backend& backend,
                       const LoadOptions& options)
    : config_(config), checkpoint_(checkpoint), backend_(backend), options_(options) {
  if (options.packed_cache.folder.empty() || backend.packed_layout().empty()) return;
  std::error_code unknown;
  auto whole = std::filesystem::weakly_canonical(folder, unknown);
  if (unknown) whole = folder;
  if (options.packed_cache.is_own) close_to_others(options.packed_cache.folder);
  origin_ = {.model_folder = whole.string(), .host = options.packed_cache.host};
  file_ = file_of(whole, backend.packed_layout());
  for (const std::string& layout : layouts_before(backend.packed_layout()))
    replaced_.push_back(file_of(whole, layout));
  key_ = key();
}

LoadedWeights CachedLoad::load() const {
  if (const auto cache = open()) {
    try {
      WeightLoader loader(config_, checkpoint_, backend_, options_, cache);
      LoadedWeights loaded = load_with(loader);
      report({.outcome = PackedCacheReport::Outcome::kUsed,
              .file = file_,
              .size_bytes = cache->size_bytes()});
      return loaded;
    } catch (const CacheDoesNotFit&) {
      remove_unusable();
      report_problem(PackedCacheReport::Outcome::kNotUsed, "does not fit the checkpoint");
    }
  }
  WeightLoader loader(config_, checkpoint_, backend_, options_, nullptr);
  LoadedWeights loaded = load_with(loader);
  if (!file_.empty() && loaded.weights.n_bytes >= options_.packed_cache.least_bytes)
    loaded.weights.packed_file = keep(loader);
  return loaded;
}

// What decides the bytes, besides the contents of the checkpoint and the program.
Digest CachedLoad::kind(const std::string& layout) const {
  const RankOf who = rank_of(options_.ranks);
  Digest digest;
  digest.add(static_cast<std::uint64_t>(options_.dtype))
      .add(layout)
      .add(static_cast<std::uint64_t>(who.rank))
      .add(static_cast<std::uint64_t>(who.n_ranks))
      // An eight-bit cache has scales of the checkpoint, whose digests count.
      .add(static_cast<std::uint64_t>(options_.kv_dtype == DType::kF8E4M3));
  return digest;
}

// One for each folder and kind: a newer one takes the place of what is stale. A newer layout has
// another name, and those of older ones are removed.
std::filesystem::path CachedLoad::file_of(const std::filesystem::path& whole,
                                          const std::string& layout) const {
  const std::uint64_t name =
      kind(layout).add(whole.string()).add(options_.packed_cache.host).value();
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(name));
  return options_.packed_cache.folder /
         (whole.filename().string() + "-" + digits + std::string(kPackedExtension));
}

std::uint64_t CachedLoad::key() const {
  Digest digest = kind(backend_.packed_layout());
  add_config(config_, digest);
  return digest.add(kConversions)
      .add(options_.packed_cache.build)
      .add(checkpoint_.identity())
      .value();
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
  if (code == ErrorCode::kMalformed) remove_unusable();
  if (code != ErrorCode::kNotFound && code != ErrorCode::kIncompatible)
    report_problem(PackedCacheReport::Outcome::kNotUsed, opened.error().message);
  return nullptr;
}

// Its key is the expected one, and what is written next replaces no file of that key.
void CachedLoad::remove_unusable() const {
  std::error_code ignored;
  std::filesystem::remove(file_, ignored);
}

LoadedWeights CachedLoad::load_with(WeightLoader& loader) const {
  LoadedWeights loaded{.weights = loader.load(),
                       .weight_types = loader.weight_types(),
                       .dtype = loader.dtype(),
                       .fingerprint = loader.fingerprint()};
  checkpoint_.check_unchanged();
  return loaded;
}

// Whether it can be kept or not, the model is loaded.
std::shared_ptr<const void> CachedLoad::keep(const WeightLoader& loader) const {
  // Another process may have written it meanwhile: then no room is made for it again.
  if (auto there = lock_packed_file(file_, key_)) return there;
  const std::uint64_t size = loader.packed().size_bytes();
  if (const auto problem = why_not_kept(size))
    return report_problem(PackedCacheReport::Outcome::kNotWritten, *problem), nullptr;
  for (const RemovedPackedFile& file : trim(size, Trim::kRemove))
    report({.outcome = PackedCacheReport::Outcome::kRemoved,
            .file = file.file,
            .size_bytes = file.size_bytes,
            .problem = file.reason});
  const auto written = loader.packed().write(
      file_, {.key = key_, .origin = origin_, .digests = loader.digests()}, [this] {
        if (options_.on_progress) options_.on_progress(1, 1);
      });
  if (!written.ok())
    return report_problem(PackedCacheReport::Outcome::kNotWritten, written.error().message),
           nullptr;
  std::error_code unknown;
  report({.outcome = PackedCacheReport::Outcome::kWritten,
          .file = file_,
          .size_bytes = std::filesystem::file_size(file_, unknown)});
  return *written;
}

std::vector<RemovedPackedFile> CachedLoad::trim(std::uint64_t room, Trim how) const {
  std::uint64_t most = options_.packed_cache.most_bytes;
  if (most == 0) {
    std::error_code unknown;
    const auto disk = std::filesystem::space(file_.parent_path(), unknown);
    if (unknown) return {};  // no folder yet
    most = disk.capacity / 4;
  }
  return trim_packed_cache(
      file_.parent_path(),
      {.host = origin_.host, .most_bytes = most - std::min(most, room), .replaced = replaced_},
      how);
}

std::optional<std::string> CachedLoad::why_not_kept(std::uint64_t size) const {
  const auto age = std::chrono::system_clock::now().time_since_epoch() -
                   std::chrono::nanoseconds(checkpoint_.changed_ns());
  if (age < options_.packed_cache.least_age)
    return "the checkpoint has just been written; the next start will keep them";
  (void)make_own_folder(file_.parent_path());  // writing fails where it fails
  std::error_code unknown;
  const auto space = std::filesystem::space(file_.parent_path(), unknown);
  if (unknown) return std::nullopt;
  std::uint64_t available = space.available;
  for (const RemovedPackedFile& file : trim(size, Trim::kPlan)) available += file.size_bytes;
  if (available / 2 >= size) return std::nullopt;
  return std::to_string(size >> 20) + " MiB would be more than half of the " +
         std::to_string(available >> 20) + " MiB that are free or in files that would be removed";
}

void CachedLoad::report(const PackedCacheReport& what) const {
  if (options_.on_packed_cache) options_.on_packed_cache(what);
}

void CachedLoad::report_problem(PackedCacheReport::Outcome outcome, std::string problem) const {
  report({.outcome = outcome, .file = file_, .problem = std::move(problem)});
}

}  // namespace foretoken
