// What a draft may gain, by arithmetic: bytes of its step and of the target's, and the share of its
// guesses that are right. A pass of a few rows counts as long as one of one row. Reads no weights.
#pragma once

#include <string>

#include "common/model/pair.h"

namespace foretoken::cli {

inline constexpr int kMostPredictedGuesses = 8;

// The number of guesses a round that gains most, and the speed then, of plain decoding: each guess
// is right with the same chance, whatever the ones before were.
struct PredictedRound {
  int n_guesses = 0;
  double gain = 0;
};
// acceptance: share of guesses that are right, 0 to 1. cost: bytes that a draft step reads, of
// those of a target step. most_guesses: 1 or more.
PredictedRound best_round(double acceptance, double cost, int most_guesses);

// Bytes that the target's weights in four bits have, of those with `dtype`.
double self_draft_cost(const ModelInfo& target, WeightDType dtype);

// A line without its end: what such a draft reads, and what it may gain. How many guesses are right
// is not known before both have been loaded, so it has the gain for several shares, and below
// which there is none.
std::string self_draft_prediction(double cost, int most_guesses);

}  // namespace foretoken::cli
