#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/choose.h"
#include "kernels/include/numerics.h"

namespace foretoken::cpu {
namespace {

constexpr double kNoFloor = -std::numeric_limits<double>::infinity();

NoiseKey key_of(const RowRule& rule) { return {rule.seed, rule.choice, rule.position}; }
double inverse_of(float temperature) { return 1.0 / static_cast<double>(temperature); }

constexpr std::int32_t kWordIds = 32;

// Whole words in one go; a slice may begin or end inside one.
void copy_masked(
    const Isa& isa, const float* in, std::int32_t n, const RowChanges& changes, float* out) {
  const auto id_of = [&](std::int32_t column) { return changes.first_id + column; };
  const auto one = [&](std::int32_t column) {
    const std::uint32_t word = changes.mask[id_of(column) / kWordIds];
    const bool may_follow = (word >> id_of(column) % kWordIds & 1) != 0;
    if (may_follow)
      out[column] = in[column];
    else
      out[column] = kLeast;
  };
  std::int32_t column = 0;
  while (column < n && id_of(column) % kWordIds != 0) one(column++);
  const std::int32_t n_words = (n - column) / kWordIds;
  isa.keep_bits(in + column, changes.mask + id_of(column) / kWordIds, n_words, out + column);
  for (column += n_words * kWordIds; column < n; ++column) one(column);
}

// Every id above -infinity, in id order.
void all_candidates(const float* logits, std::int32_t n, std::vector<Candidate>& out) {
  out.clear();
  for (std::int32_t id = 0; id < n; ++id)
    if (logits[id] > kLeast) out.push_back({logits[id], id});
}

// Keeps of `candidates` (in id order) the shortest prefix in rank order whose weight reaches p of
// the total.
void keep_top_p(const Isa& isa, double p, double inverse_temperature, ChooseSpace& space) {
  std::vector<Candidate>& all = space.candidates;
  const std::size_t n = all.size();
  space.adjusted.resize(
      std::max(space.adjusted.size(), n));  // free by now: candidates hold the logits
  float* logits = space.adjusted.data();
  for (std::size_t i = 0; i < n; ++i) logits[i] = all[i].logit;
  space.weights.resize(std::max(space.weights.size(), n));
  double* weights = space.weights.data();
  const double highest =
      static_cast<double>(isa.max(logits, static_cast<std::int64_t>(n))) * inverse_temperature;
  isa.exp_weights(logits, static_cast<std::int64_t>(n), inverse_temperature, highest, weights);
  double total = 0;
  for (std::size_t i = 0; i < n; ++i) total += weights[i];
  // What weighs less than this cannot be needed: all such together stay below (1 - p) of the total.
  const double negligible = (1.0 - p) * total / (2.0 * static_cast<double>(n));
  std::vector<Candidate>& heap = space.best;
  heap.clear();
  for (std::size_t i = 0; i < n; ++i)
    if (weights[i] >= negligible) heap.push_back(all[i]);
  const auto ranks_after = [](const Candidate& a, const Candidate& b) {
    return ranks_before(b, a);
  };
  std::make_heap(heap.begin(), heap.end(), ranks_after);
  double sum = 0;
  auto end = heap.end();
  while (end != heap.begin() && sum < p * total) {
    std::pop_heap(heap.begin(), end, ranks_after);
    --end;
    sum += exp_poly(fma64(static_cast<double>(end->logit), inverse_temperature, -highest));
  }
  all.assign(end, heap.end());
}

Best best_with_noise(const std::vector<Candidate>& candidates,
                     double inverse_temperature,
                     const NoiseKey& key) {
  Best best;
  for (const Candidate& c : candidates) {
    const std::uint32_t word =
        noise_word(key.seed, key.choice, key.position, static_cast<std::uint32_t>(c.id));
    if (best.token >= 0) {  // two logarithms only where they could matter
      const double z = static_cast<double>(c.logit) * inverse_temperature;
      if (z + static_cast<double>(gumbel_bound(word)) <
          best.score - 1e-3 - 0x1p-20 * std::fabs(best.score))
        continue;
    }
    best = better(best, {noisy_score(c.logit, inverse_temperature, word), c.id});
  }
  return best;
}

}  // namespace

const float* adjusted_row(const Isa& isa,
                          const float* logits,
                          std::int32_t n,
                          const RowChanges& changes,
                          ChooseSpace& space) {
  if (changes.adjustments.empty() && changes.mask == nullptr) return logits;
  space.adjusted.resize(std::max(space.adjusted.size(), static_cast<std::size_t>(n)));
  if (changes.mask == nullptr)
    std::copy(logits, logits + n, space.adjusted.begin());
  else
    copy_masked(isa, logits, n, changes, space.adjusted.data());
  for (const Adjustment& a : changes.adjustments) {
    float& l = space.adjusted[static_cast<std::size_t>(a.id)];
    if (changes.mask != nullptr && !(l > kLeast)) continue;  // no bias lifts what is masked
    l = (l > 0 ? l / a.repetition : l * a.repetition) + a.add;
  }
  return space.adjusted.data();
}

bool truncates(const RowRule& rule, std::int32_t n) {
  if (!(rule.temperature > 0))
    return false;  // greedy takes the first in rank order, which survives every rule
  return (rule.top_k > 0 && rule.top_k < n) || rule.top_p < 1 || rule.min_p > 0;
}

// Candidates gather until there are twice as many as wanted; then the better half stays and its
// last one is the bar.
void top_candidates(const float* logits, std::int32_t n, std::int32_t k, ChooseSpace& space) {
  std::vector<Candidate>& kept = space.candidates;
  kept.clear();
  const auto wanted = static_cast<std::size_t>(k);
  const std::size_t room = std::max<std::size_t>(2 * wanted, 64);
  float bar = kLeast;
  const auto shrink = [&] {
    if (kept.size() <= wanted) return;
    const auto last = kept.begin() + static_cast<std::ptrdiff_t>(wanted) - 1;
    std::nth_element(kept.begin(), last, kept.end(), ranks_before);
    kept.resize(wanted);
    bar = kept.back().logit;  // later ids of the same logit rank after it
  };
  for (std::int32_t id = 0; id < n; ++id) {
    if (!(logits[id] > bar)) continue;
    kept.push_back({logits[id], id});
    if (kept.size() >= room) shrink();
  }
  shrink();
}

Best choose_truncated(
    const Isa& isa, const float* logits, std::int32_t n, const RowRule& rule, ChooseSpace& space) {
  const double inverse = inverse_of(rule.temperature);
  if (rule.top_k > 0 && rule.top_k < n) {
    top_candidates(logits, n, rule.top_k, space);
    std::sort(space.candidates.begin(), space.candidates.end(),
              [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  } else {
    all_candidates(logits, n, space.candidates);
  }
  if (space.candidates.empty()) return {};
  float highest = kLeast;
  for (const Candidate& c : space.candidates) highest = std::max(highest, c.logit);
  if (rule.top_p < 1) keep_top_p(isa, static_cast<double>(rule.top_p), inverse, space);
  if (rule.min_p > 0) {
    const double cut = static_cast<double>(highest) + static_cast<double>(rule.temperature) *
                                                          log_poly(static_cast<double>(rule.min_p));
    std::erase_if(space.candidates,
                  [cut](const Candidate& c) { return !(static_cast<double>(c.logit) >= cut); });
  }
  return best_with_noise(space.candidates, inverse, key_of(rule));
}

Best choose_slice(const Isa& isa,
                  const float* logits,
                  std::int32_t begin,
                  std::int32_t end,
                  const RowRule& rule,
                  std::int32_t first_id) {
  Best best = isa.argmax(logits + begin, end - begin);
  if (best.token < 0) return {};
  best.token += begin;
  if (!(rule.temperature > 0)) return best;
  // The likeliest id's own score is where the filter starts.
  const double inverse = inverse_of(rule.temperature);
  NoiseKey key = key_of(rule);
  key.first_id = static_cast<std::uint32_t>(first_id);
  const std::uint32_t word = noise_word(key.seed, key.choice, key.position,
                                        key.first_id + static_cast<std::uint32_t>(best.token));
  const Best start{noisy_score(logits[best.token], inverse, word), best.token};
  const Best rest = isa.noisy_argmax(logits, begin, end, inverse, key, start.score);
  return better(start, rest);
}

float log_probabilities(const Isa& isa,
                        const float* raw,
                        std::int32_t n,
                        std::int32_t token,
                        std::int32_t n_top,
                        TopLogprob* top,
                        ChooseSpace& space) {
  const float highest = isa.max(raw, n);
  space.weights.resize(std::max(space.weights.size(), static_cast<std::size_t>(n)));
  isa.exp_weights(raw, n, 1.0, static_cast<double>(highest), space.weights.data());
  double total = 0;
  for (std::int32_t i = 0; i < n; ++i)
    total += raw[i] > kLeast ? space.weights[static_cast<std::size_t>(i)] : 0.0;
  const double log_total = static_cast<double>(highest) + log_poly(total);
  const auto log_probability = [&](std::int32_t id) {
    return static_cast<float>(static_cast<double>(raw[id]) - log_total);
  };
  if (n_top > 0) {
    top_candidates(raw, n, n_top, space);
    std::sort(space.candidates.begin(), space.candidates.end(), ranks_before);
    const auto n_found = static_cast<std::int32_t>(space.candidates.size());
    for (std::int32_t i = 0; i < n_top; ++i) {
      const std::int32_t id = i < n_found ? space.candidates[static_cast<std::size_t>(i)].id : -1;
      top[i] = {id, id >= 0 ? log_probability(id) : kLeast};
    }
  }
  return token >= 0 ? log_probability(token) : kLeast;
}

}  // namespace foretoken::cpu
