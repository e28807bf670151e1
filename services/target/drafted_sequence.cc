#include "services/target/drafted_sequence.h"

#include <algorithm>

namespace foretoken {

DraftedSequence::DraftedSequence(const Opening& opening, std::uint32_t first_budget)
    : seq_(opening.seq),
      params_(opening.params),
      n_prompt_(opening.n_prompt),
      text_(&opening.text),
      tenant_salt_(opening.tenant_salt),
      budget_(first_budget) {}

wire::Attach DraftedSequence::attach(Lease lease) {
  known_ = text_->size();
  return {.seq = seq_,
          .lease = lease,
          .params = params_,
          .n_prompt = n_prompt_,
          .tokens = {text_->tokens().begin(), text_->tokens().end()},
          .prefix = text_->prefix(),
          .budget = budget_,
          .tenant_salt = tenant_salt_,
          .root = text_->prefix(0)};
}

wire::ProposeRecord DraftedSequence::propose(Lease lease, AskFor what) {
  const Position from = std::min(known_, text_->size());
  const auto tail = text_->from(from);
  ++epoch_.value;
  return {.seq = seq_,
          .lease = lease,
          .epoch = epoch_,
          .from = from,
          .tail = {tail.begin(), tail.end()},
          .prefix = text_->prefix(),
          .budget = what == AskFor::kGuesses ? budget_ : 0};
}

wire::CloseSequence DraftedSequence::close(Lease lease) const {
  const Position from = std::min(known_, text_->size());
  const auto tail = text_->from(from);
  return {.seq = seq_, .lease = lease, .from = from, .tail = {tail.begin(), tail.end()}};
}

bool DraftedSequence::begins_with(Position n_known, PrefixHash prefix) const {
  return n_known > 0 && n_known <= text_->size() && text_->prefix(n_known) == prefix;
}

void DraftedSequence::confirm(Position n_known) { known_ = std::max(known_, n_known); }

}  // namespace foretoken
