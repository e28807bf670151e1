// Tables for the scheduler: state in, plan out.
#include "common/engine/scheduler.h"

#include "common/engine/fair_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const TimePoint kStart{};

SchedulerLimits limits(std::int32_t n_blocks = 100) {
  return {.max_rows = 32,
          .prefill_chunk = 16,
          .max_running = 8,
          .n_blocks = n_blocks,
          .block_tokens = 4};
}

// A decoding sequence: all but its last token in the cache.
SequenceView decoding(std::uint32_t index, std::uint32_t n_tokens, std::uint32_t n_wanted = 0) {
  const auto n_blocks = static_cast<std::int32_t>((n_tokens - 1 + 3) / 4);
  return {.index = index,
          .n_tokens = n_tokens,
          .n_cached = n_tokens - 1,
          .n_longest = n_tokens + 40,
          .n_wanted = n_wanted,
          .n_blocks = n_blocks,
          .n_returned = n_blocks};
}

SequenceView prompt(std::uint32_t index, std::uint32_t n_tokens, std::uint32_t n_cached = 0) {
  const auto n_blocks = static_cast<std::int32_t>((n_cached + 3) / 4);
  return {.index = index,
          .n_tokens = n_tokens,
          .n_cached = n_cached,
          .n_longest = n_tokens + 40,
          .n_blocks = n_blocks,
          .n_returned = n_blocks};
}

Schedule schedule(const SchedulerLimits& l,
                  const std::vector<SequenceView>& running,
                  const std::vector<SequenceView>& waiting,
                  std::int32_t n_free,
                  TimePoint now = kStart,
                  const PassCosts& costs = {}) {
  Schedule plan;
  make_schedule(l, costs, running, waiting, n_free, now, plan);
  return plan;
}

// (index, n_known, n_proposed, samples) of each slice.
using Row = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, bool>;
std::vector<Row> rows_of(const Schedule& plan) {
  std::vector<Row> rows;
  for (const auto& r : plan.rows) rows.emplace_back(r.index, r.n_known, r.n_proposed, r.samples);
  return rows;
}

TEST(Scheduler, PlansNothingWithoutSequences) {
  const Schedule plan = schedule(limits(), {}, {}, 100);
  EXPECT_TRUE(plan.rows.empty());
  EXPECT_EQ(plan.n_rows, 0);
}

TEST(Scheduler, GivesADecodingSequenceItsRowAndItsProposals) {
  const Schedule plan = schedule(limits(), {decoding(7, 10, 5), decoding(8, 3)}, {}, 90);
  EXPECT_EQ(rows_of(plan), (std::vector<Row>{{7, 1, 5, true}, {8, 1, 0, true}}));
  EXPECT_EQ(plan.n_rows, 7);
}

TEST(Scheduler, CutsPromptsIntoChunksAndSamplesOnlyAtTheirEnd) {
  EXPECT_EQ(rows_of(schedule(limits(), {prompt(1, 40, 8)}, {}, 90)),
            (std::vector<Row>{{1, 16, 0, false}}));
  EXPECT_EQ(rows_of(schedule(limits(), {prompt(1, 40, 24)}, {}, 90)),
            (std::vector<Row>{{1, 16, 0, true}}));
}

TEST(Scheduler, SharesOneChunkEquallyAmongPrompts) {
  const Schedule plan = schedule(limits(), {prompt(1, 40, 8)}, {prompt(2, 30), prompt(3, 4)}, 90);
  EXPECT_EQ(rows_of(plan), (std::vector<Row>{{1, 6, 0, false}, {2, 6, 0, false}, {3, 4, 0, true}}));
  EXPECT_TRUE(plan.rows[1].admitted);
}

TEST(Scheduler, GivesThePartOfOneThatFindsNoBlocksToTheOthers) {
  // Five blocks are free and 2 needs ten to be admitted.
  const Schedule plan = schedule(limits(), {prompt(1, 20)}, {prompt(2, 40)}, 5);
  EXPECT_EQ(rows_of(plan), (std::vector<Row>{{1, 16, 0, false}}));
}

