// Passes of a draft alone, without leases' times or messages: which sequences have rows, and which
// lose blocks.
#include "common/engine/draft_pass.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "common/kv/invariants.h"
#include "kernels/include/backend.h"
#include "tests/engine/leased_sequence.h"
#include "tests/support/scripted_model.h"

namespace foretoken {
namespace {

using test::guess;
using test::LeasedOptions;
using testing::ElementsAre;
using testing::IsEmpty;

class DraftPassTest : public ::testing::Test {
 protected:
  void start(const DraftPassLimits& limits,
             std::int32_t n_blocks = 200,
             const BranchLimits& branches = {}) {
    sequences_.clear();
    pass_.reset();
    branches_.reset();
    step_.reset();
    cost_ = StepCost();
    kv_ = std::make_unique<KvCache>(KvCacheConfig{.n_blocks = n_blocks, .block_tokens = 4});
    step_ = std::make_unique<Step>(model_, *backend_, *kv_, 0);
    branches_ = std::make_unique<DraftBranches>(*kv_, *step_, cost_, branches);
    pass_ = std::make_unique<DraftPass>(DraftPassParts{sequences_, *kv_, *step_, cost_, *branches_},
                                        limits, 0);
  }
  LeasedSequence& add(const LeasedOptions& options) {
    auto sequence = test::leased_sequence(options);
    sequence->turn = pass_->next_turn();
    return *sequences_.emplace(sequence->key, std::move(sequence)).first->second;
  }
  DraftPassCounts run() {
    const DraftPassCounts counts = pass_->run();
    EXPECT_THAT(kv_violations(kv_->snapshot()), IsEmpty());
    return counts;
  }
  static std::vector<TokenId> prompt(std::size_t n, TokenId token = 5) {
    return std::vector<TokenId>(n, token);
  }

