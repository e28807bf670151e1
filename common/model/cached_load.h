// Loading with what an earlier load packed (packed_cache.h), where there is such a file and it
// fits; else from the checkpoint, and what was packed is written for the next load.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/model/config.h"
#include "common/model/decoder.h"
#include "common/model/digest.h"
#include "common/model/load_model.h"
#include "common/model/packed_cache.h"
#include "common/model/safetensors.h"
#include "common/model/trim_packed_cache.h"
#include "common/model/weight_loader.h"
#include "kernels/include/backend.h"

namespace foretoken {

struct LoadedWeights {
  DecoderWeights weights;
  std::string weight_types;
  DType dtype = DType::kF32;
  Fingerprint fingerprint = 0;
};

// Loads with the packed weights of an earlier load where they fit, and keeps them where not.
class CachedLoad {
 public:
  CachedLoad(const std::filesystem::path& folder,
             const ModelConfig& config,
             const Checkpoint& checkpoint,
             Backend& backend,
             const LoadOptions& options);

  LoadedWeights load() const;

 private:
  Digest kind(const std::string& layout) const;
  std::filesystem::path file_of(const std::filesystem::path& whole,
                                const std::string& layout) const;
  std::uint64_t key() const;
  std::shared_ptr<const PackedCache> open() const;
  LoadedWeights load_with(WeightLoader& loader) const;
  // What holds the file as long as the weights live; null if none was written.
  std::shared_ptr<const void> keep(const WeightLoader& loader) const;
  void remove_unusable() const;
  std::vector<RemovedPackedFile> trim(std::uint64_t room,
                                      Trim how) const;  // so many bytes more fit
  std::optional<std::string> why_not_kept(std::uint64_t size) const;
  void report(const PackedCacheReport& what) const;
  void report_problem(PackedCacheReport::Outcome outcome, std::string problem) const;

  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  Backend& backend_;
  const LoadOptions& options_;
  PackedOrigin origin_;
  std::filesystem::path file_;                   // empty: nothing is kept
  std::vector<std::filesystem::path> replaced_;  // the same weights in older layouts
  std::uint64_t key_ = 0;
};

}  // namespace foretoken
