#include "common/engine/draft_chain.h"

#include <gmock/gmock.h>

#include <utility>
#include <vector>

namespace foretoken {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Tokens = std::vector<TokenId>;

Guess with_confidence(int confidence) {
  return {.confidence = static_cast<std::uint8_t>(confidence), .runners_up = {confidence, -1, -1}};
}

// 1 2 3, and the guesses 4 5 6 of confidences 40, 50 and 60.
DraftChain three_guesses() {
  DraftChain chain({1, 2, 3});
  for (const TokenId token : {4, 5, 6}) chain.append(token, with_confidence(10 * token));
  return chain;
}

std::vector<int> confidences(const DraftChain& chain) {
  std::vector<int> all;
  for (const Guess& guess : chain.guesses()) {
    EXPECT_EQ(guess.runners_up.front(), guess.confidence) << "they stay together";
    all.push_back(guess.confidence);
  }
  return all;
}

TEST(DraftChain, BeginsWithWhatIsCommitted) {
  const DraftChain chain({1, 2, 3});
  EXPECT_EQ(chain.known(), 3u);
  EXPECT_EQ(chain.n_guesses(), 0u);
  EXPECT_THAT(chain.text(), ElementsAre(1, 2, 3));
  EXPECT_THAT(chain.guessed(), IsEmpty());
}

TEST(DraftChain, GoesOnWhereTheTargetAgrees) {
  DraftChain chain = three_guesses();
  EXPECT_EQ(chain.n_agreed(Tokens{4, 5}), 2u);
  chain.commit(Tokens{4, 5});
  EXPECT_EQ(chain.known(), 5u);
  EXPECT_THAT(chain.text(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(chain.guessed(), ElementsAre(6));
  EXPECT_THAT(confidences(chain), ElementsAre(60));
}

TEST(DraftChain, IsVoidFromTheFirstWrongGuessOn) {
  DraftChain chain = three_guesses();
  EXPECT_EQ(chain.n_agreed(Tokens{4, 9, 6}), 1u);
  chain.commit(Tokens{4, 9, 6});
  EXPECT_EQ(chain.known(), 6u);
  EXPECT_THAT(chain.text(), ElementsAre(1, 2, 3, 4, 9, 6));
  EXPECT_THAT(confidences(chain), IsEmpty()) << "a token that agrees behind one that does not";
}

TEST(DraftChain, IsOutrunByALongerText) {
  DraftChain chain = three_guesses();
  EXPECT_EQ(chain.n_agreed(Tokens{4, 5, 6, 7}), 3u);
  chain.commit(Tokens{4, 5, 6, 7});
  EXPECT_THAT(chain.text(), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(chain.known(), 7u);
  EXPECT_EQ(chain.n_guesses(), 0u);
}

TEST(DraftChain, IsAnotherOneFromAGuessOn) {
  DraftChain chain = three_guesses();
  chain.replace(1, Tokens{7, 8}, std::vector{with_confidence(70), with_confidence(80)});
  EXPECT_EQ(chain.known(), 3u);
  EXPECT_THAT(chain.text(), ElementsAre(1, 2, 3, 4, 7, 8));
  EXPECT_THAT(confidences(chain), ElementsAre(40, 70, 80));
}

TEST(DraftChain, KeepsTheLengthAloneOnceOutgrown) {
  DraftChain chain = three_guesses();
  chain.outgrow();
  EXPECT_TRUE(chain.is_outgrown());
  EXPECT_EQ(chain.known(), 3u);
  chain.commit(Tokens{4, 5});
  EXPECT_EQ(chain.known(), 5u);
  EXPECT_EQ(chain.n_guesses(), 0u);
  EXPECT_THAT(chain.text(), IsEmpty());
  EXPECT_THAT(chain.guessed(), IsEmpty());
}

}  // namespace
}  // namespace foretoken
