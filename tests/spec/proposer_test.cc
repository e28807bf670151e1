#include <gmock/gmock.h>

#include "common/spec/ngram_proposer.h"
#include "common/spec/prediction_proposer.h"
#include "tests/spec/proposer_contract.h"

namespace foretoken {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

INSTANTIATE_TEST_SUITE_P(
    Local,
    ProposerContract,
    testing::Values(ProposerCase{"ngram", [] { return std::make_unique<NgramProposer>(); }},
                    ProposerCase{"prediction",
                                 [] { return std::make_unique<PredictionProposer>(); }}),
    [](const auto& each) { return each.param.name; });

constexpr SeqId kProposedSeq{1};

// Drives one sequence and returns what would be verified after each tail.
class Driver {
 public:
  Driver(Proposer& proposer,
         const std::vector<TokenId>& prompt,
         const std::vector<TokenId>& prediction)
      : proposer_(proposer), text_(7, prompt) {
    store_.open(kProposedSeq, text_);
    proposer_.open({.seq = kProposedSeq,
                    .text = text_,
                    .n_prompt = text_.size(),
                    .params = params_,
                    .prediction = prediction});
  }
  std::vector<PathToken> path(const std::vector<TokenId>& tail, std::uint32_t budget = 4) {
    for (const TokenId token : tail) text_.append(token);
    store_.drop_committed(kProposedSeq);
    const Ask one{.seq = kProposedSeq, .budget = budget};
    proposer_.ask(std::span<const Ask>(&one, 1));
    proposer_.collect(TimePoint{}, store_);
    return store_.best_path(kProposedSeq, budget, Calibration{});
  }
  std::vector<TokenId> tokens(const std::vector<TokenId>& tail, std::uint32_t budget = 4) {
    std::vector<TokenId> out;
    for (const PathToken& token : path(tail, budget)) out.push_back(token.token);
    return out;
  }

 private:
  Proposer& proposer_;
  CommittedTokens text_;
  SamplingParams params_;
  ProposalStore store_{1000};
};

TEST(NgramProposer, ProposesWhatFollowedBefore) {
  NgramProposer ngram;
  Driver driver(ngram, {1, 2, 3, 4, 5, 6, 1, 2}, {});
  EXPECT_THAT(driver.tokens({}), ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(driver.tokens({3, 4}), ElementsAre(5, 6, 1, 2));
}

TEST(NgramProposer, LearnsFromTheAnswer) {
  NgramProposer ngram;
  Driver driver(ngram, {1}, {});
  EXPECT_THAT(driver.tokens({7, 8, 9}), IsEmpty());
  EXPECT_THAT(driver.tokens({7}), ElementsAre(8, 9, 7, 8));
}

TEST(NgramProposer, GoesOnThroughAShortPeriod) {
  NgramProposer ngram;
  Driver driver(ngram, {4, 5, 4, 5}, {});
  EXPECT_THAT(driver.tokens({}, 6), ElementsAre(4, 5, 4, 5, 4, 5));
}

TEST(NgramProposer, IsSilentBelowTheShortestMatch) {
  NgramProposer ngram({.min_match = 3});
  Driver driver(ngram, {1, 2, 3, 9, 2, 3}, {});
  EXPECT_THAT(driver.tokens({}), IsEmpty());
  EXPECT_THAT(driver.tokens({7, 1, 2, 3}), ElementsAre(9, 2, 3, 7));
}

TEST(NgramProposer, IsSurerAfterALongerMatch) {
  for (std::uint32_t length = 1; length < 40; ++length)
    EXPECT_LE(match_confidence(length), match_confidence(length + 1));
  EXPECT_LT(match_confidence(1), match_confidence(8));
  NgramProposer ngram;
  Driver driver(ngram, {1, 2, 3, 4, 5, 1, 2, 3}, {});
  const auto path = driver.path({});
  ASSERT_EQ(path.size(), 4u);
  EXPECT_EQ(path[0].confidence, match_confidence(3));
  EXPECT_EQ(path[1].confidence, match_confidence(4));
}

TEST(PredictionProposer, FollowsWhileTheAnswerAgrees) {
  PredictionProposer prediction;
  Driver driver(prediction, {100}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(driver.tokens({}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(driver.tokens({1, 2, 3}), ElementsAre(4, 5, 6));
  EXPECT_THAT(driver.tokens({4, 5, 6}), IsEmpty());
}

TEST(PredictionProposer, GoesOnAfterAnInsertionADeletionAndAReplacement) {
  const std::vector<TokenId> expected{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  PredictionProposer prediction;
  Driver inserted(prediction, {100}, expected);
  EXPECT_THAT(inserted.tokens({1, 2, 77}), IsEmpty());
  EXPECT_THAT(inserted.tokens({3}), IsEmpty());
  EXPECT_THAT(inserted.tokens({4}), ElementsAre(5, 6, 7, 8));
  Driver deleted(prediction, {100}, expected);
  EXPECT_THAT(deleted.tokens({1, 2, 6, 7}), ElementsAre(8, 9, 10, 11));
  Driver replaced(prediction, {100}, expected);
  EXPECT_THAT(replaced.tokens({1, 2, 77, 4, 5}), ElementsAre(6, 7, 8, 9));
}

TEST(PredictionProposer, GoesOnAtTheNearestPlaceAhead) {
  PredictionProposer prediction;
  Driver driver(prediction, {100}, {7, 8, 1, 7, 8, 2, 7, 8, 3});
  EXPECT_THAT(driver.tokens({7, 8, 50, 7, 8}, 1), ElementsAre(2));
}

TEST(PredictionProposer, IsSilentWithoutAPrediction) {
  PredictionProposer prediction;
  Driver driver(prediction, {1, 2, 1, 2}, {});
  EXPECT_THAT(driver.tokens({1, 2, 1}), IsEmpty());
}

}  // namespace
}  // namespace foretoken
