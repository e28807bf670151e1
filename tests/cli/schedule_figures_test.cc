// What bench schedule makes of its samples.
#include "services/cli/schedule_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/cli/schedule_plot.h"

namespace foretoken::cli {
namespace {

using testing::HasSubstr;

BenchRecord record(double tpot_ms, std::vector<TokenId> tokens) {
  return {.is_done = true,
          .tpot_ms = tpot_ms,
          .output_tokens = static_cast<std::uint32_t>(tokens.size()),
          .token_ids = std::move(tokens)};
}

// A plain run of 8 ms a token, and one of 4 ms: 10 rounds with 30 guesses, of which 20 stood.
SchedulePair one_pair() {
  SchedulePair pair{.draft_seconds = 0.012, .n_drafted = 30};
  pair.plain.records = {record(8, {1, 2, 3})};
  pair.guessed.records = {record(4, {1, 2, 3})};
  BenchRecord& guessed = pair.guessed.records.front();
  guessed.rounds = 10;
  guessed.drafted = 30;
  guessed.accepted = 20;
  guessed.judged = 25;
  return pair;
}

ScheduleFigures cell(double acceptance, Cores cores, int n_sequences, double speedup) {
  return {.asked = {.acceptance = acceptance, .cores = cores},
          .n_sequences = n_sequences,
          .speedup = speedup};
}

TEST(ScheduleFigures, ComeFromTimesAndRounds) {
  const ScheduleFigures figures =
      figures_of({.rtt_ms = 4, .synchronous = true}, {one_pair()}, one_pair().plain);
  EXPECT_DOUBLE_EQ(figures.speedup, 2);
  EXPECT_DOUBLE_EQ(figures.tokens_per_round, 3);
  EXPECT_DOUBLE_EQ(figures.guesses_per_round, 3);
  EXPECT_DOUBLE_EQ(figures.acceptance.value(), 0.8);
  EXPECT_DOUBLE_EQ(figures.cost(), 0.05);  // 0.4 ms a guess, of 8 ms
  EXPECT_DOUBLE_EQ(json_of(figures)["rho"].get<double>(), 0.5);
  EXPECT_EQ(figures.n_differing, 0u);
}

TEST(ScheduleFigures, AreTheMedianOfPairsWithTheRange) {
  std::vector<SchedulePair> pairs(3, one_pair());
  pairs[0].guessed.records.front().tpot_ms = 8;
  pairs[1].guessed.records.front().tpot_ms = 2;
  const ScheduleFigures figures = figures_of({}, pairs, pairs[0].plain);
  EXPECT_DOUBLE_EQ(figures.speedup, 2);
  EXPECT_DOUBLE_EQ(figures.least, 1);
  EXPECT_DOUBLE_EQ(figures.most, 4);
}

TEST(ScheduleFigures, TakeTheMiddleOfTwoPairs) {
  std::vector<SchedulePair> pairs(2, one_pair());
  pairs[0].guessed.records.front().tpot_ms = 8;
  EXPECT_DOUBLE_EQ(figures_of({}, pairs, pairs[0].plain).speedup, 1.5);
}

TEST(ScheduleFigures, CountARequestThatARunOfItsPairAnsweredOtherwise) {
  std::vector<SchedulePair> pairs(2, one_pair());
  pairs[1].plain.records.front().token_ids = pairs[1].guessed.records.front().token_ids = {4, 5};
  EXPECT_EQ(figures_of({}, pairs, pairs[0].plain).n_differing, 0u);  // of another request
  pairs[1].guessed.records.front().token_ids.back() = 9;
  const ScheduleFigures figures = figures_of({}, pairs, pairs[0].plain);
  EXPECT_EQ(figures.n_differing, 1u);
  EXPECT_EQ(figures_of({}, {one_pair()}, pairs[1].guessed).n_differing, 1u);
  EXPECT_EQ(json_of(figures)["same_texts"], false);
  EXPECT_THAT(figures_table(figures), HasSubstr("NO: 1 requests differ"));
}

// A chain that goes on needs cores of its own, and its model is of one sequence.
TEST(ScheduleFigures, HaveTheChainsValueOnlyWhereItsModelHolds) {
  const auto chain = [](const ScheduleConditions& asked) {
    return json_of(figures_of(asked, {one_pair()}, one_pair().plain))["model_asked"]["chain"];
  };
  EXPECT_FALSE(chain({}).is_null());
  EXPECT_TRUE(chain({.cores = Cores::kShared}).is_null());
  EXPECT_TRUE(chain({.synchronous = true}).is_null());
}

TEST(ScheduleFigures, SayThatModelsAreMocksWhereverTheyAreShown) {
  const ScheduleFigures figures = figures_of({}, {one_pair()}, one_pair().plain);
  EXPECT_EQ(json_of(figures)["models"], "timed mocks");
  EXPECT_THAT(figures_table(figures), HasSubstr("timed mock models"));
  EXPECT_THAT(ratio_table({figures}), HasSubstr("timed mock models"));
  EXPECT_THAT(ratio_script({figures}, {}), HasSubstr("timed mock models"));
}

TEST(ScheduleFigures, TableOfASweepHasARowForSequencesAndNamesTheWorstCell) {
  const std::string table =
      ratio_table({cell(0, Cores::kOwn, 1, 0.99), cell(0.5, Cores::kOwn, 1, 1.5),
                   cell(0, Cores::kShared, 64, 0.74)});
  EXPECT_THAT(table, HasSubstr("own            1   0.99 / 1.00   1.50 / 1.00\n"));
  EXPECT_THAT(table, HasSubstr("same          64   0.74 / 1.00             -\n"));
  EXPECT_THAT(table, HasSubstr("worst cell: 0.74 of plain (same cores, 64 sequences, a 0.00)"));
}

TEST(ScheduleFigures, PictureHasACurveForEachAcceptanceInThePanelOfItsCores) {
  const std::string script =
      ratio_script({cell(0, Cores::kOwn, 1, 0.99), cell(0, Cores::kOwn, 2, 0.98),
                    cell(0.5, Cores::kShared, 4, 1.5)},
                   {.path = "it's.svg", .machine = "some"});
  EXPECT_THAT(script, HasSubstr("$own0 << EOD\n1 0.99\n2 0.98\nEOD\n"));
  EXPECT_THAT(script, HasSubstr("$same0 << EOD\n4 1.5\nEOD\n"));
  EXPECT_THAT(script, HasSubstr("set terminal svg "));
  EXPECT_THAT(script, HasSubstr("set output 'it''s.svg'"));
  EXPECT_THAT(ratio_script({cell(0, Cores::kOwn, 1, 0.99)}, {.path = "a.png"}),
              HasSubstr("set terminal pngcairo "));
}

}  // namespace
}  // namespace foretoken::cli
