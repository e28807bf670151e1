// What prompt rows cost a pass, learnt from the passes that had some, and how many of them a pass
// of a given length can take. A row with nothing before it is one unit of work; what it costs is
// its share of the whole pass, fixed part included, so that a guess for a longer chunk errs towards
// too dear. A pass that was slower than expected is believed at once, a quicker one by half. Pure:
// durations are arguments. One thread.
#pragma once

#include <cstdint>

#include "common/base/clock.h"

namespace foretoken {

// A snapshot for the code that divides rows.
struct PrefillRates {
  double row_s = 0;  // of a row with nothing before it; 0: no prompt row was measured yet
  // Tokens before a row that cost as much as the row itself; 0: they cost nothing.
  double context = 0;

  // The work of n rows after n_cached tokens.
  double work(std::uint32_t n_cached, std::uint32_t n_rows) const {
    const double n = n_rows;
    return context <= 0 ? n : n * (1 + (n_cached + (n - 1) / 2) / context);
  }
  double row_work(std::uint32_t n_cached) const { return work(n_cached, 1); }
  // Rows after n_cached tokens that so much work allows.
  std::uint32_t rows_within(double work, std::uint32_t n_cached) const;
  // What a pass of that length can take, never less than `kLeastPrefillRows`; of which nothing is
  // known, `kUnmeasuredRows`.
  double work_within(Duration pass) const;
};

// However slow a model is, a prompt moves by so many rows a pass (they share what the pass reads of
// the weights), unless its flow may have fewer; and the first chunk of a process is this long.
inline constexpr double kLeastPrefillRows = 8;
inline constexpr double kUnmeasuredRows = 16;

class PrefillCost {
 public:
  explicit PrefillCost(double context = 0) : rates_{.context = context} {}

  const PrefillRates& rates() const { return rates_; }

  // A pass had so much prompt work, could have had `most`, and was to take no longer than
  // `planned`.
  void observe(double work, double most, Duration planned, Duration took);

 private:
  PrefillRates rates_;
};

}  // namespace foretoken
