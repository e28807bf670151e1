#include <gmock/gmock.h>

#include "common/base/majority_walk.h"
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
  EXPECT_THAT(driver.tokens({}, 16), ElementsAre(5, 6, 1, 2, 3, 4, 5, 6))
      << "twice as many as agreed";
}

TEST(NgramProposer, LearnsFromTheAnswer) {
  NgramProposer ngram;
  Driver driver(ngram, {1}, {});
  EXPECT_THAT(driver.tokens({7, 8, 9}), IsEmpty());
  EXPECT_THAT(driver.tokens({7}), ElementsAre(8, 9)) << "one token agreed";
  EXPECT_THAT(driver.tokens({8}), ElementsAre(9, 7, 8, 9));
}

TEST(NgramProposer, GoesOnThroughAShortPeriod) {
  NgramProposer ngram;
  Driver driver(ngram, {4, 5, 4, 5}, {});
  EXPECT_THAT(driver.tokens({4, 5}, 6), ElementsAre(4, 5, 4, 5, 4, 5));
}

TEST(NgramProposer, IsSilentBelowTheShortestMatch) {
  NgramProposer ngram({.min_match = 3});
  Driver driver(ngram, {1, 2, 3, 9, 2, 3}, {});
  EXPECT_THAT(driver.tokens({}), IsEmpty());
  EXPECT_THAT(driver.tokens({7, 1, 2, 3}), ElementsAre(9, 2, 3, 7));
}

TEST(NgramProposer, IsSurerAfterALongerMatch) {
  NgramProposer ngram;
  Driver driver(ngram, {1, 2, 3, 4, 5, 1, 2, 3}, {});
  const auto path = driver.path({});
  ASSERT_EQ(path.size(), 4u);
  EXPECT_EQ(path[0].confidence, lookup_confidence(3, 1));
  EXPECT_EQ(path[1].confidence, lookup_confidence(4, 1));
}

TEST(NgramProposer, SaysWhatMostPlacesGoOnWithAndHowManyThatAre) {
  NgramProposer ngram;
  Driver driver(ngram, {1, 2, 50, 60, 1, 2, 50, 70, 1, 2, 80, 1, 2, 90, 1, 2}, {});
  const auto path = driver.path({});
  ASSERT_EQ(path.size(), 4u);
  EXPECT_EQ(path[0].token, 50);
  EXPECT_EQ(path[0].confidence, lookup_confidence(2, 0.5));
  EXPECT_EQ(path[1].token, 70) << "of two equally frequent ones the later";
  EXPECT_EQ(path[1].confidence, lookup_confidence(3, 0.5));
  EXPECT_EQ(path[2].confidence, lookup_confidence(4, 1)) << "one place is left";
}

TEST(NgramProposer, TellsLongRunsApart) {
  std::vector<TokenId> text;
  const auto append = [&](TokenId first, TokenId next) {
    text.push_back(first);
    for (TokenId i = 0; i < 25; ++i) text.push_back(100 + i);
    if (next > 0) text.push_back(next);
  };
  append(1, 10);
  append(2, 20);
  append(2, 20);
  append(1, 0);
  NgramProposer ngram;
  Driver driver(ngram, text, {});
  EXPECT_EQ(driver.tokens({}).front(), 10) << "the only place where 26 tokens agree";
}

Walked walk(const std::vector<std::vector<TokenId>>& places, std::size_t n = 9) {
  return majority_walk(places.size(), {.n_tokens = n},
                       [&](std::size_t place, const std::vector<TokenId>& walked) {
                         const auto& tokens = places[place];
                         return walked.size() < tokens.size() ? tokens[walked.size()] : -1;
                       });
}

TEST(MajorityWalk, DropsThePlacesThatDisagree) {
  const Walked walked = walk({{1, 7}, {1, 2, 3}, {4, 9}, {1, 2}});
  EXPECT_THAT(walked.tokens, ElementsAre(1, 2, 3));
  EXPECT_THAT(walked.shares, ElementsAre(0.75, 2.0 / 3, 0.5));
  EXPECT_THAT(walk({{1, 7}, {1, 2, 3}, {4, 9}, {1, 2}}, 2).tokens, ElementsAre(1, 2));
  EXPECT_THAT(walk({}).tokens, IsEmpty());
}

TEST(MajorityWalk, StopsWhenFewOfThePlacesAreLeft) {
  std::vector<std::vector<TokenId>> places;
  for (TokenId i = 0; i < 21; ++i) places.push_back({1, i / 3, i});
  EXPECT_THAT(walk(places).tokens, ElementsAre(1, 0)) << "three of 21, then one";
}

TEST(MajorityWalk, ConfidenceGrowsWithTheMatchAndTheShare) {
  for (std::uint32_t length = 1; length < 40; ++length) {
    EXPECT_LE(lookup_confidence(length, 1), lookup_confidence(length + 1, 1));
    EXPECT_LT(lookup_confidence(length, 0.4), lookup_confidence(length, 0.5));
  }
  EXPECT_EQ(lookup_confidence(1, 1), 102);
  EXPECT_EQ(lookup_confidence(1000, 1), 240);
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
