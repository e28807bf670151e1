// How many proposed tokens are worth verifying now, for a whole batch at once, and whether waiting
// for more pays. Uses measured step times and measured acceptance; may say 0 everywhere, and then a
// step is the plain step. While it says 0 acceptance is learnt all the same, from proposals that
// are not verified; what longer steps cost is not, so two sequences are tried now and then, if rows
// without a price would be worth it. Pure: times come as arguments. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/spec/calibration.h"
#include "common/spec/proposal.h"
#include "common/spec/sequence_odds.h"
#include "common/spec/step_cost.h"

namespace foretoken {

enum class LengthMode : std::uint8_t {
  kFixed,     // as many as there are, up to the request's limit
  kAdaptive,  // what the measurements say
};

struct DraftLengthConfig {
  LengthMode mode = LengthMode::kAdaptive;
  double min_gain = 1.03;  // tokens per second over plain, or it is not done
  // Steps between trials while off. The first few trials come sooner, after 4, 8, 16 ... steps:
  // with steps of a second 64 of them take too long. Once for all, as a text that keeps changing
  // sides would have them again and again.
  std::uint32_t probe_every = 64;
  std::uint32_t off_after = 10;  // steps in a row not worth it until trials are rationed
};

// One decoding sequence of the coming step; sequences without proposals have an empty path.
struct Candidate {
  std::span<const PathToken> path;
  std::uint32_t cap = 0;  // the request's num_draft_tokens, or less
  double value = 1;       // of a token of it, against one of another sequence
  double odds = 1;        // SequenceOdds::factor() of it
};

class DraftLength {
 public:
  explicit DraftLength(const DraftLengthConfig& config) : config_(config) {}

  // n_i per candidate, in order: those that yield most per second, tokens counted by their value.
  // Every candidate brings one row of its own; `other_rows` are those
  // of prefill chunks; Σ n_i <= max_drafted. Call once per step.
  std::vector<std::uint32_t> cut(std::span<const Candidate> candidates,
                                 std::uint32_t other_rows,
                                 std::uint32_t max_drafted);

  // Rows of a step of these candidates alone that is cut as cut() would: of two flows' sequences,
  // what each would bring without the other. Nothing is noted.
  std::uint32_t rows_alone(std::span<const Candidate> candidates) const;

  // After the step: for every sequence that committed tokens, what became of its proposals,
  // verified or not; then once what the step cost and brought (all rows, prefill included).
  void observe_round(std::span<const ScoredToken> scored, SequenceOdds& of_sequence);
  void observe_step(std::uint32_t n_rows, std::uint32_t n_committed, Duration took);
  // Time the coming step was held back for proposals. It counts in what a second yields, not in
  // what a step costs.
  void observe_wait(Duration waited) { waited_ += waited; }

  // How far ahead to ask a proposer of a sequence whose limit is `cap`.
  std::uint32_t budget(std::uint32_t cap) const;

  // Expected tokens of the path that would stand.
  double worth(std::span<const PathToken> path, double odds) const;
  // Whether a path of so many tokens is as good as sure: more of them would add little.
  bool is_plenty(std::span<const PathToken> path, std::uint32_t wanted, double odds) const;

  const Calibration& calibration() const { return calibration_; }
  const StepCost& step_cost() const { return cost_; }
  // Of all sequences, waits included; 0 before the first.
  double tokens_per_second() const { return tokens_per_second_; }
  bool is_off() const { return off_; }

 private:
  // One token that could be verified, and what it is worth: the probability that it will stand,
  // times the value of a token of its sequence.
  struct Item {
    double worth = 0;
    std::uint32_t sequence = 0;
  };
  std::vector<std::uint32_t> best_cut(std::span<const Candidate> candidates,
                                      std::uint32_t other_rows,
                                      std::uint32_t max_drafted) const;
  std::vector<std::uint32_t> probe(std::span<const Candidate> candidates,
                                   std::uint32_t max_drafted) const;
  std::vector<Item> items_of(std::span<const Candidate> candidates) const;

  static constexpr std::uint32_t kFirstPause = 4;

  DraftLengthConfig config_;
  Calibration calibration_;
  StepCost cost_;
  Duration waited_{};
  double tokens_per_second_ = 0;
  bool off_ = false;
  std::uint32_t n_declined_ = 0;       // steps in a row with proposals and none worth it
  std::uint32_t until_probe_ = 0;      // steps, while off
  bool is_trial_ = false;              // the step under way
  std::uint32_t pause_ = kFirstPause;  // steps between trials now
};

}  // namespace foretoken
