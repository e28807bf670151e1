// Branches alone, without leases or messages: which are begun, what holds of them, and how they
// end.
#include "common/engine/draft_branches.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/engine/runners_up.h"
#include "common/kv/invariants.h"
#include "kernels/include/backend.h"
#include "tests/support/scripted_model.h"

namespace foretoken {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// What the header says of each branch of a chain; a sentence for each that is not so.
std::vector<std::string> branch_violations(const BranchedSequence& sequence, const KvCache& kv) {
  std::vector<std::string> all;
  const DraftChain& chain = sequence.chain;
  std::set<std::pair<Position, std::size_t>> texts;
  for (const DraftBranch& branch : sequence.branches) {
    const std::string which =
        "the branch at " + std::to_string(branch.position) + "." + std::to_string(branch.rank);
    if (!texts.emplace(branch.position, branch.rank).second) all.push_back(which + " is twice");
    if (branch.position < chain.known() || branch.position >= chain.length()) {
      all.push_back(which + " is at no guess");
      continue;
    }
    const Guess& wrong = chain.guesses()[branch.position - chain.known()];
    if (branch.tokens.empty() || branch.tokens.front() != wrong.runners_up[branch.rank])
      all.push_back(which + " begins with no runner-up");
    if (branch.guesses.size() != branch.tokens.size())
      all.push_back(which + " lacks what is kept of its guesses");
    if (!kv.contains(branch.cache_name) || kv.length(branch.cache_name) < branch.position ||
        kv.length(branch.cache_name) > branch.length())
      all.push_back(which + " has another text in the cache");
  }
  return all;
}

// Greedy, and with nothing guessed yet.
struct GreedySequence : BranchedSequence {
  explicit GreedySequence(std::uint64_t name, std::vector<TokenId> prompt = {3, 1, 4, 1, 5})
      : BranchedSequence{.cache_name = SeqId{name},
                         .has_cache = true,
                         .rules = {SamplingParams{.temperature = 0, .n_logprobs = 0}, {}, prompt},
                         .chain = DraftChain(prompt)} {}
};

class Branches : public ::testing::Test {
 protected:
  static constexpr Position kLongest = 120;
  void SetUp() override { start({.n_rows = 3, .max_len = kLongest}); }
  void start(BranchLimits limits, std::int32_t n_blocks = 200) {
    kv_ = std::make_unique<KvCache>(KvCacheConfig{.n_blocks = n_blocks, .block_tokens = 4});
    step_ = std::make_unique<Step>(model_, *backend_, *kv_, 0);
    branches_ = std::make_unique<DraftBranches>(*kv_, *step_, cost_, limits);
    one_ = std::make_unique<GreedySequence>(1);
    kv_->open(one_->cache_name, {}, 0).value();
  }
  // Guesses that a test makes up, of these confidences; with all three runners-up, and cached.
  void guess(const std::vector<std::uint8_t>& confidences) {
    for (const std::uint8_t confidence : confidences) {
      const auto at = static_cast<TokenId>(one_->chain.length() % 9);
      one_->chain.append(at, {confidence, {at + 10, at + 20, at + 30}});
    }
    const std::uint32_t n = one_->chain.length() - 1 - kv_->length(one_->cache_name);
    kv_->reserve(one_->cache_name, n).value().commit(n, one_->chain.text());
  }
  void plan(std::uint32_t n_others = 1) {
    step_->begin();
    BranchedSequence* sequences[] = {one_.get()};
    branches_->plan(sequences, n_others);
    check();
  }
  enum class Chain : std::uint8_t { kStays, kGrows };
  // As the engine has it. Returns how many rows there were.
  std::size_t pass(Chain chain = Chain::kStays, std::uint32_t rows_left = 60) {
    plan();
    if (chain == Chain::kGrows)
      step_
          ->add({.seq = one_->cache_name,
                 .known = one_->chain.text().subspan(kv_->length(one_->cache_name)),
                 .rules = &one_->rules,
                 .guessed = one_->chain.guessed(),
                 .n_top = branches_->n_likeliest(*one_)})
          .value();
    branches_->add_rows(rows_left);
    const std::size_t n_rows = step_->plan().tokens.size();
    if (n_rows > 0) step_->run();
    if (chain == Chain::kGrows) {
      const Choice& choice = step_->choices(0).back();
      one_->chain.append(choice.token, guess_of(*step_, 0, choice));
      step_->commit(0, step_->plan().slices[0].n_known, one_->chain.text());
    }
    branches_->extend();
    step_->begin();
    check();
    return n_rows;
  }
  void commit(const std::vector<TokenId>& tokens) {
    branches_->observe(*one_, tokens);
    std::uint32_t n = one_->chain.n_agreed(tokens);
    if (n < tokens.size() && branches_->take(*one_, n, tokens[n]) > 0)
      n = one_->chain.n_agreed(tokens);
    const Position agreed = one_->chain.known() + n;
    branches_->drop(*one_, n == tokens.size() ? agreed : kLongest);
    if (n < tokens.size() && kv_->length(one_->cache_name) > agreed)
      kv_->truncate(one_->cache_name, agreed);
    one_->chain.commit(tokens);
    for (const TokenId token : tokens) one_->rules.commit(token);
    check();
  }
  void check() {
    EXPECT_THAT(branch_violations(*one_, *kv_), IsEmpty());
    EXPECT_THAT(kv_violations(kv_->snapshot()), IsEmpty());
    EXPECT_EQ(kv_->snapshot().sequences.size(), 1 + one_->branches.size()) << "each has a fork";
  }
  std::vector<Position> places() const {
    std::vector<Position> all;
    for (const DraftBranch& branch : one_->branches) all.push_back(branch.position);
    return all;
  }

