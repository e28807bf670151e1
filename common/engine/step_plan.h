// One pass as plain, ragged data: what rank 0 sends to its ranks so that all of them run the same
// forward and choose. Holds no pointer and uses no policy. step.h builds it, follower code may
// replay it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/kv/kv_cache.h"
#include "kernels/include/ops.h"

namespace foretoken {

// One sequence's rows: tokens from position `start` on, n_known of them known, then n_proposed
// guessed. Where choices are wanted, the last known row and every proposed row choose the token
// after themselves. Rows before these may have a forced choice: the token that follows in the
// prompt, for its log-probability.
struct PlanSlice {
  SeqId seq{};
  Position start = 0;
  std::uint32_t first_row = 0;
  std::uint32_t n_known = 0;
  std::uint32_t n_proposed = 0;
  std::uint32_t n_forced = 0;  // forced choices, right before first_choice
  std::uint32_t first_choice = 0;
  std::uint32_t n_choices = 0;  // n_proposed + 1, or 0 inside a prompt
  std::uint32_t first_block = 0;
  std::uint32_t n_blocks = 0;
};

struct StepPlan {
  std::vector<TokenId> tokens;  // [n_rows]
  std::vector<PlanSlice> slices;
  std::vector<std::int32_t> block_tables;  // one after another
  std::vector<BlockCopy> copies;           // before the forward
  std::vector<std::int32_t> logit_rows;    // [forced and other choices], ascending
  std::vector<RowRule> rules;              // beside logit_rows
  std::vector<Adjustment> adjustments;
  std::vector<std::uint32_t> masks;  // of rules that have one, one after another

  // A chain, without ranks only: each slice, which chooses one token, is fed its choice, and the
  // choice after that, n_ahead times or until one of its end tokens.
  std::uint32_t n_ahead = 0;
  std::vector<RowRule> rules_ahead;      // [slices, n_ahead], without masks
  std::vector<std::uint32_t> n_endings;  // [slices]
  std::vector<TokenId> endings;          // one after another

  void clear() {
    tokens.clear();
    slices.clear();
    block_tables.clear();
    copies.clear();
    logit_rows.clear();
    rules.clear();
    adjustments.clear();
    masks.clear();
    n_ahead = 0;
    rules_ahead.clear();
    n_endings.clear();
    endings.clear();
  }
};

}  // namespace foretoken
