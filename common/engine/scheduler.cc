#include "common/engine/scheduler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

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
          const PassCosts& costs,
          std::span<const SequenceView> running,
          std::span<const SequenceView> waiting,
          std::int32_t n_free,
          TimePoint now,
          Schedule& into)
      : limits_(limits),
        costs_(costs),
        running_(running),
        waiting_(waiting),
        free_(n_free),
        now_(now),
        plan_(into) {
    plan_.rows.clear();
    plan_.preempted.clear();
    plan_.expired.clear();
    plan_.planned = {};
    plan_.most_work = plan_.prompt_work = 0;
    rows_left_ = limits.max_rows;
    n_kept_ = running.size();
  }

  void run() {
    note_expired();
    for (const auto& view : running_) promised_ += unfilled(view);
    choose_decoding();
    set_budget();
    share_chunk();
    plan_running();
    if (plan_.preempted.empty()) admit();
    use_what_was_left();
    serve_more();
    grant_proposals();
    if (plan_.planned > Duration::zero())
      plan_.most_work = chunk_left_ > 0 ? work_budget_ : plan_.prompt_work;
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

  static std::uint32_t pending(const SequenceView& view) { return view.n_tokens - view.n_cached; }
  bool decodes(const SequenceView& view) const { return !expired(view) && pending(view) == 1; }
  bool is_prompt(const SequenceView& view) const { return !expired(view) && pending(view) > 1; }

  // Which of those that decode get a row: all, or as many as their flow may have beside its
  // prompts.
  void choose_decoding() {
    flow_left_.assign(costs_.flow_rows.begin(), costs_.flow_rows.end());
    const auto n = static_cast<std::uint32_t>(running_.size());
    serves_.assign(n, false);
    std::vector<std::uint32_t> order(n);
    std::iota(order.begin(), order.end(), 0u);
    if (is_shared())
      std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
        return running_[a].last_pass < running_[b].last_pass;
      });
    const std::vector<double> kept = kept_for_prompts();
    for (const std::uint32_t i : order) {
      const SequenceView& view = running_[i];
      if (!decodes(view)) continue;
      if (is_shared() && flow_left_[view.flow] - kept[view.flow] < 1) {
        unserved_.push_back(i);
        continue;
      }
      charge(view, 1, flow_left_);
      serves_[i] = true;
      ++n_decoding_;
    }
  }

  // Rows that were kept for prompts, and that these could not use.
  void serve_more() {
    for (const std::uint32_t i : unserved_) {
      const SequenceView& view = running_[i];
      if (i >= n_kept_ || rows_left_ <= 0 || flow_left_[view.flow] < 1) continue;
      if (rows_that_fit(view, 1) > 0) {
        charge(view, 1, flow_left_);
        take(view, 1, false);
      }
    }
  }

  // Rows of each flow that its prompts get before its answers: at most half.
  std::vector<double> kept_for_prompts() const {
    std::vector<double> kept(flow_left_.size(), 0);
    if (!is_shared()) return kept;
    const auto keep = [&](const SequenceView& view) {
      const double half = std::floor(flow_left_[view.flow] / 2);
      const double work = kept[view.flow] + costs_.prefill.work(view.n_cached, pending(view));
      kept[view.flow] = std::min({half, static_cast<double>(limits_.prefill_chunk), work});
    };
    for (const auto& view : running_)
      if (is_prompt(view)) keep(view);
    std::int32_t n_places = limits_.max_running - static_cast<std::int32_t>(running_.size());
    for (const auto& view : waiting_)
      if (!expired(view) && n_places-- > 0 && !view.is_held_back) keep(view);
    return kept;
  }

  bool is_shared() const { return !costs_.flow_rows.empty(); }
  bool has_flow_left(const SequenceView& view, std::span<const double> left) const {
    return !is_shared() || left[view.flow] > 0;
  }
  void charge(const SequenceView& view, double work, std::span<double> left) const {
    if (is_shared()) left[view.flow] -= work;
  }

  // Prompts share what the sequences that decode leave; where flows have bounds, those chosen
  // above.
  void set_budget() {
    chunk_left_ = std::min(limits_.prefill_chunk, limits_.max_rows - n_decoding_);
    if (limits_.max_step <= Duration::zero()) return;
    plan_.planned = pass_time(limits_.max_step, costs_.plain, n_decoding_ > 0);
    work_budget_ = costs_.prefill.work_within(plan_.planned);
  }

  // A row each in turn, until rows, time or prompts are used up.
  void share_chunk() {
    for (const auto& view : running_)
      if (is_prompt(view)) sharers_.push_back({.view = &view});
    std::int32_t n_places = limits_.max_running - static_cast<std::int32_t>(running_.size());
    const std::int32_t n_all_places = n_places;
    std::int32_t turn = 0;
    for (const auto& view : waiting_) {
      if (expired(view)) continue;
      const bool is_in_turn = turn++ < n_all_places;
      if (!view.is_held_back)
        sharers_.push_back({.view = &view, .needs_place = true});
      else if (is_in_turn)
        --n_places;
    }
    std::int32_t n_given = 0, n_forced = 0;
    double work = 0;
    std::vector<double> left = flow_left_;
    for (bool gave = true; gave;) {
      gave = false;
      for (Sharer& sharer : sharers_) {
        if (n_given >= chunk_left_ || sharer.n_rows >= pending(*sharer.view)) continue;
        const bool is_forced = n_forced_rows(*sharer.view, sharer.n_rows, 1) > 0;
        if (is_forced && n_forced >= limits_.max_forced_rows) continue;
        const double more = costs_.prefill.row_work(sharer.view->n_cached + sharer.n_rows);
        if (!has_time(work + more, n_given) || !has_flow_left(*sharer.view, left)) continue;
        if (sharer.needs_place && n_places <= 0) continue;
        n_places -= sharer.needs_place ? 1 : 0;
        sharer.needs_place = false;
        charge(*sharer.view, more, left);
        work += more;
        n_forced += is_forced ? 1 : 0;
        ++n_given;
        ++sharer.n_rows;
        gave = true;
      }
    }
  }

  // Of n_more rows after n_before of the pass.
  static std::int32_t n_forced_rows(const SequenceView& view,
                                    std::uint32_t n_before,
                                    std::uint32_t n_more) {
    const std::uint32_t begin = view.n_cached + n_before;
    return view.n_forced <= begin
               ? 0
               : static_cast<std::int32_t>(std::min(n_more, view.n_forced - begin));
  }
  bool has_logits_room(const SequenceView& view, std::uint32_t n_before) const {
    return n_forced_rows_ + n_forced_rows(view, n_before, 1) <= limits_.max_forced_rows;
  }

  // Whether a row that brings the work of all prompts to so much is one of those every pass has, or
  // in time.
  bool has_time(double work, std::int32_t n_before) const {
    return plan_.planned == Duration::zero() || n_before < kLeastPrefillRows ||
           work <= work_budget_;
  }

  // To be asked in the order of sharers_: running, then waiting ones. 0: it has none.
  std::int32_t take_share(const SequenceView& view) {
    if (next_sharer_ == sharers_.size() || sharers_[next_sharer_].view != &view) return 0;
    return static_cast<std::int32_t>(sharers_[next_sharer_++].n_rows);
  }

  void plan_running() {
    for (std::size_t i = 0; i < n_kept_; ++i) {
      const SequenceView& view = running_[i];
      if (expired(view)) continue;
      const std::int32_t wanted = decodes(view) ? (serves_[i] ? 1 : 0) : take_share(view);
      if (wanted <= 0) continue;
      const std::int32_t n_known = make_room(i, wanted);
      if (n_known == 0) {  // it is the youngest of those that remain, and nothing fits
        if (i > 0) preempt_down_to(i);
        return;
      }
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
    const std::int32_t spare = free_ - view.n_idle - (view.copies_tail ? 1 : 0);
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
    free_ -= more + view.n_idle;
    promised_ -= more - (view.copies_tail ? 1 : 0);
    if (admitted || is_prompt(view)) note_prompt(view, 0, n);
    plan_.rows.push_back({view.index, n, 0, admitted, view.n_cached + n == view.n_tokens});
    taken_.push_back(&view);
  }

  void note_prompt(const SequenceView& view, std::uint32_t n_before, std::uint32_t n_more) {
    chunk_left_ -= static_cast<std::int32_t>(n_more);
    n_prompt_rows_ += static_cast<std::int32_t>(n_more);
    n_forced_rows_ += n_forced_rows(view, n_before, n_more);
    const double work = costs_.prefill.work(view.n_cached + n_before, n_more);
    charge(view, work, flow_left_);
    plan_.prompt_work += work;
  }

  // Strictly in turn: one that does not fit is not overtaken by smaller ones, or it might wait for
  // ever. One whose flow has no rows left is: it will have some in a later pass.
  void admit() {
    std::int32_t n_places = limits_.max_running - static_cast<std::int32_t>(running_.size());
    std::int32_t n_running = 0;
    std::int32_t longest = 0;
    for (const auto& view : running_) {
      ++n_running;
      longest += blocks_for(view.n_longest, limits_.block_tokens);
    }
    for (const auto& view : waiting_) {
      if (expired(view)) continue;
      if (n_places-- <= 0) return;
      if (view.is_held_back) continue;
      const std::int32_t n = take_share(view);
      // What it shares with running sequences is counted there.
      const std::int32_t n_shared = view.n_blocks - view.n_idle;
      const std::int32_t worst = blocks_for(view.n_longest, limits_.block_tokens) - n_shared;
      if (limits_.policy == AdmissionPolicy::kGuaranteedNoEvict) {
        if (longest + worst > limits_.n_blocks) return;
      } else {
        // Headroom of a block for each running sequence, so that a preempted one does not come
        // straight back to be preempted again.
        const std::int32_t whole = blocks_for(view.n_tokens, limits_.block_tokens) - n_shared;
        if (whole + n_running > free_ - promised_ && n_running > 0) return;
      }
      if (n <= 0 && is_shared()) {
        ++n_places;
        continue;
      }
      const std::int32_t fits = rows_that_fit(view, n);
      if (fits <= 0) return;
      ++n_running;
      longest += worst;
      promised_ += unfilled(view);
      take(view, fits, true);
    }
  }

  // Parts of those that found no place or no blocks go to the others, in turn.
  void use_what_was_left() {
    for (std::size_t i = 0; i < plan_.rows.size(); ++i) {
      const SequenceView& view = *taken_[i];
      ScheduledRows& rows = plan_.rows[i];
      if (!rows.admitted && !is_prompt(view)) continue;
      while (rows.n_known < pending(view) && chunk_left_ > 0 && has_flow_left(view, flow_left_) &&
             has_logits_room(view, rows.n_known) &&
             has_time(plan_.prompt_work + costs_.prefill.row_work(view.n_cached + rows.n_known),
                      n_prompt_rows_)) {
        const std::int32_t more = blocks_wanted(view, rows.n_known + 1, limits_.block_tokens) -
                                  blocks_wanted(view, rows.n_known, limits_.block_tokens);
        if (more > free_) break;
        free_ -= more;
        promised_ -= more;
        --rows_left_;
        note_prompt(view, rows.n_known, 1);
        ++rows.n_known;
        rows.samples = rows.n_known == pending(view);
      }
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
        if (!has_flow_left(view, flow_left_)) continue;
        const std::uint32_t n = rows.n_known + rows.n_proposed;
        const std::int32_t more = blocks_wanted(view, n + 1, limits_.block_tokens) -
                                  blocks_wanted(view, n, limits_.block_tokens);
        if (more > free_) continue;
        free_ -= more;
        --rows_left_;
        charge(view, 1, flow_left_);
        ++rows.n_proposed;
        granted = true;
      }
    }
  }

  struct Sharer {
    const SequenceView* view;
    bool needs_place = false;  // waiting, and no row was given to it yet
    std::uint32_t n_rows = 0;
  };

  const SchedulerLimits& limits_;
  const PassCosts& costs_;
  std::span<const SequenceView> running_;
  std::span<const SequenceView> waiting_;
  std::int32_t free_;
  TimePoint now_;
  Schedule& plan_;
  std::int32_t rows_left_ = 0;
  std::int32_t n_decoding_ = 0;          // that get a row
  std::vector<bool> serves_;             // beside running_: a decoding sequence gets a row
  std::vector<std::uint32_t> unserved_;  // those that do not, in order of service
  std::vector<double> flow_left_;        // of PassCosts::flow_rows
  std::int32_t chunk_left_ = 0;          // prompt rows
  std::int32_t n_prompt_rows_ = 0;
  std::int32_t n_forced_rows_ = 0;
  double work_budget_ = 0;       // of prompts, where time is bounded
  std::vector<Sharer> sharers_;  // prompts, in order of service
  std::size_t next_sharer_ = 0;
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

Duration pass_time(Duration max_step, Duration plain, bool anyone_decodes) {
  return (anyone_decodes ? 1 : 2) * std::max(max_step, 2 * plain);
}

void make_schedule(const SchedulerLimits& limits,
                   const PassCosts& costs,
                   std::span<const SequenceView> running,
                   std::span<const SequenceView> waiting,
                   std::int32_t n_free,
                   TimePoint now,
                   Schedule& into) {
  FORETOKEN_CHECK(limits.max_running <= limits.max_rows && limits.prefill_chunk > 0 &&
                  limits.block_tokens > 0);
  Planner(limits, costs, running, waiting, n_free, now, into).run();
}

}  // namespace foretoken
