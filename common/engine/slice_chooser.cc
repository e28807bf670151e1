#include "common/engine/slice_chooser.h"

#include <algorithm>
#include <limits>

namespace foretoken {

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
  if (first_candidate_count(plan.rules, n_valid_) > 0 || wants(0))
    return merge(plan, logits, choices, top);
  describe(plan, logits, /*wants_top=*/false, 0);
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

// Other rows mostly take one exchange as well; a wide nucleus asks again, for more candidates.
void SliceChooser::merge(const StepPlan& plan,
                         const float* logits,
                         std::vector<Choice>& choices,
                         std::vector<TopLogprob>& top) {
  std::vector<bool> is_decided(plan.rules.size(), false);
  std::int32_t n_candidates = first_candidate_count(plan.rules, n_valid_);
  for (bool all_are = false; !all_are; n_candidates = std::min(8 * n_candidates, n_valid_ + 1)) {
    describe(plan, logits, !top.empty(), n_candidates);
    gather(plan.rules.size(), n_candidates);
    all_are = true;
    for (std::size_t row = 0; row < plan.rules.size(); ++row) {
      TopLogprob* row_top = top.empty() ? nullptr : top.data() + row * kMaxTopLogprobs;
      if (!is_decided[row])
        is_decided[row] = merge_row(gathered_, static_cast<std::int32_t>(row), plan.rules[row],
                                    n_valid_, choices[row], row_top);
      all_are = all_are && is_decided[row];
    }
  }
}

void SliceChooser::gather(std::size_t n_rows, std::int32_t n_candidates) {
  gathered_.n_ranks = ranks_.size();
  gathered_.n_rows = static_cast<std::int32_t>(n_rows);
  gathered_.n_candidates = n_candidates;
  gathered_.slices = ranks_.gather(std::span<const SliceChoice>(own_slices_));
  gathered_.candidates = ranks_.gather(std::span<const SliceCandidate>(own_candidates_));
  gathered_.likeliest = ranks_.gather(std::span<const SliceCandidate>(own_likeliest_));
}

// This rank's part of the exchange.
void SliceChooser::describe(const StepPlan& plan,
                            const float* logits,
                            bool wants_top,
                            std::int32_t n_candidates) {
  const std::size_t n = plan.rules.size();
  const float least = -std::numeric_limits<float>::infinity();
  own_slices_.assign(n, {.highest = least, .adjusted_highest = least});
  own_candidates_.assign(n * static_cast<std::size_t>(n_candidates), {});
  own_likeliest_.assign(wants_top ? n * kMaxTopLogprobs : 0, {});
  const std::int32_t n_valid = std::clamp(n_valid_ - slice_.first_id, 0, slice_.n_ids);
  if (n_valid == 0) return;  // nothing but padding here
  ChooseArgs args{.logits = logits,
                  .n_rows = static_cast<std::int32_t>(n),
                  .vocab = slice_.n_ids,
                  .n_valid = n_valid,
                  .rules = rules_.fill(backend_, plan.rules),
                  .adjustments = adjustments_.fill(backend_, plan.adjustments),
                  .masks = masks_.fill(backend_, plan.masks),
                  .slices = device_slices_.room<SliceChoice>(backend_, n),
                  .first_id = slice_.first_id,
                  .n_candidates = n_candidates};
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
