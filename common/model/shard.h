// Which part of each tensor a rank holds: one table for all families, as Hugging Face publishes it.
// q, k, v, gate and up by rows, o and down by columns, the head by slices of the vocabulary, the
// rest whole. Where there are more ranks than KV heads, several ranks hold the same one, each with
// its part of the query heads that read it. Pure arithmetic; uses no file and no device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/model/config.h"

namespace foretoken {

struct RankOf {
  int rank = 0;
  int n_ranks = 1;
};

enum class Split : std::uint8_t {
  kWhole,       // every rank has all of it
  kHeads,       // outputs, whole query heads: each rank computes its own
  kKvHeads,     // outputs, whole KV heads: ranks that share one hold the same
  kFfn,         // outputs, a part of the feed-forward width
  kHeadInputs,  // inputs by query heads: each rank has a share of every output, and the shares are
                // added
  kFfnInputs,   // the same by feed-forward width
  kFirstRank,   // bias of a split by inputs: added once, by rank 0
  kVocabulary,
};

// By the tensor's name, without regard to the layer: "self_attn.q_proj.weight", "lm_head.weight".
Split split_of(std::string_view tensor);

// Half-open, in rows or columns.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t n() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Of a model that can be spread so (not_shardable() is asked first).
Range query_heads_of(const ModelConfig& config, const RankOf& who);
Range kv_heads_of(const ModelConfig& config, const RankOf& who);
// Equal parts where the width divides, else whole runs of kFfnGrain columns.
inline constexpr std::int32_t kFfnGrain = 32;
Range ffn_of(const ModelConfig& config, const RankOf& who);
// Whole runs of kVocabularyGrain ids, so that a slice begins where the kernels' panels and noise
// blocks do.
inline constexpr std::int64_t kVocabularyGrain = 64;
Range vocabulary_slice(std::int64_t vocab_size, const RankOf& who);

// What a rank has of a matrix with so many rows and columns, or of one value per row.
Range rows_of(Split split, std::int64_t n_rows, const ModelConfig& config, const RankOf& who);
Range columns_of(Split split, std::int64_t n_columns, const ModelConfig& config, const RankOf& who);

// The shape this rank computes with: its heads, KV heads and feed-forward width.
ModelConfig share_of(const ModelConfig& config, const RankOf& who);

// What keeps this model from being spread over so many ranks, as a sentence with the numbers and
// what would do; nothing if it can be.
std::optional<std::string> not_shardable(const ModelConfig& config, int n_ranks);

}  // namespace foretoken
