// What timed models say, and the prompts whose texts have as many right guesses as asked.
#include "bench/schedule/timed_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "bench/schedule/timed_prompts.h"

namespace foretoken::bench {
namespace {

TEST(TimedText, NextTokenIsThatOfItsContext) {
  const std::array one{1, 2, 3, 4}, other{9, 2, 3, 4};
  EXPECT_EQ(likeliest_after(one, 1).best, likeliest_after(one, 1).best);
  EXPECT_NE(likeliest_after(one, 1).best, likeliest_after(other, 1).best);
}

// Of 4000 guesses 2400 are expected to stand, with a deviation of 31.
TEST(TimedText, GuessesAreTheTargetsTokensAsOftenAsAsked) {
  int n_equal = 0;
  for (std::int32_t i = 0; i < 4000; ++i) {
    const std::array last{i % 256, i / 256, 7, 7};
    const Likeliest guess = likeliest_after(last, 0.6);
    EXPECT_EQ(guess.is_right, guess.best == likeliest_after(last, 1).best);
    n_equal += guess.is_right;
  }
  EXPECT_NEAR(n_equal, 2400, 150);
}

// Of 4000 guesses 1600 are wrong, of which 0.40, and 0.66 with all three, have the right one among
// their runners-up: a deviation of 20.
TEST(TimedText, TheRightTokenIsARunnerUpOfAWrongOneAsOftenAsAssumed) {
  int n_first = 0, n_any = 0, n_wrong = 0;
  for (std::int32_t i = 0; i < 4000; ++i) {
    const std::array last{i % 256, i / 256, 7, 7};
    const TokenId right = likeliest_after(last, 1).best;
    const Likeliest guess = likeliest_after(last, 0.6);
    if (guess.best == right) continue;
    ++n_wrong;
    n_first += guess.runners_up[0] == right;
    n_any += std::ranges::count(guess.runners_up, right) > 0;
  }
  EXPECT_NEAR(n_first, 0.40 * n_wrong, 100);
  EXPECT_NEAR(n_any, 0.66 * n_wrong, 100);
}

// Whether each guess after the first token is right.
std::vector<bool> outcomes(std::vector<TokenId> text, const TimedTexts& wanted) {
  std::vector<bool> right;
  for (std::size_t i = 0; i < wanted.n_tokens; ++i) {
    const auto last = std::span<const TokenId>(text).last(kTimedContext);
    const TokenId token = likeliest_after(last, 1).best;
    if (i > 0) right.push_back(likeliest_after(last, wanted.acceptance).best == token);
    text.push_back(token);
  }
  return right;
}

std::size_t n_right_in_all(const TimedTexts& wanted) {
  std::size_t n_right = 0;
  for (const auto& prompt : timed_prompts(wanted))
    n_right += static_cast<std::size_t>(std::ranges::count(outcomes(prompt, wanted), true));
  return n_right;
}

TEST(TimedPrompts, TextsHaveAsManyRightGuessesAsAsked) {
  EXPECT_EQ(n_right_in_all({.n_texts = 3, .n_tokens = 256, .acceptance = 0.8}), 612u);  // of 765
  EXPECT_EQ(n_right_in_all({.n_texts = 7, .n_tokens = 21, .acceptance = 0.55}), 77u);   // of 140
  EXPECT_EQ(n_right_in_all({.n_texts = 2, .n_tokens = 50, .acceptance = 0}), 0u);
  EXPECT_EQ(n_right_in_all({.n_texts = 2, .n_tokens = 50, .acceptance = 1}), 98u);
}

TEST(TimedPrompts, AreTheSameEachTimeAndDifferFromOneAnother) {
  const TimedTexts wanted{.n_texts = 20, .n_tokens = 64, .acceptance = 0.5};
  auto prompts = timed_prompts(wanted);
  EXPECT_EQ(prompts, timed_prompts(wanted));
  std::ranges::sort(prompts);
  EXPECT_EQ(std::ranges::adjacent_find(prompts), prompts.end());
}

// A chosen number of right guesses must not choose where they are: of the 1640 wrong guesses, n
// right ones follow with the probability 0.2 x 0.8^n, within four deviations of a count.
TEST(TimedPrompts, RightGuessesComeInRunsAsLongAsThoseOfIndependentOnes) {
  const TimedTexts wanted{.n_texts = 16, .n_tokens = 512, .acceptance = 0.8};
  constexpr std::size_t kLongest = 16;
  std::array<double, kLongest> n_runs{};
  double n_all = 0;
  for (const auto& prompt : timed_prompts(wanted)) {
    const std::vector<bool> right = outcomes(prompt, wanted);
    for (auto at = std::ranges::find(right, false); at != right.end();) {
      const auto next = std::find(at + 1, right.end(), false);
      if (next == right.end()) break;  // cut off by the end of the text
      n_runs[std::min<std::size_t>(static_cast<std::size_t>(next - at) - 1, kLongest - 1)] += 1;
      n_all += 1;
      at = next;
    }
  }
  for (std::size_t n = 0; n + 1 < kLongest; ++n) {
    const double p = 0.2 * std::pow(0.8, n);
    EXPECT_NEAR(n_runs[n], p * n_all, 4 * std::sqrt(p * (1 - p) * n_all)) << n;
  }
}

}  // namespace
}  // namespace foretoken::bench
