// Whether drafts are asked at all. A draft that shares its cores with the target slows it down, and
// one that is far away may answer too late each time; neither shows in what steps of so many rows
// cost. So the two ways are compared by their yield: a window of passes with asks against one of
// silent passes right beside it. The better one is kept, and the other is tried again after a
// pause. The pause is so long that trials cost about 1 % of the time, but bounded. No clock: the
// caller passes durations. For one thread.
#pragma once

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
  static constexpr std::size_t kWindow = 24;

  // The last passes of one way.
  class Window {
   public:
    void clear() { n_ = 0; }
    void add(const PassYield& pass) { passes_[n_++ % kWindow] = pass; }
    std::size_t size() const { return n_ < kWindow ? n_ : kWindow; }
    // Tokens of a sequence in the time that `cost` gives for a plain pass. A pass counts with at
    // most three times the median: other processes may have used the cores.
    double yield(const StepCost& cost) const;

   private:
    std::array<PassYield, kWindow> passes_{};
    std::size_t n_ = 0;
  };

  void begin_trial();
  void end_trial(bool is_answered, const StepCost& cost);
  bool is_lost(const StepCost& cost) const;
  bool is_pause_over() const;
  bool has_fallen(const StepCost& cost) const;

  bool steady_asks_ = true;
  Phase phase_ = Phase::kSteady;
  Window steady_;
  Window trial_;
  double gain_ = 0;
  double kept_yield_ = 0;        // of the steady way, when last compared
  std::uint32_t n_passes_ = 0;   // of this phase
  std::uint32_t n_to_fill_ = 0;  // passes of the trial that do not count yet
  std::uint32_t n_kept_ = 0;     // trials in a row that changed nothing
  Duration in_phase_{};          // time of the steady phase, or of the trial with its settling
  Duration least_pause_{};       // of time, so that the last trial's loss is a small part of it
  Duration pause_{};             // of time, until the next trial, unless that is very many passes
};

}  // namespace foretoken
