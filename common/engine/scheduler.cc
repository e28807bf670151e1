#include "common/engine/scheduler.h"

#include <algorithm>

#include "common/base/check.h"

namespace foretoken {
namespace {

std::int32_t blocks_for(std::uint32_t n_tokens, std::int32_t block_tokens) {
  const auto per_block = static_cast<std::uint32_t>(block_tokens);
  return static_cast<std::int32_t>((n_tokens + per_block - 1) / per_block);
}

// One call of make_schedule: counters that run down while rows are handed out.
class Planner {
 public:
  Planner(const SchedulerLimits& limits,
          std::span<const SequenceView> running,
          std::span<const SequenceView> waiting,
          std::int32_t n_free,
          TimePoint now,
          Schedule& into)
      : limits_(limits),
        running_(running),
        waiting_(waiting),
        free_(n_free),
        now_(now),
        plan_(into) {
    plan_.rows.clear();
    plan_.preempted.clear();
    plan_.expired.clear();
    rows_left_ = limits.max_rows;
    chunk_left_ = limits.prefill_chunk;
    n_kept_ = running.size();
  }

  void run() {
    note_expired();
    for (const auto& view : running_) promised_ += unfilled(view);
    plan_running();
    if (plan_.preempted.empty()) admit();
    grant_proposals();
    plan_.n_rows = limits_.max_rows - rows_left_;
  }

 private:
  bool expired(const SequenceView& view) const { return view.deadline <= now_; }

  // Blocks that the tokens at hand will need and do not have yet.
  std::int32_t unfilled(const SequenceView& view) const {
    return expired(view)
               ? 0
               : std::max(0, blocks_for(view.n_tokens, limits_.block_tokens) - view.n_blocks);
  }

  void note_expired() {
    for (const auto& view : running_)
      if (expired(view)) plan_.expired.push_back(view.index);
    for (const auto& view : waiting_)
      if (expired(view)) plan_.expired.push_back(view.index);
  }

  // Every running sequence that decodes gets its row before any prompt does, so prompts share what
  // is left.
  void plan_running() {
    std::int32_t decoding_ahead = 0;
    for (const auto& view : running_)
      if (!expired(view) && view.n_tokens - view.n_cached == 1) ++decoding_ahead;
    for (std::size_t i = 0; i < n_kept_; ++i) {
      const SequenceView& view = running_[i];
      if (expired(view)) continue;
      const std::uint32_t pending = view.n_tokens - view.n_cached;
      if (pending == 1) --decoding_ahead;
      const std::int32_t wanted = pending == 1
                                      ? 1
                                      : std::min({static_cast<std::int32_t>(pending), chunk_left_,
                                                  rows_left_ - decoding_ahead});
      if (wanted <= 0) continue;
      const std::int32_t n_known = make_room(i, wanted);
      if (n_known == 0) {  // it is the youngest of those that remain, and nothing fits
        if (i > 0) preempt_down_to(i);
        return;
      }
      if (pending > 1) chunk_left_ -= n_known;
      take(view, n_known, false);
    }
  }

  // Rows of sequence i that fit, at most n. Prompts shrink to what is free; where not one row fits,
  // the youngest goes.
  std::int32_t make_room(std::size_t i, std::int32_t n) {
    const SequenceView& view = running_[i];
    for (;;) {
      const std::int32_t fits = rows_that_fit(view, n);
      if (fits > 0 || n_kept_ == i + 1) return fits;
      preempt_down_to(n_kept_ - 1);
    }
  }

  std::int32_t rows_that_fit(const SequenceView& view, std::int32_t n) const {
    const std::int32_t spare = free_ - (view.copies_tail ? 1 : 0);
    if (spare < 0) return 0;
    const std::int64_t capacity = std::int64_t{view.n_blocks + spare} * limits_.block_tokens;
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(capacity - view.n_cached, 0, n));
  }

  void preempt_down_to(std::size_t n_kept) {
    for (; n_kept_ > n_kept; --n_kept_) {
      const SequenceView& victim = running_[n_kept_ - 1];
      if (expired(victim)) continue;
      plan_.preempted.push_back(victim.index);
      free_ += victim.n_returned;
      promised_ -= unfilled(victim);
    }
  }

