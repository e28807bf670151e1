// What bench schedule measured at one setting, beside what the schedules' model expects, and the
// documents and tables of it. Everything here says that the models are timed mocks. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/schedule/schedule_model.h"
#include "services/cli/bench_result.h"
#include "services/cli/schedule_system.h"

namespace foretoken::cli {

// One run of the same requests plain, and one with guesses. Each pair has requests of its own.
struct SchedulePair {
  BenchSamples plain, guessed;
  double draft_seconds = 0;  // that the draft took for its answers
  double n_drafted = 0;      // tokens of them
};

struct ScheduleFigures {
  ScheduleConditions asked;
  int n_sequences = 1;
  bool draft_killed = false;
  double plain_ms = 0;    // a token of a sequence: T, where there is one sequence
  double guessed_ms = 0;  // the same with guesses
  double speedup = 0;     // medians over the pairs
  double least = 0, most = 0;
  double tokens_per_round = 1, guesses_per_round = 0;  // of rounds that verified a guess
  // Of the guesses that were verified and before which all of their round stood, those that stood,
  // too; nothing: no guess was verified.
  std::optional<double> acceptance;
  // Of its time a guess, waiting for others of the batch included; nothing: it did not say, or made
  // guesses that were not asked for.
  std::optional<double> draft_ms;
  std::uint64_t n_differing = 0;  // requests that did not get the same tokens each time
  std::uint64_t n_failed = 0;
  std::string first_error;
  // What the schedules' model expects of what was asked, and with the acceptance that was measured.
  struct Model {
    bench::ScheduleValue synchronous;
    std::optional<bench::ScheduleValue> chain;     // of one sequence, where a draft runs ahead
    std::optional<bench::ScheduleValue> branches;  // likewise, with texts beside the chain
    // Of the schedule that was measured.
    const bench::ScheduleValue& value() const {
      return branches ? *branches : chain ? *chain : synchronous;
    }
  };
  Model asked_model, model;

  double cost() const { return draft_ms && plain_ms > 0 ? *draft_ms / plain_ms : 0; }
};

// `uncounted`: an earlier run of the first pair's requests, of which the texts alone count.
ScheduleFigures figures_of(const ScheduleConditions& asked,
                           const std::vector<SchedulePair>& pairs,
                           const BenchSamples& uncounted);
OrderedJson json_of(const ScheduleFigures& figures);
// One setting, line by line: asked, measured, expected.
std::string figures_table(const ScheduleFigures& figures);
// The cells of a sweep by sequences, acceptance and cores, and the worst one. Not empty.
std::string ratio_table(const std::vector<ScheduleFigures>& cells);
const ScheduleFigures& worst_of(const std::vector<ScheduleFigures>& cells);

}  // namespace foretoken::cli
