#include "common/spec/merge_choices.h"

#include <algorithm>
#include <limits>

#include "kernels/include/numerics.h"

namespace foretoken {
namespace {

constexpr float kLeast = -std::numeric_limits<float>::infinity();
// Nuclei of usual texts are smaller; what is not enough is asked for again.
constexpr std::int32_t kFirstCandidates = 256;
// A greater top-k is not asked of every row for the sake of one.
constexpr std::int32_t kMostFirst = 2048;

bool ranks_before(const SliceCandidate& a, const SliceCandidate& b) {
  return a.adjusted != b.adjusted ? a.adjusted > b.adjusted : a.token < b.token;
}

// The row's candidates of all slices in rank order. Of these the first n_certain are the row's
// first: beyond them a slice that had more to tell could come in between.
struct Merged {
  std::vector<SliceCandidate> ids;
  std::size_t n_certain = 0;
  bool is_complete = true;
};

Merged merge_candidates(const GatheredSlices& all, std::int32_t row) {
  Merged merged;
  const auto n = static_cast<std::size_t>(all.n_candidates);
  SliceCandidate frontier;
  for (std::int32_t r = 0; r < all.n_ranks; ++r) {
    const auto at = static_cast<std::size_t>(r * all.n_rows + row) * n;
    const auto list = std::span(all.candidates).subspan(at, n);
    const auto end =
        std::find_if(list.begin(), list.end(), [](const SliceCandidate& c) { return c.token < 0; });
    merged.ids.insert(merged.ids.end(), list.begin(), end);
    if (end != list.end()) continue;
    if (merged.is_complete || ranks_before(list.back(), frontier)) frontier = list.back();
    merged.is_complete = false;
  }
  std::sort(merged.ids.begin(), merged.ids.end(), ranks_before);
  const auto uncertain = merged.is_complete ? merged.ids.end()
                                            : std::upper_bound(merged.ids.begin(), merged.ids.end(),
                                                               frontier, ranks_before);
  merged.n_certain = static_cast<std::size_t>(uncertain - merged.ids.begin());
  return merged;
}

double weight_of(const SliceCandidate& c, double inverse, double highest) {
  return exp_poly(fma64(static_cast<double>(c.adjusted), inverse, -highest));
}

// Of a list that is all there is: added in id order, as over a whole row.
double total_of(std::span<const SliceCandidate> kept, double inverse, double highest) {
  std::vector<SliceCandidate> by_id(kept.begin(), kept.end());
  std::sort(by_id.begin(), by_id.end(),
            [](const SliceCandidate& a, const SliceCandidate& b) { return a.token < b.token; });
  double total = 0;
  for (const SliceCandidate& c : by_id) total += weight_of(c, inverse, highest);
  return total;
}

// Of all ids: each slice's total, brought to the same highest logit, in rank order.
double total_of_slices(const GatheredSlices& all,
                       std::int32_t row,
                       double inverse,
                       float SliceChoice::*highest,
                       double SliceChoice::*total) {
  float most = kLeast;
  const auto of = [&](std::int32_t r) -> const SliceChoice& {
    return all.slices[static_cast<std::size_t>(r * all.n_rows + row)];
  };
  for (std::int32_t r = 0; r < all.n_ranks; ++r) most = std::max(most, of(r).*highest);
  double sum = 0;
  for (std::int32_t r = 0; r < all.n_ranks; ++r) {
    if (!(of(r).*highest > kLeast)) continue;
    const double below = static_cast<double>(of(r).*highest) - static_cast<double>(most);
    sum += of(r).*total * exp_poly(below * inverse);
  }
  return sum;
}

// What the rule leaves, or false if the certain candidates do not tell.
bool truncate(const GatheredSlices& all,
              std::int32_t row,
              const RowRule& rule,
              std::int32_t n_valid,
              Merged& merged) {
  std::vector<SliceCandidate>& ids = merged.ids;
  ids.resize(merged.n_certain);
  if (ids.empty()) return merged.is_complete;
  const double inverse = 1.0 / static_cast<double>(rule.temperature);
  const double highest = static_cast<double>(ids.front().adjusted);
  const bool has_top_k = rule.top_k > 0 && rule.top_k < n_valid;
  if (has_top_k) {
    if (ids.size() < static_cast<std::size_t>(rule.top_k) && !merged.is_complete) return false;
    ids.resize(std::min(ids.size(), static_cast<std::size_t>(rule.top_k)));
    merged.is_complete = true;
  }
  if (rule.top_p < 1) {
    const double total = has_top_k
                             ? total_of(ids, inverse, highest * inverse)
                             : total_of_slices(all, row, inverse, &SliceChoice::adjusted_highest,
                                               &SliceChoice::adjusted_total);
    const double wanted = static_cast<double>(rule.top_p) * total;
    double sum = 0;
    std::size_t n = 0;
    while (n < ids.size() && sum < wanted) sum += weight_of(ids[n++], inverse, highest * inverse);
    if (sum < wanted && !merged.is_complete) return false;
    ids.resize(n);
    merged.is_complete = true;
  }
  if (rule.min_p > 0) {
    const double cut =
        highest + static_cast<double>(rule.temperature) * log_poly(static_cast<double>(rule.min_p));
    const auto is_below = [cut](const SliceCandidate& c) {
      return !(static_cast<double>(c.adjusted) >= cut);
    };
    const auto first_below = std::find_if(ids.begin(), ids.end(), is_below);
    if (first_below == ids.end() && !merged.is_complete) return false;
    ids.erase(first_below, ids.end());
  }
  return true;
}

// The token and its raw logit.
bool choose(const GatheredSlices& all,
            std::int32_t row,
            const RowRule& rule,
            std::int32_t n_valid,
            Choice& choice,
            float& raw) {
  const auto consider = [&](double score, std::int32_t token, float logit) {
    if (token < 0) return;
    if (choice.token >= 0 &&
        (score < choice.score || (score == choice.score && token > choice.token)))
      return;
    choice.score = score;
    choice.token = token;
    raw = logit;
  };
  if (!needs_candidates(rule, n_valid)) {
    for (std::int32_t r = 0; r < all.n_ranks; ++r) {
      const SliceChoice& slice = all.slices[static_cast<std::size_t>(r * all.n_rows + row)];
      consider(slice.score, slice.token, slice.logit);
    }
    return true;
  }
  Merged merged = merge_candidates(all, row);
  if (!truncate(all, row, rule, n_valid, merged)) return false;
  const double inverse = 1.0 / static_cast<double>(rule.temperature);
  for (const SliceCandidate& c : merged.ids) {
    const std::uint32_t word =
        noise_word(rule.seed, rule.choice, rule.position, static_cast<std::uint32_t>(c.token));
    consider(noisy_score(c.adjusted, inverse, word), c.token, c.raw);
  }
  return true;
}

void merge_likeliest(const GatheredSlices& all,
                     std::int32_t row,
                     std::int32_t n_top,
                     double log_total,
                     TopLogprob* top) {
  std::vector<SliceCandidate> ids;
  for (std::int32_t r = 0; r < all.n_ranks; ++r) {
    const auto at = static_cast<std::size_t>(r * all.n_rows + row) * kMaxTopLogprobs;
    for (const SliceCandidate& c :
         std::span(all.likeliest).subspan(at, static_cast<std::size_t>(n_top)))
      if (c.token >= 0) ids.push_back(c);
  }
  std::sort(ids.begin(), ids.end(), [](const SliceCandidate& a, const SliceCandidate& b) {
    return a.raw != b.raw ? a.raw > b.raw : a.token < b.token;
  });
  for (std::size_t i = 0; i < static_cast<std::size_t>(n_top); ++i) {
    top[i] = {-1, kLeast};
    if (i < ids.size())
      top[i] = {ids[i].token, static_cast<float>(static_cast<double>(ids[i].raw) - log_total)};
  }
}

}  // namespace

bool needs_candidates(const RowRule& rule, std::int32_t n_valid) {
  if (!(rule.temperature > 0)) return false;  // greedy takes the first, which survives every rule
  return (rule.top_k > 0 && rule.top_k < n_valid) || rule.top_p < 1 || rule.min_p > 0;
}

std::int32_t first_candidate_count(std::span<const RowRule> rules, std::int32_t n_valid) {
  std::int32_t n = 0;
  for (const RowRule& rule : rules) {
    if (!needs_candidates(rule, n_valid)) continue;
    const bool has_top_k = rule.top_k > 0 && rule.top_k < n_valid;
    n = std::max(n, has_top_k ? std::min(rule.top_k, kMostFirst) : kFirstCandidates);
  }
  return std::min(n, n_valid);
}

bool merge_row(const GatheredSlices& all,
               std::int32_t row,
               const RowRule& rule,
               std::int32_t n_valid,
               Choice& out,
               TopLogprob* top) {
  Choice choice;
  float raw = 0;
  if (!choose(all, row, rule, n_valid, choice, raw)) return false;
  if (rule.n_top_logprobs >= 0) {
    float most = kLeast;
    for (std::int32_t r = 0; r < all.n_ranks; ++r)
      most = std::max(most, all.slices[static_cast<std::size_t>(r * all.n_rows + row)].highest);
    const double total = total_of_slices(all, row, 1.0, &SliceChoice::highest, &SliceChoice::total);
    const double log_total = static_cast<double>(most) + log_poly(total);
    choice.logprob =
        choice.token >= 0 ? static_cast<float>(static_cast<double>(raw) - log_total) : kLeast;
    if (rule.n_top_logprobs > 0) merge_likeliest(all, row, rule.n_top_logprobs, log_total, top);
  }
  out = choice;
  return true;
}

}  // namespace foretoken
