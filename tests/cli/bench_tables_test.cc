// What bench says of runs: guesses by position, sums by kind of text, and the tables.
#include "services/cli/bench_tables.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "bench/micro.h"
#include "services/cli/latency_goals.h"
#include "services/cli/prompts.h"

namespace foretoken::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Three rounds of two guesses, of which 0, 1 and 2 stood; one of four, of which 3 did.
wire::SpeculativeDecoding four_rounds() {
  wire::SpeculativeDecoding s;
  s.acceptance_histogram = {1, 1, 1, 1, 0};
  s.acceptance_histogram_by_draft_length = {{"2", {1, 1, 1}}, {"4", {0, 0, 0, 1, 0}}};
  s.num_spec_steps = 4;
  s.num_draft_tokens = 10;
  s.num_accepted_draft_tokens = 6;
  return s;
}

BenchRecord record_of(const std::string& kind, double tpot_ms) {
  const auto s = four_rounds();
  return {.kind = kind,
          .is_done = true,
          .ttft_ms = 10,
          .e2el_ms = 10 + 10 * tpot_ms,
          .tpot_ms = tpot_ms,
          .itl_ms = {tpot_ms},
          .output_tokens = 11,
          .rounds = s.num_spec_steps,
          .drafted = s.num_draft_tokens,
          .accepted = s.num_accepted_draft_tokens,
          .by_position = tally_positions(s)};
}

TEST(TallyPositions, CountsAtEachPositionTheRoundsThatGuessedSoFar) {
  const auto positions = tally_positions(four_rounds());
  EXPECT_THAT(positions, ElementsAre(PositionTally{4, 3}, PositionTally{4, 2}, PositionTally{1, 1},
                                     PositionTally{1, 0}));
  std::uint64_t guessed = 0, accepted = 0;
  for (const auto& at : positions) guessed += at.guessed, accepted += at.accepted;
  EXPECT_EQ(four_rounds().num_draft_tokens, guessed);
  EXPECT_EQ(four_rounds().num_accepted_draft_tokens, accepted);
}

TEST(TallyPositions, TakesRoundsForEquallyLongWhereAServerDoesNotSay) {
  auto s = four_rounds();
  s.acceptance_histogram_by_draft_length.clear();
  EXPECT_THAT(tally_positions(s), ElementsAre(PositionTally{4, 3}, PositionTally{4, 2},
                                              PositionTally{4, 1}, PositionTally{4, 0}));
  EXPECT_THAT(tally_positions({}), IsEmpty());
}

// The histogram is a server's, and any server's.
TEST(TallyPositions, TakesAnyNumberForALength) {
  wire::SpeculativeDecoding s;
  s.acceptance_histogram_by_draft_length = {
      {"99999999999999999999", {1}}, {"1000000000", {1, 1}}, {"-1", {1}}, {"x", {2}}};
  EXPECT_THAT(tally_positions(s), ElementsAre(PositionTally{0, 1}));
}

// A round of 4 with 3 right, ones of 2 with 2, 1 and 0: four, two, two and one.
TEST(NJudged, CountsGuessesUpToTheFirstWrongOneOfARound) {
  EXPECT_EQ(n_judged(four_rounds()), 9u);
  EXPECT_EQ(n_judged({}), 0u);
}