  std::unique_ptr<Backend> backend_ = make_backend({.device = "cpu", .n_threads = 1});
  ScriptedModel model_{{.vocab_size = 40, .max_model_len = 200, .eos_token_ids = {}}};
  LeasedSequences sequences_;
  StepCost cost_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<Step> step_;
  std::unique_ptr<DraftBranches> branches_;
  std::unique_ptr<DraftPass> pass_;
};

TEST_F(DraftPassTest, WithNoSequenceRunsNothing) {
  start({.max_batch_rows = 64, .prefill_chunk = 64});
  EXPECT_EQ(run().n_rows, 0u);
  EXPECT_EQ(model_.n_forwards(), 0u);
}

TEST_F(DraftPassTest, GivesEachChainOneGuess) {
  start({.max_batch_rows = 64, .prefill_chunk = 64});
  const LeasedSequence& a = add({.seq = 1, .prompt = prompt(5), .budget = 3});
  const LeasedSequence& b = add({.seq = 2, .prompt = prompt(7), .budget = 3});
  const DraftPassCounts counts = run();
  EXPECT_EQ(counts.n_rows, 12u);
  EXPECT_EQ(counts.n_steps, 1u);
  EXPECT_EQ(counts.n_drafted, 2u);
  EXPECT_EQ(a.chain.n_guesses(), 1u);
  EXPECT_EQ(b.chain.n_guesses(), 1u);
  EXPECT_EQ(run().n_rows, 2u);
}

TEST_F(DraftPassTest, ChainedIsAsLongAsTheShortestWish) {
  start({.max_batch_rows = 64, .prefill_chunk = 64, .max_chained = 8});
  const LeasedSequence& a = add({.seq = 1, .budget = 5});
  const LeasedSequence& b = add({.seq = 2, .budget = 3});
  EXPECT_EQ(run().n_steps, 1u) << "the first opens their caches";
  EXPECT_EQ(run().n_steps, 2u);
  EXPECT_EQ(a.chain.n_guesses(), 3u);
  EXPECT_EQ(b.chain.n_guesses(), 3u);
}

TEST_F(DraftPassTest, ReadsAPromptInChunks) {
  start({.max_batch_rows = 64, .prefill_chunk = 40});
  const LeasedSequence& a = add({.prompt = prompt(90), .budget = 1});
  EXPECT_EQ(run().n_rows, 40u);
  EXPECT_EQ(run().n_rows, 50u) << "what is left is no prompt any more";
  EXPECT_EQ(a.chain.n_guesses(), 1u);
}

TEST_F(DraftPassTest, LetsWhoWaitedLongestGoFirst) {
  start({.max_batch_rows = 4, .prefill_chunk = 4});
  const LeasedSequence& a = add({.seq = 1, .prompt = prompt(4), .budget = 5});
  const LeasedSequence& b = add({.seq = 2, .prompt = prompt(4), .budget = 5});
  run();
  EXPECT_EQ(a.chain.n_guesses(), 1u);
  EXPECT_EQ(b.chain.n_guesses(), 0u);
  run();
  EXPECT_EQ(a.chain.n_guesses(), 1u) << "no row was left beside the other";
  EXPECT_EQ(b.chain.n_guesses(), 1u);
}

TEST_F(DraftPassTest, GuessesUnaskedOnlyWhereNothingIsAsked) {
  start({.max_batch_rows = 64, .prefill_chunk = 64});
  LeasedSequence& ahead = add({.seq = 1, .budget = 1, .run_ahead = 4});
  run();
  ahead.owes_answer = false;
  LeasedSequence& asked = add({.seq = 2, .budget = 1});
  run();
  EXPECT_EQ(asked.chain.n_guesses(), 1u);
  EXPECT_EQ(ahead.chain.n_guesses(), 1u);
  asked.owes_answer = false;
  run();
  EXPECT_EQ(ahead.chain.n_guesses(), 2u);
}

TEST_F(DraftPassTest, ShortOfBlocksTakesThoseOfAnIdleSequenceWhoseTokensStay) {
  start({.max_batch_rows = 64, .prefill_chunk = 64}, 8);
  LeasedSequence& idle = add({.seq = 1, .prompt = prompt(20, 4), .budget = 1});
  run();
  idle.owes_answer = false;
  LeasedSequence& asked = add({.seq = 2, .prompt = prompt(20, 6), .budget = 1});
  run();
  EXPECT_EQ(asked.chain.n_guesses(), 1u);
  EXPECT_FALSE(idle.has_cache);
  EXPECT_EQ(idle.chain.length(), 21u);
  EXPECT_THAT(pass_->lost_blocks(), IsEmpty());
}

TEST_F(DraftPassTest, ShortOfBlocksDeprivesTheYounger) {
  start({.max_batch_rows = 64, .prefill_chunk = 64}, 8);
  LeasedSequence& older = add({.seq = 1, .prompt = prompt(20, 4), .budget = 9});
  LeasedSequence& younger = add({.seq = 2, .prompt = prompt(20, 6), .budget = 9});
  run();
  EXPECT_EQ(older.chain.n_guesses(), 1u);
  EXPECT_THAT(pass_->lost_blocks(), ElementsAre(&younger));
  EXPECT_FALSE(younger.has_cache);
  EXPECT_FALSE(younger.owes_answer);
  EXPECT_EQ(younger.budget, 0u);
  run();
  EXPECT_THAT(pass_->lost_blocks(), IsEmpty());
}

TEST_F(DraftPassTest, OneThatGoesOnUnaskedTakesNoBlocksFromOthers) {
  start({.max_batch_rows = 64, .prefill_chunk = 64}, 8);
  LeasedSequence& other = add({.seq = 1, .prompt = prompt(15, 4), .budget = 1});
  LeasedSequence& ahead = add({.seq = 2, .prompt = prompt(15, 6), .budget = 1, .run_ahead = 8});
  run();
  other.owes_answer = ahead.owes_answer = false;
  run();
  EXPECT_FALSE(ahead.is_stuck) << "its last block has room for one more";
  run();
  EXPECT_TRUE(ahead.is_stuck);
  EXPECT_TRUE(other.has_cache);
  EXPECT_THAT(pass_->lost_blocks(), IsEmpty());
}

// ---- properties

// Sequences that a target asks of, some of which go on once they have answered, in passes with or
// without branches.
class DraftPassProperties : public DraftPassTest {
 protected:
  struct Setting {
    std::uint32_t seed = 0;
    std::int32_t n_blocks = 0;
    std::uint32_t branch_rows = 0;
  };
  // The texts of all chains after each of the passes.
  std::vector<std::vector<std::vector<TokenId>>> chains_of(const Setting& setting) {
    constexpr std::uint32_t kMostRows = 24;
    start({.max_batch_rows = kMostRows, .prefill_chunk = kMostRows}, setting.n_blocks,
          {.n_rows = setting.branch_rows, .max_len = 100});
    std::mt19937 random(setting.seed);
    const auto up_to = [&](std::uint32_t most) {
      return 1 + static_cast<std::uint32_t>(random() % most);
    };
    for (std::uint64_t seq = 1; seq <= 3; ++seq) {
      const std::uint32_t n_prompt = up_to(30);
      add({.seq = seq,
           .prompt = prompt(n_prompt, static_cast<TokenId>(up_to(30))),
           .budget = up_to(4),
           .run_ahead = up_to(2) * 8 - 8});
    }
    std::vector<std::vector<std::vector<TokenId>>> all;
    for (int i = 0; i < 24; ++i) {
      EXPECT_LE(run().n_rows, kMostRows);
      all.emplace_back();
      for (const auto& [key, sequence] : sequences_) {
        const auto text = sequence->chain.text();
        all.back().emplace_back(text.begin(), text.end());
        if (sequence->chain.n_guesses() >= sequence->budget) sequence->owes_answer = false;
      }
    }
    n_branches_ += branches_->stats().n_begun;
    return all;
  }
  std::uint64_t n_branches_ = 0;
};

TEST_F(DraftPassProperties, BranchesTakeNoRowFromAChain) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    ASSERT_TRUE(chains_of({seed, 200, 3}) == chains_of({seed, 200, 0}));
  }
  EXPECT_GT(n_branches_, 300u);
}

