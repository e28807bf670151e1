#include "common/kv/kv_size.h"

#include <gmock/gmock.h>

namespace foretoken {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMiB = 1024 * 1024;

// 2 (K, V) * 2 layers * 4 heads * 16 tokens * 32 * 2 bytes = 16 KiB a block.
constexpr KvGeometry kGeometry{
    .dtype = DType::kBf16, .n_layers = 2, .n_kv_heads = 4, .head_dim = 32, .block_tokens = 16};

TEST(KvMemory, ReadsSharesAndSizes) {
  EXPECT_DOUBLE_EQ(parse_kv_memory("60%")->share, 0.6);
  EXPECT_DOUBLE_EQ(parse_kv_memory("100 %")->share, 1.0);
  EXPECT_EQ(parse_kv_memory("8GiB")->n_bytes, 8ull << 30);
  EXPECT_EQ(parse_kv_memory("512MiB")->n_bytes, 512ull << 20);
  EXPECT_EQ(parse_kv_memory("1.5 GiB")->n_bytes, 1536ull << 20);
  EXPECT_EQ(parse_kv_memory("1GB")->n_bytes, 1000000000ull);
  EXPECT_EQ(parse_kv_memory("65536KiB")->n_bytes, 64ull << 20);
  EXPECT_EQ(parse_kv_memory("1048576")->n_bytes, kMiB);
  EXPECT_EQ(parse_kv_memory("56000 tokens")->n_tokens, 56000u);
}

TEST(KvMemory, RefusesWhatIsNeitherAndNamesTheKey) {
  for (const char* text : {"", "%", "0%", "101%", "-1GiB", "8gib", "GiB", "nan%", "inf", "1e3MiB",
                           "8GiB more", "0x10", "99999999999TiB", "60%%", "0 tokens", "5 token"}) {
    const auto parsed = parse_kv_memory(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kConfig) << text;
    EXPECT_EQ(parsed.error().param, "kv_cache.memory");
    EXPECT_THAT(parsed.error().message, HasSubstr("kv_cache.memory"));
  }
}

TEST(KvBlocks, CountsWholeBlocks) {
  KvSizeRequest request{
      .memory = "50%", .geometry = kGeometry, .free_bytes = 2 * kMiB, .max_sequence_tokens = 512};
  EXPECT_EQ(kv_blocks(request).value(), 64);
  request.memory = "1040KiB";
  EXPECT_EQ(kv_blocks(request).value(), 65);
  request.memory = "1055KiB";
  EXPECT_EQ(kv_blocks(request).value(), 65);
}

TEST(KvBlocks, RefusesWhatCannotHoldOneSequence) {
  KvSizeRequest request{
      .memory = "1MiB", .geometry = kGeometry, .free_bytes = 2 * kMiB, .max_sequence_tokens = 1024};
  EXPECT_EQ(kv_blocks(request).value(), 64);
  request.max_sequence_tokens = 1025;
  const auto refused = kv_blocks(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(refused.error().message, HasSubstr("kv_cache.memory"));
  EXPECT_THAT(refused.error().message, HasSubstr("65"));
  EXPECT_THAT(refused.error().message, HasSubstr("model.max_model_len (--ctx-size)"));
}

TEST(KvBlocks, CountsTheBlocksOfSoManyTokens) {
  KvSizeRequest request{.memory = "1000 tokens",
                        .key = "draft.memory",
                        .geometry = kGeometry,
                        .free_bytes = 2 * kMiB,
                        .max_sequence_tokens = 512};
  EXPECT_EQ(kv_blocks(request).value(), 63);  // of 16 tokens
  request.free_bytes = 62 * 16 * 1024;
  const auto refused = kv_blocks(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().param, "draft.memory");
  EXPECT_THAT(refused.error().message, HasSubstr("draft.memory asks for 0.9 MiB"));
}

TEST(KvBlocks, RefusesMoreThanIsFree) {
  const auto refused = kv_blocks({.memory = "3MiB", .geometry = kGeometry, .free_bytes = 2 * kMiB});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("2.0 MiB are free"));
}

TEST(KvBlocks, SlotsStayWithin32Bits) {
  KvGeometry tiny{
      .dtype = DType::kF16, .n_layers = 1, .n_kv_heads = 1, .head_dim = 1, .block_tokens = 16};
  const auto blocks = kv_blocks({.memory = "100%", .geometry = tiny, .free_bytes = 1ull << 45});
  EXPECT_LE(std::int64_t{blocks.value()} * 16 + 15, std::int64_t{0x7fffffff});
}

}  // namespace
}  // namespace foretoken
