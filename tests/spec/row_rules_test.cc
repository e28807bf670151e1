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
  std::vector<std::uint32_t> masks;
  Row row(std::size_t k) const {
    return {adjustments.begin() + rules[k].adjust_begin, adjustments.begin() + rules[k].adjust_end};
  }
};

Rows rows_of(const RowRules& rules, std::span<const TokenId> drafted) {
  Rows out;
  rules.append_rows(drafted, 0, {out.rules, out.adjustments, out.masks});
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

std::vector<TokenId> ids_of(const Rows& rows, std::size_t k) {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < 8; ++id)
    if (rows.masks.at(static_cast<std::size_t>(rows.rules[k].mask_begin)) >> id & 1)
      ids.push_back(id);
  return ids;
}

// Ids: 0 is the end token; 1 to 5 are a, b, ab, ba, c; 6 is a stop token of its own.
TEST(RowRules, AConstraintMasksEachRowByTheTokensBeforeIt) {
  const std::vector<std::string_view> texts{"", "a", "b", "ab", "ba", "c", ""};
  Constraints constraints(texts);
  SamplingParams params;
  params.stop_token_ids = {6};
  auto constraint = constraints.open(GrammarKind::kRegex, "(ab)+c?");
  ASSERT_TRUE(constraint.ok()) << constraint.error().message;
  RowRules rules(params, kRowEosIds, std::vector<TokenId>{2}, *constraint);
  EXPECT_TRUE(rules.depends_on_history());
  const Rows rows = rows_of(rules, std::vector<TokenId>{1, 2, 3});
  EXPECT_EQ(ids_of(rows, 0), (std::vector<TokenId>{1, 3}));
  EXPECT_EQ(ids_of(rows, 1), (std::vector<TokenId>{2, 4}));           // after a
  EXPECT_EQ(ids_of(rows, 2), (std::vector<TokenId>{0, 1, 3, 5, 6}));  // after ab: it may end
  EXPECT_EQ(ids_of(rows, 3), (std::vector<TokenId>{0, 1, 3, 5, 6}));

  const std::vector<PathToken> path{{.token = 1}, {.token = 2}, {.token = 2}, {.token = 1}};
  EXPECT_EQ(rules.n_allowed(path), 2u);
  const std::vector<PathToken> ending{{.token = 3}, {.token = 0}, {.token = 3}};
  EXPECT_EQ(rules.n_allowed(ending), 2u);

  for (const TokenId token : {1, 4}) rules.commit(token);  // aba
  EXPECT_FALSE(rules.is_complete());
  EXPECT_EQ(ids_of(rows_of(rules, {}), 0), (std::vector<TokenId>{2, 4}));
  for (const TokenId token : {2, 5}) rules.commit(token);  // ababc
  EXPECT_TRUE(rules.is_complete());
}

TEST(RowRules, AnEndTokenWithTextEndsOnlyATextThatIsAllowed) {
  Constraints constraints(std::vector<std::string_view>{"", "a", "b"});
  SamplingParams params;
  params.stop_token_ids = {1};
  RowRules rules(params, kRowEosIds, std::vector<TokenId>{1},
                 *constraints.open(GrammarKind::kRegex, "[ab]{2}b*"));
  const Rows rows = rows_of(rules, std::vector<TokenId>{2, 2});
  EXPECT_EQ(ids_of(rows, 0), (std::vector<TokenId>{2}));
  EXPECT_EQ(ids_of(rows, 2), (std::vector<TokenId>{0, 1, 2}));
  EXPECT_EQ(rules.n_allowed(std::vector<PathToken>{{.token = 2}, {.token = 1}}), 1u);
}

TEST(RowRules, OfRowsFromALaterOneTheFirstAreLeftOut) {
  Constraints constraints(std::vector<std::string_view>{"", "a", "b"});
  SamplingParams params;
  params.repetition_penalty = 1.5f;
  RowRules rules(params, kRowEosIds, std::vector<TokenId>{1},
                 *constraints.open(GrammarKind::kRegex, "(ab)+"));
  const std::vector<TokenId> drafted{1, 2, 1};
  const Rows all = rows_of(rules, drafted);
  Rows last;
  rules.append_rows(drafted, 3, {last.rules, last.adjustments, last.masks});
  ASSERT_EQ(last.rules.size(), 1u);
  EXPECT_EQ(last.rules[0].position, all.rules[3].position);
  EXPECT_TRUE(operator_equal(last.row(0), all.row(3)));
  EXPECT_EQ(ids_of(last, 0), ids_of(all, 3));
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
