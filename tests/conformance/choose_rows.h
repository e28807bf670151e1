// Rows of logits with their rules, adjustments and masks, at random; what the reference, a backend
// and the slices of several ranks choose from them.
#pragma once

#include <limits>

#include "common/spec/merge_choices.h"
#include "tests/conformance/op_test.h"

namespace foretoken::test {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Rows {
  std::vector<float> logits;
  std::int32_t n_columns = 0;
  std::int32_t n_valid = 0;
  std::vector<RowRule> rules;
  std::vector<Adjustment> adjustments;
  std::vector<std::uint32_t> masks;

  // The host's own rules, adjustments and masks; where the choices go is left open.
  ChooseArgs args() const {
    return {.logits = logits.data(),
            .n_rows = static_cast<std::int32_t>(rules.size()),
            .vocab = n_columns,
            .n_valid = n_valid,
            .rules = rules.data(),
            .adjustments = adjustments.data(),
            .masks = masks.data()};
  }
};

// The same on a device, but for the logits.
class RowsOnDevice {
 public:
  RowsOnDevice(Backend& backend, const Rows& rows)
      : rows_(rows),
        rules_(backend, rows.rules),
        adjustments_(backend, rows.adjustments),
        masks_(backend, rows.masks) {}
  ChooseArgs args(const OnDevice<float>& logits) const {
    ChooseArgs args = rows_.args();
    args.logits = logits.get();
    args.rules = rules_.get();
    args.adjustments = adjustments_.get();
    args.masks = masks_.get();
    return args;
  }