// Four of 1,500 tokens at once: none is far ahead of the others, and all end in the passes that
// their rows need.
TEST(Scheduler, PromptsThatCameTogetherAdvanceTogether) {
  auto l = limits(10000);
  l.prefill_chunk = 30;
  constexpr std::uint32_t kLength = 1500;
  std::vector<std::uint32_t> done(4, 0);
  int n_passes = 0;
  for (; done.back() < kLength; ++n_passes) {
    ASSERT_LT(n_passes, 250);
    std::vector<SequenceView> running;
    for (std::uint32_t i = 0; i < 4; ++i)
      if (done[i] < kLength) running.push_back(prompt(i, kLength, done[i]));
    for (const auto& rows : schedule(l, running, {}, 9000).rows) done[rows.index] += rows.n_known;
    EXPECT_GE(8 * *std::min_element(done.begin(), done.end()),
              7 * *std::max_element(done.begin(), done.end()));
  }
  EXPECT_EQ(n_passes, 4 * kLength / 30);
}

// What a prompt may take of a pass: its rows at 10 ms each.
TEST(Scheduler, CutsPromptsToTheTimeOfAPass) {
  auto l = limits(10000);
  l.max_rows = 512;
  l.prefill_chunk = 256;
  l.max_step = milliseconds(250);
  const auto rows = [&](const PassCosts& costs, const std::vector<SequenceView>& running) {
    return schedule(l, running, {}, 9000, kStart, costs).rows.back().n_known;
  };
  const PassCosts known{.prefill = {.row_s = 0.010}, .plain = milliseconds(20)};
  const PassCosts slow{.prefill = {.row_s = 0.010}, .plain = milliseconds(300)};
  const PassCosts very_slow{.prefill = {.row_s = 10}, .plain = milliseconds(300)};
  EXPECT_EQ(rows(known, {decoding(1, 9), prompt(2, 4000)}), 25u);
  EXPECT_EQ(rows(slow, {decoding(1, 9), prompt(2, 4000)}), 60u) << "twice the pass without";
  EXPECT_EQ(rows(known, {prompt(2, 4000)}), 50u) << "no sequence waits for a token";
  EXPECT_EQ(rows(slow, {prompt(2, 4000)}), 120u);
  EXPECT_EQ(rows(very_slow, {decoding(1, 9), prompt(2, 4000)}), 8u) << "a prompt moves";
  EXPECT_EQ(rows({}, {decoding(1, 9), prompt(2, 4000)}), 16u) << "before anything is known";
  EXPECT_EQ(rows(known, {decoding(1, 9), prompt(2, 14)}), 14u);
  l.max_step = {};
  EXPECT_EQ(rows(very_slow, {decoding(1, 9), prompt(2, 4000)}), 256u) << "no bound";
}

TEST(Scheduler, ATokenWithMoreBeforeItTakesMoreOfThePass) {
  auto l = limits(10000);
  l.max_rows = 512;
  l.prefill_chunk = 256;
  l.max_step = milliseconds(250);
  const PassCosts costs{.prefill = {.row_s = 0.010, .context = 1000}};
  const auto rows = [&](std::uint32_t n_cached) {
    return schedule(l, {decoding(1, 9), prompt(2, 9000, n_cached)}, {}, 9000, kStart, costs)
        .rows.back()
        .n_known;
  };
  EXPECT_EQ(rows(0), 24u);
  EXPECT_EQ(rows(1000), 12u);
  EXPECT_EQ(rows(4000), 8u);
}

TEST(Scheduler, DecodesBesidePrefillWithinTheRowBudget) {
  auto l = limits();
  l.max_rows = 10;
  l.max_running = 4;
  const Schedule plan =
      schedule(l, {prompt(1, 40, 8), decoding(2, 9, 3), decoding(3, 9, 3)}, {}, 90);
  EXPECT_EQ(rows_of(plan), (std::vector<Row>{{1, 8, 0, false}, {2, 1, 0, true}, {3, 1, 0, true}}));
}

TEST(Scheduler, SharesSpareRowsAmongProposalsOneByOne) {
  auto l = limits();
  l.max_rows = 9;
  l.max_running = 3;
  const Schedule plan =
      schedule(l, {decoding(1, 9, 8), decoding(2, 9, 1), decoding(3, 9, 8)}, {}, 90);
  EXPECT_EQ(rows_of(plan), (std::vector<Row>{{1, 1, 3, true}, {2, 1, 1, true}, {3, 1, 2, true}}));
}