  std::unique_ptr<Backend> backend_ = make_backend({.device = "cpu", .n_threads = 1});
  ScriptedModel model_{{.vocab_size = 40, .max_model_len = kLongest, .eos_token_ids = {}}};
  StepCost cost_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<Step> step_;
  std::unique_ptr<DraftBranches> branches_;
  std::unique_ptr<BranchedSequence> one_;
};

TEST_F(Branches, BeginWhereAGuessIsMostProbablyWrong) {
  start({.n_rows = 1, .max_len = kLongest});
  guess({250, 100, 240});
  plan();
  EXPECT_THAT(places(), ElementsAre(6)) << "of 5, 6 and 7";
  EXPECT_EQ(one_->branches[0].rank, 0u);
  EXPECT_THAT(one_->branches[0].tokens, ElementsAre(16));
  EXPECT_EQ(branches_->stats().n_begun, 1u);
}

TEST_F(Branches, BeginWithTheRunnerUpThatCameOftenest) {
  start({.n_rows = 1, .max_len = kLongest});
  for (int i = 0; i < 40; ++i) {
    guess({100});
    commit({one_->chain.guesses()[0].runners_up[1]});
  }
  guess({100});
  plan();
  ASSERT_EQ(one_->branches.size(), 1u);
  EXPECT_EQ(one_->branches[0].rank, 1u);
}

TEST_F(Branches, AreNotBegunWhereAGuessIsCertain) {
  guess({255, 255, 255});
  EXPECT_FALSE(branches_->wants_rows(*one_));
  plan();
  EXPECT_THAT(places(), IsEmpty());
}

TEST_F(Branches, AreSoManyAndNoMore) {
  start({.n_rows = 60, .max_len = kLongest});
  guess({40});
  for (std::size_t i = 0; i < 300; ++i) {  // each of the runners-up comes as often
    const std::vector<TokenId> instead{one_->chain.guesses()[0].runners_up[i % 3]};
    branches_->observe(*one_, instead);
  }
  commit({one_->chain.guessed()[0]});
  guess(std::vector<std::uint8_t>(20, 220));
  plan();
  EXPECT_EQ(one_->branches.size(), 16u);
}

TEST_F(Branches, BeginWhereTheTextIsCachedAndMayStillGrow) {
  guess({100});
  const Position cached = kv_->length(one_->cache_name);
  kv_->truncate(one_->cache_name, cached - 1);  // as after a prompt that is read in parts
  EXPECT_FALSE(branches_->wants_rows(*one_));
  start({.n_rows = 3, .max_len = 7});
  guess({255, 100});  // the last place of the longest text
  EXPECT_FALSE(branches_->wants_rows(*one_));
}

TEST_F(Branches, AreOffWithoutRows) {
  start({.n_rows = 0, .max_len = kLongest});
  guess({100, 100});
  EXPECT_FALSE(branches_->are_on());
  EXPECT_FALSE(branches_->may_have_passes_alone());
  EXPECT_FALSE(branches_->wants_rows(*one_));
  plan();
  EXPECT_THAT(places(), IsEmpty());
}

TEST_F(Branches, AreTriedNowAndThenWhereRowsAreDear) {
  for (int i = 0; i < 20; ++i)
    for (const std::uint32_t n_rows : {1u, 2u, 3u, 4u})
      cost_.observe(n_rows, std::chrono::milliseconds(n_rows));
  EXPECT_FALSE(branches_->may_have_passes_alone());
  guess({100, 100, 100});
  int n_passes = 0;
  while (one_->branches.empty() && n_passes < 1000) plan(), ++n_passes;
  EXPECT_EQ(n_passes, 128);
}

// To look for the likeliest ids of a row costs time.
TEST_F(Branches, AskForRunnersUpOnlyWhereTheyMayBeUsed) {
  EXPECT_EQ(branches_->n_likeliest(*one_), kRunnerUpPool) << "nothing is known of the cost";
  for (int i = 0; i < 20; ++i)
    for (const std::uint32_t n_rows : {1u, 2u, 4u, 8u, 9u, 12u})
      cost_.observe(n_rows, std::chrono::milliseconds(std::min(n_rows, 9u)));
  int n_asked = 0;
  for (int i = 0; i < 127; ++i) {
    plan();
    n_asked += branches_->n_likeliest(*one_) > 0 ? 1 : 0;
  }
  EXPECT_EQ(n_asked, 15 + 16) << "soon after there was room, and just before they are tried";
  EXPECT_GT(branches_->n_likeliest(*one_), 0);
  plan();
  EXPECT_GT(branches_->n_likeliest(*one_), 0) << "while they are";
  plan();
  EXPECT_EQ(branches_->n_likeliest(*one_), 0);
  plan(9);
  EXPECT_GT(branches_->n_likeliest(*one_), 0)
      << "as soon as there is room: beyond 8 rows are cheap";
  plan();
  EXPECT_GT(branches_->n_likeliest(*one_), 0) << "and in the passes between";
  start({.n_rows = 0, .max_len = kLongest});
  EXPECT_EQ(branches_->n_likeliest(*one_), 0) << "they are off";
  start({.n_rows = 3, .max_len = 7});
  guess({200});
  EXPECT_EQ(branches_->n_likeliest(*one_), 0) << "the last place of the longest text";
}

TEST_F(Branches, GrowByTheirOwnGuessesAlone) {
  for (int i = 0; i < 6; ++i) pass(Chain::kGrows);
  ASSERT_FALSE(one_->branches.empty());
  for (const DraftBranch& branch : one_->branches) {
    EXPECT_LE(branch.tokens.size(), 7u) << "not the text before it";
    EXPECT_TRUE(branch.has_grown);
  }
  EXPECT_GT(branches_->stats().n_tokens, 5u);
}

TEST_F(Branches, WaitWhereThePassIsFull) {
  for (int i = 0; i < 3; ++i) pass(Chain::kGrows);
  ASSERT_FALSE(one_->branches.empty());
  const std::uint64_t n_tokens = branches_->stats().n_tokens;
  EXPECT_EQ(pass(Chain::kStays, 0), 0u);
  EXPECT_EQ(branches_->stats().n_tokens, n_tokens);
  EXPECT_EQ(pass(Chain::kStays, 2), 2u);
}

TEST_F(Branches, AreTheChainWhereTheTextGoesOnSo) {
  for (int i = 0; i < 8; ++i) pass(Chain::kGrows);
  ASSERT_GT(one_->branches.size(), 1u);
  const DraftBranch branch = one_->branches.back();
  const std::uint32_t at = branch.position - one_->chain.known();
  std::vector<TokenId> text(one_->chain.text().begin(), one_->chain.text().end());
  text.resize(branch.position);
  text.insert(text.end(), branch.tokens.begin(), branch.tokens.end());
  const Position cached = kv_->length(branch.cache_name);
  EXPECT_EQ(branches_->take(*one_, at, 39), 0u) << "no branch begins with that";
  EXPECT_EQ(branches_->take(*one_, at, branch.tokens.front()), branch.n_own());
  EXPECT_THAT(one_->chain.text(), testing::ElementsAreArray(text));
  EXPECT_EQ(kv_->length(one_->cache_name), cached);
  EXPECT_THAT(places(), IsEmpty()) << "they were beside another chain";
  EXPECT_EQ(branches_->stats().n_taken, 1u);
  check();
  pass(Chain::kGrows);
}

TEST_F(Branches, GoWhenTheTextHasPassedTheirPlace) {
  for (int i = 0; i < 8; ++i) pass(Chain::kGrows);
  const std::set<Position> before = [&] {
    const auto all = places();
    return std::set<Position>(all.begin(), all.end());
  }();
  ASSERT_GT(before.size(), 1u);
  commit({one_->chain.guessed()[0]});
  for (const Position place : places()) EXPECT_GT(place, *before.begin());
  EXPECT_THAT(places(), testing::Not(IsEmpty()));
}

// Also those that this pass was to begin with, and until its owner says that there are blocks.
TEST_F(Branches, GiveWay) {
  for (int i = 0; i < 4; ++i) pass(Chain::kGrows);
  plan();
  EXPECT_TRUE(branches_->give_way(*one_));
  EXPECT_THAT(places(), IsEmpty());
  branches_->add_rows(60);
  EXPECT_EQ(step_->n_slices(), 0u);
  EXPECT_FALSE(branches_->give_way(*one_)) << "nothing is left";
  EXPECT_FALSE(branches_->wants_rows(*one_));
  one_->lacks_branch_room = false;
  EXPECT_TRUE(branches_->wants_rows(*one_));
}

TEST_F(Branches, ThatFindNoBlockWaitUntilToldOtherwise) {
  start({.n_rows = 3, .max_len = kLongest}, 4);
  for (int i = 0; i < 30 && !one_->lacks_branch_room && one_->chain.length() < 12; ++i)
    pass(Chain::kGrows);
  EXPECT_TRUE(one_->lacks_branch_room);
  EXPECT_FALSE(branches_->wants_rows(*one_));
}

// Passes, tokens that agree, tokens that do not, and want of blocks, in any order.
TEST_F(Branches, HoldWhatTheHeaderSaysThroughAnything) {
  std::uint64_t n_taken = 0;
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    start({.n_rows = static_cast<std::uint32_t>(1 + random() % 5), .max_len = kLongest});
    while (one_->chain.length() < 55) {
      for (auto i = random() % 5; i > 0; --i)
        pass(one_->chain.n_guesses() < 8 ? Chain::kGrows : Chain::kStays);
      if (random() % 10 == 0) {
        branches_->give_way(*one_);
        check();
        one_->lacks_branch_room = false;
      }
      std::vector<TokenId> next;
      const auto guessed = one_->chain.guessed();
      if (!one_->branches.empty() && random() % 2 == 0) {
        const DraftBranch& branch = one_->branches[random() % one_->branches.size()];
        const auto before = guessed.first(branch.position - one_->chain.known());
        next.assign(before.begin(), before.end());
        next.insert(next.end(), branch.tokens.begin(), branch.tokens.begin() + 1);
      } else {
        const auto right = guessed.first(random() % (guessed.size() + 1));
        next.assign(right.begin(), right.end());
        if (random() % 2 == 0) next.push_back(static_cast<TokenId>(random() % 40));
      }
      if (!next.empty()) commit(next);
    }
    n_taken += branches_->stats().n_taken;
  }
  EXPECT_GT(n_taken, 20u);
}

}  // namespace
}  // namespace foretoken
