// The rule of choosing, read top to bottom: adjustments, mask, temperature, top-k, top-p, min-p,
// noise, maximum.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/include/numerics.h"
#include "kernels/ref/ref.h"

namespace foretoken::ref {
namespace {

constexpr float kLeast = -std::numeric_limits<float>::infinity();

struct Id {
  float logit;
  std::int32_t id;
};

bool ranks_before(const Id& a, const Id& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

void apply_mask(const std::uint32_t* mask, std::vector<float>& logits) {
  for (std::size_t id = 0; id < logits.size(); ++id)
    if ((mask[id / 32] >> id % 32 & 1) == 0) logits[id] = kLeast;
}

// Every id that may be chosen, in rank order.
std::vector<Id> ranked(const std::vector<float>& logits) {
  std::vector<Id> ids;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (logits[i] > kLeast) ids.push_back({logits[i], static_cast<std::int32_t>(i)});
  std::sort(ids.begin(), ids.end(), ranks_before);
  return ids;
}

void keep_top_p(std::vector<Id>& ids, double p, double inverse_temperature) {
  const double highest = static_cast<double>(ids.front().logit) * inverse_temperature;
  const auto weight = [&](const Id& a) {
    return exp_poly(fma64(static_cast<double>(a.logit), inverse_temperature, -highest));
  };
  std::vector<Id> by_id = ids;
  std::sort(by_id.begin(), by_id.end(), [](const Id& a, const Id& b) { return a.id < b.id; });
  double total = 0;
  for (const Id& a : by_id) total += weight(a);
  double sum = 0;
  std::size_t n = 0;
  while (n < ids.size() && sum < p * total) sum += weight(ids[n++]);
  ids.resize(n);
}

Choice choose_row(const std::vector<float>& logits, const RowRule& rule) {
  std::vector<Id> ids = ranked(logits);
  Choice choice;
  if (ids.empty()) return choice;
  if (rule.temperature == 0) {
    choice.token = ids.front().id;
    choice.score = static_cast<double>(ids.front().logit);
    return choice;
  }
  const double inverse = 1.0 / static_cast<double>(rule.temperature);
  if (rule.top_k > 0 && static_cast<std::size_t>(rule.top_k) < ids.size())
    ids.resize(static_cast<std::size_t>(rule.top_k));
  const double highest = static_cast<double>(ids.front().logit);
  if (rule.top_p < 1) keep_top_p(ids, static_cast<double>(rule.top_p), inverse);
  if (rule.min_p > 0) {
    const double cut =
        highest + static_cast<double>(rule.temperature) * log_poly(static_cast<double>(rule.min_p));
    std::erase_if(ids, [cut](const Id& a) { return static_cast<double>(a.logit) < cut; });
  }
  for (const Id& a : ids) {
    const std::uint32_t word =
        noise_word(rule.seed, rule.choice, rule.position, static_cast<std::uint32_t>(a.id));
    const double score = noisy_score(a.logit, inverse, word);
    if (choice.token < 0 || score > choice.score ||
        (score == choice.score && a.id < choice.token)) {
      choice.score = score;
      choice.token = a.id;
    }
  }
  return choice;
}

}  // namespace

void choose(const ChooseArgs& args) {
  for (std::int32_t r = 0; r < args.n_rows; ++r) {
    const RowRule& rule = args.rules[r];
    const float* raw = args.logits + std::int64_t{r} * args.vocab;
    std::vector<float> logits(raw, raw + args.n_valid);
    for (std::int32_t i = rule.adjust_begin; i < rule.adjust_end; ++i) {
      const Adjustment& a = args.adjustments[i];
      float& l = logits[static_cast<std::size_t>(a.id)];
      l = (l > 0 ? l / a.repetition : l * a.repetition) + a.add;
    }
    if (rule.mask_begin >= 0) apply_mask(args.masks + rule.mask_begin, logits);
    Choice& choice = args.choices[r];
    choice = choose_row(logits, rule);
    if (rule.n_top_logprobs < 0) continue;
    const std::vector<Id> ids = ranked({raw, raw + args.n_valid});
    double total = 0;
    for (const Id& a : ids)
      total += std::exp(static_cast<double>(a.logit) - static_cast<double>(ids.front().logit));
    const auto log_probability = [&](float logit) {
      const double below = static_cast<double>(logit) - static_cast<double>(ids.front().logit);
      return static_cast<float>(below - std::log(total));
    };
    choice.logprob = choice.token >= 0 ? log_probability(raw[choice.token]) : kLeast;
    for (std::int32_t i = 0; i < rule.n_top_logprobs; ++i) {
      TopLogprob& top = args.top[std::int64_t{r} * kMaxTopLogprobs + i];
      top = {-1, kLeast};
      if (static_cast<std::size_t>(i) < ids.size())
        top = {ids[static_cast<std::size_t>(i)].id,
               log_probability(ids[static_cast<std::size_t>(i)].logit)};
    }
  }
}

}  // namespace foretoken::ref
