#include "common/engine/slice_chooser.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace foretoken {
namespace {

// Of all ranks' candidates in one exchange, unless one row has more.
constexpr std::size_t kExchangeBytes = std::size_t{32} << 20;

}  // namespace

void SliceChooser::choose(const StepPlan& plan,
                          const float* logits,
                          std::vector<Choice>& choices,
                          std::vector<TopLogprob>& top) {
  const auto wants = [&](std::int32_t n_least) {
    return std::any_of(plan.rules.begin(), plan.rules.end(),
                       [&](const RowRule& rule) { return rule.n_top_logprobs >= n_least; });
  };
  choices.resize(plan.rules.size());
  top.clear();
  if (choices.empty()) return;
  if (wants(1)) top.resize(choices.size() * kMaxTopLogprobs);
  const ChooseArgs all = upload(plan, logits);
  if (first_candidate_count(plan.rules, n_valid_) > 0 || wants(0))
    return merge(plan, all, choices, top);
  describe(all, {0, all.n_rows}, /*wants_top=*/false, 0);
  choose_by_maximum(choices);
}

// Plain rows are a maximum over 16 bytes of each rank.
void SliceChooser::choose_by_maximum(std::vector<Choice>& choices) {
  std::vector<ScoredId> best;
  for (const SliceChoice& slice : own_slices_) best.push_back({slice.score, slice.token});
  ranks_.max_rows(best);
  for (std::size_t row = 0; row < best.size(); ++row)
    choices[row] = {.score = best[row].score, .token = best[row].id};
}

// Other rows mostly take one exchange as well. For those that are not decided then, as with a wide
// nucleus, and for them alone, ranks exchange more candidates, up to all.
void SliceChooser::merge(const StepPlan& plan,
                         const ChooseArgs& all,
                         std::vector<Choice>& choices,
                         std::vector<TopLogprob>& top) {
  std::vector<std::int32_t> undecided(plan.rules.size());
  std::iota(undecided.begin(), undecided.end(), 0);
  std::int32_t n_candidates = first_candidate_count(plan.rules, n_valid_);
  for (; !undecided.empty(); n_candidates = std::min(8 * n_candidates, n_valid_ + 1)) {
    const std::vector<Rows> runs = runs_of(undecided, n_candidates);
    undecided.clear();
    for (const Rows& rows : runs) {
      describe(all, rows, !top.empty(), n_candidates);
      gather(rows, n_candidates);
      for (std::int32_t row = rows.begin; row < rows.end; ++row) {
        const auto at = static_cast<std::size_t>(row);
        TopLogprob* row_top = top.empty() ? nullptr : top.data() + at * kMaxTopLogprobs;
        if (!merge_row(gathered_, row - rows.begin, plan.rules[at], n_valid_, choices[at], row_top))
          undecided.push_back(row);
      }
    }
  }
}

// Ascending rows as runs without gaps, each for one exchange.
std::vector<SliceChooser::Rows> SliceChooser::runs_of(std::span<const std::int32_t> rows,
                                                      std::int32_t n_candidates) const {
  const std::size_t row_bytes = static_cast<std::size_t>(ranks_.size()) *
                                static_cast<std::size_t>(n_candidates) * sizeof(SliceCandidate);
  const auto most = static_cast<std::int32_t>(
      std::max<std::size_t>(1, kExchangeBytes / std::max<std::size_t>(1, row_bytes)));
  std::vector<Rows> runs;
  for (const std::int32_t row : rows) {
    if (runs.empty() || runs.back().end != row || runs.back().n() == most)
      runs.push_back({row, row});
    ++runs.back().end;
  }
  return runs;
}

void SliceChooser::gather(Rows rows, std::int32_t n_candidates) {
  gathered_.n_ranks = ranks_.size();
  gathered_.n_rows = rows.n();
  gathered_.n_candidates = n_candidates;
  gathered_.slices = ranks_.gather(std::span<const SliceChoice>(own_slices_));
  gathered_.candidates = ranks_.gather(std::span<const SliceCandidate>(own_candidates_));
  gathered_.likeliest = ranks_.gather(std::span<const SliceCandidate>(own_likeliest_));
}

// What describes all rows, without room for what comes of it. n_valid = 0: nothing but padding
// here.
ChooseArgs SliceChooser::upload(const StepPlan& plan, const float* logits) {
  return {.logits = logits,
          .n_rows = static_cast<std::int32_t>(plan.rules.size()),
          .vocab = slice_.n_ids,
          .n_valid = std::clamp(n_valid_ - slice_.first_id, 0, slice_.n_ids),
          .rules = rules_.fill(backend_, plan.rules),
          .adjustments = adjustments_.fill(backend_, plan.adjustments),
          .masks = masks_.fill(backend_, plan.masks),
          .first_id = slice_.first_id};
}

// This rank's part of the exchange.
void SliceChooser::describe(const ChooseArgs& all,
                            Rows rows,
                            bool wants_top,
                            std::int32_t n_candidates) {
  const auto n = static_cast<std::size_t>(rows.n());
  const float least = -std::numeric_limits<float>::infinity();
  own_slices_.assign(n, {.highest = least, .adjusted_highest = least});
  own_candidates_.assign(n * static_cast<std::size_t>(n_candidates), {});
  own_likeliest_.assign(wants_top ? n * kMaxTopLogprobs : 0, {});
  if (all.n_valid == 0) return;
  ChooseArgs args = all;
  args.logits += std::int64_t{rows.begin} * args.vocab;
  args.rules += rows.begin;
  args.n_rows = rows.n();
  args.slices = device_slices_.room<SliceChoice>(backend_, n);
  args.n_candidates = n_candidates;
  if (n_candidates > 0)
    args.candidates = device_candidates_.room<SliceCandidate>(backend_, own_candidates_.size());
  if (wants_top)
    args.likeliest = device_likeliest_.room<SliceCandidate>(backend_, own_likeliest_.size());
  backend_.choose(args);
  backend_.download(own_slices_.data(), args.slices, n * sizeof(SliceChoice));
  if (n_candidates > 0)
    backend_.download(own_candidates_.data(), args.candidates,
                      own_candidates_.size() * sizeof(SliceCandidate));
  if (wants_top)
    backend_.download(own_likeliest_.data(), args.likeliest,
                      own_likeliest_.size() * sizeof(SliceCandidate));
}

}  // namespace foretoken
