#include "services/target/drafted_sequence.h"

#include <algorithm>
#include <span>

#include "common/spec/prefix_hash.h"

namespace foretoken {

DraftedSequence::DraftedSequence(const Opening& opening,
                                 PrefixHash root,
                                 std::uint32_t first_budget)
    : seq_(opening.seq),
      params_(opening.params),
      n_prompt_(static_cast<std::uint32_t>(opening.prompt.size())),
      tokens_(opening.prompt.begin(), opening.prompt.end()),
      root_(root),
      prefix_(prefix_hash_extend(root, opening.prompt)),
      tenant_salt_(opening.tenant_salt),
      budget_(first_budget) {}

void DraftedSequence::extend(const Ask& ask) {
  const std::size_t known = tokens_.size() - std::min<std::size_t>(tokens_.size(), ask.from);
  if (known < ask.tail.size())
    tokens_.insert(tokens_.end(), ask.tail.begin() + static_cast<std::ptrdiff_t>(known),
                   ask.tail.end());
  prefix_ = ask.prefix;
  budget_ = ask.budget;
}

wire::Attach DraftedSequence::attach(Lease lease) {
  known_ = static_cast<Position>(tokens_.size());
  return {.seq = seq_,
          .lease = lease,
          .params = params_,
          .n_prompt = n_prompt_,
          .tokens = tokens_,
          .prefix = prefix_,
          .budget = budget_,
          .tenant_salt = tenant_salt_,
          .root = root_};
}

wire::ProposeRecord DraftedSequence::propose(Lease lease, Asking asking) {
  const Position from = std::min(known_, static_cast<Position>(tokens_.size()));
  ++epoch_.value;
  return {.seq = seq_,
          .lease = lease,
          .epoch = epoch_,
          .from = from,
          .tail = {tokens_.begin() + from, tokens_.end()},
          .prefix = prefix_,
          .budget = asking == Asking::kBudget ? budget_ : 0};
}

bool DraftedSequence::begins_with(Position n_known, PrefixHash prefix) const {
  return n_known > 0 && n_known <= tokens_.size() &&
         prefix_hash_extend(root_, std::span(tokens_).first(n_known)) == prefix;
}

void DraftedSequence::confirm(Position n_known) { known_ = std::max(known_, n_known); }

}  // namespace foretoken
