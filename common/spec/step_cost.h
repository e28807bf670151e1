// How long a step with so many rows takes: fading averages per bucket of rows, made to rise with
// rows, what lies between by interpolation. A step may take fifty times its time because another
// process had the cores: what enters an average is the median of the last three, and a kind of
// step seen less than that often cannot look much dearer than the shorter ones suggest, so that it
// is taken again. What makes a kind of step dearer makes those dearer that were not taken lately;
// those that take turns with it keep their own averages. Pure: durations are arguments, never
// measured here. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/base/clock.h"

namespace foretoken {

class StepCost {
 public:
  // A change of one kind of step by a factor changes another by its power `follow`, and by less if
  // that one was seen lately.
  explicit StepCost(double follow = 1) : follow_(follow) {}

  void observe(std::uint32_t n_rows, Duration took);

  // Seconds, never falling with n_rows. Beyond what was seen, a guess a little dearer per row than
  // flat, so that a longer step is tried once and then known. 0 while nothing was seen.
  double seconds(std::uint32_t n_rows) const;
  // The most rows, at most `most`, of which seconds() does not exceed `limit`; 0 if one row does.
  std::uint32_t rows_within(double limit, std::uint32_t most) const;
  bool knows_anything() const { return !curve_.empty(); }
  // Of the longest kind of step seen.
  double most_rows() const { return curve_.empty() ? 0 : curve_.back().rows; }

 private:
  static constexpr std::size_t kBuckets = 96;  // 1 .. 16 each alone, then eight per doubling
  static std::size_t bucket_of(std::uint32_t n_rows);
  void let_others_follow(double change);
  void rebuild();

  struct Bucket {
    double rows = 0;  // fading average of the rows seen
    double seconds = 0;
    std::uint32_t n_seen = 0;
    std::uint64_t last_seen = 0;     // number of an observation
    std::array<double, 2> recent{};  // the samples before, the latest first
  };
  struct Point {
    double rows = 0;
    double seconds = 0;
  };
  static double beyond(const Point& last, double n_rows);
  double follow_;
  std::uint64_t n_observed_ = 0;
  std::array<Bucket, kBuckets> buckets_{};
  std::vector<Point> curve_;  // rising in both
};

}  // namespace foretoken