// Which sequences lose blocks may differ, and with it the length of a chain, but not its tokens.
TEST_F(DraftPassProperties, WhereBlocksAreShortChainsHaveTheSameTokens) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const auto with = chains_of({seed, 14, 3}), without = chains_of({seed, 14, 0});
    for (std::size_t i = 0; i < with.size(); ++i)
      for (std::size_t chain = 0; chain < with[i].size(); ++chain) {
        const std::size_t n_both = std::min(with[i][chain].size(), without[i][chain].size());
        ASSERT_TRUE(std::ranges::equal(std::span(with[i][chain]).first(n_both),
                                       std::span(without[i][chain]).first(n_both)));
      }
  }
}

// Each row takes the same time, from one that is nothing beside the bound to one of which few fit.
// The bound is max_step, or twice a pass of one row, as far as that is known.
TEST_F(DraftPassProperties, PassesWithPromptsKeepTheirBound) {
  constexpr Duration kMaxStep = std::chrono::milliseconds(20);
  constexpr std::uint32_t kLeast = 8;  // rows that move on in any case
  for (const int row_us : {10, 100, 700, 4000}) {
    SCOPED_TRACE(row_us);
    const Duration row = std::chrono::microseconds(row_us);
    start({.max_batch_rows = 512, .prefill_chunk = 512, .max_step = kMaxStep});
    for (std::uint64_t seq = 1; seq <= 3; ++seq)
      add({.seq = seq,
           .prompt = prompt(181, static_cast<TokenId>(seq)),
           .limits = {.max_ahead = 8, .max_len = 190}});
    std::uint32_t n_read = 0;
    for (bool is_first = true;; is_first = false) {
      const std::chrono::duration<double> plain(cost_.seconds(1));
      const Duration bound = std::max(kMaxStep, std::chrono::duration_cast<Duration>(2 * plain));
      const DraftPassCounts counts = run();
      if (counts.n_rows == 0) break;
      n_read += counts.n_rows;
      if (!is_first) {
        EXPECT_LE(counts.n_rows * row, bound + kLeast * row);
      }
      pass_->record_time(counts.n_rows * row);
    }
    EXPECT_GE(n_read, 3 * (180u - 32)) << "the last few wait until guesses are asked for";
  }
}

}  // namespace
}  // namespace foretoken
