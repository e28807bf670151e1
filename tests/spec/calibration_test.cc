#include "common/spec/calibration.h"

#include <gmock/gmock.h>

#include <random>

namespace foretoken {
namespace {

constexpr PathToken kSure{1, 230, ProposerKind::kDraft};
constexpr PathToken kUnsure{1, 60, ProposerKind::kDraft};

std::vector<ScoredToken> first(const PathToken& token, bool stood) { return {{token, 0, stood}}; }

TEST(Calibration, StartsBelowTheProposersWord) {
  const Calibration fresh;
  EXPECT_LT(fresh.acceptance(kSure, 0), 230 / 255.0);
  EXPECT_GT(fresh.acceptance(kSure, 0), 0.6);
  EXPECT_LT(fresh.acceptance(kUnsure, 0), fresh.acceptance(kSure, 0));
  EXPECT_EQ(fresh.acceptance({1, 0, ProposerKind::kDraft}, 0), 0.0);
}

TEST(Calibration, EndsWithWhatWasCountedWhateverWasSaid) {
  std::mt19937 random(1);
  for (const double truth : {0.1, 0.5, 0.9}) {
    Calibration calibration;
    for (int i = 0; i < 2000; ++i)
      calibration.observe(first(kSure, std::bernoulli_distribution(truth)(random)));
    // Some 256 observations count: the mean is uncertain by sqrt(p (1-p) / 256) < 0.032, the bound
    // lies 1.28 of these below.
    EXPECT_LT(calibration.acceptance(kSure, 0), truth + 1.8 * 0.032);
    EXPECT_GT(calibration.acceptance(kSure, 0), truth - 4.3 * 0.032);
  }
}

TEST(Calibration, KeepsProposersApart) {
  Calibration calibration;
  PathToken ngram = kSure;
  ngram.source = ProposerKind::kNgram;
  for (int i = 0; i < 100; ++i) calibration.observe(first(ngram, false));
  EXPECT_LT(calibration.acceptance(ngram, 0), 0.1);
  EXPECT_DOUBLE_EQ(calibration.acceptance(kSure, 0), Calibration{}.acceptance(kSure, 0));
}

// Of a confidence they stand much less often, whatever is said of them.
TEST(Calibration, KeepsRunnersUpApart) {
  Calibration calibration;
  PathToken runner_up = kUnsure;
  runner_up.is_runner_up = true;
  for (int i = 0; i < 100; ++i) calibration.observe(first(runner_up, false));
  EXPECT_LT(calibration.acceptance(runner_up, 0), 0.05);
  EXPECT_DOUBLE_EQ(calibration.acceptance(kUnsure, 0), Calibration{}.acceptance(kUnsure, 0));
}

TEST(Calibration, TellsAgreementFromOneSourceAlone) {
  Calibration calibration;
  PathToken agreed = kSure;
  agreed.sources = {ProposerKind::kDraft, ProposerKind::kNgram};
  PathToken alone = kSure;
  alone.sources = ProposerKind::kDraft;
  for (int i = 0; i < 200; ++i) {
    calibration.observe(first(agreed, true));
    calibration.observe(first(alone, i % 4 == 0));
  }
  EXPECT_GT(calibration.acceptance(agreed, 0), 0.9);
  EXPECT_LT(calibration.acceptance(alone, 0), 0.3);
  EXPECT_DOUBLE_EQ(calibration.acceptance(kSure, 0), calibration.acceptance(alone, 0));
}

// A second source must not make unknown what was known.
TEST(Calibration, SeldomSeenAgreementIsWorthNoLessThanOneSourceAlone) {
  Calibration calibration;
  PathToken ngram = kUnsure, agreed = kUnsure;
  ngram.source = ProposerKind::kNgram;
  ngram.sources = ProposerKind::kNgram;
  agreed.source = ProposerKind::kMemory;
  agreed.sources = {ProposerKind::kNgram, ProposerKind::kMemory};
  for (int i = 0; i < 200; ++i) calibration.observe(first(ngram, true));
  EXPECT_DOUBLE_EQ(calibration.acceptance(agreed, 0), calibration.acceptance(ngram, 0));
  EXPECT_GT(calibration.acceptance(agreed, 0), 0.9);
  for (int i = 0; i < 10; ++i) calibration.observe(first(agreed, false));
  EXPECT_DOUBLE_EQ(calibration.acceptance(agreed, 0), calibration.acceptance(ngram, 0));
  for (int i = 0; i < 190; ++i) calibration.observe(first(agreed, false));
  EXPECT_LT(calibration.acceptance(agreed, 0), 0.1) << "what was counted often enough decides";
  Calibration fresh;
  PathToken boast = agreed;
  boast.confidence = kSure.confidence;
  EXPECT_LT(fresh.acceptance(boast, 0), fresh.mean(boast, 0))
      << "no source is known: caution stays";
  PathToken runner_up = agreed;
  runner_up.is_runner_up = true;
  EXPECT_LT(calibration.acceptance(runner_up, 0), calibration.acceptance(ngram, 0));
}

// Of a depth beyond what is verified nothing is heard: what it was once known for fades.
TEST(Calibration, ADepthWithoutOutcomesComesToWhatTheOthersSay) {
  Calibration calibration;
  for (int i = 0; i < 300; ++i)
    calibration.observe(std::vector<ScoredToken>{{kSure, 0, true}, {kSure, 1, false}});
  EXPECT_LT(calibration.acceptance(kSure, 1), 0.1);
  for (int i = 0; i < 2000; ++i) calibration.observe(first(kSure, true));
  EXPECT_GT(calibration.acceptance(kSure, 1), 0.7);
}

}  // namespace
}  // namespace foretoken
