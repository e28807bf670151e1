// One token of what several ranks tell of their slices of the vocabulary: what a process with all
// logits would choose, without any process having them. Plain sampling needs the best id of each
// slice; top-k its k first candidates; top-p and min-p as many as it takes, which the merge finds
// out. Pure; the same on every rank, given the same bytes.
//
// Exact: tokens, scores and the set top-k leaves are those of the whole row, bit for bit. Only the
// totals behind top-p and log probabilities are added slice by slice, in rank order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/include/ops.h"

namespace foretoken {

// Of all ranks, rank after rank.
struct GatheredSlices {
  std::int32_t n_ranks = 0;
  std::int32_t n_rows = 0;
  std::int32_t n_candidates = 0;
  std::vector<SliceChoice> slices;         // [n_ranks, n_rows]
  std::vector<SliceCandidate> candidates;  // [n_ranks, n_rows, n_candidates]
  std::vector<SliceCandidate> likeliest;   // [n_ranks, n_rows, kMaxTopLogprobs] or empty
};

// Whether the rule needs candidates; n_valid: all ids that may be chosen.
bool needs_candidates(const RowRule& rule, std::int32_t n_valid);
// How many of each slice are asked for at first: enough for top-k up to 2048, usually enough for
// the others.
std::int32_t first_candidate_count(std::span<const RowRule> rules, std::int32_t n_valid);

// The choice of a row, and its likeliest ids into `top` if the rule wants them. False: the
// candidates do not decide it; ask again for more.
bool merge_row(const GatheredSlices& all,
               std::int32_t row,
               const RowRule& rule,
               std::int32_t n_valid,
               Choice& choice,
               TopLogprob* top);

}  // namespace foretoken
