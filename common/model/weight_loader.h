// The tensors of a checkpoint on their way to a backend: each is read, its digest noted, and this
// rank's slice of it packed in the type that was asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/model/config.h"
#include "common/model/decoder.h"
#include "common/model/digest.h"
#include "common/model/held_weights.h"
#include "common/model/load_model.h"
#include "common/model/packed_cache.h"
#include "common/model/quantization_parameters.h"
#include "common/model/row_converter.h"
#include "common/model/safetensors.h"
#include "common/model/shard.h"
#include "common/model/stored_tensor.h"
#include "kernels/include/backend.h"

namespace foretoken {

RankOf rank_of(const Collective* ranks);

// What a file keeps is not of this checkpoint, though its key says so.
struct CacheDoesNotFit {};

// Reads tensors, notes the digest of each, and hands this rank's slices of them to the backend in
// the dtype that was asked for.
class WeightLoader {
 public:
  // `cache`: matrices are taken from it, and only small tensors are read; null: all are read.
  WeightLoader(const ModelConfig& config,
               const Checkpoint& checkpoint,
               Backend& backend,
               const LoadOptions& options,
               std::shared_ptr<const PackedCache> cache);

  // Of the first layer's linears: what the KV cache takes after.
  DType dtype() const;
  std::string weight_types() const;
  Fingerprint fingerprint() const;  // of the whole model, on every rank
  DecoderWeights load();            // throws CacheDoesNotFit too
  const PackedCacheWriter& packed() const { return packed_; }
  const std::map<std::string, std::uint64_t>& digests() const { return digests_; }

 private:
  Checkpoint::Tensor read(const std::string& name);
  void check_as_kept(const Checkpoint::Tensor& tensor) const;
  std::vector<float> read_floats(const std::string& name);
  Buffer vector(const std::string& name);
  Buffer upload(std::span<const float> values);
  Linear linear(std::span<const std::string> names, bool bias, Stacking stacking = Stacking::kRows);
  Linear head();
  LayerWeights layer(std::int32_t number);
  Buffer kv_scales();

  // A source of pack() and what its pointers lead to.
  struct OwnedSource {
    StoredTensor stored;
    LinearSource source;
    std::optional<RowConverter> rows;
    QuantizationParameters parameters;
    std::vector<float> bias;
  };
  void read_parameters(const std::string& name, Split split, OwnedSource& held);
  StoredMatrix stored_matrix(const std::string& name, const OwnedSource& held) const;
  void find_rows(const std::string& name, Split split, OwnedSource& held);
  template <class T>
  std::vector<T> own_rows(std::vector<T> values, std::int64_t n_rows, Split split) const;
  Linear pack(std::span<const OwnedSource> held, Stacking stacking);
  Linear adopt(std::span<const LinearSource> sources, Stacking stacking);
  void check_converted(const OwnedSource& held) const;

  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  Backend& backend_;
  const LoadOptions& options_;
  const RankOf who_;
  const std::shared_ptr<const PackedCache> cache_;
  std::size_t n_adopted_ = 0;
  PackedCacheWriter packed_;
  DType float_dtype_ = DType::kF32;
  std::vector<DType> stored_;  // of each expected tensor, in their order
  std::map<std::string, std::vector<std::int64_t>> shapes_;
  std::map<std::string, std::uint64_t> digests_;  // 0: another rank's to read
  std::uint64_t bytes_done_ = 0;
  std::uint64_t bytes_total_ = 0;
  std::size_t device_bytes_ = 0;
};

}  // namespace foretoken