// The values of numpy.percentile.
TEST(Percentile, IsInterpolatedBetweenTheNearestTwo) {
  EXPECT_DOUBLE_EQ(1.5, percentile({2, 1}, 0.5));
  EXPECT_DOUBLE_EQ(2, percentile({3, 1, 2}, 0.5));
  const std::vector<double> ten{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_DOUBLE_EQ(9.1, percentile(ten, 0.9));
  EXPECT_DOUBLE_EQ(9.91, percentile(ten, 0.99));
  EXPECT_DOUBLE_EQ(1, percentile(ten, 0));
  EXPECT_DOUBLE_EQ(10, percentile(ten, 1));
  EXPECT_DOUBLE_EQ(0, percentile({}, 0.5));
}

TEST(BenchJson, HasTheMedianAndP99AmongTheQuantiles) {
  BenchSamples samples;
  samples.seconds = 1;
  for (int i = 1; i <= 10; ++i) samples.records.push_back(record_of("code", i));
  const OrderedJson times = bench_json(samples, {})["tpot_ms"];
  EXPECT_EQ(5.5, times["median"]);
  EXPECT_EQ(times["quantiles"][50], times["median"]);
  EXPECT_EQ(times["quantiles"][99], times["p99"]);
  EXPECT_EQ(101U, times["quantiles"].size());
}

TEST(TallyKinds, AddsWhatIsDoneByKind) {
  BenchSamples samples;
  samples.records = {record_of("code", 2), record_of("story", 4), record_of("code", 3)};
  samples.records.push_back({.kind = "qa"});  // not answered
  const auto kinds = tally_kinds(samples);
  ASSERT_EQ(2u, kinds.size());
  const KindTally& code = kinds.at("code");
  EXPECT_EQ(2u, code.n_done);
  EXPECT_EQ(22u, code.tokens);
  EXPECT_DOUBLE_EQ(0.6, code.acceptance_rate());
  EXPECT_DOUBLE_EQ(2.5, code.acceptance_length());
  EXPECT_THAT(code.tpot_ms, ElementsAre(2, 3));
  EXPECT_EQ((PositionTally{8, 6}), code.by_position.front());
}

TEST(BenchTables, AcceptanceStandsBesideTheTimeOfATokenAndThenByPosition) {
  BenchSamples samples;
  samples.records = {record_of("code", 2), record_of("story", 4)};
  EXPECT_EQ(
      "by kind of text    requests   guesses  accepted  tokens/round  first, ms  per token, ms\n"
      "code                      1        10      60 %          2.50      10.00           2.00\n"
      "story                     1        10      60 %          2.50      10.00           4.00\n"
      "all                       2        20      60 %          2.50      10.00           3.00\n"
      "\n"
      "accepted at        code     story       all\n"
      "position 1         75 %      75 %      75 %\n"
      "position 2         50 %      50 %      50 %\n"
      "position 3        100 %     100 %     100 %\n"
      "position 4          0 %       0 %       0 %\n"
      "2 requests answered, 0 failed; times by kind are medians\n",
      acceptance_table(samples));
}

TEST(BenchTables, OneKindIsNotShownTwice) {
  BenchSamples samples;
  samples.records = {record_of("text", 2)};
  EXPECT_THAT(acceptance_table(samples), Not(HasSubstr("all")));
}

TEST(BenchTables, LatenciesHaveTheirPercentiles) {
  BenchSamples samples;
  for (int i = 1; i <= 100; ++i) samples.records.push_back(record_of("code", i));
  const std::string table = latency_table(samples);
  EXPECT_THAT(table, HasSubstr("one at a time, in ms"));
  EXPECT_THAT(table, HasSubstr("time per output token       50.50     50.50     90.10     99.01"
                               "    100.00\n"));
  EXPECT_THAT(table, HasSubstr("whole answer"));
}

TEST(BenchTables, NothingAnsweredIsNoNumber) {
  BenchSamples samples;
  samples.records.resize(2);
  samples.n_failed = 2;
  EXPECT_THAT(acceptance_table(samples), HasSubstr("no round had a guess\n0 requests answered, 2"));
  EXPECT_THAT(latency_table(samples), HasSubstr("whole answer                    -"));
}

TEST(LatencyGoals, AreNamesAndMillisecondsEachOnce) {
  const auto goals = read_goals("tpot:50,ttft:0.5");
  ASSERT_TRUE(goals.ok());
  EXPECT_EQ(goals->ttft_ms, 0.5);
  EXPECT_EQ(goals->tpot_ms, 50);
  EXPECT_FALSE(goals->e2el_ms.has_value());
  EXPECT_FALSE(read_goals("")->any());
  for (const char* wrong : {"ttft", "ttft:", "ttft:0", "ttft:-1", "ttft:inf", "ttft:1,ttft:2", ",",
                            "itl:5", "ttft:5,", "ttft:5 "}) {
    const auto refused = read_goals(wrong);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_THAT(refused.error().message, HasSubstr("ttft:MS"));
  }
}

TEST(LatencyGoals, CountOnlyWhatKeepsThemAll) {
  BenchSamples samples;
  samples.seconds = 2;
  for (const double tpot : {1.0, 5.0, 9.0}) samples.records.push_back(record_of("a", tpot));
  samples.records.push_back({.kind = "a"});  // not answered
  EXPECT_EQ(n_good(samples, {.tpot_ms = 5.0}), 2U);
  EXPECT_EQ(n_good(samples, {.ttft_ms = 9.9, .tpot_ms = 5.0}), 0U);
  EXPECT_EQ(n_good(samples, {.e2el_ms = 60.0}), 2U);
  samples.processor_seconds = {{"router", 0.5}, {"target-0", 2.5}};
  const std::string table = sweep_table({{.concurrency = 8, .samples = samples}}, {.tpot_ms = 5.0});
  EXPECT_THAT(table, HasSubstr("at a time"));
  EXPECT_THAT(table, HasSubstr("\n8 "));
  EXPECT_THAT(table, HasSubstr("      1.50        1.00\n"));  // processors, good requests a second
}

TEST(RandomPrompts, AreWordsThatTheSeedOrders) {
  const std::vector<DemoPrompt> prompts{{"a", {{"user", "one two  three"}}},
                                        {"b", {{"user", "four"}}}};
  const std::string words = random_words(prompts, 50, 1);
  EXPECT_EQ(std::count(words.begin(), words.end(), ' '), 49);
  EXPECT_EQ(words, random_words(prompts, 50, 1));
  EXPECT_NE(words, random_words(prompts, 50, 2));
  EXPECT_EQ(numbered(prompts[1], 3, 7).messages.front().content, "7.3. four");
}

TEST(KindsInTurn, AnyNumberOfTheFirstHasAllKindsAlike) {
  std::vector<DemoPrompt> prompts;
  for (const char* kind : {"a", "a", "a", "b", "c", "c"})
    prompts.push_back({kind, {{"user", std::to_string(prompts.size())}}});
  std::string order;
  for (const auto& prompt : kinds_in_turn(prompts))
    order += prompt.kind + prompt.messages.front().content + " ";
  EXPECT_EQ("a0 b3 c4 a1 c5 a2 ", order);
}

TEST(MicroReport, NamesItsSchema) {
  EXPECT_EQ("foretoken.bench_micro/1", bench::MicroReport{}.to_json()["schema"]);
}

}  // namespace
}  // namespace foretoken::cli
