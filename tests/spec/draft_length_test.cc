#include "common/spec/draft_length.h"

#include <gmock/gmock.h>

#include <numeric>
#include <random>

namespace foretoken {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::Each;
using testing::ElementsAre;

std::vector<PathToken> chain(std::size_t n, std::uint8_t confidence) {
  return std::vector<PathToken>(n, {1, confidence, ProposerKind::kDraft});
}

// A round in which the first n_accepted of a path stood and the next one did not.
std::vector<ScoredToken> scored(std::span<const PathToken> path, std::size_t n_accepted) {
  std::vector<ScoredToken> all;
  for (std::size_t i = 0; i < path.size() && i <= n_accepted; ++i)
    all.push_back({path[i], static_cast<std::uint32_t>(i), i < n_accepted});
  return all;
}

SequenceOdds none;  // takes outcomes in, and is not read

// Often enough to be believed.
void observe_often(DraftLength& length, std::uint32_t n_rows, Duration took) {
  for (int i = 0; i < 3; ++i) length.observe_step(n_rows, 1, took);
}

// Steps that cost 1 ms and so much more per row, told for all row counts at hand.
void teach_cost(DraftLength& length, double per_row, std::uint32_t n_rows = 40) {
  for (std::uint32_t rows = 1; rows <= n_rows; ++rows)
    observe_often(length, rows, microseconds(static_cast<int>(1000 * (1 + per_row * (rows - 1)))));
}

TEST(DraftLength, FixedTakesWhatThereIsUpToTheCap) {
  DraftLength length({.mode = LengthMode::kFixed});
  const auto ten = chain(10, 1), three = chain(3, 1);
  const std::vector<Candidate> batch{{ten, 5}, {three, 5}, {{}, 5}, {ten, 0}};
  EXPECT_THAT(length.cut(batch, 0, 100), ElementsAre(5, 3, 0, 0));
  EXPECT_THAT(length.cut(batch, 0, 3), ElementsAre(2, 1, 0, 0));
}

TEST(DraftLength, IsPlainUntilAStepWasMeasured) {
  DraftLength length({});
  const auto path = chain(4, 250);
  EXPECT_THAT(length.cut(std::vector<Candidate>{{path, 4}}, 0, 100), ElementsAre(0));
  length.observe_step(1, 1, milliseconds(1));
  EXPECT_GT(length.cut(std::vector<Candidate>{{path, 4}}, 0, 100)[0], 0u);
}

TEST(DraftLength, GoesToLongerStepsByDoubling) {
  DraftLength length({});
  const auto path = chain(16, 250);
  std::uint32_t rows = 1;
  for (const std::uint32_t expected : {1u, 3u, 7u, 15u}) {
    length.observe_step(rows, 1, milliseconds(1));
    EXPECT_EQ(length.cut(std::vector<Candidate>{{path, 16}}, 0, 100)[0], expected);
    rows = expected + 1;
  }
}

TEST(DraftLength, VerifiesWhenRowsAreCheapAndNotWhenTheyAreDear) {
  const auto path = chain(4, 200);
  DraftLength cheap({}), dear({});
  teach_cost(cheap, 0.01);
  teach_cost(dear, 1.0);
  EXPECT_THAT(cheap.cut(std::vector<Candidate>{{path, 4}}, 0, 100), ElementsAre(4));
  EXPECT_THAT(dear.cut(std::vector<Candidate>{{path, 4}}, 0, 100), ElementsAre(0));
}

// Beside fifteen plain sequences: what is likely pays for all, what is unlikely for the sixteenth
// alone.
TEST(DraftLength, ATokensValueDecidesWhatItMayCostTheOthers) {
  DraftLength length({});
  teach_cost(length, 0.1);
  const auto path = chain(4, 240), unsure = chain(4, 60);
  for (int i = 0; i < 200; ++i) {
    length.observe_round(scored(path, 4), none);
    length.observe_round(scored(unsure, i % 3 == 0 ? 1 : 0), none);
  }
  std::vector<Candidate> batch(15);
  batch.push_back({path, 4});
  EXPECT_EQ(length.cut(batch, 0, 100).back(), 4u) << "likely to stand";
  batch.back() = {unsure, 4};
  EXPECT_EQ(length.cut(batch, 0, 100).back(), 0u);
  for (Candidate& each : batch) each.value = 16.0 / 2 / 15;
  batch.back().value = 16.0 / 2;
  EXPECT_GT(length.cut(batch, 0, 100).back(), 0u);
}

TEST(DraftLength, SaysWhatSequencesWouldBringAlone) {
  DraftLength length({});
  const auto path = chain(4, 200);
  EXPECT_EQ(length.rows_alone(std::vector<Candidate>{{path, 4}, {{}, 4}}), 2u) << "plain at first";
  teach_cost(length, 0.01);
  EXPECT_EQ(length.rows_alone({}), 0u);
  EXPECT_EQ(length.rows_alone(std::vector<Candidate>{{path, 4}, {{}, 4}}), 6u);
  EXPECT_EQ(length.rows_alone(std::vector<Candidate>{{path, 2}}), 3u);
  DraftLength fixed({.mode = LengthMode::kFixed});
  EXPECT_EQ(fixed.rows_alone(std::vector<Candidate>{{path, 4}}), 5u);
}

TEST(DraftLength, GivesRowsToThoseWhoseTokensAreLikelier) {
  DraftLength length({});
  teach_cost(length, 0.2);
  const auto sure = chain(8, 250), unsure = chain(8, 60);
  const auto cut = length.cut(std::vector<Candidate>{{unsure, 8}, {sure, 8}}, 0, 100);
  EXPECT_LT(cut[0], 2u);
  EXPECT_GT(cut[1], 2u);
}

TEST(DraftLength, KeepsWithinCapsAndTheRowBudget) {
  DraftLength length({});
  teach_cost(length, 0.001);
  const auto path = chain(8, 250);
  const auto cut = length.cut(std::vector<Candidate>{{path, 2}, {path, 0}, {path, 8}}, 0, 5);
  EXPECT_LE(cut[0], 2u);
  EXPECT_EQ(cut[1], 0u);
  EXPECT_EQ(cut[0] + cut[1] + cut[2], 5u);
  EXPECT_THAT(length.cut({}, 7, 100), ElementsAre());
}

TEST(DraftLength, RowsOfPrefillCountInTheCost) {
  // Flat up to 8 rows, then a cliff: with a chunk of 7 rows beside it, one more row is too many.
  DraftLength length({});
  for (std::uint32_t rows = 1; rows <= 16; ++rows)
    observe_often(length, rows, microseconds(rows <= 8 ? 1000 : 4000));
  const auto path = chain(4, 230);
  EXPECT_GT(length.cut(std::vector<Candidate>{{path, 4}}, 0, 100)[0], 0u);
  EXPECT_EQ(length.cut(std::vector<Candidate>{{path, 4}}, 7, 100)[0], 0u);
}

TEST(DraftLength, LooksBeyondACostlyStepToACheapPlateau) {
  // 1 row 1 ms, 2 and more 1.9 ms: one proposed token does not pay, four do.
  DraftLength length({});
  for (std::uint32_t rows = 1; rows <= 16; ++rows)
    observe_often(length, rows, microseconds(rows == 1 ? 1000 : 1900));
  const auto path = chain(8, 250);
  EXPECT_EQ(length.cut(std::vector<Candidate>{{path, 1}}, 0, 100)[0], 0u);
  EXPECT_GT(length.cut(std::vector<Candidate>{{path, 8}}, 0, 100)[0], 3u);
}

TEST(DraftLength, NoChoiceOfLengthsHasMoreGoodput) {
  const std::uint32_t seed = 9;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    DraftLength length({.min_gain = 1.0});
    teach_cost(length, 0.02 + 0.01 * static_cast<double>(random() % 40));
    std::vector<std::vector<PathToken>> paths(3);
    for (auto& path : paths)
      for (std::size_t i = random() % 5; i > 0; --i)
        path.push_back({1, static_cast<std::uint8_t>(100 + random() % 156), ProposerKind::kDraft});
    const std::vector<Candidate> batch{{paths[0], 4}, {paths[1], 4}, {paths[2], 4}};
    const auto goodput = [&](const std::vector<std::uint32_t>& cut) {
      double tokens = 3;
      for (std::size_t i = 0; i < 3; ++i) {
        double survival = 1;
        for (std::uint32_t k = 0; k < cut[i]; ++k)
          tokens += survival *= length.calibration().acceptance(paths[i][k], k);
      }
      return tokens / length.step_cost().seconds(3 + cut[0] + cut[1] + cut[2]);
    };
    const double chosen = goodput(length.cut(batch, 0, 100));
    for (std::uint32_t a = 0; a <= paths[0].size(); ++a)
      for (std::uint32_t b = 0; b <= paths[1].size(); ++b)
        for (std::uint32_t c = 0; c <= paths[2].size(); ++c)
          ASSERT_LE(goodput({a, b, c}), chosen * (1 + 1e-12));
  }
}

