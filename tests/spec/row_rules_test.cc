#include "common/spec/row_rules.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/spec/reference_rules.h"

namespace foretoken {
namespace {

const std::vector<TokenId> kRowEosIds{0};

bool operator_equal(const Row& a, const Row& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Adjustment& x, const Adjustment& y) {
                      return x.id == y.id && x.repetition == y.repetition && x.add == y.add;
                    });
}

std::string printed(const Row& row) {
  std::string out;
  for (const Adjustment& each : row)
    out += "(" + std::to_string(each.id) + " x" + std::to_string(each.repetition) + " +" +
           std::to_string(each.add) + ") ";
  return out;
}

struct Rows {
  std::vector<RowRule> rules;
  std::vector<Adjustment> adjustments;
  Row row(std::size_t k) const {
    return {adjustments.begin() + rules[k].adjust_begin, adjustments.begin() + rules[k].adjust_end};
  }
};

Rows rows_of(const RowRules& rules, std::span<const TokenId> drafted) {
  Rows out;
  rules.append_rows(drafted, out.rules, out.adjustments);
  return out;
}

// A mask hides what else was said about an id.
Row with_masks_normalised(Row row) {
  for (Adjustment& each : row)
    if (each.add == kMasked) each.repetition = 1;
  return row;
}

TEST(RowRules, CarryTheParametersAndThePositionOfEachRow) {
  SamplingParams params;
  params.temperature = 0.7f;
  params.top_k = 40;
  params.top_p = 0.9f;
  params.min_p = 0.05f;
  params.seed = 0x0123456789abcdefull;
  params.choice = 3;
  params.n_logprobs = 5;
  RowRules rules(params, kRowEosIds, std::vector<TokenId>{5, 6, 7});
  rules.commit(8);
  const Rows rows = rows_of(rules, std::vector<TokenId>{1, 2});
  ASSERT_EQ(rows.rules.size(), 3u);
  for (std::size_t k = 0; k < 3; ++k) {
    const RowRule& rule = rows.rules[k];
    EXPECT_EQ(rule.position, 4 + k);
    EXPECT_EQ(rule.temperature, 0.7f);
    EXPECT_EQ(rule.top_k, 40);
    EXPECT_EQ(rule.top_p, 0.9f);
    EXPECT_EQ(rule.min_p, 0.05f);
    EXPECT_EQ(rule.seed, 0x0123456789abcdefull);
    EXPECT_EQ(rule.choice, 3u);
    EXPECT_EQ(rule.n_top_logprobs, 5);
    EXPECT_EQ(rule.adjust_begin, rule.adjust_end);
  }
}

TEST(RowRules, PenaltiesFollowTheWorkedExample) {
  SamplingParams params;
  params.repetition_penalty = 1.5f;
  params.presence_penalty = 0.5f;
  params.frequency_penalty = 0.25f;
  params.logit_bias = {{7, 2.0f}, {9, -1.0f}};
  RowRules rules(params, kRowEosIds, std::vector<TokenId>{5, 5, 7});
  rules.commit(7);
  // Prompt tokens 5 and 7 are seen; only the answer's 7 has presence (0.5) and frequency (0.25): 2
  // - 0.75.
  const Rows rows = rows_of(rules, std::vector<TokenId>{7, 3});
  EXPECT_TRUE(operator_equal(rows.row(0), {{5, 1.5f, 0}, {7, 1.5f, 1.25f}, {9, 1, -1}}))
      << printed(rows.row(0));
  EXPECT_TRUE(operator_equal(rows.row(1), {{5, 1.5f, 0}, {7, 1.5f, 1.0f}, {9, 1, -1}}))
      << printed(rows.row(1));
  EXPECT_TRUE(
      operator_equal(rows.row(2), {{3, 1.5f, -0.75f}, {5, 1.5f, 0}, {7, 1.5f, 1.0f}, {9, 1, -1}}))
      << printed(rows.row(2));
}

TEST(RowRules, MinTokensMasksEveryEndUntilThen) {
  SamplingParams params;
  params.min_tokens = 2;
  params.max_tokens = 9;
  params.stop_token_ids = {4};
  RowRules rules(params, kRowEosIds, std::vector<TokenId>{5});
  const Rows rows = rows_of(rules, std::vector<TokenId>{1, 1, 1});
  EXPECT_TRUE(operator_equal(rows.row(0), {{0, 1, kMasked}, {4, 1, kMasked}}));
  EXPECT_TRUE(operator_equal(rows.row(1), {{0, 1, kMasked}, {4, 1, kMasked}}));
  EXPECT_TRUE(rows.row(2).empty());
  EXPECT_TRUE(rows.row(3).empty());
}

