// Verdicts ahead of their step: what a target leaves on its device's board, and whom it tells.
#include <algorithm>

#include "common/base/check.h"
#include "common/engine/target_engine.h"
#include "common/spec/prefix_hash.h"

namespace foretoken {

void TargetEngine::use_board(VerdictBoard& board, RunAhead& ahead) {
  FORETOKEN_CHECK(model_.ranks() == nullptr && sequences_.empty());
  FORETOKEN_CHECK(board.n_entries() >= kBoardEntriesPerSequence * options_.max_running);
  board_ = &board;
  ahead_ = &ahead;
  for (std::int32_t place = options_.max_running - 1; place >= 0; --place)
    free_places_.push_back(place);
  step_.use_board(board, [this] { ahead_->announce(notices_); });
}

void TargetEngine::leave_place(Sequence& sequence) {
  if (sequence.place >= 0) free_places_.push_back(sequence.place);
  sequence.place = -1;
}

// Of sequences whose draft can begin with what the step will say: all that is verified came from
// it, and the answer goes on after it. Not of steps that read prompts: they are long, and a draft's
// device would stand still as long.
void TargetEngine::post_verdicts() {
  if (board_ == nullptr) return;
  notices_.clear();
  const bool reads_prompts = std::any_of(in_step_.begin(), in_step_.end(),
                                         [](const Sequence* s) { return !s->is_decoding; });
  if (reads_prompts) return;
  ++n_posted_steps_;
  for (std::size_t i = 0; i < in_step_.size(); ++i) {
    const Sequence& sequence = *in_step_[i];
    const PlanSlice& slice = step_.plan().slices[i];
    const std::uint32_t n_drafted = slice.n_proposed;
    const std::uint32_t budget = budget_of(sequence);
    const bool is_drafts =
        std::all_of(sequence.path.begin(), sequence.path.end(),
                    [](const PathToken& token) { return token.source == ProposerKind::kDraft; });
    if (slice.n_choices == 0 || sequence.proposer != ProposerKind::kDraft || !is_drafts ||
        budget == 0 || sequence.finish.n_remaining() <= n_drafted + 2 ||
        !ahead_->reads_board(sequence.id))
      continue;
    PrefixHash drafted = store_.prefix(sequence.id);
    for (const PathToken& token : sequence.path) drafted = prefix_hash_next(drafted, token.token);
    const auto turn = static_cast<std::int32_t>(n_posted_steps_ % kBoardEntriesPerSequence);
    notices_.push_back({.seq = sequence.id,
                        .base = sequence.n_tokens(),
                        .prefix = store_.prefix(sequence.id),
                        .n_drafted = n_drafted,
                        .drafted = drafted,
                        .entry = sequence.place * kBoardEntriesPerSequence + turn,
                        .tag = n_posted_steps_,
                        .budget = budget});
    step_.post(i, notices_.back().entry, notices_.back().tag);
  }
}

}  // namespace foretoken
