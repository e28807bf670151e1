#include "kernels/cpu/choose.h"
#include "tests/conformance/choose_rows.h"

namespace foretoken::test {
namespace {

class Choose : public OpTest {};

TEST_P(Choose, MatchesReferenceOnEveryCase) {
  for (const cases::Vocabulary& c : cases::vocabularies())
    for (int round = 0; round < (c.n_columns > 1000 ? 12 : 60); ++round) {
      SCOPED_TRACE(testing::Message() << c.n_rows << " rows of " << c.n_valid << "/" << c.n_columns
                                      << " round " << round);
      const Rows rows = random_rows(rng, c);
      ASSERT_NO_FATAL_FAILURE(
          expect_same(rows, by_backend(backend(1 + round % 3), rows), by_reference(rows)));
      if (HasFailure()) return;
    }
}

// Slices of them cannot be put together; taken by one member, they would leave the others idle.
TEST(ChooseShares, RowsThatTruncateAreSharedAmongTheMembersAndOthersAreSliced) {
  const RowRule greedy, plain{.temperature = 1}, truncated{.temperature = 1, .top_p = 0.9f};
  const RowRule rules[] = {truncated, plain, truncated, greedy, truncated};
  const auto shares_of = [&](std::int32_t n_valid, int n_members) {
    return cpu::share_rows({.n_rows = 5, .n_valid = n_valid, .rules = rules}, n_members);
  };
  const std::vector<std::int32_t> all{0, 1, 2, 3, 4};
  EXPECT_EQ((std::vector<std::int32_t>{0, 2, 4}), shares_of(32000, 8).whole);
  EXPECT_EQ((std::vector<std::int32_t>{1, 3}), shares_of(32000, 8).sliced);
  EXPECT_EQ(all, shares_of(32000, 5).whole) << "as many rows as members";
  EXPECT_EQ(all, shares_of(8000, 8).whole) << "few logits";
}

// Of random rules some truncate, and some do not.
TEST_P(Choose, FewerRowsThanThreadsMatchTheReference) {
  const auto many = make(8);
  for (int round = 0; round < (on_cpu() ? 8 : 1); ++round) {
    const Rows rows = random_rows(rng, {5, 9000, 9000});
    ASSERT_NO_FATAL_FAILURE(expect_same(rows, by_backend(*many, rows), by_reference(rows)));
  }
}

TEST_P(Choose, TheEmptyBatchWritesNothing) {
  Rows rows = random_rows(rng, {1, 90, 90});
  rows.rules[0].n_top_logprobs = 3;
  const OnDevice<float> logits(backend(), rows.logits);
  const RowsOnDevice device(backend(), rows);
  const OnDevice<Choice> choices(backend(), {Choice{-7, -7, -7}});
  const OnDevice<TopLogprob> top(backend(), {kMaxTopLogprobs, TopLogprob{-7, -7}});
  ChooseArgs args = device.args(logits);
  args.choices = choices.get();
  args.top = top.get();
  args.n_rows = 0;
  backend().choose({});
  backend().choose(args);
  EXPECT_EQ(choices.host()[0].token, -7);
  EXPECT_EQ(choices.host()[0].score, -7);
  for (const TopLogprob& t : top.host()) EXPECT_EQ(t.token, -7);
}

TEST_P(Choose, GivesTheSameBitsTwice) {
  const Rows rows = random_rows(rng, {6, 9000, 9000});
  const Outcome once = by_backend(backend(1), rows), again = by_backend(backend(3), rows);
  for (std::size_t r = 0; r < rows.rules.size(); ++r) {
    EXPECT_EQ(once.choices[r].token, again.choices[r].token);
    EXPECT_EQ(once.choices[r].score, again.choices[r].score);
    EXPECT_EQ(once.choices[r].logprob, again.choices[r].logprob);
  }
}

TEST_P(Choose, RowDoesNotDependOnItsNeighbours) {
  const std::int32_t n_valid = 8500;  // rows are sliced among threads when there are few
  const Rows all = random_rows(rng, {64, n_valid, n_valid});
  const RowRunner runner = [&](Backend& b, const std::vector<std::int32_t>& wanted) {
    Rows rows = all;
    rows.logits = pick_rows(all.logits, static_cast<std::size_t>(n_valid), wanted);
    rows.rules = pick_rows(all.rules, 1, wanted);
    const Outcome out = by_backend(b, rows);
    std::vector<std::vector<float>> bits;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      std::vector<float> row(4);
      std::memcpy(row.data(), &out.choices[i].score, 8);
      std::memcpy(row.data() + 2, &out.choices[i].token, 4);
      row[3] = out.choices[i].logprob;
      for (int k = 0; k < rows.rules[i].n_top_logprobs; ++k)
        row.push_back(out.top[i * kMaxTopLogprobs + static_cast<std::size_t>(k)].logprob);
      bits.push_back(row);
    }
    return bits;
  };
  expect_rows_independent(
      runner, 64, [&](int t) -> Backend& { return backend(t); }, rng);
}

TEST_P(Choose, SlicesOfTheVocabularyGiveTheChoiceOfTheWholeRow) {
  const int n_rounds = on_cpu() ? 30 : 1;  // emulated threads are slow
  int n_asked_again = 0;
  for (const std::vector<std::int32_t>& begins : {std::vector<std::int32_t>{0, 300},
                                                  {0, 128, 300},
                                                  {0, 64, 128, 192, 300},
                                                  {0, 4, 296, 300},
                                                  {0, 1024, 3000},
                                                  {0, 704, 1472, 2240, 3000}})
    for (int round = 0; round < n_rounds; ++round)
      for (const std::int32_t n_first : {1, 16}) {
        SCOPED_TRACE(testing::Message() << begins.size() - 1 << " slices of " << begins.back()
                                        << ", round " << round << ", at first " << n_first);
        const Rows rows = random_rows(rng, {5, begins.back(), begins.back() - 3});
        int n_exchanges = 0;
        const Outcome got = by_slices(backend(1 + round % 3), rows, begins, n_first, n_exchanges);
        n_asked_again += n_exchanges > 1 ? 1 : 0;
        ASSERT_NO_FATAL_FAILURE(expect_same(rows, got, by_reference(rows)));
        if (HasFailure()) return;
      }
  EXPECT_GT(n_asked_again, n_rounds / 2) << "a wide nucleus must have come by";
}

// A vocabulary of real size: the filter in front of the logarithms must not lose a winner.
TEST_P(Choose, FindsTheWinnerInALargeVocabulary) {
  const std::int32_t n = 128256;
  for (const float spread : {0.001f, 1.0f, 6.0f}) {
    Rows rows{random_floats(rng, n, spread), n, n, {}, {}, {}};
    for (const float temperature : {0.0f, 0.3f, 1.0f, 2.0f}) {
      RowRule rule;
      rule.temperature = temperature;
      rule.seed = rng();
      rule.position = static_cast<std::uint32_t>(rng());
      rows.rules = {rule};
      expect_same(rows, by_backend(backend(3), rows), by_reference(rows));
    }
  }
}

// A forced choice, as rows of a prompt have it.
TEST_P(Choose, ABiasBeyondAllLogitsForcesATokenAndLeavesItsLogProbability) {
  for (const cases::Vocabulary& c : cases::vocabularies()) {
    Rows rows = random_rows(rng, c);
    rows.adjustments.clear();
    std::vector<std::int32_t> forced;
    for (RowRule& rule : rows.rules) {
      forced.push_back(static_cast<std::int32_t>(rng() % static_cast<std::uint32_t>(c.n_valid)));
      const auto at = static_cast<std::int32_t>(rows.adjustments.size());
      rows.adjustments.push_back({.id = forced.back(), .add = 1e30f});
      rule = {.adjust_begin = at, .adjust_end = at + 1, .n_top_logprobs = 5};
    }
    const Outcome got = by_backend(backend(), rows);
    ASSERT_NO_FATAL_FAILURE(expect_same(rows, got, by_reference(rows)));
    for (std::size_t r = 0; r < rows.rules.size(); ++r) {
      EXPECT_EQ(got.choices[r].token, forced[r]);
      for (std::size_t i = 0; i < 5; ++i)
        if (const TopLogprob& top = got.top[r * kMaxTopLogprobs + i]; top.token == forced[r]) {
          EXPECT_EQ(top.logprob, got.choices[r].logprob);
        }
    }
  }
}

TEST_P(Choose, TiesGoToTheSmallerId) {
  Rows rows{std::vector<float>(20000, 1.5f), 20000, 20000, {RowRule{}}, {}, {}};
  rows.logits[0] = rows.logits[1] = 1;
  EXPECT_EQ(by_backend(backend(3), rows).choices[0].token, 2);
  rows.rules[0].temperature = 1;
  rows.rules[0].top_k = 1;
  EXPECT_EQ(by_backend(backend(3), rows).choices[0].token, 2);
  // Zeros of both signs are equal.
  rows.logits = {-1, -0.0f, 0.0f, -0.0f};
  rows.n_columns = rows.n_valid = 4;
  EXPECT_EQ(by_backend(backend(3), rows).choices[0].token, 1);
}

TEST_P(Choose, SaysSoWhenEveryTokenIsMasked) {
  Rows rows{std::vector<float>(40, -kInfinity), 40, 40, {RowRule{}, RowRule{}}, {}, {}};
  rows.logits.insert(rows.logits.end(), 40, 1.0f);
  for (std::int32_t id = 0; id < 40; ++id) rows.adjustments.push_back({id, 1, -kInfinity});
  rows.rules[1].adjust_end = 40;
  for (const float temperature : {0.0f, 1.0f})
    for (const float top_p : {1.0f, 0.5f}) {
      for (RowRule& rule : rows.rules) rule.temperature = temperature, rule.top_p = top_p;
      const Outcome out = by_backend(backend(), rows);
      EXPECT_EQ(out.choices[0].token, -1);
      EXPECT_EQ(out.choices[1].token, -1);
    }
}

TEST_P(Choose, NeverChoosesANan) {
  Rows rows{std::vector<float>(100, std::nanf("")), 100, 100, {RowRule{}}, {}, {}};
  rows.logits[37] = -2;
  for (const float temperature : {0.0f, 0.5f})
    for (const std::int32_t top_k : {0, 3}) {
      rows.rules[0].temperature = temperature;
      rows.rules[0].top_k = top_k;
      EXPECT_EQ(by_backend(backend(), rows).choices[0].token, 37);
    }
}

TEST_P(Choose, ExtremeTemperaturesAreStillExact) {
  Rows rows = random_rows(rng, {1, 300, 300});
  rows.adjustments.clear();
  for (const float temperature : {1e-38f, 1e-30f, 1e-8f, 1e8f, 3e38f}) {
    RowRule rule;
    rule.temperature = temperature;
    rule.seed = 5;
    rows.rules = {rule};
    expect_same(rows, by_backend(backend(), rows), by_reference(rows));
  }
}

// The contract is checked before a device is asked; what lies in memory, where it can be read.
using ChooseDeathTest = Choose;

TEST_P(ChooseDeathTest, RejectsWhatTheContractForbids) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Rows rows{std::vector<float>(8), 8, 8, {RowRule{}}, {}, {}};
  const auto run = [&](const RowRule& rule) {
    rows.rules = {rule};
    by_backend(backend(), rows);
  };
  RowRule rule;
  rule.temperature = -1;
  EXPECT_DEATH(run(rule), "temperature");
  rule.temperature = std::nanf("");
  EXPECT_DEATH(run(rule), "temperature");
  rule = {};
  rule.top_p = 0;
  EXPECT_DEATH(run(rule), "top_p");
  rule = {};
  rule.min_p = 1.5f;
  EXPECT_DEATH(run(rule), "min_p");
  rule = {};
  rule.top_k = -1;
  EXPECT_DEATH(run(rule), "top_k");
  rule = {};
  rule.n_top_logprobs = kMaxTopLogprobs + 1;
  EXPECT_DEATH(run(rule), "n_top_logprobs");
  rule = {};
  rows.adjustments = {{3, 1, 0}, {2, 1, 0}};
  rule.adjust_end = 2;
  EXPECT_DEATH(run(rule), "ascend");
  rows.adjustments = {{8, 1, 0}, {9, 1, 0}};
  EXPECT_DEATH(run(rule), "not in the vocabulary");
  rows.adjustments = {{1, 0, 0}, {2, 1, 0}};
  EXPECT_DEATH(run(rule), "repetition");
  rule = {};
  rule.mask_begin = -2;
  EXPECT_DEATH(run(rule), "mask_begin");
  rows.n_valid = 9;
  EXPECT_DEATH(run({}), "n_valid");
}

FORETOKEN_EVERY_DEVICE(Choose);
FORETOKEN_EVERY_ISA(ChooseDeathTest);

}  // namespace
}  // namespace foretoken::test