  void take(const SequenceView& view, std::int32_t n_known, bool admitted) {
    const auto n = static_cast<std::uint32_t>(n_known);
    const std::int32_t more = blocks_wanted(view, n, limits_.block_tokens);
    rows_left_ -= n_known;
    free_ -= more;
    promised_ -= more - (view.copies_tail ? 1 : 0);
    plan_.rows.push_back({view.index, n, 0, admitted, view.n_cached + n == view.n_tokens});
    taken_.push_back(&view);
  }

  // Strictly in turn: one that does not fit is not overtaken by smaller ones, or it might wait for
  // ever.
  void admit() {
    std::int32_t n_running = 0;
    std::int32_t longest = 0;
    for (const auto& view : running_) {
      ++n_running;
      longest += blocks_for(view.n_longest, limits_.block_tokens);
    }
    for (const auto& view : waiting_) {
      if (expired(view)) continue;
      const std::int32_t n = std::min(
          {static_cast<std::int32_t>(view.n_tokens - view.n_cached), chunk_left_, rows_left_});
      if (n_running >= limits_.max_running || n <= 0) return;
      const std::int32_t worst = blocks_for(view.n_longest, limits_.block_tokens);
      if (limits_.policy == AdmissionPolicy::kGuaranteedNoEvict) {
        if (longest + worst > limits_.n_blocks) return;
      } else {
        // Headroom of a block for each running sequence, so that a preempted one does not come
        // straight back to be preempted again.
        const std::int32_t whole = blocks_for(view.n_tokens, limits_.block_tokens);
        if (whole + n_running > free_ - promised_ && n_running > 0) return;
      }
      const std::int32_t fits = rows_that_fit(view, n);
      if (fits == 0) return;
      chunk_left_ -= fits;
      ++n_running;
      longest += worst;
      promised_ += unfilled(view);
      take(view, fits, true);
    }
  }

  // One token each in turn until rows or blocks run out: a long proposal does not starve the
  // others.
  void grant_proposals() {
    bool granted = true;
    for (std::uint32_t round = 0; granted && rows_left_ > 0; ++round) {
      granted = false;
      for (std::size_t i = 0; i < plan_.rows.size() && rows_left_ > 0; ++i) {
        ScheduledRows& rows = plan_.rows[i];
        const SequenceView& view = *taken_[i];
        if (!rows.samples || rows.n_proposed != round || rows.n_proposed >= view.n_wanted) continue;
        const std::uint32_t n = rows.n_known + rows.n_proposed;
        const std::int32_t more = blocks_wanted(view, n + 1, limits_.block_tokens) -
                                  blocks_wanted(view, n, limits_.block_tokens);
        if (more > free_) continue;
        free_ -= more;
        --rows_left_;
        ++rows.n_proposed;
        granted = true;
      }
    }
  }

  const SchedulerLimits& limits_;
  std::span<const SequenceView> running_;
  std::span<const SequenceView> waiting_;
  std::int32_t free_;
  TimePoint now_;
  Schedule& plan_;
  std::int32_t rows_left_ = 0;
  std::int32_t chunk_left_ = 0;
  std::int32_t promised_ = 0;  // blocks that prompts of running sequences will need in later chunks
  std::size_t n_kept_ = 0;     // running sequences from here on are preempted
  std::vector<const SequenceView*> taken_;  // beside plan_.rows
};

}  // namespace

std::int32_t blocks_wanted(const SequenceView& view,
                           std::uint32_t n_more,
                           std::int32_t block_tokens) {
  if (n_more == 0) return 0;
  const std::int32_t copied = view.copies_tail ? 1 : 0;
  return std::max(0, blocks_for(view.n_cached + n_more, block_tokens) - view.n_blocks) + copied;
}

void make_schedule(const SchedulerLimits& limits,
                   std::span<const SequenceView> running,
                   std::span<const SequenceView> waiting,
                   std::int32_t n_free,
                   TimePoint now,
                   Schedule& into) {
  FORETOKEN_CHECK(limits.max_running <= limits.max_rows && limits.prefill_chunk > 0 &&
                  limits.block_tokens > 0);
  Planner(limits, running, waiting, n_free, now, into).run();
}

}  // namespace foretoken
