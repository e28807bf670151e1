#include "common/spec/step_cost.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace foretoken {
namespace {

constexpr double kNewShare = 1.0 / 32;  // of an observation in its bucket's average
// Observations until a bucket's changes are changes of the world.
constexpr std::uint32_t kSettled = 16;
// A bucket seen so many observations ago follows half as far as one not seen for long.
constexpr double kLately = 4;
constexpr double kMostSurprise = 2;  // a sample counts as at most so many times the average
// Observations until a bucket is believed whatever it says; before, it may exceed what the shorter
// steps suggest by kDoubted only.
constexpr std::uint32_t kBelieved = 3;
constexpr double kDoubted = 1.25;
// Beyond the longest known step each row is guessed to cost 2 % of it, or a quarter of its fair
// share if that is less: dear enough not to be believed free, cheap enough to be tried.
constexpr double kGuessPerRow = 0.02;
constexpr double kGuessOfShare = 0.25;

double median(double a, double b, double c) {
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

}  // namespace

double StepCost::beyond(const Point& last, double n_rows) {
  return last.seconds *
         (1 + std::min(kGuessPerRow, kGuessOfShare / last.rows) * (n_rows - last.rows));
}

std::size_t StepCost::bucket_of(std::uint32_t n_rows) {
  if (n_rows <= 16) return n_rows == 0 ? 0 : n_rows - 1;
  const std::uint32_t below = n_rows - 1;  // 16 .. 31 is the first doubling
  const auto width = static_cast<std::uint32_t>(std::bit_width(below));
  return std::min<std::size_t>(16 + (width - 5) * 8 + ((below >> (width - 4)) & 7), kBuckets - 1);
}

void StepCost::observe(std::uint32_t n_rows, Duration took) {
  const double sample = std::chrono::duration<double>(took).count();
  if (n_rows == 0 || sample <= 0) return;
  ++n_observed_;
  Bucket& bucket = buckets_[bucket_of(n_rows)];
  bucket.last_seen = n_observed_;
  if (bucket.n_seen == 0) {
    bucket = {static_cast<double>(n_rows), sample, 1, n_observed_, {sample, sample}};
  } else if (bucket.n_seen < kBelieved) {
    // Too few for an average: the median of two is the lesser, as a hiccup only ever adds.
    const auto [earlier, before] = std::pair(bucket.recent[1], bucket.recent[0]);
    bucket.seconds =
        bucket.n_seen == 1 ? std::min(before, sample) : median(earlier, before, sample);
    bucket.rows += (n_rows - bucket.rows) / (bucket.n_seen + 1);
    bucket.recent = {sample, before};
    ++bucket.n_seen;
  } else {
    const double middle = median(bucket.recent[1], bucket.recent[0], sample);
    bucket.recent = {sample, bucket.recent[0]};
    const double believed = std::min(middle, kMostSurprise * bucket.seconds);
    const double share = std::max(kNewShare, 1.0 / (bucket.n_seen + 1));
    bucket.rows += share * (n_rows - bucket.rows);
    const double before = bucket.seconds;
    bucket.seconds += share * (believed - bucket.seconds);
    if (bucket.n_seen >= kSettled) let_others_follow(bucket.seconds / before);
    bucket.n_seen = std::min(bucket.n_seen + 1, 1000u);
  }
  rebuild();
}

// Longer texts make every step dearer: what a settled bucket learns, those follow in proportion
// that have not been seen for long. One that was seen lately has its own evidence, and if it
// followed too, a proportion that was wrong at first would stay so.
void StepCost::let_others_follow(double change) {
  for (Bucket& other : buckets_) {
    if (other.n_seen == 0 || other.last_seen == n_observed_) continue;
    const auto age = static_cast<double>(n_observed_ - other.last_seen);
    other.seconds *= std::pow(change, follow_ * age / (age + kLately));
  }
}

// Pools neighbours that contradict each other (a step with more rows seemingly cheaper), weighted
// by what was seen.
void StepCost::rebuild() {
  struct Pool {
    double seconds = 0;
    double weight = 0;
    std::size_t n_points = 0;
  };
  std::vector<Pool> pools;
  std::vector<double> rows;
  for (const Bucket& bucket : buckets_) {
    if (bucket.n_seen == 0) continue;
    double seconds = bucket.seconds;
    if (bucket.n_seen < kBelieved && !pools.empty())
      seconds =
          std::min(seconds, kDoubted * beyond({rows.back(), pools.back().seconds}, bucket.rows));
    rows.push_back(bucket.rows);
    pools.push_back({seconds, static_cast<double>(std::min(bucket.n_seen, 16u)), 1});
    while (pools.size() > 1 && pools[pools.size() - 2].seconds > pools.back().seconds) {
      const Pool last = pools.back();
      pools.pop_back();
      Pool& into = pools.back();
      const double weight = into.weight + last.weight;
      into.seconds = (into.seconds * into.weight + last.seconds * last.weight) / weight;
      into.weight = weight;
      into.n_points += last.n_points;
    }
  }
  curve_.clear();
  for (const Pool& pool : pools)
    for (std::size_t i = 0; i < pool.n_points; ++i)
      curve_.push_back({rows[curve_.size()], pool.seconds});
}

double StepCost::seconds(std::uint32_t n_rows) const {
  if (curve_.empty()) return 0;
  const double rows = n_rows;
  const auto above =
      std::lower_bound(curve_.begin(), curve_.end(), rows,
                       [](const Point& point, double value) { return point.rows < value; });
  if (above == curve_.begin()) return above->seconds;
  const Point& low = *(above - 1);
  if (above == curve_.end()) return beyond(low, rows);
  const double part = (rows - low.rows) / (above->rows - low.rows);
  return low.seconds + part * (above->seconds - low.seconds);
}

std::uint32_t StepCost::rows_within(double limit, std::uint32_t most) const {
  std::uint32_t fits = 0, too_many = most + 1;
  while (too_many - fits > 1) {
    const std::uint32_t middle = fits + (too_many - fits) / 2;
    (seconds(middle) <= limit ? fits : too_many) = middle;
  }
  return fits;
}

}  // namespace foretoken
