// Scheduler: which sequences get how many rows of the next pass. A pure function of views, limits,
// what is free and the time; it knows numbers of tokens and blocks, never the tokens, a model or a
// device, and keeps no state.
//
// Order of service is by `turn`: arrival moved earlier by priority (turn_of), so a sequence of low
// priority that has waited long enough goes before a later one of high priority, and none starves.
// Rows go, in this order, to
//   1. every running sequence that decodes: one row each, preempting the youngest where blocks run
//   out; where the rows of its flow are bounded, those of the flow that had no row for longest;
//   2. prompts of running sequences, then of admitted ones: chunks, together at most
//   `prefill_chunk` rows and what the pass has time for, in equal parts, so that a short prompt
//   does not wait for a long one;
//   3. proposed tokens, into whatever rows and blocks are left. Speculation never causes a
//   preemption.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/spec/prefill_cost.h"

namespace foretoken {

enum class AdmissionPolicy : std::uint8_t {
  kMaxUtilization,     // admit when the tokens at hand fit; preempt the youngest and recompute when
                       // they no longer do
  kGuaranteedNoEvict,  // admit only if every running sequence could grow to its longest
};

struct SchedulerLimits {
  std::int32_t max_rows = 512;         // rows of one pass, all sequences together
  std::int32_t prefill_chunk = 256;    // of which prompt rows, all sequences together
  std::int32_t max_forced_rows = 256;  // of which rows with a forced choice: each needs its logits
  std::int32_t max_running = 64;       // sequences holding blocks; at most max_rows
  std::int32_t n_blocks = 0;           // of the whole cache
  std::int32_t block_tokens = 16;
  AdmissionPolicy policy = AdmissionPolicy::kMaxUtilization;
  Duration max_step{};  // that prompts may make a pass take, see pass_time(); 0: no bound
};

// What was measured of earlier passes, and what follows from it for this one.
struct PassCosts {
  PrefillRates prefill;
  // A pass of the sequences that decode, without prompts; where none does, of one row. 0: not
  // known.
  Duration plain{};
  // Rows that each flow may have, see fair_rows(), by SequenceView::flow; a prompt's count by their
  // work. Empty: no bound.
  std::span<const std::uint32_t> flow_rows;
};

// One sequence, as much as scheduling needs of it.
struct SequenceView {
  std::uint32_t index = 0;      // the caller's handle, echoed in the plan
  std::uint32_t flow = 0;       // index into PassCosts::flow_rows
  std::uint64_t last_pass = 0;  // number of the last pass that it had rows in
  std::uint32_t n_tokens = 0;   // prompt and committed tokens; at least 1
  std::uint32_t n_cached = 0;   // of which K and V are in the cache, or would be once admitted;
                                // less than n_tokens
  std::uint32_t n_longest = 0;  // n_tokens it can end with
  std::uint32_t n_wanted = 0;   // proposed tokens it would like verified
  std::uint32_t n_forced = 0;   // rows before this position have a forced choice; see PlanSlice
  std::int32_t n_blocks = 0;    // blocks of n_cached, or in its table
  std::int32_t n_idle = 0;      // of which admission takes so many from the free ones
  std::int32_t n_returned = 0;  // blocks that become free if it is preempted
  bool copies_tail = false;     // its last block is shared: the next write costs a block more
  bool is_held_back = false;    // of one that waits: it keeps its place and its turn, and gets no
                                // rows
  TimePoint deadline = TimePoint::max();
};

// What a sequence brings to the pass: tokens [n_cached, n_cached + n_known), then n_proposed. Its
// choices are wanted iff the known rows reach its end.
struct ScheduledRows {
  std::uint32_t index = 0;
  std::uint32_t n_known = 0;
  std::uint32_t n_proposed = 0;
  bool admitted = false;  // was waiting
  bool samples = false;
};

struct Schedule {
  std::vector<ScheduledRows> rows;       // in order of service
  std::vector<std::uint32_t> preempted;  // running: give up all blocks, wait again, recompute
  std::vector<std::uint32_t> expired;  // past their deadline, running or waiting; they get no rows
  std::int32_t n_rows = 0;
  // Where the time of a pass is bounded and prompts have rows: how long it may take, the prompt
  // work that was thought to fit (or less, where rows were the limit), and the work handed out.
  Duration planned{};
  double most_work = 0;
  double prompt_work = 0;
};

// How long a pass with prompt rows may take. Beside answers that are being written: max_step, or
// twice the pass without prompts where that is longer, because a prompt, too, must move. With
// no answer under way: twice as long.
Duration pass_time(Duration max_step, Duration plain, bool anyone_decodes);

// Where a sequence stands in the order of service. One step of priority is worth `kPriorityStep` of
// waiting.
inline constexpr Duration kPriorityStep = std::chrono::seconds(10);
constexpr TimePoint turn_of(TimePoint arrival, std::int32_t priority) {
  return arrival - priority * kPriorityStep;
}

// Blocks that n_more tokens add to what the view holds.
std::int32_t blocks_wanted(const SequenceView& view,
                           std::uint32_t n_more,
                           std::int32_t block_tokens);

// `running` and `waiting` are in order of service. n_free: blocks available without preempting
// a sequence. Reuses the vectors of `into`.
void make_schedule(const SchedulerLimits& limits,
                   const PassCosts& costs,
                   std::span<const SequenceView> running,
                   std::span<const SequenceView> waiting,
                   std::int32_t n_free,
                   TimePoint now,
                   Schedule& into);

}  // namespace foretoken
