// Passes of a draft alone, without leases' times or messages: who has rows, and who loses blocks.
#include "common/engine/draft_pass.h"

#include <gmock/gmock.h>

#include <memory>
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
  void start(const DraftPassLimits& limits, std::int32_t n_blocks = 200) {
    kv_ = std::make_unique<KvCache>(KvCacheConfig{.n_blocks = n_blocks, .block_tokens = 4});
    step_ = std::make_unique<Step>(model_, *backend_, *kv_, 0);
    branches_ = std::make_unique<DraftBranches>(*kv_, *step_, cost_, BranchLimits{});
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

}  // namespace
}  // namespace foretoken
