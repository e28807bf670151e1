// Guessing before the verdict is known: steps that wait for it on their target's board.
#include <algorithm>
#include <utility>

#include "common/engine/draft_attachment.h"
#include "common/spec/prefix_hash.h"

namespace foretoken {

bool DraftEngine::expect(const ExpectRequest& request) {
  const auto at = attachments_.find(request.key);
  if (at == attachments_.end() || !may_expect_) return false;
  Attachment& a = *at->second;
  // All of the chain: of a longer one the rest may stand as well, and would be guessed again.
  const bool is_ours = a.lease == request.lease && a.known == request.base &&
                       a.prefix == request.prefix && request.n_drafted == a.n_chain() &&
                       prefix_hash_extend(a.prefix, a.chain()) == request.drafted;
  const auto board = request.board.lock();
  const bool is_possible = board != nullptr && request.entry >= 0 &&
                           request.entry < board->n_entries() && request.budget > 0 &&
                           a.has_cache && a.rules.is_steady() &&
                           a.known + request.n_drafted + 1 < max_len_;
  if (!is_ours || !is_possible) return false;
  a.expected = request;
  a.expected->budget = std::min(request.budget, options_.max_ahead);
  return true;
}

// A step that waits for the board of a target, if nobody else could come to want one meanwhile: all
// attachments are that target's. The board, or null: nothing is expected, or it cannot be done.
std::shared_ptr<BoardView> DraftEngine::fill_early_step() {
  order_.clear();
  std::shared_ptr<BoardView> board;
  const DraftKey* target = nullptr;
  bool is_one_target = true;
  std::uint32_t n_steps = options_.max_chained;
  std::int64_t n_rows = 0;
  for (const auto& [key, attachment] : attachments_) {
    if (target == nullptr) target = &key;
    is_one_target =
        is_one_target && key.target == target->target && key.incarnation == target->incarnation;
    if (!attachment->expected) continue;
    const ExpectRequest& e = *attachment->expected;
    const auto its_board = e.board.lock();
    if (its_board == nullptr) attachment->expected.reset();  // gone with its link or its target
    if (board == nullptr) board = its_board;
    if (its_board == nullptr || its_board != board) continue;
    order_.push_back(attachment.get());
    n_steps = std::min({n_steps, e.budget, max_len_ - (attachment->known + e.n_drafted + 1)});
    n_rows += attachment->known - std::min(kv_.length(attachment->cache_name), attachment->known) +
              e.n_drafted + 1;
  }
  if (board == nullptr) return nullptr;
  step_.begin(n_steps - 1);
  for (Attachment* attachment : order_) {
    if (is_one_target && n_rows <= options_.max_batch_rows) add_early_slice(*attachment);
    if (in_step_.empty() || in_step_.back() != attachment) attachment->expected.reset();
  }
  return in_step_.empty() ? nullptr : board;
}

// The drafted tokens are fed once more: they are in one pass with the token after them, cost next
// to nothing there, and so the step is a transaction like any other, whatever the verdict will be.
void DraftEngine::add_early_slice(Attachment& attachment) {
  const ExpectRequest& e = *attachment.expected;
  const Position start = std::min(kv_.length(attachment.cache_name), attachment.known);
  kv_.truncate(attachment.cache_name, start);
  const auto rows = std::span<const TokenId>(attachment.tokens)
                        .subspan(start, attachment.known - start + e.n_drafted);
  fed_.assign(rows.begin(), rows.end());
  fed_.push_back(0);
  const bool added =
      step_
          .add({.seq = attachment.cache_name,
                .known = fed_,
                .rules = &attachment.rules,
                .guessed = std::span<const TokenId>(fed_).last(1),
                .endings = attachment.endings,
                .take = PlanTake{.entry = e.entry, .n_drafted = e.n_drafted, .tag = e.tag}})
          .ok();
  if (!added) return;
  ++totals_.n_expected;
  attachment.turn = ++n_turns_;
  in_step_.push_back(&attachment);
}

// What the verdict confirmed stays, what it cut goes, its own token follows; then the guesses.
void DraftEngine::extend_early(Attachment& attachment, std::size_t slice) {
  const ExpectRequest expected = *std::exchange(attachment.expected, std::nullopt);
  const Verdict verdict = step_.taken(slice);
  if (verdict.n_accepted < 0) return;  // overtaken, or nothing that could be a verdict
  ++totals_.n_taken;
  const auto n_accepted = static_cast<std::uint32_t>(verdict.n_accepted);
  totals_.n_cut += attachment.n_chain() - n_accepted;
  attachment.tokens.resize(attachment.known + n_accepted);
  attachment.confidences.resize(n_accepted);
  attachment.told = static_cast<Position>(attachment.tokens.size());
  attachment.tokens.push_back(verdict.next_token);
  attachment.confidences.push_back(255);
  attachment.is_stuck = false;
  attachment.budget = n_accepted + 1 + expected.budget;
  const Position start = step_.plan().slices[slice].start;
  auto n_fed = static_cast<std::uint32_t>(attachment.tokens.size()) - start;
  // A last token whose choice is not wanted counts as not fed: it will be, with a choice to be
  // made.
  n_fed = can_grow(attachment) ? append_choices(attachment, slice, n_fed) : n_fed - 1;
  step_.commit(slice, std::span<const TokenId>(attachment.tokens).subspan(start, n_fed));
}

}  // namespace foretoken
