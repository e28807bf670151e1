// Whether drafts are asked at all. A draft that shares its cores with the target slows it down, and
// one that is far away may answer too late each time; neither shows in what steps of so many rows
// cost. So passes with asks are compared with silent ones. What drafts bring is counted in passes
// with asks alone: their tokens, beside those that the other sources would have brought in the same
// pass, as the tokens of few passes scatter more than what drafts gain. What they cost is the time
// of these passes beside that of silent ones next to them. A difference counts as far as it exceeds
// its standard error. The better way is kept, and the other is tried again after a pause, so long
// that trials cost about 1 % of the time, but bounded. No clock: the caller passes durations. For
// one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "common/base/clock.h"
#include "common/spec/step_cost.h"

namespace foretoken {

// A pass without prompts in which sequences decoded that a draft serves.
struct PassYield {
  std::uint32_t n_decoding = 0;      // sequences
  double n_committed = 0;            // tokens, each counted by its value: 1 on average
  double n_without = 0;              // likewise, those that would have come without drafts
  Duration interval{};               // from the end of the pass before to its own: waits count
  std::uint32_t most_proposals = 0;  // that one of them may have
  bool is_owed = false;              // an answer of a draft is under way after it
  bool is_opening = false;  // drafts still read most of those that are asked for: it says nothing
};

class DraftingGate {
 public:
  enum class Asking : std::uint8_t { kNone, kOne, kAll };
  // For which sequences drafts are asked in the coming pass.
  Asking asking() const;
  void observe(const PassYield& pass, const StepCost& cost);
  // Whether a single question is under way to see if its answer comes in time. Passes do not wait
  // for it: with a distant draft each of them would wait for nothing.
  bool is_probing() const { return phase_ == Phase::kSettling && !steady_asks_; }

  // Tokens per second with asks, divided by those without, when last compared; 0 before that.
  double gain() const { return gain_; }

 private:
  enum class Phase : std::uint8_t {
    kSteady,    // the way that was better
    kSettling,  // a trial of the other begins: of silence when the last answers have come, of asks
                // with a single one, when that is answered
    kTrying,    // of asks: once as many passes again have gone by, its passes count
  };

  // The last passes of one way.
  class Passes {
   public:
    void clear() { size_ = 0; }
    void add(const PassYield& pass) {
      passes_[n_++ % kMost] = pass;
      size_ = std::min(size_ + 1, kMost);
    }
    void keep_newest(std::size_t most) { size_ = std::min(size_, most); }
    std::size_t size() const { return size_; }
    // `back` passes before the newest, which is 0.
    const PassYield& newest(std::size_t back) const { return passes_[(n_ - 1 - back) % kMost]; }

   private:
    static constexpr std::size_t kMost = 64;
    std::array<PassYield, kMost> passes_{};
    std::size_t n_ = 0;  // that were ever added
    std::size_t size_ = 0;
  };

  // A mean of passes, or a quotient of means, with its relative standard error.
  struct Estimate {
    double value = 0;
    double error = 0;
  };
  struct Tokens {  // of a sequence in a pass, with their relative standard errors
    double with = 0;
    double without = 0;
    double error_of_with = 0;
    double error_of_without = 0;
    double error_of_both = 0;  // of with / without
  };
  static Tokens tokens_of(const Passes& passes);
  static Estimate time_of(const Passes& passes, const StepCost& cost);
  // Of asking, beside the silent passes that were last.
  Estimate log_gain(const Passes& asks, const StepCost& cost) const;

  void begin_trial();
  void begin_trying();
  bool is_probe_over(const PassYield& pass);
  void end_probe(const StepCost& cost);
  void end_trial(const StepCost& cost);
  void begin_pause(Duration pause, double lost_share, const StepCost& cost);
  bool is_decided(const StepCost& cost) const;
  bool is_pause_over() const;
  bool begins_to_doubt(const StepCost& cost);
  Passes& steady() { return steady_asks_ ? asked_ : silent_; }
  Passes& tried() { return steady_asks_ ? silent_ : asked_; }

  bool steady_asks_ = true;
  Phase phase_ = Phase::kSteady;
  Passes asked_;
  Passes silent_;
  double gain_ = 0;
  std::uint32_t n_passes_ = 0;   // of this phase
  bool is_answered_ = false;     // the single question of a trial
  std::uint32_t n_to_fill_ = 0;  // passes of the trial that do not count yet
  std::uint32_t n_kept_ = 0;     // trials in a row that changed nothing
  Duration in_phase_{};          // time of the steady phase, or of the trial with its settling
  Duration least_pause_{};       // of time, so that the last trial's loss is a small part of it
  Duration pause_{};             // of time, until the next trial, unless that is very many passes
};

}  // namespace foretoken