 private:
  const Rows& rows_;
  OnDevice<RowRule> rules_;
  OnDevice<Adjustment> adjustments_;
  OnDevice<std::uint32_t> masks_;
};

struct Outcome {
  std::vector<Choice> choices;
  std::vector<TopLogprob> top;
};

inline Outcome by_reference(const Rows& rows) {
  Outcome out{std::vector<Choice>(rows.rules.size()),
              std::vector<TopLogprob>(rows.rules.size() * kMaxTopLogprobs)};
  ChooseArgs args = rows.args();
  args.choices = out.choices.data();
  args.top = out.top.data();
  ref::choose(args);
  return out;
}

inline Outcome by_backend(Backend& backend, const Rows& rows) {
  const OnDevice<float> logits(backend, rows.logits);
  const RowsOnDevice device(backend, rows);
  const OnDevice<Choice> choices(backend, std::vector<Choice>(rows.rules.size()));
  const OnDevice<TopLogprob> top(backend,
                                 std::vector<TopLogprob>(rows.rules.size() * kMaxTopLogprobs));
  ChooseArgs args = device.args(logits);
  args.choices = choices.get();
  args.top = top.get();
  backend.choose(args);
  return {choices.host(), top.host()};
}

// Log probabilities come from sums of 1 to n terms in double precision, then one rounding to float.
inline void expect_log_probability(float got, float want) {
  if (want == -kInfinity)
    EXPECT_EQ(got, want);
  else
    EXPECT_NEAR(got, want, 2e-7 * std::fabs(want) + 1e-9);
}

inline void expect_same(const Rows& rows, const Outcome& got, const Outcome& want) {
  for (std::size_t r = 0; r < rows.rules.size(); ++r) {
    const RowRule& rule = rows.rules[r];
    SCOPED_TRACE(testing::Message()
                 << "row " << r << " temperature " << rule.temperature << " top_k " << rule.top_k
                 << " top_p " << rule.top_p << " min_p " << rule.min_p);
    EXPECT_EQ(got.choices[r].token, want.choices[r].token);
    EXPECT_EQ(got.choices[r].score, want.choices[r].score);
    if (rule.n_top_logprobs < 0) continue;
    expect_log_probability(got.choices[r].logprob, want.choices[r].logprob);
    for (int i = 0; i < rule.n_top_logprobs; ++i) {
      const std::size_t at = r * kMaxTopLogprobs + static_cast<std::size_t>(i);
      EXPECT_EQ(got.top[at].token, want.top[at].token);
      expect_log_probability(got.top[at].logprob, want.top[at].logprob);
    }
  }
}

inline RowRule random_rule(std::mt19937& rng) {
  const float temperatures[] = {0, 0, 0.05f, 0.7f, 1, 1.5f, 100};
  RowRule rule;
  rule.temperature = temperatures[rng() % 7];
  if (rng() % 3 == 0) rule.top_k = static_cast<std::int32_t>(1 + rng() % 60);
  if (rng() % 3 == 0) rule.top_p = 0.01f * static_cast<float>(1 + rng() % 99);
  if (rng() % 3 == 0) rule.min_p = 0.01f * static_cast<float>(rng() % 40);
  rule.seed = (std::uint64_t{rng()} << 32) | (rng() & 0xffffffffu);
  rule.choice = static_cast<std::uint32_t>(rng() % 3);
  rule.position = static_cast<std::uint32_t>(rng() % 5000);
  rule.n_top_logprobs = static_cast<std::int32_t>(rng() % 22) - 1;
  return rule;
}

// Logits of many kinds: smooth, flat, full of ties, spiked.
inline std::vector<float> random_logits(std::mt19937& rng, std::int64_t n) {
  const auto kind = rng() % 4;
  std::vector<float> l = random_floats(rng, n, kind == 1 ? 1e-3f : 3.0f);
  if (kind == 2)
    for (float& x : l) x = std::round(x);
  if (kind == 3) l[rng() % l.size()] = 40;
  return l;
}

// Of few ids, of most, of half of them, of whole words, of none. Bits beyond the last id are
// arbitrary.
inline std::vector<std::uint32_t> random_mask(std::mt19937& rng, std::int32_t n_ids) {
  std::vector<std::uint32_t> words(static_cast<std::size_t>(mask_words(n_ids)));
  const auto kind = rng() % 9;
  const auto word = [&]() -> std::uint32_t {
    const auto one = std::uint32_t{1} << rng() % 32;
    if (kind < 2) return rng() % 4 == 0 ? one : 0;
    if (kind < 4) return ~one;
    if (kind < 6) return static_cast<std::uint32_t>(rng());
    return kind < 8 && rng() % 2 == 0 ? ~std::uint32_t{0} : 0;
  };
  for (std::uint32_t& w : words) w = word();
  if (n_ids % 32 != 0) words.back() |= static_cast<std::uint32_t>(rng()) << n_ids % 32;
  return words;
}

inline Rows random_rows(std::mt19937& rng, const cases::Vocabulary& c) {
  Rows rows;
  rows.n_columns = c.n_columns;
  rows.n_valid = c.n_valid;
  for (std::int32_t r = 0; r < c.n_rows; ++r) {
    std::vector<float> l = random_logits(rng, c.n_columns);
    for (std::int32_t i = c.n_valid; i < c.n_columns; ++i)
      l[static_cast<std::size_t>(i)] = 1e6f;  // padding shouts
    rows.logits.insert(rows.logits.end(), l.begin(), l.end());
    RowRule rule = random_rule(rng);
    rule.adjust_begin = static_cast<std::int32_t>(rows.adjustments.size());
    if (rng() % 2 == 0)
      for (std::int32_t id = 0; id < c.n_valid; id += static_cast<std::int32_t>(1 + rng() % 50)) {
        const float adds[] = {0, -kInfinity, 5, -3};
        rows.adjustments.push_back({id, rng() % 2 == 0 ? 1.0f : 1.3f, adds[rng() % 4]});
      }
    rule.adjust_end = static_cast<std::int32_t>(rows.adjustments.size());
    if (rng() % 2 == 0) {
      rule.mask_begin = static_cast<std::int32_t>(rows.masks.size());
      const std::vector<std::uint32_t> mask = random_mask(rng, c.n_valid);
      rows.masks.insert(rows.masks.end(), mask.begin(), mask.end());
    }
    rows.rules.push_back(rule);
  }
  return rows;
}

// What ranks do: each describes its slice of every row, all merge the descriptions, and ask for
// more candidates where these do not decide. n_first: how many they begin with.
inline Outcome by_slices(Backend& backend,
                         const Rows& rows,
                         const std::vector<std::int32_t>& begins,
                         std::int32_t n_first,
                         int& n_exchanges) {
  const std::size_t n_rows = rows.rules.size();
  Outcome out{std::vector<Choice>(n_rows), std::vector<TopLogprob>(n_rows * kMaxTopLogprobs)};
  std::vector<bool> decided(n_rows, false);
  n_exchanges = 0;
  for (std::int32_t n = n_first;; n = std::min(4 * n, rows.n_valid + 1)) {
    ++n_exchanges;
    GatheredSlices all{.n_ranks = static_cast<std::int32_t>(begins.size()) - 1,
                       .n_rows = static_cast<std::int32_t>(n_rows),
                       .n_candidates = n};
    for (std::size_t r = 0; r + 1 < begins.size(); ++r) {
      const std::int32_t width = begins[r + 1] - begins[r];
      std::vector<float> own;
      for (std::size_t row = 0; row < n_rows; ++row) {
        const auto from = rows.logits.begin() + static_cast<std::ptrdiff_t>(row) * rows.n_columns;
        own.insert(own.end(), from + begins[r], from + begins[r + 1]);
      }
      const OnDevice<float> logits(backend, own);
      const RowsOnDevice device(backend, rows);
      const OnDevice<SliceChoice> slices(backend, std::vector<SliceChoice>(n_rows));
      const auto n_all = n_rows * static_cast<std::size_t>(n);
      const OnDevice<SliceCandidate> candidates(backend, std::vector<SliceCandidate>(n_all));
      const OnDevice<SliceCandidate> likeliest(
          backend, std::vector<SliceCandidate>(n_rows * kMaxTopLogprobs));
      ChooseArgs args = device.args(logits);
      args.vocab = width;
      args.n_valid = std::min(width, rows.n_valid - begins[r]);
      args.slices = slices.get();
      args.first_id = begins[r];
      args.n_candidates = n;
      args.candidates = candidates.get();
      args.likeliest = likeliest.get();
      backend.choose(args);
      const auto append = [](auto& to, const auto& from) {
        to.insert(to.end(), from.begin(), from.end());
      };
      append(all.slices, slices.host());
      append(all.candidates, candidates.host());
      append(all.likeliest, likeliest.host());
    }
    bool done = true;
    for (std::size_t row = 0; row < n_rows; ++row) {
      if (!decided[row])
        decided[row] = merge_row(all, static_cast<std::int32_t>(row), rows.rules[row], rows.n_valid,
                                 out.choices[row], out.top.data() + row * kMaxTopLogprobs);
      done = done && decided[row];
    }
    if (done || n > rows.n_valid) return out;
  }
}

}  // namespace foretoken::test
