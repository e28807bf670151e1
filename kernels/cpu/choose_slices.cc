// A rank's slice of the vocabulary: the best id, the sums that probabilities need, and the first
// candidates in rank order. The same inner functions as for a whole row, on fewer columns.
#include <algorithm>

#include "kernels/cpu/choose.h"

namespace foretoken::cpu {
namespace {

// Those of the row's adjustments that name ids of the slice, by column.
std::vector<Adjustment> own_adjustments(const ChooseArgs& args, const RowRule& rule) {
  std::vector<Adjustment> own;
  for (std::int32_t i = rule.adjust_begin; i < rule.adjust_end; ++i) {
    Adjustment a = args.adjustments[i];
    a.id -= args.first_id;
    if (a.id >= 0 && a.id < args.n_valid) own.push_back(a);
  }
  return own;
}

double sum_of_weights(const Isa& isa,
                      const float* logits,
                      std::int32_t n,
                      double inverse,
                      float highest,
                      ChooseSpace& space) {
  if (!(highest > kLeast)) return 0;
  space.weights.resize(std::max(space.weights.size(), static_cast<std::size_t>(n)));
  isa.exp_weights(logits, n, inverse, static_cast<double>(highest) * inverse, space.weights.data());
  double total = 0;
  for (std::int32_t i = 0; i < n; ++i)
    total += logits[i] > kLeast ? space.weights[static_cast<std::size_t>(i)] : 0.0;
  return total;
}

// The first n of `by` in rank order; both logits of each.
void first_candidates(const ChooseArgs& args,
                      const float* by,
                      const float* raw,
                      const float* adjusted,
                      std::int32_t n,
                      SliceCandidate* out,
                      ChooseSpace& space) {
  top_candidates(by, args.n_valid, n, space);
  std::sort(space.candidates.begin(), space.candidates.end(), ranks_before);
  for (std::int32_t i = 0; i < n; ++i) {
    out[i] = {};
    if (static_cast<std::size_t>(i) >= space.candidates.size()) continue;
    const std::int32_t column = space.candidates[static_cast<std::size_t>(i)].id;
    out[i] = {adjusted[column], raw[column], args.first_id + column};
  }
}

}  // namespace

void describe_slice(const Isa& isa, const ChooseArgs& args, std::int32_t row, ChooseSpace& space) {
  const RowRule& rule = args.rules[row];
  const float* raw = args.logits + std::int64_t{row} * args.vocab;
  const std::int32_t n = args.n_valid;
  const std::vector<Adjustment> adjustments = own_adjustments(args, rule);
  const RowChanges changes{
      .adjustments = adjustments, .mask = mask_of(args, rule), .first_id = args.first_id};
  const float* adjusted = adjusted_row(isa, raw, n, changes, space);
  SliceChoice& slice = args.slices[row];
  slice = {};
  const Best best = choose_slice(isa, adjusted, 0, n, rule, args.first_id);
  if (best.token >= 0) {
    slice.score = best.score;
    slice.token = args.first_id + best.token;
    slice.logit = raw[best.token];
  }
  slice.highest = isa.max(raw, n);
  slice.adjusted_highest = isa.max(adjusted, n);
  if (rule.n_top_logprobs >= 0)
    slice.total = sum_of_weights(isa, raw, n, 1.0, slice.highest, space);
  if (rule.temperature > 0 && rule.top_p < 1)
    slice.adjusted_total =
        sum_of_weights(isa, adjusted, n, 1.0 / static_cast<double>(rule.temperature),
                       slice.adjusted_highest, space);
  if (args.n_candidates > 0)
    first_candidates(args, adjusted, raw, adjusted, args.n_candidates,
                     args.candidates + std::int64_t{row} * args.n_candidates, space);
  if (args.likeliest != nullptr && rule.n_top_logprobs > 0)
    first_candidates(args, raw, raw, adjusted, rule.n_top_logprobs,
                     args.likeliest + std::int64_t{row} * kMaxTopLogprobs, space);
}

}  // namespace foretoken::cpu
