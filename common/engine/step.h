// Step: one pass of a model over a ragged batch, as a transaction. add() reserves cache for a
// sequence's rows, run() copies shared blocks, runs the forward and chooses a token for every row
// that wants one, commit() keeps a sequence's first positions; whatever is not committed goes home
// when the next step begins. A step may be a chain: every sequence is then fed what it chose, time
// and again, before the host hears of it. The target and the draft engine both use it; it knows
// neither proposals nor who accepts them. Owns the cache's memory and the buffers of a pass. One
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/engine/follower.h"
#include "common/engine/plan_runner.h"
#include "common/engine/step_plan.h"
#include "common/kv/kv_cache.h"
#include "common/model/model.h"
#include "common/spec/row_rules.h"
#include "kernels/include/backend.h"

namespace foretoken {

// What one sequence brings. Spans are borrowed for the call.
struct SliceRequest {
  SeqId seq{};
  std::span<const TokenId> known;     // [>= 1] tokens from the end of its cache on
  std::span<const TokenId> proposed;  // guesses after them
  const RowRules* rules = nullptr;    // of the known tokens; null: no choices are wanted
  // Tokens up to the end of `known` that `rules` has not seen; excludes `proposed`.
  std::span<const TokenId> guessed;
  std::span<const TokenId> endings;  // after which a chain feeds it no more
  std::int32_t n_top = 0;            // of the likeliest ids of each choice, if `rules` wants fewer
  // Row first_forced + i of `known` chooses forced[i], whatever its logits: for the log-probability
  // of that token, and the n_forced_top likeliest.
  std::span<const TokenId> forced;
  std::uint32_t first_forced = 0;
  std::int32_t n_forced_top = 0;
};

class Step {
 public:
  // n_valid_ids: ids from here on are never chosen; 0 = all of the model's.
  Step(Model& model, Backend& backend, KvCache& kv, std::int32_t n_valid_ids);

  // Rolls back what was not committed. With n_ahead, a chain: every slice must want one choice, of
  // rules that do not look at tokens, and is fed n_ahead more times; not with ranks.
  void begin(std::uint32_t n_ahead = 0);
  // The index of the slice, or kOutOfMemory when blocks lack (nothing has changed then).
  Result<std::size_t> add(const SliceRequest& request);
  void run();

  const StepPlan& plan() const { return plan_; }
  std::size_t n_slices() const { return plan_.slices.size(); }
  std::span<const Choice> choices(std::size_t slice) const;  // [n_choices]
  std::span<const TokenId> chosen(
      std::size_t slice) const;  // their tokens; -1 where every token was masked
  std::span<const TopLogprob> top(std::size_t slice,
                                  std::size_t choice) const;  // as many as its rule wants
  std::span<const Choice> forced(std::size_t slice) const;    // [n_forced]
  std::span<const TopLogprob> forced_top(std::size_t slice, std::size_t choice) const;
  // How many of its proposed tokens were what the rows before them chose.
  std::uint32_t n_accepted(std::size_t slice) const { return runner_.accepted()[slice]; }
  // Of a chain: the choice of the slice's own rows (k = 0) and of the k-th step after; meaningless
  // after an end token.
  const Choice& chained(std::size_t slice, std::uint32_t k) const;

  // Keeps the first n positions of the slice. `text`: the tokens of its sequence from the first one
  // on, those positions included; empty for a fork that publishes nothing.
  void commit(std::size_t slice, std::uint32_t n, std::span<const TokenId> text);

  const RecordingStats& recordings() const { return runner_.recordings(); }

  Leader& leader() { return leader_; }

 private:
  void append_rules(const SliceRequest& request);
  void append_forced(const SliceRequest& request, std::uint32_t first_row);
  std::span<const TopLogprob> top_of_row(std::size_t row) const;

  KvCache& kv_;
  Leader leader_;  // first: followers make their caches while this one does
  PlanRunner runner_;
  StepPlan plan_;
  std::vector<Reservation> reservations_;  // beside plan_.slices
};

}  // namespace foretoken
