// How the token after each row is chosen, for one sequence: row k sees the committed tokens and the
// proposed tokens 1 .. k, exactly as if these were committed. Repetition penalty counts prompt and
// answer; presence and frequency penalties, bad words and min_tokens look at the answer only. Keeps
// counts and a sorted list of adjustments, changed by one entry per token: no row looks back over
// the history. Pure; one thread.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/base/ids.h"
#include "common/base/sampling_params.h"
#include "kernels/include/ops.h"

namespace foretoken {

class RowRules {
 public:
  RowRules(const SamplingParams& params,
           std::span<const TokenId> eos_ids,
           std::span<const TokenId> prompt);

  void commit(TokenId token);  // one more token of the answer

  // Appends the rules of rows 0 .. drafted.size() of this sequence, and the adjustments they point
  // at (by index into `adjustments`, sorted by id, one per id). Rows with equal adjustments share
  // them.
  void append_rows(std::span<const TokenId> drafted,
                   std::vector<RowRule>& rules,
                   std::vector<Adjustment>& adjustments) const;

  // Whether a row's rule depends on which tokens come before it, not only on how many.
  bool depends_on_history() const { return has_penalties_ || !bad_words_.empty(); }

  Position position() const { return n_prompt_ + n_output_; }  // of the token that row 0 chooses

 private:
  struct Counts {
    bool seen = false;           // in prompt or answer
    std::uint32_t n_output = 0;  // in the answer
  };
  Adjustment adjustment(TokenId id, const Counts& counts) const;
  Counts counts_of(TokenId id) const;
  void store(const Adjustment& adjustment);
  std::vector<Adjustment> changes(std::span<const TokenId> drafted) const;

  SamplingParams params_;
  bool has_penalties_ = false;
  std::vector<TokenId> endings_;                 // masked until min_tokens
  std::vector<std::vector<TokenId>> bad_words_;  // of two tokens and more
  std::unordered_map<TokenId, float> bias_;      // a bad word of one token is a bias of -infinity
  std::unordered_map<TokenId, Counts> counts_;
  std::vector<Adjustment> base_;  // of row 0 without masks that come and go; sorted by id
  std::vector<TokenId> recent_;   // the last answer tokens, as many as a bad word can need
  Position n_prompt_ = 0;
  std::uint32_t n_output_ = 0;
};

}  // namespace foretoken
