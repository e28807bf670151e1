#include "common/engine/leased_sequence.h"

#include <algorithm>
#include <utility>

#include "common/spec/finish.h"

namespace foretoken {
namespace {

// A sequence of which no guesses are wanted is brought up to date only when that fills a pass of
// some size: the rows cost little together, and a draft that shares its cores with the target
// should be quiet when it is not wanted.
constexpr std::uint32_t kIdleCatchUp = 32;

SamplingParams with_own_logprob(SamplingParams params) {
  params.n_logprobs = 0;  // the confidence is made of it
  return params;
}

}  // namespace

LeasedSequence::LeasedSequence(const DraftKey& whose, wire::Attach& attach, LeaseTerms terms)
    : BranchedSequence{.endings = ending_tokens(attach.params, terms.end_tokens),
                       .rules = {with_own_logprob(attach.params), terms.end_tokens,
                                 std::span(attach.tokens).first(attach.n_prompt),
                                 std::move(terms.constraint)},
                       .chain = DraftChain(std::move(attach.tokens))},
      key(whose),
      lease(attach.lease),
      limits(terms.limits),
      tenant_salt(attach.tenant_salt),
      prefix(attach.prefix) {
  for (const TokenId token : chain.text().subspan(attach.n_prompt)) rules.commit(token);
}

std::uint32_t LeasedSequence::chain_limit() const {
  if (owes_answer || budget == 0) return budget;
  return std::max(budget, std::min(budget + run_ahead, limits.max_ahead));
}

bool LeasedSequence::can_grow() const {
  if (is_stuck || chain.is_outgrown() || chain.n_guesses() >= chain_limit() ||
      chain.length() >= limits.max_len)
    return false;
  const bool has_ended =
      chain.n_guesses() > 0 && std::ranges::binary_search(endings, chain.text().back());
  return !has_ended;
}

std::uint32_t LeasedSequence::n_wanted() const {
  if (!can_grow()) return 0;
  return std::min(chain_limit() - chain.n_guesses(), limits.max_len - chain.length());
}

std::uint32_t LeasedSequence::n_pending(const KvCache& kv) const {
  const Position n_cached = has_cache ? kv.length(cache_name) : 0;
  return chain.length() - n_cached;
}

bool LeasedSequence::wants_rows(const KvCache& kv) const {
  if (can_grow()) return true;
  if (budget > 0 || chain.is_outgrown()) return false;
  return (has_cache || is_fresh) && n_pending(kv) > kIdleCatchUp;
}

}  // namespace foretoken
