// One sequence of a target, from open to its end: its tokens, what its rules remember, where it
// stands. Plain state of the engine that owns it; it knows neither cache nor model.
//
//   waiting --admitted--> running: prefilling --its last token fed--> decoding --> gone
//      ^------------- preempted -----------'---------------------------'
// Its text is the committed truth and never shrinks. A decoding sequence has K and V of all tokens
// but the last.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/engine/target_events.h"
#include "common/kv/kv_cache.h"
#include "common/spec/committed_tokens.h"
#include "common/spec/finish.h"
#include "common/spec/lookup_gate.h"
#include "common/spec/path_cache.h"
#include "common/spec/proposal.h"
#include "common/spec/row_rules.h"
#include "common/spec/sequence_odds.h"

namespace foretoken {

// What a sequence has of its target and its request's grammar.
struct SequenceSetup {
  PrefixHash root = 0;
  std::span<const TokenId> eos_ids;
  Position max_model_len = 0;
  std::optional<Constraint> constraint;  // at its beginning
};

struct Sequence {
  // Takes the request over; its resumed tokens are replayed through rules and finish.
  Sequence(OpenRequest request, SequenceSetup setup, TimePoint now);

  const CommittedTokens& text() const { return *committed; }
  std::uint32_t n_tokens() const { return committed->size(); }
  // Most proposed tokens that could be of use in the next round: the round always yields one more.
  std::uint32_t proposal_cap() const;
  // Ends a path where its draft alone would exceed its own length.
  void limit(std::vector<PathToken>& proposals) const;
  // One more token of the answer. Returns the verdict of the finish rules.
  std::optional<FinishReason> commit(TokenId token);
  // Log-probabilities of the prompt are owed still.
  bool owes_prompt() const { return next_forced < n_prompt; }
  // Nothing is to come of it any more.
  std::optional<FinishReason> end() const { return owes_prompt() ? std::nullopt : finish.reason(); }

  SeqId id{};
  SamplingParams params;
  ProposerSet proposers;            // none where draft_len is 0
  std::uint32_t draft_len = 0;      // most tokens of a round that a draft alone proposes
  std::uint32_t max_proposals = 0;  // of all sources: at least as many
  LengthMode length = LengthMode::kAdaptive;
  TimePoint deadline{};
  TimePoint turn{};           // order of service, then
  std::uint64_t arrival = 0;  // number of arrival
  std::uint64_t tenant_salt = 0;
  std::uint64_t flow = 0;
  double flow_weight = 1;
  std::uint32_t flow_index = UINT32_MAX;  // of the pass; before the first one none

  const std::shared_ptr<CommittedTokens> committed;  // prompt, then answer
  std::uint32_t n_prompt = 0;
  // The first token of the prompt whose log-probability is owed: the row before it has a forced
  // choice. n_prompt: none.
  Position next_forced = 0;
  RowRules rules;
  FinishRules finish;
  std::vector<TokenId> prediction;  // until its proposers are opened

  std::optional<PrefixHit> prefix;  // while it waits: what is cached of it, if it may be admitted
  bool waits_for_prefix = false;    // likewise: another sequence is computing more of it
  Position n_prefilled = 0;         // of the prompt: computed or found at least once
  std::uint64_t last_pass = 0;      // number of the last pass that it had rows in; 0: none
  bool was_admitted = false;        // ever: its proposers are open
  bool is_running = false;
  bool is_decoding = false;     // running, and all tokens but the last are in the cache
  std::vector<PathToken> path;  // proposals for the coming step, at most as many as are verified
  // What the other sources propose for that step; unset where no token of `path` is the draft's
  // alone.
  std::optional<std::vector<PathToken>> undrafted_path;
  bool had_path = false;         // there were some before rows, blocks and the controller cut them
  bool lacked_room = false;      // rows or blocks cut them to nothing
  std::uint32_t n_verified = 0;  // of the last round
  std::uint32_t n_accepted = 0;
  std::uint32_t n_asked = 0;    // of its draft, after the last round
  std::uint32_t n_awaited = 0;  // tokens of its draft's chain that the coming step is held back for
  SequenceOdds odds;
  mutable PathCache paths;  // the engine's best_path() of it
  LookupGate lookups;
  SequenceStats stats;
};

// Into a list that is in order of service.
void insert_in_turn(std::vector<Sequence*>& list, Sequence* sequence);

}  // namespace foretoken
