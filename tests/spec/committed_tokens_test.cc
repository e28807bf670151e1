#include "common/spec/committed_tokens.h"

#include <gmock/gmock.h>

namespace foretoken {
namespace {

using testing::ElementsAre;

TEST(CommittedTokens, HashEveryPrefixAsTheProtocolDoes) {
  CommittedTokens text(77, {5, 6});
  text.append(7);
  EXPECT_THAT(text.tokens(), ElementsAre(5, 6, 7));
  EXPECT_EQ(text.size(), 3u);
  EXPECT_EQ(text.back(), 7);
  for (Position n = 0; n <= text.size(); ++n)
    EXPECT_EQ(text.prefix(n), prefix_hash_extend(77, text.tokens().first(n))) << n;
  EXPECT_EQ(text.prefix(), text.prefix(3));
}

TEST(CommittedTokens, BeginWithNothing) {
  const CommittedTokens text(77);
  EXPECT_EQ(text.size(), 0u);
  EXPECT_EQ(text.prefix(), 77u);
}

TEST(CommittedTokens, GiveWhatLiesBehindAPosition) {
  const CommittedTokens text(77, {5, 6, 7});
  EXPECT_THAT(text.from(1), ElementsAre(6, 7));
  EXPECT_TRUE(text.from(3).empty());
}

}  // namespace
}  // namespace foretoken