// Steps of three sequences whose first proposal is always right, where the controller has seen that
// rows are dear. How many tried something while off.
std::uint32_t count_trials(DraftLength& length, int n_steps, int us_per_row) {
  const auto path = chain(4, 200);
  const std::vector<Candidate> batch{{path, 4}, {path, 4}, {path, 4}};
  std::uint32_t n_trials = 0;
  for (int step = 0; step < n_steps; ++step) {
    const auto cut = length.cut(batch, 0, 100);
    const auto n_verified = std::accumulate(cut.begin(), cut.end(), 0u);
    if (length.is_off() && n_verified > 0) {
      ++n_trials;
      EXPECT_EQ(n_verified, 2u);
      EXPECT_THAT(cut, Each(testing::Le(1u)));
    }
    for (int i = 0; i < 3; ++i) length.observe_round(scored(path, 1), none);
    const auto n_rows = static_cast<int>(3 + n_verified);
    length.observe_step(3 + n_verified, 3, microseconds(1000 + us_per_row * (n_rows - 1)));
  }
  return n_trials;
}

TEST(DraftLength, TriesTwoSequencesNowAndThenWhileOffToSeeWhatRowsCost) {
  DraftLength length({});
  teach_cost(length, 2);
  EXPECT_NEAR(count_trials(length, 1000, 2000), 1000.0 / 64 + 4, 2)
      << "the first ones after 4, 8, 16 and 32 steps";
  EXPECT_TRUE(length.is_off());
  EXPECT_EQ(length.budget(8), 4u);
  EXPECT_EQ(length.budget(2), 2u);
}

