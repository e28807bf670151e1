// Which slice of each tensor a rank holds, by the table; what cannot be split is refused by number.
#include "common/model/shard.h"

#include <gtest/gtest.h>

#include "common/model/families.h"
#include "common/model/init_random.h"

namespace foretoken {
namespace {

TEST(Shard, TheTableSaysHowEachTensorIsSplit) {
  EXPECT_EQ(split_of("model.embed_tokens.weight"), Split::kWhole);
  EXPECT_EQ(split_of("model.norm.weight"), Split::kWhole);
  EXPECT_EQ(split_of("lm_head.weight"), Split::kVocabulary);
  const auto of = [](std::string_view rest) { return split_of(names::layer(3, rest)); };
  for (const char* name : {"input_layernorm.weight", "post_attention_layernorm.weight",
                           "self_attn.q_norm.weight", "self_attn.k_norm.weight"})
    EXPECT_EQ(of(name), Split::kWhole) << name;
  for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                           "mlp.gate_proj", "mlp.up_proj"}) {
    EXPECT_EQ(of(std::string(name) + ".weight"), Split::kRows) << name;
    EXPECT_EQ(of(std::string(name) + ".bias"), Split::kRows) << name;
  }
  for (const char* name : {"self_attn.o_proj", "mlp.down_proj"}) {
    EXPECT_EQ(of(std::string(name) + ".weight"), Split::kColumns) << name;
    EXPECT_EQ(of(std::string(name) + ".bias"), Split::kFirstRank) << name;
  }
}

TEST(Shard, SlicesOfAVocabularyFollowOneAnotherAndBeginOnTheGrain) {
  for (const std::int64_t vocab : {256, 261, 4096, 32000, 50257, 128256, 151936})
    for (const int n_ranks : {1, 2, 3, 4}) {
      std::int64_t end = 0;
      for (int rank = 0; rank < n_ranks; ++rank) {
        const Range slice = vocabulary_slice(vocab, {rank, n_ranks});
        EXPECT_EQ(slice.begin, end);
        EXPECT_EQ(slice.begin % kVocabularyGrain, 0);
        EXPECT_GT(slice.n(), 0);
        EXPECT_LE(slice.n(), vocab / n_ranks + 2 * kVocabularyGrain) << "even, up to the grain";
        end = slice.end;
      }
      EXPECT_EQ(end, vocab);
    }
}

TEST(Shard, SharesAreEqualParts) {
  EXPECT_EQ(share_of(12, {0, 3}), (Range{0, 4}));
  EXPECT_EQ(share_of(12, {2, 3}), (Range{8, 12}));
  const ModelConfig whole = tiny_config(Family::kLlama);
  const ModelConfig half = share_of(whole, 2);
  EXPECT_EQ(half.n_heads * 2, whole.n_heads);
  EXPECT_EQ(half.n_kv_heads * 2, whole.n_kv_heads);
  EXPECT_EQ(half.n_ffn * 2, whole.n_ffn);
  EXPECT_EQ(half.n_hidden, whole.n_hidden);
  EXPECT_EQ(half.head_dim, whole.head_dim);
}

TEST(Shard, WhatCannotBeSplitIsRefusedByNumber) {
  ModelConfig config = tiny_config(Family::kLlama);
  config.n_heads = 12;
  config.n_kv_heads = 4;
  config.n_ffn = 126;
  EXPECT_EQ(not_shardable(config, 1), std::nullopt);
  EXPECT_EQ(not_shardable(config, 2), std::nullopt);
  EXPECT_EQ(not_shardable(config, 8).value_or(""),
            "tensor_parallel is 8, but the model has 4 KV heads (num_key_value_heads), which that "
            "does not divide; possible: 1, 2 or 4");
  EXPECT_NE(not_shardable(config, 4).value_or("").find("126 feed-forward columns"),
            std::string::npos);
  config.n_ffn = 128;
  config.vocab_size = 200;
  EXPECT_NE(not_shardable(config, 4).value_or("").find("vocabulary of 200"), std::string::npos);
  EXPECT_NE(not_shardable(config, 0), std::nullopt);
}

}  // namespace
}  // namespace foretoken
