// How the token after each row is chosen, for one sequence: row k sees the committed tokens and the
// proposed tokens 1 .. k, exactly as if these were committed. Repetition penalty counts prompt and
// answer; presence and frequency penalties, bad words, min_tokens and a constraint look at the
// answer only. Keeps counts, a sorted list of adjustments, changed by one entry per token, and the
// place in the constraint's grammar: no row looks back over the history. Pure; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/base/ids.h"
#include "common/base/sampling_params.h"
#include "common/grammar/constraint.h"
#include "common/spec/proposal.h"
#include "kernels/include/ops.h"

namespace foretoken {

// Where the rules of rows go, and what they point at.
struct RowRuleLists {
  std::vector<RowRule>& rules;
  std::vector<Adjustment>& adjustments;  // sorted by id within a row, one per id
  std::vector<std::uint32_t>& masks;     // as ChooseArgs::masks
};

// Whether a row's mask lets this id of the vocabulary be chosen: bit id % 32 of word id / 32.
bool is_allowed(std::span<const std::uint32_t> mask, TokenId id);

class RowRules {
 public:
  // `constraint`: at its beginning; none: the parameters have no grammar.
  RowRules(const SamplingParams& params,
           std::span<const TokenId> eos_ids,
           std::span<const TokenId> prompt,
           std::optional<Constraint> constraint = std::nullopt);

  void commit(TokenId token);  // one more token of the answer

  // Appends the rules of rows first_row .. drafted.size() of this sequence. Rows with equal
  // adjustments share them.
  void append_rows(std::span<const TokenId> drafted,
                   std::size_t first_row,
                   const RowRuleLists& out) const;

  // Whether a row's rule depends on which tokens come before it, not only on how many.
  bool depends_on_history() const {
    return has_penalties_ || !bad_words_.empty() || constraint_.has_value();
  }
  // The constraint allows the committed answer, and no longer one that begins with it.
  bool is_complete() const { return constraint_.has_value() && constraint_->is_complete(); }
  // How many tokens of a path, from the first on, the constraint allows. What comes after them
  // cannot be accepted.
  std::size_t n_allowed(std::span<const PathToken> path) const;

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
  void append_mask(const Constraint& place, std::vector<std::uint32_t>& masks) const;
  bool is_ending(TokenId token) const;

  SamplingParams params_;
  bool has_penalties_ = false;
  std::optional<Constraint> constraint_;         // its place after the committed tokens
  std::vector<TokenId> endings_;                 // sorted; masked until min_tokens
  std::vector<std::vector<TokenId>> bad_words_;  // of two tokens and more
  std::unordered_map<TokenId, float> bias_;      // a bad word of one token is a bias of -infinity
  std::unordered_map<TokenId, Counts> counts_;
  std::vector<Adjustment> base_;  // of row 0 without masks that come and go; sorted by id
  std::vector<TokenId> recent_;   // the last answer tokens, as many as a bad word can need
  Position n_prompt_ = 0;
  std::uint32_t n_output_ = 0;
};

}  // namespace foretoken
