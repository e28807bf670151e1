#include "common/model/shard.h"

#include <algorithm>
#include <array>
#include <string>

#include "common/base/check.h"
#include "common/model/head_ids.h"

namespace foretoken {
namespace {

struct Row {
  std::string_view part;
  Split weight;
  Split bias;
};

constexpr std::array<Row, 8> kTable{{
    {"self_attn.q_proj", Split::kHeads, Split::kHeads},
    {"self_attn.k_proj", Split::kKvHeads, Split::kKvHeads},
    {"self_attn.v_proj", Split::kKvHeads, Split::kKvHeads},
    {"self_attn.o_proj", Split::kHeadInputs, Split::kFirstRank},
    {"mlp.gate_proj", Split::kFfn, Split::kFfn},
    {"mlp.up_proj", Split::kFfn, Split::kFfn},
    {"mlp.down_proj", Split::kFfnInputs, Split::kFirstRank},
    {"lm_head", Split::kVocabulary, Split::kVocabulary},
}};

constexpr int kMostRanks = 64;

// Part i of n units among m, in order; equal where m divides n.
Range part(std::int64_t n, std::int64_t i, std::int64_t m) { return {n * i / m, n * (i + 1) / m}; }

Range times(const Range& range, std::int64_t unit) {
  return {range.begin * unit, range.end * unit};
}

// Either each rank has whole KV heads of its own, or each KV head whole groups of ranks.
bool kv_heads_fit(const ModelConfig& c, int n_ranks) {
  return c.n_kv_heads % n_ranks == 0 || n_ranks % c.n_kv_heads == 0;
}
bool ffn_fits(const ModelConfig& c, int n_ranks) {
  return c.n_ffn % n_ranks == 0 || c.n_ffn / kFfnGrain >= n_ranks;
}
bool vocabulary_fits(const ModelConfig& c, int n_ranks) {
  return c.vocab_size >= n_ranks * kVocabularyGrain;
}

// "1, 2 or 4": the numbers of ranks this model can be spread over.
std::string possible(const ModelConfig& c) {
  std::string text;
  std::string last;
  for (int n = 1; n <= std::min(c.n_heads, kMostRanks); ++n) {
    if (!kv_heads_fit(c, n) || !ffn_fits(c, n) || !vocabulary_fits(c, n)) continue;
    if (!last.empty()) text += (text.empty() ? "" : ", ") + last;
    last = std::to_string(n);
  }
  return text.empty() ? last : text + " or " + last;
}

}  // namespace

Split split_of(std::string_view tensor) {
  for (const Row& row : kTable) {
    const std::size_t at = tensor.find(row.part);
    if (at == std::string_view::npos) continue;
    return tensor.ends_with(".bias") ? row.bias : row.weight;
  }
  return Split::kWhole;
}

Range kv_heads_of(const ModelConfig& c, const RankOf& who) {
  FORETOKEN_CHECK(kv_heads_fit(c, who.n_ranks), "not_shardable() is asked first");
  if (c.n_kv_heads % who.n_ranks == 0) return part(c.n_kv_heads, who.rank, who.n_ranks);
  const int own = who.rank / (who.n_ranks / c.n_kv_heads);
  return {own, own + 1};
}

Range query_heads_of(const ModelConfig& c, const RankOf& who) {
  const int group = c.n_heads / c.n_kv_heads;
  const Range kv = kv_heads_of(c, who);
  if (c.n_kv_heads % who.n_ranks == 0) return times(kv, group);
  const int n_sharers = who.n_ranks / c.n_kv_heads;
  const Range in_group = part(group, who.rank % n_sharers, n_sharers);
  return {kv.begin * group + in_group.begin, kv.begin * group + in_group.end};
}

Range ffn_of(const ModelConfig& c, const RankOf& who) {
  if (c.n_ffn % who.n_ranks == 0) return part(c.n_ffn, who.rank, who.n_ranks);
  Range range = times(part(c.n_ffn / kFfnGrain, who.rank, who.n_ranks), kFfnGrain);
  if (who.rank == who.n_ranks - 1) range.end = c.n_ffn;
  return range;
}

Range vocabulary_slice(std::int64_t vocab_size, const RankOf& who) {
  const std::int64_t n_grains = (vocab_size + kVocabularyGrain - 1) / kVocabularyGrain;
  const auto boundary = [&](std::int64_t rank) {
    return std::min(vocab_size, rank * n_grains / who.n_ranks * kVocabularyGrain);
  };
  return {boundary(who.rank), boundary(who.rank + 1)};
}

Range rows_of(Split split, std::int64_t n_rows, const ModelConfig& config, const RankOf& who) {
  switch (split) {
    case Split::kHeads:
      return times(query_heads_of(config, who), config.head_dim);
    case Split::kKvHeads:
      return times(kv_heads_of(config, who), config.head_dim);
    case Split::kFfn:
      return ffn_of(config, who);
    case Split::kVocabulary:
      return vocabulary_slice(n_rows, who);
    default:
      return {0, n_rows};
  }
}

Range columns_of(Split split,
                 std::int64_t n_columns,
                 const ModelConfig& config,
                 const RankOf& who) {
  if (split == Split::kHeadInputs) return times(query_heads_of(config, who), config.head_dim);
  if (split == Split::kFfnInputs) return ffn_of(config, who);
  return {0, n_columns};
}

ModelConfig share_of(const ModelConfig& config, const RankOf& who) {
  ModelConfig share = config;
  share.n_heads = static_cast<std::int32_t>(query_heads_of(config, who).n());
  share.n_kv_heads = static_cast<std::int32_t>(kv_heads_of(config, who).n());
  share.n_ffn = static_cast<std::int32_t>(ffn_of(config, who).n());
  return share;
}

std::optional<std::string> not_shardable(const ModelConfig& c, int n_ranks) {
  const std::string asked = "tensor_parallel is " + std::to_string(n_ranks);
  if (n_ranks < 1 || n_ranks > kMostRanks)
    return asked + "; it must be 1 to " + std::to_string(kMostRanks);
  if (n_ranks == 1) return std::nullopt;  // nothing is cut
  if (!c.head_ids.empty())
    return asked + ", but the model's head has " + std::to_string(c.head_ids.size()) + " of " +
           std::to_string(c.vocab_size) + " ids (" + kHeadIdsFile +
           "), and such a head is not spread over ranks; possible: 1";
  const std::string would_do = "; possible: " + possible(c);
  if (!kv_heads_fit(c, n_ranks))
    return asked + ", but the model has " + std::to_string(c.n_kv_heads) +
           " KV heads (num_key_value_heads): one number must divide the other" + would_do;
  if (n_ranks > c.n_heads)
    return asked + ", but the model has " + std::to_string(c.n_heads) +
           " attention heads (num_attention_heads), fewer than that" + would_do;
  if (!ffn_fits(c, n_ranks))
    return asked + ", but the model has " + std::to_string(c.n_ffn) +
           " feed-forward columns (intermediate_size), fewer than that many runs of " +
           std::to_string(kFfnGrain) + would_do;
  if (!vocabulary_fits(c, n_ranks))
    return asked + ", but a vocabulary of " + std::to_string(c.vocab_size) +
           " ids has fewer than that many slices of " + std::to_string(kVocabularyGrain) + would_do;
  return std::nullopt;
}

}  // namespace foretoken
