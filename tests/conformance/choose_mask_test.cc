// Masks of rows. That they do what the reference does beside every other rule is in choose_test.cc,
// whose random rows have masks as well.
#include "tests/conformance/choose_rows.h"

namespace foretoken::test {
namespace {

bool is_masked(const Rows& rows, const RowRule& rule, std::int32_t id) {
  if (rule.mask_begin < 0) return false;
  const std::uint32_t word = rows.masks[static_cast<std::size_t>(rule.mask_begin + id / 32)];
  return (word >> id % 32 & 1) == 0;
}

// The same rows with adjustments of -infinity in the place of masks.
Rows without_masks(const Rows& rows) {
  Rows out = rows;
  out.adjustments.clear();
  out.masks.clear();
  for (RowRule& rule : out.rules) {
    std::vector<Adjustment> own(static_cast<std::size_t>(rows.n_valid));
    for (std::int32_t id = 0; id < rows.n_valid; ++id) own[static_cast<std::size_t>(id)].id = id;
    for (std::int32_t i = rule.adjust_begin; i < rule.adjust_end; ++i) {
      const Adjustment& a = rows.adjustments[static_cast<std::size_t>(i)];
      own[static_cast<std::size_t>(a.id)] = a;
    }
    for (Adjustment& a : own)
      if (is_masked(rows, rule, a.id)) a.add = -kInfinity;
    rule.adjust_begin = static_cast<std::int32_t>(out.adjustments.size());
    for (const Adjustment& a : own)
      if (a.add != 0 || a.repetition != 1) out.adjustments.push_back(a);
    rule.adjust_end = static_cast<std::int32_t>(out.adjustments.size());
    rule.mask_begin = -1;
  }
  return out;
}

void expect_same_bits(const Rows& rows, const Outcome& got, const Outcome& want) {
  for (std::size_t r = 0; r < rows.rules.size(); ++r) {
    SCOPED_TRACE(testing::Message() << "row " << r);
    EXPECT_EQ(got.choices[r].token, want.choices[r].token);
    EXPECT_EQ(got.choices[r].score, want.choices[r].score);
    EXPECT_EQ(got.choices[r].logprob, want.choices[r].logprob);
    for (int i = 0; i < rows.rules[r].n_top_logprobs; ++i) {
      const std::size_t at = r * kMaxTopLogprobs + static_cast<std::size_t>(i);
      EXPECT_EQ(got.top[at].token, want.top[at].token);
      EXPECT_EQ(got.top[at].logprob, want.top[at].logprob);
    }
  }
}

class ChooseMask : public OpTest {};

TEST_P(ChooseMask, HasTheBitsOfAdjustmentsByMinusInfinity) {
  int n_chosen = 0, n_masked = 0, n_empty = 0;
  const int n_rounds = on_cpu() ? 60 : 8;  // emulated threads are slow
  for (int round = 0; round < n_rounds; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    const std::int32_t n_valid = round % 5 == 4 ? 9000 : 290 + round % 32;
    const Rows rows = random_rows(rng, {6, n_valid + round % 3, n_valid});
    const Rows adjusted = without_masks(rows);
    Backend& b = backend(1 + round % 3);
    const Outcome got = by_backend(b, rows);
    ASSERT_NO_FATAL_FAILURE(expect_same_bits(rows, got, by_backend(b, adjusted)));
    int n_exchanges = 0;
    const std::vector<std::int32_t> begins{0, 36, 192, rows.n_columns};
    const Outcome by_ranks = by_slices(b, rows, begins, 16, n_exchanges);
    expect_same_bits(rows, by_ranks, by_slices(b, adjusted, begins, 16, n_exchanges));
    for (std::size_t r = 0; r < rows.rules.size(); ++r) {
      if (rows.rules[r].mask_begin < 0) continue;
      ++n_masked;
      const std::int32_t token = got.choices[r].token;
      n_empty += token < 0 ? 1 : 0;
      if (token < 0) continue;
      ++n_chosen;
      EXPECT_FALSE(is_masked(rows, rows.rules[r], token));
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(n_masked, 2 * n_rounds);
  EXPECT_GT(n_chosen, n_rounds);
  EXPECT_GT(n_empty, 0) << "a mask of no id must have come by";
}

// Few rows of many ids are cut into pieces among threads; a mask of one id finds it in each.
TEST_P(ChooseMask, LeavesTheOneIdThatItAllows) {
  const std::int32_t n = 20011;
  Rows rows{random_floats(rng, n, 3.0f), n, n, {RowRule{}}, {}, {}};
  for (const std::int32_t only : {0, 31, 32, 8191, 19999, n - 1})
    for (const float temperature : {0.0f, 1.0f})
      for (const float top_p : {1.0f, 0.9f}) {
        rows.masks.assign(static_cast<std::size_t>(mask_words(n)), 0);
        rows.masks[static_cast<std::size_t>(only / 32)] = std::uint32_t{1} << only % 32;
        rows.rules[0] = {.temperature = temperature,
                         .top_p = top_p,
                         .seed = 7,
                         .mask_begin = 0,
                         .n_top_logprobs = 2};
        const Outcome got = by_backend(backend(3), rows);
        EXPECT_EQ(got.choices[0].token, only);
        expect_same(rows, got, by_reference(rows));
      }
}

TEST_P(ChooseMask, SaysSoWhenEveryTokenIsMasked) {
  Rows rows{std::vector<float>(80, 1.0f), 40, 40, {RowRule{}, RowRule{}}, {}, {}};
  rows.adjustments = {{.id = 3, .add = 50}};
  rows.masks = {0, 0xffffff00u, 0, 8};  // the second: of no id but padding, then of id 35
  rows.rules[0].mask_begin = 0;
  rows.rules[0].adjust_end = 1;
  rows.rules[1].mask_begin = 2;
  for (const float temperature : {0.0f, 1.0f})
    for (const float top_p : {1.0f, 0.5f}) {
      for (RowRule& rule : rows.rules) rule.temperature = temperature, rule.top_p = top_p;
      const Outcome out = by_backend(backend(), rows);
      EXPECT_EQ(out.choices[0].token, -1);
      EXPECT_EQ(out.choices[1].token, 35);
      int n_exchanges = 0;
      const Outcome by_ranks = by_slices(backend(), rows, {0, 20, 40}, 4, n_exchanges);
      EXPECT_EQ(by_ranks.choices[0].token, -1);
      EXPECT_EQ(by_ranks.choices[1].token, 35);
    }
}

TEST_P(ChooseMask, LeavesLogProbabilitiesToTheRawLogits) {
  Rows rows{{4, 3, 2, 1}, 4, 4, {RowRule{}}, {}, {0b1100u}};
  rows.rules[0] = {.mask_begin = 0, .n_top_logprobs = 2};
  const Outcome got = by_backend(backend(), rows);
  const double total = std::exp(0.0) + std::exp(-1.0) + std::exp(-2.0) + std::exp(-3.0);
  EXPECT_EQ(got.choices[0].token, 2);
  expect_log_probability(got.choices[0].logprob, static_cast<float>(-2 - std::log(total)));
  EXPECT_EQ(got.top[0].token, 0);
  EXPECT_EQ(got.top[1].token, 1);
  expect_log_probability(got.top[0].logprob, static_cast<float>(-std::log(total)));
}

FORETOKEN_EVERY_DEVICE(ChooseMask);

}  // namespace
}  // namespace foretoken::test
