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
  for (const auto& [name, split] : {std::pair{"self_attn.q_proj", Split::kHeads},
                                    {"self_attn.k_proj", Split::kKvHeads},
                                    {"self_attn.v_proj", Split::kKvHeads},
                                    {"mlp.gate_proj", Split::kFfn},
                                    {"mlp.up_proj", Split::kFfn}}) {
    EXPECT_EQ(of(std::string(name) + ".weight"), split) << name;
    EXPECT_EQ(of(std::string(name) + ".bias"), split) << name;
  }
  for (const auto& [name, split] :
       {std::pair{"self_attn.o_proj", Split::kHeadInputs}, {"mlp.down_proj", Split::kFfnInputs}}) {
    EXPECT_EQ(of(std::string(name) + ".weight"), split) << name;
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

ModelConfig shape_of(std::int32_t n_heads, std::int32_t n_kv_heads, std::int32_t n_ffn) {
  ModelConfig config = tiny_config(Family::kLlama);
  config.n_heads = n_heads;
  config.n_kv_heads = n_kv_heads;
  config.n_ffn = n_ffn;
  return config;
}

TEST(Shard, SharesAreEqualParts) {
  const ModelConfig whole = shape_of(8, 4, 128);
  const ModelConfig half = share_of(whole, {1, 2});
  EXPECT_EQ(half.n_heads, 4);
  EXPECT_EQ(half.n_kv_heads, 2);
  EXPECT_EQ(half.n_ffn, 64);
  EXPECT_EQ(half.n_hidden, whole.n_hidden);
  EXPECT_EQ(half.head_dim, whole.head_dim);
  EXPECT_EQ(query_heads_of(whole, {1, 2}), (Range{4, 8}));
  EXPECT_EQ(kv_heads_of(whole, {1, 2}), (Range{2, 4}));
  EXPECT_EQ(ffn_of(whole, {1, 2}), (Range{64, 128}));
}

// By the definition of grouped attention: query head h reads KV head h / group.
TEST(Shard, EveryQueryHeadIsWithTheKvHeadItReadsAndIsThereOnce) {
  for (const auto& [n_heads, n_kv_heads, n_ranks] : {std::tuple{8, 4, 8},
                                                     {8, 2, 4},
                                                     {8, 1, 4},
                                                     {3, 1, 2},
                                                     {3, 1, 3},
                                                     {64, 8, 16},
                                                     {12, 2, 8},
                                                     {8, 4, 2},
                                                     {32, 8, 8}}) {
    const ModelConfig config = shape_of(n_heads, n_kv_heads, 4096);
    std::int64_t next = 0;
    for (int rank = 0; rank < n_ranks; ++rank) {
      const RankOf who{rank, n_ranks};
      const Range heads = query_heads_of(config, who), kv = kv_heads_of(config, who);
      const ModelConfig share = share_of(config, who);
      EXPECT_EQ(heads.begin, next);
      EXPECT_EQ(kv.n(), std::max(1, n_kv_heads / n_ranks));
      EXPECT_GT(heads.n(), 0);
      ASSERT_EQ(share.n_heads % share.n_kv_heads, 0);
      for (std::int64_t h = heads.begin; h < heads.end; ++h)
        EXPECT_EQ(h / (n_heads / n_kv_heads),
                  kv.begin + (h - heads.begin) / (share.n_heads / share.n_kv_heads));
      next = heads.end;
    }
    EXPECT_EQ(next, n_heads);
  }
}

TEST(Shard, AWidthThatDoesNotDivideIsCutOnTheGrain) {
  const ModelConfig config = shape_of(12, 1, 500);
  std::int64_t next = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const Range part = ffn_of(config, {rank, 3});
    EXPECT_EQ(part.begin, next);
    EXPECT_EQ(part.begin % kFfnGrain, 0);
    EXPECT_GT(part.n(), 0);
    next = part.end;
  }
  EXPECT_EQ(next, 500);
}

TEST(Shard, WhatCannotBeSplitIsRefusedByNumber) {
  ModelConfig config = shape_of(12, 4, 126);
  for (const int n_ranks : {1, 2}) EXPECT_EQ(not_shardable(config, n_ranks), std::nullopt);
  EXPECT_EQ(not_shardable(config, 3).value_or(""),
            "tensor_parallel is 3, but the model has 4 KV heads (num_key_value_heads): one number "
            "must divide the other; possible: 1 or 2");
  EXPECT_NE(not_shardable(config, 4).value_or("").find("126 feed-forward columns"),
            std::string::npos);
  config.vocab_size = 4096;
  config.n_ffn = 4096;
  EXPECT_EQ(not_shardable(config, 12), std::nullopt);
  EXPECT_EQ(not_shardable(config, 16).value_or(""),
            "tensor_parallel is 16, but the model has 12 attention heads (num_attention_heads), "
            "fewer than that; possible: 1, 2, 4, 8 or 12");
  config.vocab_size = 200;
  EXPECT_NE(not_shardable(config, 4).value_or("").find("vocabulary of 200"), std::string::npos);
  EXPECT_NE(not_shardable(config, 0), std::nullopt);
  config.vocab_size = 17;
  EXPECT_EQ(not_shardable(config, 1), std::nullopt) << "one rank has all of it";
  config.vocab_size = 4096;
  config.head_ids = {0, 2, 5};
  EXPECT_EQ(not_shardable(config, 1), std::nullopt);
  EXPECT_EQ(
      not_shardable(config, 2).value_or(""),
      "tensor_parallel is 2, but the model's head has 3 of 4096 ids (draft_ids.i32), and such "
      "a head is not spread over ranks; possible: 1");
}

}  // namespace
}  // namespace foretoken
