#include "common/spec/prefix_hash.h"

#include <gmock/gmock.h>

#include <vector>

namespace foretoken {
namespace {

// Known answers of the protocol: fingerprints of ones and twos, then tokens 1, 2, 3.
constexpr PrefixHash kRoot = prefix_hash_root(0x1111111111111111ull, 0x2222222222222222ull);
static_assert(kRoot == 0x4f1e6a336da9b7b6ull);
static_assert(prefix_hash_next(kRoot, 1) == 0x3a89f88418f6f46cull);
static_assert(prefix_hash_next(prefix_hash_next(kRoot, 1), 2) == 0x18296817cea902ccull);

TEST(PrefixHash, MatchesTheKnownAnswers) {
  EXPECT_EQ(prefix_hash_extend(kRoot, std::vector<TokenId>{1, 2, 3}), 0x8f7c4fda25ebfe0full);
}

TEST(PrefixHash, DependsOnOrderAndFingerprints) {
  EXPECT_NE(prefix_hash_extend(kRoot, std::vector<TokenId>{1, 2}),
            prefix_hash_extend(kRoot, std::vector<TokenId>{2, 1}));
  EXPECT_NE(prefix_hash_root(1, 2), prefix_hash_root(2, 1));
}

}  // namespace
}  // namespace foretoken