TEST(Scheduler, PreemptsTheYoungestWhenADecodingSequenceNeedsABlock) {
  // Both stand at a block's end; one block is missing for the two of them.
  const Schedule plan = schedule(limits(), {decoding(1, 9), decoding(2, 9)}, {}, 1);
  EXPECT_EQ(rows_of(plan), (std::vector<Row>{{1, 1, 0, true}}));
  EXPECT_EQ(plan.preempted, (std::vector<std::uint32_t>{2}));
}

TEST(Scheduler, NeverPreemptsForAProposal) {
  const Schedule plan = schedule(limits(), {decoding(1, 8, 4), decoding(2, 8, 4)}, {}, 0);
  EXPECT_EQ(rows_of(plan), (std::vector<Row>{{1, 1, 0, true}, {2, 1, 0, true}}));
  EXPECT_TRUE(plan.preempted.empty());
}

TEST(Scheduler, CountsTheBlockThatASharedTailCosts) {
  auto view = decoding(1, 8, 2);
  view.copies_tail = true;
  EXPECT_EQ(blocks_wanted(view, 1, 4), 1);
  EXPECT_EQ(blocks_wanted(view, 2, 4), 2);
  EXPECT_EQ(rows_of(schedule(limits(), {view}, {}, 1)), (std::vector<Row>{{1, 1, 0, true}}));
  EXPECT_TRUE(schedule(limits(), {view}, {}, 0).rows.empty());
}

TEST(Scheduler, ShrinksAChunkBeforeItPreempts) {
  const Schedule plan = schedule(limits(), {prompt(1, 40, 8), prompt(2, 40, 8)}, {}, 2);
  EXPECT_EQ(rows_of(plan), (std::vector<Row>{{1, 16, 0, false}})) << "8 free, 8 that come back";
  EXPECT_EQ(plan.preempted, (std::vector<std::uint32_t>{2}));
}

TEST(Scheduler, AdmitsInTurnAndNoneOvertakes) {
  // 1 needs 10 blocks of 8 free: 2, which would fit, waits behind it.
  EXPECT_TRUE(schedule(limits(), {}, {prompt(1, 40), prompt(2, 4)}, 8).rows.size() == 1);
  const Schedule plan = schedule(limits(), {decoding(9, 5)}, {prompt(1, 40), prompt(2, 4)}, 8);
  EXPECT_EQ(rows_of(plan), (std::vector<Row>{{9, 1, 0, true}}));
}

TEST(Scheduler, AdmitsNoneWhileItPreempts) {
  const Schedule plan = schedule(limits(), {decoding(1, 9), decoding(2, 9)}, {prompt(3, 2)}, 1);
  EXPECT_EQ(plan.preempted, (std::vector<std::uint32_t>{2}));
  EXPECT_EQ(rows_of(plan), (std::vector<Row>{{1, 1, 0, true}}));
}

TEST(Scheduler, AdmitsUpToTheLimitOfRunningSequences) {
  auto l = limits();
  l.max_running = 2;
  EXPECT_EQ(schedule(l, {decoding(1, 4)}, {prompt(2, 2), prompt(3, 2)}, 90).rows.size(), 2u);
}

TEST(Scheduler, GuaranteedNoEvictAdmitsOnlyWhatCanGrowToItsEnd) {
  auto l = limits(24);
  l.policy = AdmissionPolicy::kGuaranteedNoEvict;
  // 4 + 40 tokens = 11 blocks each: two fit into 24, three do not.
  EXPECT_EQ(schedule(l, {}, {prompt(1, 4), prompt(2, 4), prompt(3, 4)}, 24).rows.size(), 2u);
  l.policy = AdmissionPolicy::kMaxUtilization;
  EXPECT_EQ(schedule(l, {}, {prompt(1, 4), prompt(2, 4), prompt(3, 4)}, 24).rows.size(), 3u);
}

