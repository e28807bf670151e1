#include "common/model/shard.h"

#include <algorithm>
#include <array>
#include <string>

#include "common/base/check.h"

namespace foretoken {
namespace {

struct Row {
  std::string_view part;
  Split weight;
  Split bias;
};

constexpr std::array<Row, 8> kTable{{
    {"self_attn.q_proj", Split::kRows, Split::kRows},
    {"self_attn.k_proj", Split::kRows, Split::kRows},
    {"self_attn.v_proj", Split::kRows, Split::kRows},
    {"self_attn.o_proj", Split::kColumns, Split::kFirstRank},
    {"mlp.gate_proj", Split::kRows, Split::kRows},
    {"mlp.up_proj", Split::kRows, Split::kRows},
    {"mlp.down_proj", Split::kColumns, Split::kFirstRank},
    {"lm_head", Split::kVocabulary, Split::kVocabulary},
}};

constexpr int kMostRanks = 64;

// "1, 2 or 4": the numbers of ranks that divide n.
std::string divisors(std::int32_t n) {
  std::string text;
  std::string last;
  for (int d = 1; d <= n && d <= kMostRanks; ++d) {
    if (n % d != 0) continue;
    if (!last.empty()) text += (text.empty() ? "" : ", ") + last;
    last = std::to_string(d);
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

Range share_of(std::int64_t n, const RankOf& who) {
  FORETOKEN_CHECK(n % who.n_ranks == 0, "not_shardable() is asked first");
  const std::int64_t each = n / who.n_ranks;
  return {who.rank * each, (who.rank + 1) * each};
}

Range vocabulary_slice(std::int64_t vocab_size, const RankOf& who) {
  const std::int64_t n_grains = (vocab_size + kVocabularyGrain - 1) / kVocabularyGrain;
  const auto boundary = [&](std::int64_t rank) {
    return std::min(vocab_size, rank * n_grains / who.n_ranks * kVocabularyGrain);
  };
  return {boundary(who.rank), boundary(who.rank + 1)};
}

Range rows_of(Split split, std::int64_t n_rows, const RankOf& who) {
  if (split == Split::kRows) return share_of(n_rows, who);
  if (split == Split::kVocabulary) return vocabulary_slice(n_rows, who);
  return {0, n_rows};
}

Range columns_of(Split split, std::int64_t n_columns, const RankOf& who) {
  return split == Split::kColumns ? share_of(n_columns, who) : Range{0, n_columns};
}

ModelConfig share_of(const ModelConfig& config, int n_ranks) {
  ModelConfig share = config;
  share.n_heads /= n_ranks;
  share.n_kv_heads /= n_ranks;
  share.n_ffn /= n_ranks;
  return share;
}

std::optional<std::string> not_shardable(const ModelConfig& c, int n_ranks) {
  const std::string asked = "tensor_parallel is " + std::to_string(n_ranks);
  if (n_ranks < 1 || n_ranks > kMostRanks)
    return asked + "; it must be 1 to " + std::to_string(kMostRanks);
  struct Width {
    const char* what;
    const char* field;
    std::int32_t n;
  };
  for (const Width& width :
       {Width{"KV heads", "num_key_value_heads", c.n_kv_heads},
        Width{"attention heads", "num_attention_heads", c.n_heads},
        Width{"feed-forward columns", "intermediate_size", c.n_ffn}}) {
    if (width.n % n_ranks != 0)
      return asked + ", but the model has " + std::to_string(width.n) + " " + width.what + " (" +
             width.field + "), which that does not divide; possible: " + divisors(width.n);
  }
  if (c.vocab_size < n_ranks * kVocabularyGrain)
    return asked + ", but a vocabulary of " + std::to_string(c.vocab_size) +
           " ids has fewer than that many slices of " + std::to_string(kVocabularyGrain);
  return std::nullopt;
}

}  // namespace foretoken
