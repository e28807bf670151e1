// Branches: texts beside the chains of a draft. Where a guess is wrong the target writes something
// else in its place, often the runner-up of the same row, and a draft would begin anew from there
// half a round trip later. A branch is the text with that token; its guesses are made beside the
// chain's, in passes that read the weights anyway, and are sent with them. When the target goes on
// so they are there already, and the branch is the chain. Chooses which texts are worth a row, by
// the probability that its guess comes to be used, and gives them rows while they cost little.
//
// Holds of each branch: a guess of the chain is at its place; its first token is that guess's
// runner-up, of its rank; no two of a chain are the same text; its cache holds the text before its
// place and as many of its own tokens as were fed. So a chain that is cut loses its branches, and
// one that is committed those of the places passed. Must not know leases, targets or messages. Owns
// the branches' places in a cache that it borrows. One thread.
//
// A pass: plan(), then rows of the chains, add_rows(), Step::run(), extend().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "common/engine/draft_chain.h"
#include "common/engine/step.h"
#include "common/kv/kv_cache.h"
#include "common/spec/guess_outcomes.h"
#include "common/spec/row_rules.h"
#include "common/spec/step_cost.h"

namespace foretoken {

// Only what differs from the chain is kept.
struct DraftBranch {
  SeqId cache_name{};
  Position position = 0;        // of the guess that is wrong
  std::size_t rank = 0;         // of the runner-up
  std::vector<TokenId> tokens;  // from `position` on
  std::vector<Guess> guesses;   // [tokens.size()]
  bool is_over = false;         // no token may follow
  bool has_grown = false;       // since it was last sent

  std::uint32_t n_own() const { return static_cast<std::uint32_t>(tokens.size()); }
  Position length() const { return position + n_own(); }  // of the text
};

// A sequence as far as branches go: its chain, where that is cached, and how tokens are chosen.
struct BranchedSequence {
  SeqId cache_name{};
  bool has_cache = false;
  std::vector<TokenId> endings;  // sorted
  RowRules rules;                // of the committed tokens
  DraftChain chain;
  std::vector<DraftBranch> branches;  // of the chain; made and dropped by DraftBranches only
  bool lacks_branch_room = false;     // blocks are short: no rows for them until this is cleared
};

struct BranchLimits {
  std::uint32_t n_rows = 0;  // of a pass; 0: there are no branches
  Position max_len = 0;      // of a text
};

struct BranchStats {
  std::uint64_t n_begun = 0;
  std::uint64_t n_taken = 0;   // of these, those that the target's text went on with
  std::uint64_t n_tokens = 0;  // guessed for them
};

class DraftBranches {
 public:
  // Borrows all three. `cost`: of passes by their rows.
  DraftBranches(KvCache& kv, Step& step, const StepCost& cost, BranchLimits limits);

  bool are_on() const { return limits_.n_rows > 0; }
  // Whether they are worth a pass without a chain, where one of some sequence wants rows.
  bool may_have_passes_alone() const { return n_rows_beside(0) > 0; }
  bool wants_rows(const BranchedSequence& sequence) const;

  // Chooses the rows of a pass that has n_others rows, and begins branches for them. Before the
  // pass has others: a sequence with rows under way cannot be forked. No sequences: none in a pass
  // whose cost says nothing of others.
  void plan(std::span<BranchedSequence* const> sequences, std::uint32_t n_others);
  // SliceRequest::n_top of the row that makes the next guess of its chain: 0 where no runner-up of
  // it can be used, as rows for branches are too dear or the text is as long as it may be.
  std::int32_t n_likeliest(const BranchedSequence& sequence) const;
  // After all others; what finds no room or no block waits.
  void add_rows(std::uint32_t rows_left);
  // After the pass: each row's choice is one more guess.
  void extend();

  // The target's text goes on with `token` after n_agreed guesses: if a branch does, it is the
  // chain from here on, all others are dropped, and its number of tokens is returned; else 0.
  std::uint32_t take(BranchedSequence& sequence, std::uint32_t n_agreed, TokenId token);
  // What the target chose where the chain has its guesses says what their confidences are worth.
  void observe(const BranchedSequence& sequence, std::span<const TokenId> committed);
  // Those whose place comes before `position`; all before the chain is cut or its cache closed.
  void drop(BranchedSequence& sequence, Position position = kEverywhere);
  // Closes the cache of the sequence, its branches first. Its tokens stay.
  void drop_cache(BranchedSequence& sequence);
  // Its blocks are wanted: all, and no new ones until lacks_branch_room is cleared. False: it had
  // none.
  bool give_way(BranchedSequence& sequence);

  const BranchStats& stats() const { return stats_; }

 private:
  static constexpr Position kEverywhere = 0xffffffff;
  // A row that would bring a text forward.
  struct Row {
    double worth = 0;  // probability that its guess comes to be used
    BranchedSequence* of = nullptr;
    Position position = 0;  // of the guess that is wrong
    std::size_t rank = 0;   // of the runner-up that comes instead
  };
  struct InStep {
    const BranchedSequence* of = nullptr;
    DraftBranch* branch = nullptr;
  };
  std::uint32_t n_rows_beside(std::uint32_t n_others) const;
  template <class Visitor>
  void each_row(const BranchedSequence& sequence, Visitor&& visit) const;
  double outlook(const BranchedSequence& sequence, Position position, std::size_t rank) const;
  bool may_begin(const BranchedSequence& sequence, Position position, std::size_t rank) const;
  std::int32_t pool_at(Position position) const;
  void begin(const Row& row);
  bool add_row(BranchedSequence& sequence, DraftBranch& branch, std::span<const TokenId> pending);
  void extend(const BranchedSequence& sequence, DraftBranch& branch, std::size_t slice);
  std::span<const TokenId> pending(const DraftBranch& branch) const;

  KvCache& kv_;
  Step& step_;
  const StepCost& cost_;
  BranchLimits limits_;
  GuessOutcomes outcomes_;
  std::uint64_t n_named_ = 0;       // of names in kv_
  bool may_be_used_ = true;         // runners-up of guesses made now
  std::uint32_t n_since_room_ = 0;  // passes since one had room for them
  std::uint32_t n_too_dear_ = 0;    // passes in which rows for them were
  std::vector<Row> rows_;           // of the pass that is planned
  std::vector<InStep> in_step_;     // beside the step's last slices
  std::vector<TokenId> guessed_;    // of one row; kept for its memory
  BranchStats stats_;
};

}  // namespace foretoken
