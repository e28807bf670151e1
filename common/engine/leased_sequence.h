// The state of one sequence in DraftEngine: the tokens its target committed, and its own chain of
// guesses after them. For the files of that class only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/engine/draft_branch.h"
#include "common/engine/draft_engine.h"
#include "common/spec/finish.h"

namespace foretoken {

// More than this many tokens behind is a prompt, and goes through in chunks.
inline constexpr std::uint32_t kFewBehind = 64;

std::uint8_t confidence_byte(float logprob);

struct DraftEngine::LeasedSequence {
  // Takes the tokens over.
  LeasedSequence(const DraftKey& whose,
                 wire::Attach& attach,
                 std::span<const TokenId> eos_ids,
                 std::optional<Constraint> constraint)
      : key(whose),
        lease(attach.lease),
        tenant_salt(attach.tenant_salt),
        endings(ending_tokens(attach.params, eos_ids)),
        rules(with_own_logprob(attach.params),
              eos_ids,
              std::span(attach.tokens).first(attach.n_prompt),
              std::move(constraint)),
        tokens(std::move(attach.tokens)),
        known(static_cast<std::uint32_t>(tokens.size())),
        prefix(attach.prefix) {
    for (std::uint32_t i = attach.n_prompt; i < known; ++i) rules.commit(tokens[i]);
  }

  static SamplingParams with_own_logprob(SamplingParams params) {
    params.n_logprobs = 0;  // the confidence is made of it
    return params;
  }

  std::uint32_t n_chain() const {
    return is_outgrown ? 0 : static_cast<std::uint32_t>(tokens.size()) - known;
  }
  std::span<const TokenId> chain() const {
    return is_outgrown ? std::span<const TokenId>{} : std::span(tokens).subspan(known);
  }

  DraftKey key;
  Lease lease{};
  Epoch epoch{};
  SeqId cache_name{};
  bool has_cache = false;
  bool is_outgrown = false;  // beyond the longest context: silent from here on
  bool is_fresh = true;      // never had blocks: its prompt is prefilled before anything is asked
  std::uint64_t tenant_salt = 0;
  std::vector<TokenId> endings;           // sorted
  RowRules rules;                         // of the committed tokens
  std::vector<TokenId> tokens;            // committed, then the own chain; none when outgrown
  std::uint32_t known = 0;                // how many are committed
  PrefixHash prefix = 0;                  // of those
  std::vector<std::uint8_t> confidences;  // [n_chain()]
  std::vector<RunnersUp> runners_up;      // [n_chain()]
  std::vector<DraftBranch> branches;      // of the chain
  std::uint32_t budget = 0;               // chain length wanted
  std::uint32_t run_ahead = 0;            // beyond it, once it has answered
  bool owes_answer = false;
  bool has_guessed = false;        // since it last answered
  TimePoint asked{};               // when the record came that it owes the answer to
  std::optional<Epoch> overtaken;  // a record whose answer was not complete when the next one came
  TimePoint overtaken_asked{};
  bool is_stuck = false;           // no token may follow: until the next record
  bool lacks_branch_room = false;  // likewise, for its branches
  std::uint64_t turn = 0;          // when it last had rows
  TimePoint renewed{};
  TimePoint busy_until{};
};

}  // namespace foretoken
