#include "common/model/fingerprint.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "common/model/families.h"
#include "common/model/hf_folder.h"
#include "common/model/kv_scales.h"
#include "common/model/rope.h"
#include "common/model/stored_tensor.h"
#include "common/model/tensor_set.h"

namespace foretoken {
namespace {

// Of the first `most` bytes of each tensor.
std::vector<Fingerprint> fingerprints_of(const std::filesystem::path& folder, std::size_t most) {
  ModelConfig config = read_model_config(folder);
  const Checkpoint checkpoint(folder);
  check_tensor_set(config, checkpoint, folder);
  std::map<std::string, std::uint64_t> digests;
  const auto note = [&](const std::string& name) {
    const Checkpoint::Tensor tensor = checkpoint.at(name);
    digests.emplace(name, digest_bytes(tensor.bytes.first(std::min(most, tensor.bytes.size()))));
    tensor.file->release(*tensor.info);  // its pages would count as ours
  };
  for (const ExpectedTensor& tensor : expected_tensors(config))
    for (const std::string& name : tensors_read_for(checkpoint, tensor)) note(name);
  std::vector<Fingerprint> found{fingerprint_of(config, checkpoint, digests)};
  if (const KvScales scales = read_kv_scales(config, checkpoint); !scales.tensors.empty()) {
    for (const std::string& name : scales.tensors) note(name);
    found.push_back(fingerprint_of(config, checkpoint, digests));
  }
  return found;
}

}  // namespace

void add_config(const ModelConfig& c, Digest& digest) {
  digest.add(family_name(c.family));
  for (std::int32_t n :
       {c.n_layers, c.n_hidden, c.n_heads, c.n_kv_heads, c.head_dim, c.n_ffn, c.vocab_size})
    digest.add(static_cast<std::uint64_t>(n));
  digest.add(static_cast<double>(c.rms_norm_eps));
  for (bool flag : {c.tie_word_embeddings, c.qkv_bias, c.o_bias, c.mlp_bias, c.qk_norm})
    digest.add(static_cast<std::uint64_t>(flag));
  digest.add(rope_type_name(c.rope.type));
  for (double value : {c.rope.theta, c.rope.factor, c.rope.low_freq_factor, c.rope.high_freq_factor,
                       static_cast<double>(c.rope.original_max_position_embeddings),
                       c.rope.beta_fast, c.rope.beta_slow, rope_attention_factor(c.rope)})
    digest.add(value);
  digest.add(static_cast<std::uint64_t>(c.rope.truncate));
  for (const TokenId id : c.head_ids) digest.add(static_cast<std::uint64_t>(id));
  // The same words are other weights in another layout.
  if (const Int4Layout layout = c.quantized.int4_layout; layout != Int4Layout::kRows)
    digest.add(static_cast<std::uint64_t>(layout));
}

Fingerprint fingerprint_of(const ModelConfig& config,
                           const Checkpoint& checkpoint,
                           const std::map<std::string, std::uint64_t>& digests) {
  Digest digest;
  add_config(config, digest);
  // By name, so that the same tensors in other shards are the same model.
  for (const auto& [name, contents] : digests) {
    const TensorInfo& info = *checkpoint.at(name).info;
    digest.add(name).add(tensor_type_name(info.type));
    for (std::int64_t dimension : info.shape) digest.add(static_cast<std::uint64_t>(dimension));
    digest.add(contents);
  }
  return digest.value();
}

std::vector<Fingerprint> fingerprints_of_folder(const std::filesystem::path& folder) {
  return fingerprints_of(folder, std::numeric_limits<std::size_t>::max());
}

Fingerprint sampled_fingerprint(const std::filesystem::path& folder) {
  return fingerprints_of(folder, std::size_t{64} << 10).back();
}

}  // namespace foretoken