TEST(DraftLength, FindsOutThatRowsAreCheaperThanTheyFirstSeemed) {
  DraftLength length({});
  teach_cost(length, 1);
  EXPECT_GT(count_trials(length, 100, 20), 0u);
  EXPECT_FALSE(length.is_off());
}

TEST(DraftLength, TriesNothingThatWouldNotBeWorthRowsWithoutAPrice) {
  DraftLength length({});
  teach_cost(length, 2);
  const auto path = chain(4, 200);
  const std::vector<Candidate> batch{{path, 4}, {path, 4}};
  std::uint32_t n_verified = 0;
  for (int step = 0; step < 1000; ++step) {
    for (const std::uint32_t n : length.cut(batch, 0, 100)) n_verified += step < 200 ? 0 : n;
    length.observe_round(scored(path, 0), none);
    length.observe_step(2, 2, milliseconds(3));
  }
  EXPECT_EQ(n_verified, 0u);
}

TEST(DraftLength, HavingNothingToVerifyIsNotBeingOff) {
  DraftLength length({});
  teach_cost(length, 0.01);
  for (int step = 0; step < 100; ++step) length.cut(std::vector<Candidate>{{{}, 4}}, 0, 100);
  EXPECT_FALSE(length.is_off());
  EXPECT_EQ(length.budget(8), 8u);
}

// What comes where a guess is wrong says nothing of how good the guesses are.
TEST(DraftLength, RunnersUpSayNothingOfASequence) {
  DraftLength length({});
  SequenceOdds odds;
  const PathToken runner_up{.token = 1,
                            .confidence = 250,
                            .source = ProposerKind::kDraft,
                            .sources = ProposerKind::kDraft,
                            .is_runner_up = true};
  for (int i = 0; i < 40; ++i)
    length.observe_round(std::vector<ScoredToken>{{runner_up, 0, false}}, odds);
  EXPECT_EQ(odds.factor(), 1);
}

}  // namespace
}  // namespace foretoken
