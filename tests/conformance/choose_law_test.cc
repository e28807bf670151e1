// The law of the tokens: 10^5 keyed draws per setting follow the softmax of the rule, and draws of
// different keys know nothing of each other. A true law would be rejected here once in 10^4
// settings; seeds are fixed, so it never flickers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/include/backend.h"
#include "kernels/include/numerics.h"
#include "tests/support/chi_square.h"

namespace foretoken::test {
namespace {

constexpr double kRejectBelow = 1e-4;
constexpr int kDraws = 100000;

// Logits with a clear head, a long tail and some ties.
std::vector<float> some_logits() {
  std::mt19937 rng(11);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(60);
  for (float& l : logits) l = normal(rng);
  logits[7] = logits[21] = logits[33];
  return logits;
}

// The law by its definition, from sorted probabilities in plain double arithmetic.
std::vector<double> law(const std::vector<float>& logits, const RowRule& rule) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (rule.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(rule.top_k)));
  std::vector<double> p(logits.size());
  const auto normalise = [&] {
    std::fill(p.begin(), p.end(), 0.0);
    double total = 0;
    for (const std::size_t i : order)
      total += p[i] =
          std::exp((logits[i] - logits[order[0]]) / static_cast<double>(rule.temperature));
    for (double& x : p) x /= total;
  };
  normalise();
  if (rule.top_p < 1) {
    double sum = 0;
    std::size_t n = 0;
    while (n < order.size() && sum < rule.top_p) sum += p[order[n++]];
    order.resize(n);
    normalise();
  }
  if (rule.min_p > 0) {
    const double most = p[order[0]];
    std::erase_if(order,
                  [&](std::size_t i) { return p[i] < static_cast<double>(rule.min_p) * most; });
    normalise();
  }
  return p;
}

// Tokens of kDraws keys; `vary` makes the i-th key.
template <class Vary>
std::vector<std::int32_t> draw(const std::vector<float>& logits, const RowRule& rule, Vary&& vary) {
  const auto backend = make_backend({.n_threads = 2});
  constexpr int kBatch = 1000;
  std::vector<float> repeated;
  for (int i = 0; i < kBatch; ++i) repeated.insert(repeated.end(), logits.begin(), logits.end());
  std::vector<std::int32_t> tokens;
  std::vector<RowRule> rules(kBatch, rule);
  std::vector<Choice> choices(kBatch);
  const auto n = static_cast<std::int32_t>(logits.size());
  for (int begin = 0; begin < kDraws; begin += kBatch) {
    for (int i = 0; i < kBatch; ++i)
      vary(rules[static_cast<std::size_t>(i)], static_cast<std::uint32_t>(begin + i));
    backend->choose({.logits = repeated.data(),
                     .n_rows = kBatch,
                     .vocab = n,
                     .n_valid = n,
                     .rules = rules.data(),
                     .choices = choices.data()});
    for (const Choice& c : choices) tokens.push_back(c.token);
  }
  return tokens;
}

void by_position(RowRule& rule, std::uint32_t i) { rule.position = i; }
void by_seed(RowRule& rule, std::uint32_t i) { rule.seed = i; }

struct Setting {
  const char* name;
  float temperature;
  std::int32_t top_k;
  float top_p;
  float min_p;
};

class ChooseLaw : public ::testing::TestWithParam<Setting> {};

TEST_P(ChooseLaw, DrawsFollowTheSoftmaxOfTheRule) {
  const Setting& s = GetParam();
  const std::vector<float> logits = some_logits();
  RowRule rule;
  rule.temperature = s.temperature;
  rule.top_k = s.top_k;
  rule.top_p = s.top_p;
  rule.min_p = s.min_p;
  rule.seed = 20240917;
  const std::vector<double> want = law(logits, rule);
  for (const auto vary : {by_position, by_seed}) {
    std::vector<long> counts(logits.size());
    for (const std::int32_t token : draw(logits, rule, vary))
      ++counts[static_cast<std::size_t>(token)];
    const double p = p_value_of_counts(counts, want);
    RecordProperty("p_value", std::to_string(p));
    EXPECT_GT(p, kRejectBelow);
  }
}

