#include "common/spec/draft_length.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace foretoken {
namespace {

constexpr std::uint32_t kProbedSequences = 2;
constexpr std::uint32_t kBudgetWhileOff = 4;
constexpr double kBoldness = 2;
// Of the tokens wanted. Of four that are accepted with 0.92 each so many stand, of eight with 0.95.
constexpr double kPlenty = 0.8;
constexpr double kCheaper = 0.8;  // of what is known, beyond the scatter of steps

std::uint32_t available(const Candidate& candidate) {
  return std::min(candidate.cap, static_cast<std::uint32_t>(candidate.path.size()));
}

// Fixed lengths under a row budget: first tokens first, so that every sequence gets some.
std::vector<std::uint32_t> all_available(std::span<const Candidate> candidates,
                                         std::uint32_t max_drafted) {
  std::vector<std::uint32_t> lengths(candidates.size(), 0);
  bool grew = true;
  while (grew) {
    grew = false;
    for (std::size_t i = 0; i < candidates.size() && max_drafted > 0; ++i) {
      if (lengths[i] >= available(candidates[i])) continue;
      ++lengths[i];
      --max_drafted;
      grew = true;
    }
  }
  return lengths;
}

// Tokens of a step without proposals, by their value.
double plain_yield(std::span<const Candidate> candidates) {
  return std::accumulate(candidates.begin(), candidates.end(), 0.0,
                         [](double sum, const Candidate& each) { return sum + each.value; });
}

bool is_empty(std::span<const std::uint32_t> lengths) {
  return std::all_of(lengths.begin(), lengths.end(), [](std::uint32_t n) { return n == 0; });
}

}  // namespace

std::vector<std::uint32_t> DraftLength::cut(std::span<const Candidate> candidates,
                                            std::uint32_t other_rows,
                                            std::uint32_t max_drafted) {
  if (config_.mode == LengthMode::kFixed) return all_available(candidates, max_drafted);
  std::vector<std::uint32_t> lengths = best_cut(candidates, other_rows, max_drafted);
  if (!is_empty(lengths)) {
    off_ = false;
    n_declined_ = 0;
    return lengths;
  }
  if (off_ && until_probe_ > 0) --until_probe_;
  const bool has_proposals = std::any_of(candidates.begin(), candidates.end(),
                                         [](const Candidate& each) { return available(each) > 0; });
  if (!has_proposals || !cost_.knows_anything()) return lengths;
  if (!off_ && ++n_declined_ >= config_.off_after) {
    off_ = true;
    until_probe_ = std::min(pause_, config_.probe_every);
  }
  if (!off_ || until_probe_ > 0) return lengths;
  until_probe_ = pause_ = std::min(2 * pause_, config_.probe_every);
  is_trial_ = true;
  return probe(candidates, max_drafted);
}

std::uint32_t DraftLength::rows_alone(std::span<const Candidate> candidates) const {
  const auto n_plain = static_cast<std::uint32_t>(candidates.size());
  std::uint32_t n_available = 0;
  for (const Candidate& each : candidates) n_available += available(each);
  const auto lengths = config_.mode == LengthMode::kFixed ? all_available(candidates, n_available)
                                                          : best_cut(candidates, 0, n_available);
  return std::accumulate(lengths.begin(), lengths.end(), n_plain);
}

