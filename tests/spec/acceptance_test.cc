#include "common/spec/acceptance.h"

#include <gmock/gmock.h>

#include <random>
#include <vector>

namespace foretoken {
namespace {

using testing::ElementsAre;

TEST(Acceptance, EndsAtTheFirstDifference) {
  const std::vector<TokenId> drafted{1, 2, 3}, chosen{1, 9, 3, 4};
  const Acceptance result = accept(drafted, chosen);
  EXPECT_EQ(result.n_accepted, 1u);
  EXPECT_THAT(result.committed, ElementsAre(1, 9));
}

TEST(Acceptance, AllAcceptedBringsTheBonus) {
  const std::vector<TokenId> drafted{1, 2}, chosen{1, 2, 3};
  EXPECT_THAT(accept(drafted, chosen).committed, ElementsAre(1, 2, 3));
}

TEST(Acceptance, WithoutProposalsIsAPlainStep) {
  const std::vector<TokenId> chosen{7};
  EXPECT_EQ(accept({}, chosen).n_accepted, 0u);
  EXPECT_THAT(accept({}, chosen).committed, ElementsAre(7));
}

TEST(Acceptance, CommitsWhatTheTargetChoseWhateverWasProposed) {
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    std::vector<TokenId> chosen(1 + random() % 9), drafted;
    for (TokenId& token : chosen) token = static_cast<TokenId>(random() % 3);
    for (std::size_t i = 0; i + 1 < chosen.size(); ++i)
      drafted.push_back(static_cast<TokenId>(random() % 3));
    const Acceptance result = accept(drafted, chosen);
    ASSERT_EQ(result.committed.size(), result.n_accepted + 1u);
    for (std::size_t i = 0; i < result.committed.size(); ++i)
      ASSERT_EQ(result.committed[i], chosen[i]);
    for (std::size_t i = 0; i < result.n_accepted; ++i) ASSERT_EQ(drafted[i], chosen[i]);
    if (result.n_accepted < drafted.size()) {
      ASSERT_NE(drafted[result.n_accepted], chosen[result.n_accepted]);
    }
  }
}

}  // namespace
}  // namespace foretoken
