// The state of one sequence in DraftEngine: its text and branches, what its target asked for, and
// what was answered. For the files of that class only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "common/engine/draft_branches.h"
#include "common/engine/draft_engine.h"
#include "common/spec/finish.h"

namespace foretoken {

// More than this many tokens behind is a prompt, and goes through in chunks.
inline constexpr std::uint32_t kFewBehind = 64;

struct DraftEngine::LeasedSequence : BranchedSequence {
  // Takes the tokens over.
  LeasedSequence(const DraftKey& whose,
                 wire::Attach& attach,
                 std::span<const TokenId> eos_ids,
                 std::optional<Constraint> constraint)
      : BranchedSequence{.endings = ending_tokens(attach.params, eos_ids),
                         .rules = {with_own_logprob(attach.params), eos_ids,
                                   std::span(attach.tokens).first(attach.n_prompt),
                                   std::move(constraint)},
                         .chain = DraftChain(std::move(attach.tokens))},
        key(whose),
        lease(attach.lease),
        tenant_salt(attach.tenant_salt),
        prefix(attach.prefix) {
    for (const TokenId token : chain.text().subspan(attach.n_prompt)) rules.commit(token);
  }

  static SamplingParams with_own_logprob(SamplingParams params) {
    params.n_logprobs = 0;  // the confidence is made of it
    return params;
  }

  DraftKey key;
  Lease lease{};
  Epoch epoch{};
  bool is_fresh = true;  // never had blocks: its prompt is prefilled before anything is asked
  std::uint64_t tenant_salt = 0;
  PrefixHash prefix = 0;        // of the committed tokens
  std::uint32_t budget = 0;     // chain length wanted
  std::uint32_t run_ahead = 0;  // beyond it, once it has answered
  bool owes_answer = false;
  bool has_guessed = false;        // since it last answered
  TimePoint asked{};               // when the record came that it owes the answer to
  std::optional<Epoch> overtaken;  // a record whose answer was not complete when the next one came
  TimePoint overtaken_asked{};
  bool is_stuck = false;   // no token may follow: until the next record
  std::uint64_t turn = 0;  // when it last had rows
  TimePoint renewed{};
  TimePoint busy_until{};
};

}  // namespace foretoken
