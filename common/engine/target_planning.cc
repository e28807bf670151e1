// What runs in a pass: who is admitted, who makes room, and the rows of each sequence.
#include <algorithm>
#include <span>

#include "common/base/check.h"
#include "common/engine/target_engine.h"

namespace foretoken {
namespace {

// Rows that are to choose must run, and the cache has no logits: what it has of them is not used.
std::span<const TokenId> usable_tokens(const Sequence& sequence) {
  const auto tokens = sequence.text().tokens();
  return sequence.owes_prompt() ? tokens.first(sequence.next_forced) : tokens;
}

}  // namespace

void TargetEngine::make_plan(TimePoint now) {
  running_views_.clear();
  waiting_views_.clear();
  handles_.clear();
  share_flows();
  const std::int32_t n_free = kv_.free_blocks();
  const bool scarce = n_free < limits_.max_rows / limits_.block_tokens +
                                   2 * static_cast<std::int32_t>(running_.size()) + 1;
  auto index = [&](Sequence* sequence) {
    handles_.push_back(sequence);
    return static_cast<std::uint32_t>(handles_.size() - 1);
  };
  for (Sequence* sequence : running_)
    running_views_.push_back(view_of(*sequence, index(sequence), scarce));
  for (Sequence* sequence : waiting_)
    waiting_views_.push_back(view_of(*sequence, index(sequence), scarce));
  make_schedule(limits_, pass_costs(), running_views_, waiting_views_, n_free, now, schedule_);
  for (const std::uint32_t expired : schedule_.expired)
    finish(*handles_[expired], FinishReason::kDeadline);
  for (const std::uint32_t preempted : schedule_.preempted) preempt(*handles_[preempted]);
  for (const ScheduledRows& rows : schedule_.rows)
    if (rows.admitted) admit(*handles_[rows.index], now);
}

void TargetEngine::look_up_prefix(Sequence& waiting) const {
  waiting.prefix = kv_.find_prefix(usable_tokens(waiting), waiting.tenant_salt);
  waiting.waits_for_prefix = is_being_computed(waiting);
}

// Prompt rows that take as long as a pass of those that decode: it is worth a pass to be spared
// them.
std::uint32_t TargetEngine::rows_worth_a_pass() const {
  return static_cast<std::uint32_t>(prefill_.rates().work_within(pass_costs().plain));
}

// Whether another sequence of its flow computes more that it begins with, and that is worth a pass:
// one that runs, or that is to be admitted before it.
bool TargetEngine::is_being_computed(const Sequence& waiting) const {
  if (options_.kv.prefix_cache == PrefixCaching::kOff) return false;
  const std::uint32_t n_needed =
      waiting.prefix->n_tokens +
      static_cast<std::uint32_t>(kv_.blocks_for(rows_worth_a_pass()) * limits_.block_tokens);
  const auto tokens = usable_tokens(waiting);
  if (n_needed >= tokens.size()) return false;
  const auto computes = [&](const Sequence& other) {
    return other.tenant_salt == waiting.tenant_salt && other.flow == waiting.flow &&
           !other.owes_prompt() && other.n_tokens() >= n_needed &&
           std::ranges::equal(other.text().tokens().first(n_needed), tokens.first(n_needed));
  };
  for (const Sequence* other : running_)
    if (kv_.length(other->id) < n_needed && computes(*other)) return true;
  for (const Sequence* other : waiting_) {
    if (other == &waiting) break;
    if (!other->waits_for_prefix && computes(*other)) return true;
  }
  return false;
}

// The tokens that it can end with.
std::uint32_t TargetEngine::n_longest(const Sequence& sequence) const {
  return std::min(sequence.n_tokens() + sequence.finish.n_remaining(), options_.max_model_len);
}

SequenceView TargetEngine::view_of(const Sequence& sequence,
                                   std::uint32_t index,
                                   bool blocks_are_scarce) const {
  SequenceView view{.index = index,
                    .flow = sequence.flow_index,
                    .last_pass = sequence.last_pass,
                    .n_tokens = sequence.n_tokens(),
                    .n_longest = n_longest(sequence),
                    .n_forced = sequence.owes_prompt() ? sequence.n_prompt - 1 : 0,
                    .deadline = sequence.deadline};
  if (!sequence.is_running) {
    const PrefixHit prefix = sequence.prefix.value_or(PrefixHit{});
    view.n_cached = prefix.n_tokens;
    view.n_blocks = prefix.n_blocks;
    view.n_idle = prefix.n_idle_blocks;
    view.is_held_back = !sequence.prefix || sequence.waits_for_prefix;
    return view;
  }
  view.n_cached = kv_.length(sequence.id);
  view.n_wanted =
      std::min(static_cast<std::uint32_t>(sequence.path.size()), most_proposals(sequence));
  view.n_blocks = static_cast<std::int32_t>(kv_.block_table(sequence.id).size());
  // Blocks are shared only as whole prefixes, so what one more position takes beyond the table is a
  // copy of the tail.
  view.copies_tail =
      kv_.blocks_needed(sequence.id, 1) > blocks_wanted(view, 1, limits_.block_tokens);
  if (blocks_are_scarce) view.n_returned = kv_.blocks_held_alone(sequence.id);
  return view;
}

PassCosts TargetEngine::pass_costs() const {
  const auto n_decoding = static_cast<std::uint32_t>(std::count_if(
      running_.begin(), running_.end(), [](const Sequence* s) { return s->is_decoding; }));
  const std::chrono::duration<double> plain(length_.step_cost().seconds(std::max(1u, n_decoding)));
  return {.prefill = prefill_.rates(),
          .plain = std::chrono::duration_cast<Duration>(plain),
          .flow_rows = flow_rows_};
}

void TargetEngine::admit(Sequence& sequence, TimePoint now) {
  auto hit = kv_.open(sequence.id, usable_tokens(sequence), sequence.tenant_salt);
  FORETOKEN_CHECK(hit.ok());
  if (!sequence.was_admitted) {  // a clock may begin at zero, so the time does not tell
    sequence.was_admitted = true;
    sequence.stats.admitted = now;
    sequence.stats.n_cached = std::min(*hit, sequence.n_prompt);
    totals_.n_looked_up_tokens += sequence.n_prompt;
    totals_.n_found_tokens += sequence.stats.n_cached;
    open_proposers(sequence);
  }
  sequence.is_running = true;
  sequence.is_decoding = false;
  std::erase(waiting_, &sequence);
  insert_in_turn(running_, &sequence);
}

void TargetEngine::preempt(Sequence& sequence) {
  kv_.close(sequence.id);
  sequence.is_running = sequence.is_decoding = false;
  ++sequence.stats.n_preemptions;
  ++totals_.n_preemptions;
  std::erase(running_, &sequence);
  insert_in_turn(waiting_, &sequence);
}

// What was granted rows is cut once more to what is worth verifying. Requests with a fixed length
// are not asked.
void TargetEngine::cut_proposals() {
  candidates_.clear();
  std::uint32_t other_rows = 0;
  std::uint32_t max_drafted = 0;
  auto is_judged = [&](const ScheduledRows& rows) {
    const Sequence& sequence = *handles_[rows.index];
    return sequence.is_decoding && sequence.length == LengthMode::kAdaptive;
  };
  for (const ScheduledRows& rows : schedule_.rows) {
    Sequence& sequence = *handles_[rows.index];
    sequence.lacked_room = sequence.had_path && rows.n_proposed == 0;
    sequence.path.resize(std::min<std::size_t>(sequence.path.size(), rows.n_proposed));
    if (is_judged(rows)) {
      candidates_.push_back({.path = sequence.path,
                             .cap = rows.n_proposed,
                             .value = token_value(sequence),
                             .odds = sequence.odds.factor()});
      max_drafted += rows.n_proposed;
    } else {
      const double work = prefill_.rates().work(kv_.length(sequence.id), rows.n_known);
      other_rows += (sequence.is_decoding ? rows.n_known : static_cast<std::uint32_t>(work)) +
                    rows.n_proposed;
    }
  }
  if (candidates_.empty()) return;
  const std::vector<std::uint32_t> lengths = length_.cut(candidates_, other_rows, max_drafted);
  std::size_t i = 0;
  for (const ScheduledRows& rows : schedule_.rows)
    if (is_judged(rows)) handles_[rows.index]->path.resize(lengths[i++]);
}

void TargetEngine::fill_step() {
  step_.begin();
  in_step_.clear();
  for (const ScheduledRows& rows : schedule_.rows) {
    Sequence& sequence = *handles_[rows.index];
    if (add_slice(rows, sequence)) in_step_.push_back(&sequence);
  }
  note_prompt_work();
  // Where blocks were counted wrongly for all, the youngest yields.
  if (in_step_.empty() && !schedule_.rows.empty()) {
    FORETOKEN_CHECK(running_.size() > 1, "one sequence alone does not fit the cache");
    preempt(*running_.back());
  }
}

bool TargetEngine::add_slice(const ScheduledRows& rows, Sequence& sequence) {
  const Position start = kv_.length(sequence.id);
  const std::uint32_t n_known = rows.n_known;
  const bool samples = start + n_known == sequence.n_tokens() && !sequence.finish.reason();
  drafted_.clear();
  if (samples)
    for (const PathToken& token : sequence.path) drafted_.push_back(token.token);
  SliceRequest request{.seq = sequence.id,
                       .known = sequence.text().tokens().subspan(start, n_known),
                       .proposed = drafted_,
                       .rules = samples ? &sequence.rules : nullptr};
  if (sequence.owes_prompt()) {
    const Position end = std::min<Position>(start + n_known + 1, sequence.n_prompt);
    if (sequence.next_forced < end) {
      const auto tokens = sequence.text().tokens().first(end);
      request.forced = tokens.subspan(sequence.next_forced);
      request.first_forced = sequence.next_forced - 1 - start;
      request.n_forced_top = sequence.params.n_prompt_logprobs;
    }
  }
  if (step_.add(request).ok()) return true;
  sequence.path.clear();
  sequence.lacked_room = sequence.had_path;
  request.proposed = {};
  return step_.add(request).ok();
}

void TargetEngine::note_prompt_work() {
  prompt_work_ = attention_rows_ = 0;
  for (std::size_t i = 0; i < in_step_.size(); ++i) {
    if (in_step_[i]->is_decoding) continue;
    const PlanSlice& slice = step_.plan().slices[i];
    const double work = prefill_.rates().work(slice.start, slice.n_known);
    prompt_work_ += work;
    attention_rows_ += work - slice.n_known;
  }
}

}  // namespace foretoken
