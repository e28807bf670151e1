// What three schedules of drafting should bring over plain decoding, computed from what a pass
// costs, how often guesses stand and how far away the draft is. The unit of time is one pass of the
// target over one row. A model of one target and one draft with constant times: no scheduling, no
// serialisation, no learning. Pure.
//
// Synchronous: the draft makes K guesses while the target waits, a round trip is paid, and then the
// target verifies them. Chain: the draft goes on guessing as if everything stood, the target
// verifies what has arrived, and a draft that hears of a rejection begins again. Branches: while
// the target verifies, the draft makes guesses for the likeliest of the texts that may come of it,
// all in the same steps, so that after a rejection there often are some; none for what comes after
// that.
#pragma once

namespace foretoken::bench {

struct ScheduleSetting {
  double acceptance = 0.8;  // probability that a guess stands after those before it stood
  double cost = 0.05;       // c: a draft step over one row
  double round_trip = 0;    // rho: there and back
  int n_sequences = 1;      // that share each pass of both
};

struct ScheduleValue {
  double speedup = 1;  // tokens of a sequence, of those that plain decoding makes in the same time
  int length = 0;      // guesses that a pass verifies at most; 0: plain decoding is best
  double tokens_per_round = 1;
};

inline constexpr int kMostGuesses = 16;

// Tokens that one verification of n guesses brings, the target's own included.
double expected_tokens(double acceptance, int n_guesses);

// At the best K of 0 .. kMostGuesses.
ScheduleValue synchronous_value(const ScheduleSetting& setting);

// At the best of a grid of most guesses a pass and guesses waited for, by a seeded simulation of
// n_rounds passes for each: about 2 % of noise. Of one sequence.
ScheduleValue chain_value(const ScheduleSetting& setting, int n_rounds = 4000);

// Likewise, with so many texts that the draft goes on with at a time; the target holds what it
// needs when a pass ends. A step of the draft costs the same whatever its rows.
ScheduleValue branches_value(const ScheduleSetting& setting, int n_texts, int n_rounds = 4000);

}  // namespace foretoken::bench