INSTANTIATE_TEST_SUITE_P(Settings,
                         ChooseLaw,
                         ::testing::Values(Setting{"plain", 1, 0, 1, 0},
                                           Setting{"cool", 0.6f, 0, 1, 0},
                                           Setting{"hot", 1.7f, 0, 1, 0},
                                           Setting{"top_k_5", 1, 5, 1, 0},
                                           Setting{"top_k_30", 1.3f, 30, 1, 0},
                                           Setting{"top_p_half", 1, 0, 0.5f, 0},
                                           Setting{"top_p_95", 0.8f, 0, 0.95f, 0},
                                           Setting{"min_p_5", 1, 0, 1, 0.05f},
                                           Setting{"min_p_30", 1.5f, 0, 1, 0.3f},
                                           Setting{"everything", 1.2f, 25, 0.9f, 0.02f}),
                         [](const auto& setting) { return std::string(setting.param.name); });

// A test of the test: the wrong law must be thrown out, and by far.
TEST(ChooseLawTest, RejectsALawThatIsAFewPercentOff) {
  const std::vector<float> logits = some_logits();
  RowRule rule;
  rule.temperature = 1;
  std::vector<long> counts(logits.size());
  for (const std::int32_t token : draw(logits, rule, by_position))
    ++counts[static_cast<std::size_t>(token)];
  rule.temperature = 1.03f;
  EXPECT_LT(p_value_of_counts(counts, law(logits, rule)), kRejectBelow);
}

TEST(ChiSquare, KnowsTabulatedValues) {
  EXPECT_NEAR(chi_square_tail(3.841459, 1), 0.05, 1e-6);
  EXPECT_NEAR(chi_square_tail(18.307038, 10), 0.05, 1e-6);
  EXPECT_NEAR(chi_square_tail(149.449253, 100), 0.001, 1e-6);
  EXPECT_NEAR(chi_square_tail(77.929465, 100), 0.95, 1e-6);
}

// Tokens drawn under neighbouring keys: position, seed, choice one apart.
TEST(NoiseLaw, NeighbouringKeysDrawIndependently) {
  const std::vector<float> logits = {1.0f, 0.5f, 0.0f, -0.5f, 0.3f, 0.8f};
  RowRule rule;
  rule.temperature = 1;
  const auto with_choice = [](RowRule& r, std::uint32_t i) {
    r.position = i / 2, r.choice = i % 2;
  };
  for (const auto& tokens : {draw(logits, rule, by_position), draw(logits, rule, by_seed),
                             draw(logits, rule, with_choice)}) {
    std::vector<long> pairs(36);
    for (std::size_t i = 0; i + 1 < tokens.size(); i += 2)
      ++pairs[static_cast<std::size_t>(tokens[i] * 6 + tokens[i + 1])];
    EXPECT_GT(p_value_of_independence(pairs, 6, 6), kRejectBelow);
  }
}

// Words of ids of one counter block, of neighbouring blocks, positions, choices and seeds fill the
// square evenly.
TEST(NoiseLaw, WordsOfNeighboursFillTheSquareEvenly) {
  constexpr std::size_t kCells = 16;
  const auto cell = [](std::uint32_t word) { return static_cast<std::size_t>(word >> 28); };
  const auto a = [](std::uint32_t i) { return noise_word(9, 0, i, 4 * (i % 1000)); };
  const std::vector<std::uint32_t (*)(std::uint32_t)> others = {
      [](std::uint32_t i) { return noise_word(9, 0, i, 4 * (i % 1000) + 1); },
      [](std::uint32_t i) { return noise_word(9, 0, i, 4 * (i % 1000) + 4); },
      [](std::uint32_t i) { return noise_word(9, 0, i + 1, 4 * (i % 1000)); },
      [](std::uint32_t i) { return noise_word(9, 1, i, 4 * (i % 1000)); },
      [](std::uint32_t i) { return noise_word(10, 0, i, 4 * (i % 1000)); },
      [](std::uint32_t i) {
        return noise_word(9 + (std::uint64_t{1} << 32), 0, i, 4 * (i % 1000));
      },
  };
  const std::vector<double> even(kCells * kCells, 1.0 / (kCells * kCells));
  for (const auto& b : others) {
    std::vector<long> counts(kCells * kCells);
    for (std::uint32_t i = 0; i < kDraws; ++i) ++counts[cell(a(i)) * kCells + cell(b(i))];
    EXPECT_GT(p_value_of_counts(counts, even), kRejectBelow);
  }
}

}  // namespace
}  // namespace foretoken::test