TEST(Scheduler, NamesWhatIsPastItsDeadlineAndGivesItNoRows) {
  auto late = decoding(1, 9, 4);
  late.deadline = kStart + seconds(1);
  auto waiting = prompt(2, 4);
  waiting.deadline = kStart + seconds(1);
  const Schedule plan =
      schedule(limits(), {late, decoding(3, 9)}, {waiting}, 90, kStart + seconds(1));
  EXPECT_EQ(plan.expired, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(rows_of(plan), (std::vector<Row>{{3, 1, 0, true}}));
}

SequenceView of_flow(std::uint32_t flow, SequenceView view, std::uint64_t last_pass = 0) {
  view.flow = flow;
  view.last_pass = last_pass;
  return view;
}

TEST(Scheduler, SequencesOfABoundedFlowTakeTurns) {
  const std::vector<std::uint32_t> flow_rows{4, 2};
  const PassCosts costs{.flow_rows = flow_rows};
  std::vector<SequenceView> running;
  for (std::uint32_t i = 0; i < 6; ++i) running.push_back(of_flow(1, decoding(i, 9, 4)));
  running.push_back(of_flow(0, decoding(6, 9, 3)));
  std::vector<int> served(7, 0);
  for (std::uint64_t pass = 1; pass <= 9; ++pass) {
    const Schedule plan = schedule(limits(), running, {}, 60, kStart, costs);
    ASSERT_EQ(3u, plan.rows.size());
    EXPECT_EQ(6, plan.n_rows);
    for (const ScheduledRows& rows : plan.rows) {
      EXPECT_EQ(rows.index == 6 ? 3u : 0u, rows.n_proposed) << "proposals, too, are rows of a flow";
      running[rows.index].last_pass = pass;
      ++served[rows.index];
    }
  }
  EXPECT_EQ((std::vector<int>{3, 3, 3, 3, 3, 3, 9}), served);
}

TEST(Scheduler, PromptsOfABoundedFlowGetHalfOfItsRows) {
  const std::vector<std::uint32_t> flow_rows{6, 2};
  const PassCosts costs{.flow_rows = flow_rows};
  std::vector<SequenceView> running;
  for (std::uint32_t i = 0; i < 5; ++i) running.push_back(of_flow(0, decoding(i, 9)));
  running.push_back(of_flow(0, prompt(5, 20)));
  running.push_back(of_flow(1, prompt(6, 2)));
  EXPECT_EQ(
      rows_of(schedule(limits(), running, {}, 60, kStart, costs)),
      (std::vector<Row>{
          {0, 1, 0, true}, {1, 1, 0, true}, {2, 1, 0, true}, {5, 3, 0, false}, {6, 2, 0, true}}));
  running[5] = of_flow(0, prompt(5, 20, 18));
  EXPECT_EQ(rows_of(schedule(limits(), running, {}, 60, kStart, costs)),
            (std::vector<Row>{{0, 1, 0, true},
                              {1, 1, 0, true},
                              {2, 1, 0, true},
                              {3, 1, 0, true},
                              {5, 2, 0, true},
                              {6, 2, 0, true}}))
      << "no more is kept for a prompt than it has";
}

TEST(Scheduler, APromptIsAdmittedBeforeThoseWhoseFlowHasNoRowsLeft) {
  const std::vector<std::uint32_t> flow_rows{2, 8};
  const PassCosts costs{.flow_rows = flow_rows};
  std::vector<SequenceView> waiting;
  for (std::uint32_t i = 0; i < 4; ++i) waiting.push_back(of_flow(0, prompt(i, 8)));
  waiting.push_back(of_flow(1, prompt(4, 8)));
  EXPECT_EQ(rows_of(schedule(limits(), {}, waiting, 60, kStart, costs)),
            (std::vector<Row>{{0, 1, 0, false}, {1, 1, 0, false}, {4, 8, 0, true}}));
}

// What is kept for prompts is what they can use: places, chunk and blocks bound that, too.
TEST(Scheduler, RowsThatPromptsCannotUseGoToAnswers) {
  const std::vector<std::uint32_t> flow_rows{8, 2};
  const PassCosts costs{.flow_rows = flow_rows};
  std::vector<SequenceView> running;
  for (std::uint32_t i = 0; i < 8; ++i) running.push_back(of_flow(0, decoding(i, 9)));
  const std::vector<SequenceView> waiting{of_flow(0, prompt(8, 30)), of_flow(1, prompt(9, 30))};
  EXPECT_EQ(8u, schedule(limits(), running, waiting, 60, kStart, costs).rows.size()) << "no place";
  auto l = limits();
  l.prefill_chunk = 1;
  running.resize(7);
  running.push_back(of_flow(0, prompt(7, 30)));
  EXPECT_EQ(8u, schedule(l, running, {}, 60, kStart, costs).rows.size()) << "one row of a prompt";
  l = limits(20);
  running.clear();
  for (std::uint32_t i = 0; i < 6; ++i) running.push_back(of_flow(0, decoding(i, 10)));
  EXPECT_EQ(6u, schedule(l, running, waiting, 0, kStart, costs).rows.size()) << "no block";
}

TEST(Scheduler, ThePlaceThatIsLeftIsNotKeptByOneWhoseFlowHasNoRows) {
  const std::vector<std::uint32_t> flow_rows{1, 8};
  const PassCosts costs{.flow_rows = flow_rows};
  auto l = limits();
  l.max_running = 2;
  const std::vector<SequenceView> running{of_flow(0, prompt(0, 30))};
  const std::vector<SequenceView> waiting{of_flow(0, prompt(1, 8)), of_flow(1, prompt(2, 8))};
  EXPECT_EQ(rows_of(schedule(l, running, waiting, 60, kStart, costs)),
            (std::vector<Row>{{0, 1, 0, false}, {2, 8, 0, true}}));
}

// One that decodes and what its flow may have: a row in each pass, whatever its prompts need.
TEST(Scheduler, TheLeastAFlowMayHaveMovesAnswersAndPrompts) {
  const std::vector<std::uint32_t> flow_rows{kLeastFlowRows, 20};
  const PassCosts costs{.prefill = {.row_s = 0.01, .context = 10}, .flow_rows = flow_rows};
  const std::vector<SequenceView> running{of_flow(0, decoding(0, 9)),
                                          of_flow(0, prompt(1, 200, 100))};
  EXPECT_EQ(rows_of(schedule(limits(), running, {}, 60, kStart, costs)),
            (std::vector<Row>{{0, 1, 0, true}, {1, 1, 0, false}}));
}

TEST(Scheduler, TurnLetsPriorityOvertakeForABoundedTime) {
  EXPECT_LT(turn_of(kStart + seconds(5), 1), turn_of(kStart, 0));
  EXPECT_GT(turn_of(kStart + seconds(15), 1), turn_of(kStart, 0));
}

// Their logits take memory: the bound is for all of them together, and each prompt has its part.
TEST(Scheduler, RowsWithForcedChoicesShareTheirBoundAndOthersTakeWhatItLeaves) {
  auto l = limits();
  l.max_rows = 64;
  l.prefill_chunk = 40;
  l.max_forced_rows = 10;
  std::vector<SequenceView> running{prompt(0, 40), prompt(1, 40), prompt(2, 40)};
  running[0].n_forced = running[1].n_forced = 39;
  const Schedule plan = schedule(l, running, {}, 100);
  ASSERT_EQ(plan.rows.size(), 3u);
  EXPECT_EQ(plan.rows[0].n_known, 5u);
  EXPECT_EQ(plan.rows[1].n_known, 5u);
  EXPECT_EQ(plan.rows[2].n_known, 30u);
}

TEST(Scheduler, OneThatDoesNotFitIsNotOvertakenThoughItsFlowHasNoRows) {
  const std::vector<std::uint32_t> flow_rows{0, 8, 8};
  const PassCosts costs{.flow_rows = flow_rows};
  const std::vector<SequenceView> running{of_flow(1, decoding(0, 9)), of_flow(2, decoding(1, 9))};
  const std::vector<SequenceView> waiting{of_flow(0, prompt(10, 200)), of_flow(1, prompt(11, 8))};
  const Schedule plan = schedule(limits(), running, waiting, 20, kStart, costs);
  EXPECT_EQ(rows_of(plan), (std::vector<Row>{{0, 1, 0, true}, {1, 1, 0, true}}));
}

// A prompt of which as many tokens are cached, in blocks of which so many are among the free ones.
SequenceView cached(SequenceView view, std::uint32_t n_cached, std::int32_t n_idle) {
  view.n_cached = n_cached;
  view.n_blocks = static_cast<std::int32_t>(n_cached) / 4;
  view.n_idle = n_idle;
  return view;
}

TEST(Scheduler, CachedBlocksOfAWaitingPromptAreTakenFromTheFreeOnesWhereTheyAreIdle) {
  const std::vector<SequenceView> running{decoding(0, 9)};
  const auto rows = [&](std::int32_t n_idle, std::int32_t n_free) {
    return rows_of(schedule(limits(), running, {cached(prompt(1, 40), 32, n_idle)}, n_free));
  };
  const std::vector<Row> alone{{0, 1, 0, true}}, both{{0, 1, 0, true}, {1, 8, 0, true}};
  EXPECT_EQ(rows(0, 4), both) << "two blocks, and one ahead for each that runs";
  EXPECT_EQ(rows(0, 3), alone);
  EXPECT_EQ(rows(8, 12), both);
  EXPECT_EQ(rows(8, 11), alone);
}

TEST(Scheduler, SharedBlocksCountOnceForTheLongestThatFits) {
  auto l = limits(24);
  l.policy = AdmissionPolicy::kGuaranteedNoEvict;
  SequenceView first = decoding(0, 41);               // at its longest 81 tokens: 21 blocks
  const auto waiting = cached(prompt(1, 42), 40, 0);  // 82 tokens: 21 blocks, ten of them shared
  EXPECT_EQ(schedule(l, {first}, {waiting}, 14).rows.size(), 1u);
  l.n_blocks = 32;
  EXPECT_EQ(schedule(l, {first}, {waiting}, 22).rows.size(), 2u);
  EXPECT_EQ(schedule(l, {first}, {prompt(1, 42)}, 22).rows.size(), 1u);
}

TEST(Scheduler, ThoseHeldBackBehindTakeNoPlaceFromTheOneWhoseTurnItIs) {
  auto l = limits();
  l.max_running = 3;
  std::vector<SequenceView> waiting;
  for (std::uint32_t i = 0; i < 5; ++i) waiting.push_back(prompt(i, 8));
  for (std::uint32_t i = 1; i < 5; ++i) waiting[i].is_held_back = true;
  EXPECT_EQ(rows_of(schedule(l, {}, waiting, 100)), (std::vector<Row>{{0, 8, 0, true}}));
}

TEST(Scheduler, OneHeldBackKeepsItsPlaceAndLetsOthersPass) {
  auto l = limits();
  l.max_running = 3;
  SequenceView held = prompt(1, 8);
  held.is_held_back = true;
  const std::vector<SequenceView> waiting{held, prompt(2, 4), prompt(3, 4)};
  EXPECT_EQ(rows_of(schedule(l, {decoding(0, 9)}, waiting, 100)),
            (std::vector<Row>{{0, 1, 0, true}, {2, 4, 0, true}}));
}

// Whatever the state: rows within budget, blocks within what is free, the oldest always moves.
TEST(Scheduler, KeepsItsBudgetsInRandomStates) {
  for (std::uint32_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 rng(seed);
    auto draw = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(rng);
    };
    auto l = limits();
    l.policy = draw(0, 1) ? AdmissionPolicy::kMaxUtilization : AdmissionPolicy::kGuaranteedNoEvict;
    l.max_rows = draw(8, 40);
    l.prefill_chunk = draw(1, 40);
    l.max_forced_rows = 1 + static_cast<std::int32_t>(seed % 20);
    if (draw(0, 1)) l.max_step = milliseconds(draw(1, 100));
    PassCosts costs{.prefill = {.row_s = 0.001 * draw(0, 20), .context = 10.0 * draw(0, 3)},
                    .plain = milliseconds(draw(0, 60))};
    std::vector<SequenceView> running, waiting;
    std::vector<std::uint32_t> flow_rows;
    if (seed % 2 == 0) {
      flow_rows.resize(3);
      for (std::uint32_t& rows : flow_rows)
        rows = static_cast<std::uint32_t>(draw(kLeastFlowRows, 12));
    }
    std::int32_t held = 0;
    for (int i = 0, n = draw(0, 8); i < n; ++i) {
      const auto n_tokens = static_cast<std::uint32_t>(draw(2, 60));
      running.push_back(
          draw(0, 2) ? decoding(static_cast<std::uint32_t>(i), n_tokens,
                                static_cast<std::uint32_t>(draw(0, 8)))
                     : prompt(static_cast<std::uint32_t>(i), n_tokens,
                              static_cast<std::uint32_t>(draw(0, static_cast<int>(n_tokens) - 1))));
      held += running.back().n_blocks;
    }
    for (int i = 0, n = draw(0, 4); i < n; ++i) {
      const int n_tokens = draw(1, 60), n_blocks = draw(0, (n_tokens - 1) / 4);
      waiting.push_back(
          cached(prompt(static_cast<std::uint32_t>(100 + i), static_cast<std::uint32_t>(n_tokens)),
                 4 * static_cast<std::uint32_t>(n_blocks), draw(0, n_blocks)));
      waiting.back().is_held_back = draw(0, 3) == 0;
    }
    const std::int32_t n_free = draw(0, 12);
    l.n_blocks = std::max(held + n_free, 40);
    for (auto* list : {&running, &waiting})
      for (SequenceView& view : *list) {
        view.flow = static_cast<std::uint32_t>(draw(0, 2));
        view.last_pass = static_cast<std::uint64_t>(draw(0, 5));
        if (seed % 3 == 0 && view.n_tokens - view.n_cached > 1) view.n_forced = view.n_tokens - 1;
      }
    costs.flow_rows = flow_rows;
    const Schedule plan = schedule(l, running, waiting, n_free, kStart, costs);

    std::int32_t n_rows = 0, n_blocks = 0, returned = 0, n_prompt_rows = 0;
    std::uint32_t n_forced_rows = 0;
    double work = 0;
    for (const auto& r : plan.rows) {
      n_rows += static_cast<std::int32_t>(r.n_known + r.n_proposed);
      const auto& pool = r.admitted ? waiting : running;
      const auto view =
          std::find_if(pool.begin(), pool.end(), [&](const auto& v) { return v.index == r.index; });
      ASSERT_NE(view, pool.end());
      EXPECT_GT(r.n_known, 0u);
      EXPECT_LE(view->n_cached + r.n_known, view->n_tokens);
      EXPECT_EQ(r.samples, view->n_cached + r.n_known == view->n_tokens);
      EXPECT_LE(r.n_proposed, r.samples ? view->n_wanted : 0u);
      EXPECT_EQ(std::count(plan.preempted.begin(), plan.preempted.end(), r.index), 0);
      if (r.admitted || view->n_tokens - view->n_cached > 1) {
        n_prompt_rows += static_cast<std::int32_t>(r.n_known);
        if (view->n_forced > 0)
          n_forced_rows += std::min(r.n_known, view->n_forced - view->n_cached);
        work += costs.prefill.work(view->n_cached, r.n_known);
      }
      EXPECT_FALSE(view->is_held_back);
      n_blocks += blocks_wanted(*view, r.n_known + r.n_proposed, l.block_tokens) + view->n_idle;
    }
    for (std::uint32_t index : plan.preempted) returned += running[index].n_returned;
    EXPECT_EQ(n_rows, plan.n_rows);
    EXPECT_LE(n_rows, l.max_rows);
    EXPECT_LE(n_forced_rows, static_cast<std::uint32_t>(l.max_forced_rows));
    EXPECT_LE(n_prompt_rows, l.prefill_chunk);
    EXPECT_NEAR(work, plan.prompt_work, 1e-9);
    if (l.max_step > Duration::zero() && n_prompt_rows > kLeastPrefillRows) {
      EXPECT_LE(work, costs.prefill.work_within(plan.planned) + 1e-9);
    }
    EXPECT_LE(n_blocks, n_free + returned);
    for (std::uint32_t flow = 0; flow < flow_rows.size(); ++flow) {
      double rows_work = 0, last = 0;
      for (const auto& r : plan.rows) {
        const auto& view = *std::find_if((r.admitted ? waiting : running).begin(),
                                         (r.admitted ? waiting : running).end(),
                                         [&](const auto& v) { return v.index == r.index; });
        if (view.flow != flow) continue;
        const bool decodes = !r.admitted && view.n_tokens - view.n_cached == 1;
        rows_work += (decodes ? 1 : costs.prefill.work(view.n_cached, r.n_known)) + r.n_proposed;
        last = std::max(last, costs.prefill.row_work(view.n_tokens));
      }
      EXPECT_LE(rows_work, flow_rows[flow] + last) << "more than one row too many";
    }
    if (!running.empty() && (n_free > 0 || running.size() > 1)) {
      EXPECT_FALSE(plan.rows.empty() && plan.preempted.empty());
      if (flow_rows.empty()) {
        ASSERT_FALSE(plan.rows.empty());
        EXPECT_EQ(plan.rows.front().index, running.front().index);
      }
    }
  }
}

}  // namespace
}  // namespace foretoken