TEST(RowRules, ABadWordsLastTokenIsMaskedAfterTheRest) {
  SamplingParams params;
  params.bad_words = {{8}, {1, 2, 3}};
  RowRules rules(params, kRowEosIds, std::vector<TokenId>{1, 2});  // the prompt does not count
  const Rows rows = rows_of(rules, std::vector<TokenId>{1, 2, 2});
  EXPECT_TRUE(operator_equal(rows.row(0), {{8, 1, kMasked}}));
  EXPECT_TRUE(operator_equal(rows.row(1), {{8, 1, kMasked}}));
  EXPECT_TRUE(operator_equal(rows.row(2), {{3, 1, kMasked}, {8, 1, kMasked}}));
  EXPECT_TRUE(operator_equal(rows.row(3), {{8, 1, kMasked}}));
}

TEST(RowRules, EqualRowsShareTheirAdjustments) {
  SamplingParams params;
  params.logit_bias = {{7, 2.0f}};
  RowRules rules(params, kRowEosIds, std::vector<TokenId>{5});
  const Rows rows = rows_of(rules, std::vector<TokenId>{1, 2, 3, 4});
  EXPECT_EQ(rows.adjustments.size(), 1u);
  EXPECT_EQ(rows.row(4).size(), 1u);
}

SamplingParams random_params(std::mt19937& random, TokenId vocab) {
  const auto id = [&] {
    return static_cast<TokenId>(random() % static_cast<std::uint32_t>(vocab));
  };
  const auto maybe = [&](float value) { return random() % 2 == 0 ? value : 0.0f; };
  SamplingParams params;
  params.repetition_penalty = 1.0f + maybe(0.3f);
  params.presence_penalty = maybe(0.7f);
  params.frequency_penalty = maybe(-0.4f);
  for (auto i = random() % 3; i > 0; --i) params.logit_bias.emplace_back(id(), 0.7f);
  for (auto i = random() % 4; i > 0; --i) {
    std::vector<TokenId> word(1 + random() % 3);
    for (TokenId& token : word) token = id();
    params.bad_words.push_back(word);
  }
  params.min_tokens = static_cast<std::uint32_t>(random() % 6);
  params.max_tokens = 100;
  if (random() % 2 == 0) params.stop_token_ids = {id()};
  params.ignore_eos = random() % 2 == 0;
  return params;
}

TEST(RowRules, AProposedPrefixEqualsTheSamePrefixCommittedAndTheDefinition) {
  const std::uint32_t seed = 20260;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr TokenId kVocab = 7;
  const auto text = [&](std::size_t n) {
    std::vector<TokenId> out(n);
    for (TokenId& token : out) token = static_cast<TokenId>(random() % kVocab);
    return out;
  };
  for (int round = 0; round < 3000; ++round) {
    const SamplingParams params = random_params(random, kVocab);
    const auto prompt = text(random() % 6), drafted = text(random() % 6);
    auto output = text(random() % 20);
    RowRules rules(params, kRowEosIds, prompt);
    for (const TokenId token : output) rules.commit(token);
    const Rows proposed = rows_of(rules, drafted);
    ASSERT_EQ(proposed.rules.size(), drafted.size() + 1);
    for (std::size_t k = 0; k <= drafted.size(); ++k) {
      const Rows committed = rows_of(rules, {});
      ASSERT_TRUE(operator_equal(proposed.row(k), committed.row(0)))
          << printed(proposed.row(k)) << "\n"
          << printed(committed.row(0));
      ASSERT_EQ(proposed.rules[k].position, committed.rules[0].position);
      const Row expected = row_by_definition(params, kRowEosIds, prompt, output, kVocab);
      ASSERT_TRUE(
          operator_equal(with_masks_normalised(proposed.row(k)), with_masks_normalised(expected)))
          << printed(proposed.row(k)) << "\n"
          << printed(expected);
      if (k == drafted.size()) break;
      rules.commit(drafted[k]);
      output.push_back(drafted[k]);
    }
  }
}

}  // namespace
}  // namespace foretoken