std::vector<std::uint32_t> DraftLength::best_cut(std::span<const Candidate> candidates,
                                                 std::uint32_t other_rows,
                                                 std::uint32_t max_drafted) const {
  std::vector<std::uint32_t> lengths(candidates.size(), 0);
  if (candidates.empty() || !cost_.knows_anything()) return lengths;
  std::vector<Item> items = items_of(candidates);
  // Worth falls along a chain and the sort is stable, so any first part of the list is a prefix
  // of every chain.
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.worth > b.worth; });
  if (items.size() > max_drafted) items.resize(max_drafted);

  const double n_plain = plain_yield(candidates);
  const auto plain_rows = static_cast<std::uint32_t>(candidates.size()) + other_rows;
  // What longer steps cost is a guess until they were seen: go there by doubling, not by one bold
  // step.
  const double most_rows = std::max(kBoldness * cost_.most_rows(), plain_rows + 1.0);
  const double plain = n_plain / cost_.seconds(plain_rows);
  double best = plain;
  double n_extra = 0;
  std::size_t n_chosen = 0;
  // Cost rises in steps, so a longer cut may pay where a shorter one does not: look at all.
  for (std::size_t i = 0; i < items.size() && plain_rows + static_cast<double>(i) + 1 <= most_rows;
       ++i) {
    n_extra += items[i].worth;
    const double rate =
        (n_plain + n_extra) / cost_.seconds(plain_rows + static_cast<std::uint32_t>(i) + 1);
    if (rate <= best) continue;
    best = rate;
    n_chosen = i + 1;
  }
  if (best < config_.min_gain * plain) return lengths;
  for (std::size_t i = 0; i < n_chosen; ++i) ++lengths[items[i].sequence];
  return lengths;
}

std::vector<DraftLength::Item> DraftLength::items_of(std::span<const Candidate> candidates) const {
  std::vector<Item> items;
  for (std::uint32_t i = 0; i < candidates.size(); ++i) {
    double survival = 1;
    for (std::uint32_t k = 0; k < available(candidates[i]); ++k) {
      survival *= calibration_.acceptance(candidates[i].path[k], k, candidates[i].odds);
      items.push_back({survival * candidates[i].value, i});
    }
  }
  return items;
}

// A step of a few rows more, to see what these cost now: of no use where the tokens would not be
// worth rows without a price.
std::vector<std::uint32_t> DraftLength::probe(std::span<const Candidate> candidates,
                                              std::uint32_t max_drafted) const {
  std::vector<std::uint32_t> lengths(candidates.size(), 0);
  std::vector<Item> items = items_of(candidates);
  const double n_extra = std::accumulate(items.begin(), items.end(), 0.0,
                                         [](double sum, const Item& i) { return sum + i.worth; });
  if (n_extra < (config_.min_gain - 1) * plain_yield(candidates)) return lengths;
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.worth > b.worth; });
  std::uint32_t n_left = std::min(max_drafted, kProbedSequences);
  for (const Item& item : items) {
    if (n_left == 0) break;
    if (lengths[item.sequence] > 0) continue;
    lengths[item.sequence] = 1;
    --n_left;
  }
  return lengths;
}

void DraftLength::observe_round(std::span<const ScoredToken> scored, SequenceOdds& of_sequence) {
  for (const ScoredToken& each : scored)
    if (!each.token.is_runner_up)
      of_sequence.observe(calibration_.mean(each.token, each.depth), each.stood);
  calibration_.observe(scored);
}

void DraftLength::observe_step(std::uint32_t n_rows, std::uint32_t n_committed, Duration took) {
  // A trial that finds rows cheaper than they were is repeated at once, until that is believed.
  if (std::exchange(is_trial_, false) && in_seconds(took) < kCheaper * cost_.seconds(n_rows))
    until_probe_ = 0;
  cost_.observe(n_rows, took);
  if (took > Duration::zero() && n_committed > 0) {
    const double rate = n_committed / in_seconds(took + waited_);
    tokens_per_second_ =
        tokens_per_second_ == 0 ? rate : tokens_per_second_ + (rate - tokens_per_second_) / 16;
  }
  waited_ = Duration::zero();
}

double DraftLength::worth(std::span<const PathToken> path, double odds) const {
  double survival = 1, sum = 0;
  for (std::uint32_t k = 0; k < path.size(); ++k)
    sum += survival *= calibration_.acceptance(path[k], k, odds);
  return sum;
}

bool DraftLength::is_plenty(std::span<const PathToken> path,
                            std::uint32_t wanted,
                            double odds) const {
  if (path.size() < wanted) return false;
  return worth(path.first(wanted), odds) >= kPlenty * wanted;
}

std::uint32_t DraftLength::budget(std::uint32_t cap) const {
  return off_ ? std::min(cap, kBudgetWhileOff) : cap;
}

}  // namespace foretoken
