// Texts beside a draft's chain: what is said of them, what becomes of them, and what they cost.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "common/engine/draft_engine.h"
#include "common/kv/invariants.h"
#include "common/spec/prefix_hash.h"
#include "common/spec/proposal.h"
#include "kernels/include/backend.h"
#include "tests/engine/attach_request.h"
#include "tests/engine/said_text.h"
#include "tests/support/plain_decode.h"
#include "tests/support/scripted_model.h"

namespace foretoken {
namespace {

constexpr PrefixHash kRoot = 42;
const TimePoint kStart{std::chrono::hours(1)};
constexpr TargetKey kTarget{WorkerId{1}, Incarnation{5}};
const std::vector<TokenId> kPrompt{3, 1, 4, 1, 5, 9, 2, 6, 5};

class DraftEngineBranches : public ::testing::Test {
 protected:
  static DraftEngineOptions options() {
    DraftEngineOptions options;
    options.kv = {.n_blocks = 300, .block_tokens = 4};
    options.max_batch_rows = 64;
    options.prefill_chunk = 64;
    options.run_ahead = 8;
    options.branch_rows = 3;
    return options;
  }
  void start(const DraftEngineOptions& options) {
    engine_ = std::make_unique<DraftEngine>(model_, *backend_, options);
  }
  void attach(std::uint64_t seq,
              const std::vector<TokenId>& tokens,
              std::uint32_t budget,
              const SamplingParams& params = {.temperature = 0, .max_tokens = 150}) {
    (void)engine_->attach(kTarget, test::attach_message(SeqId{seq}, kRoot, tokens, budget, params),
                          kStart);
  }
  void follow(std::uint64_t seq,
              const std::vector<TokenId>& committed,
              std::size_t from,
              std::uint32_t budget,
              std::uint32_t epoch) {
    const auto outcome = engine_->follow(
        kTarget,
        {.seq = SeqId{seq},
         .lease = Lease{1},
         .epoch = Epoch{epoch},
         .from = static_cast<Position>(from),
         .tail = {committed.begin() + static_cast<std::ptrdiff_t>(from), committed.end()},
         .prefix = prefix_hash_extend(kRoot, committed),
         .budget = budget},
        kStart);
    EXPECT_TRUE(std::holds_alternative<Applied>(outcome));
  }
  static constexpr int kToTheEnd = 2000;
  // At most so many steps.
  std::vector<wire::ProposalRecord> run(int n_steps = kToTheEnd) {
    const bool runs_to_the_end = n_steps == kToTheEnd;
    std::vector<wire::ProposalRecord> said;
    for (; n_steps > 0 && engine_->has_work(); --n_steps) {
      const DraftOutput& output = engine_->step(kStart);
      for (const ReadyProposal& ready : output.proposals) said.push_back(ready.record);
      n_busy_ += output.busy.size();
      most_rows_ = std::max(most_rows_, output.n_rows);
    }
    EXPECT_FALSE(runs_to_the_end && engine_->has_work()) << "no end";
    const auto violations = kv_violations(engine_->kv().snapshot());
    EXPECT_TRUE(violations.empty()) << violations.front();
    return said;
  }
  std::vector<TokenId> plain(const std::vector<TokenId>& prompt,
                             std::uint32_t n,
                             SamplingParams params = {.temperature = 0}) {
    params.max_tokens = n;
    OpenRequest request{.prompt = prompt, .params = params};
    return plain_decode(model_, *backend_, request, 200).ids;
  }

  std::unique_ptr<Backend> backend_ = make_backend({.device = "cpu", .n_threads = 1});
  ScriptedModel model_{{.vocab_size = 40, .max_model_len = 200, .eos_token_ids = {}}};
  std::unique_ptr<DraftEngine> engine_;
  std::size_t n_busy_ = 0;
  std::uint32_t most_rows_ = 0;
};

std::vector<TokenId> joined(std::vector<TokenId> text, std::span<const TokenId> more) {
  text.insert(text.end(), more.begin(), more.end());
  return text;
}

// Under the same noise, as the chain's are.
TEST_F(DraftEngineBranches, GoOnFromARunnerUpAsTheModelWould) {
  for (const float temperature : {0.0f, 0.9f}) {
    SCOPED_TRACE(temperature);
    const SamplingParams params{.temperature = temperature, .seed = 9, .max_tokens = 150};
    start(options());
    attach(1, kPrompt, 4, params);
    std::size_t n_branches = 0;
    for (const wire::ProposalRecord& record : run()) {
      const auto n_chain = chain_length(record);
      ASSERT_EQ(std::vector(record.tokens.begin(), record.tokens.begin() + n_chain),
                plain(kPrompt, n_chain, params));
      for (const test::SaidText& said : test::branches_of(record)) {
        ++n_branches;
        ASSERT_GE(said.tokens.size(), said.n_chain + 2) << "a runner-up alone is of no use";
        const auto text = std::span(said.tokens);
        const auto before = joined(kPrompt, text.first(said.n_chain));
        const TokenId wrong = plain(before, 1, params).front();
        const TokenId runner_up = said.tokens[said.n_chain];
        EXPECT_NE(runner_up, wrong);
        const auto after = joined(kPrompt, text.first(said.n_chain + 1));
        const auto own = text.subspan(said.n_chain + 1);
        EXPECT_EQ(std::vector(own.begin(), own.end()),
                  plain(after, static_cast<std::uint32_t>(own.size()), params));
      }
    }
    EXPECT_GT(n_branches, 5u);
    EXPECT_GT(most_rows_, 2u) << "beside the chain";
  }
}

// It is what the row would have chosen, were its first choice forbidden.
TEST_F(DraftEngineBranches, BeginWithTheNextBestOfTheRow) {
  int n_seen = 0;
  for (const float temperature : {0.0f, 0.9f})
    for (const TokenId first : {3, 4, 5, 6}) {
      SamplingParams params{.temperature = temperature, .seed = 4, .max_tokens = 150};
      start(options());
      const std::vector<TokenId> prompt{first, 1, 4};
      attach(1, prompt, 4, params);
      std::set<std::size_t> seen;  // positions; the best runner-up of each comes first
      for (const wire::ProposalRecord& record : run())
        for (const test::SaidText& said : test::branches_of(record)) {
          if (!seen.insert(said.n_chain).second) continue;
          const auto before = joined(prompt, std::span(said.tokens).first(said.n_chain));
          params.bad_words = {{plain(before, 1, params).front()}};
          EXPECT_EQ(said.tokens[said.n_chain], plain(before, 1, params).front());
          params.bad_words.clear();
          ++n_seen;
        }
    }
  EXPECT_GT(n_seen, 10);
}

TEST_F(DraftEngineBranches, BeginWithNoForbiddenToken) {
  SamplingParams params{.temperature = 0, .max_tokens = 150};
  const auto first_runner_up = [&] {
    start(options());
    attach(1, kPrompt, 4, params);
    for (const wire::ProposalRecord& record : run())
      for (const test::SaidText& said : test::branches_of(record))
        if (said.n_chain == 0) return said.tokens.front();
    return TokenId{-1};
  };
  const TokenId before = first_runner_up();
  ASSERT_GE(before, 0);
  params.bad_words = {{before}};
  EXPECT_NE(first_runner_up(), before);
  EXPECT_GE(first_runner_up(), 0);
}

TEST_F(DraftEngineBranches, AreTheAnswerAtOnceWhereTheTextGoesOnSo) {
  start(options());
  attach(1, kPrompt, 2);
  std::vector<TokenId> taken;
  std::size_t n_chain = 0;
  for (const wire::ProposalRecord& record : run())
    for (const test::SaidText& said : test::branches_of(record))
      if (said.tokens.size() >= said.n_chain + 3 && said.n_chain > 0)
        taken = said.tokens, n_chain = said.n_chain;
  ASSERT_FALSE(taken.empty());
  const auto committed = joined(kPrompt, std::span(taken).first(n_chain + 1));
  const std::uint64_t n_drafted = engine_->snapshot().n_drafted;
  follow(1, committed, kPrompt.size(), 2, 1);
  const DraftOutput& output = engine_->step(kStart);
  EXPECT_EQ(output.n_rows, 0u);
  ASSERT_EQ(output.proposals.size(), 1u);
  const auto& tokens = output.proposals.front().record.tokens;
  EXPECT_EQ(std::vector(tokens.begin(), tokens.begin() + 2),
            std::vector(taken.begin() + static_cast<std::ptrdiff_t>(n_chain) + 1,
                        taken.begin() + static_cast<std::ptrdiff_t>(n_chain) + 3));
  EXPECT_EQ(engine_->snapshot().n_branches_taken, 1u);
  EXPECT_GT(engine_->snapshot().n_drafted, n_drafted);
  // And the chain goes on from there.
  const auto said = run();
  const auto n = chain_length(said.back());
  EXPECT_EQ(std::vector(said.back().tokens.begin(), said.back().tokens.begin() + n),
            plain(committed, n));
}

// A runner-up is a guess of the row that has another first: only where the text goes on so it
// counts as one of the draft's tokens, and what follows it too.
TEST_F(DraftEngineBranches, CountApartUntilTheTextGoesOnSo) {
  start(options());
  attach(1, kPrompt, 4);
  std::map<std::vector<TokenId>, test::SaidText> longest;  // by what each begins with
  for (const wire::ProposalRecord& record : run())
    for (const test::SaidText& said : test::branches_of(record)) {
      const auto begin = said.tokens.begin();
      longest[{begin, begin + static_cast<std::ptrdiff_t>(said.n_chain) + 1}] = said;
    }
  ASSERT_GT(longest.size(), 2u);
  std::uint64_t n_guessed = 0;
  for (const auto& [begin, said] : longest) n_guessed += said.tokens.size() - begin.size();
  const DraftSnapshot before = engine_->snapshot();
  EXPECT_EQ(before.n_drafted, 12u) << "the chain";
  EXPECT_EQ(before.n_branches, longest.size());
  EXPECT_EQ(before.n_branch_tokens, n_guessed);
  EXPECT_EQ(before.n_branches_taken, 0u);
  const auto& [begin, taken] = *longest.begin();
  follow(1, joined(kPrompt, begin), kPrompt.size(), 4, 1);
  const DraftSnapshot after = engine_->snapshot();
  EXPECT_EQ(after.n_branches_taken, 1u);
  EXPECT_EQ(after.n_drafted, before.n_drafted + taken.tokens.size() - taken.n_chain);
  EXPECT_EQ(after.n_cut, before.n_drafted - taken.n_chain);
  EXPECT_EQ(after.n_kept, begin.size());
  EXPECT_EQ(after.n_branch_tokens, before.n_branch_tokens) << "they were guessed before";
}

// As where a grammar allows a token after which the vocabulary has none.
TEST_F(DraftEngineBranches, AnswerWithNothingWhereNoTokenMayFollowARunnerUp) {
  start(options());
  attach(1, kPrompt, 4);
  TokenId runner_up = -1;
  for (const wire::ProposalRecord& record : run())
    for (const test::SaidText& said : test::branches_of(record))
      if (said.n_chain == 0) runner_up = said.tokens.front();
  ASSERT_GE(runner_up, 0);
  SamplingParams params{.temperature = 0, .max_tokens = 150};
  for (TokenId next = 0; next < 40; ++next) params.bad_words.push_back({runner_up, next});
  start(options());
  attach(1, kPrompt, 4, params);
  run();
  follow(1, joined(kPrompt, std::vector{runner_up}), kPrompt.size(), 4, 1);
  const auto said = run();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].epoch, Epoch{1});
  EXPECT_TRUE(said[0].tokens.empty());
}

// The text ends there; a row would bring nothing.
TEST_F(DraftEngineBranches, DoNotBeginWithAnEndToken) {
  start(options());
  attach(1, kPrompt, 4);
  std::set<TokenId> runners_up;
  for (const wire::ProposalRecord& record : run())
    for (const test::SaidText& said : test::branches_of(record))
      runners_up.insert(said.tokens[said.n_chain]);
  ASSERT_FALSE(runners_up.empty());
  const std::uint64_t n_branches = engine_->snapshot().n_branches;
  start(options());
  auto message =
      test::attach_message(SeqId{1}, kRoot, kPrompt, 4, {.temperature = 0, .max_tokens = 150});
  message.end_tokens.assign(runners_up.begin(), runners_up.end());
  (void)engine_->attach(kTarget, message, kStart);
  for (const wire::ProposalRecord& record : run())
    for (const test::SaidText& said : test::branches_of(record))
      EXPECT_FALSE(runners_up.contains(said.tokens[said.n_chain]));
  EXPECT_LT(engine_->snapshot().n_branches, n_branches);
}

TEST_F(DraftEngineBranches, GoWithTheirSequence) {
  for (const bool expires : {false, true}) {
    start(options());
    attach(1, kPrompt, 4);
    run();
    ASSERT_GT(engine_->snapshot().n_branches, 0u);
    engine_->set_run_ahead(kTarget, 0);
    follow(1, joined(kPrompt, std::vector<TokenId>{7}), kPrompt.size(), 4, 1);
    for (const auto& record : run()) EXPECT_TRUE(record.parents.empty());
    if (expires)
      engine_->step(kStart + std::chrono::hours(1));
    else
      engine_->detach(kTarget, {.seq = SeqId{1}, .lease = Lease{1}});
    EXPECT_EQ(engine_->snapshot().n_attached, 0u);
    EXPECT_EQ(engine_->snapshot().kv.n_used, 0);
  }
}

// Whatever the target goes on with, at any moment.
TEST_F(DraftEngineBranches, LeaveTheChainThatOfAFreshAttachmentAndNoBlocks) {
  for (std::uint32_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    DraftEngineOptions chosen = options();
    chosen.kv.block_tokens = static_cast<std::int32_t>(1 + random() % 8);
    chosen.branch_rows = static_cast<std::uint32_t>(1 + random() % 6);
    start(chosen);
    std::vector<TokenId> committed = kPrompt;
    attach(1, committed, 3);
    std::vector<test::SaidText> texts;  // after `committed`
    for (std::uint32_t epoch = 1; epoch < 25; ++epoch) {
      for (const wire::ProposalRecord& record : run(static_cast<int>(random() % 9))) {
        if (record.base != committed.size()) continue;
        const auto more = test::branches_of(record);
        texts.insert(texts.end(), more.begin(), more.end());
      }
      const std::size_t from = committed.size();
      if (!texts.empty() && random() % 3 > 0) {
        const test::SaidText& text = texts[random() % texts.size()];
        const std::size_t most = text.tokens.size() - text.n_chain;
        committed =
            joined(committed, std::span(text.tokens).first(text.n_chain + 1 + random() % most));
        if (random() % 3 == 0) committed.push_back(static_cast<TokenId>(random() % 40));
      } else {
        const auto right = plain(committed, 3);
        committed = joined(committed, std::span(right).first(random() % 3));
        committed.push_back(static_cast<TokenId>(random() % 40));
      }
      if (committed.size() > 150) break;
      texts.clear();
      follow(1, committed, from, 3, epoch);
    }
    const auto said = run();
    const auto n = chain_length(said.back());
    EXPECT_EQ(n, 11u);
    EXPECT_EQ(std::vector(said.back().tokens.begin(), said.back().tokens.begin() + n),
              plain(committed, n));
    const DraftSnapshot all = engine_->snapshot();
    EXPECT_GT(all.n_branches_taken, 0u);
    EXPECT_EQ(all.n_drafted, all.n_kept + all.n_cut + n) << "each guess ends once";
    engine_->detach(kTarget, {.seq = SeqId{1}, .lease = Lease{1}});
    EXPECT_EQ(engine_->snapshot().kv.n_used, 0);
  }
}

// Blocks for the chains alone: branches go first, and no sequence is let go for one.
TEST_F(DraftEngineBranches, GiveWayWhereBlocksAreShort) {
  DraftEngineOptions chosen = options();
  chosen.kv.n_blocks = 2 * (static_cast<std::int32_t>(kPrompt.size() + 12) / 4 + 1);
  start(chosen);
  attach(1, kPrompt, 4);
  attach(2, {8, 1, 4, 1, 5, 9, 2, 6, 7}, 4);
  const auto said = run();
  EXPECT_EQ(n_busy_, 0u);
  for (const std::uint64_t seq : {1, 2}) {
    std::uint32_t longest = 0;
    for (const auto& record : said)
      if (record.seq == SeqId{seq}) longest = std::max(longest, chain_length(record));
    EXPECT_EQ(longest, 12u) << seq;
  }
}

// Where several rows cost much more than one there are hardly any, also when the chain is complete.
TEST_F(DraftEngineBranches, AreHardlyAnyWhereRowsAreDear) {
  std::array<double, 2> rows{};  // of branches, of all
  for (const bool is_dear : {false, true}) {
    start(options());
    std::vector<TokenId> committed = kPrompt;
    attach(1, committed, 4);
    std::uint64_t n_early = 0, n_early_rows = 0;
    for (std::uint32_t epoch = 1; epoch < 60; ++epoch) {
      while (engine_->has_work()) {
        const std::uint32_t n_rows = engine_->step(kStart).n_rows;
        if (n_rows > 0)
          engine_->record_step_time(
              std::chrono::microseconds(is_dear ? 1000 * n_rows : 1000 + 10 * n_rows));
      }
      if (epoch == 10) {
        n_early = engine_->snapshot().n_branch_tokens;
        n_early_rows = engine_->snapshot().n_rows;
      }
      const std::size_t from = committed.size();
      committed.push_back(static_cast<TokenId>(epoch % 40));
      follow(1, committed, from, 4, epoch);
    }
    rows[is_dear ? 1 : 0] = static_cast<double>(engine_->snapshot().n_branch_tokens - n_early) /
                            static_cast<double>(engine_->snapshot().n_rows - n_early_rows);
  }
  EXPECT_GT(rows[0], 0.3);
  EXPECT_LT(rows[1], 0.05);
}

TEST_F(DraftEngineBranches, AreMadeForTargetsThatLetItRunAheadAlone) {
  DraftEngineOptions chosen = options();
  chosen.run_ahead = 0;
  start(chosen);
  attach(1, kPrompt, 4);
  for (const auto& record : run()) EXPECT_TRUE(record.parents.empty());
  engine_->set_run_ahead(kTarget, 8);
  follow(1, joined(kPrompt, std::vector<TokenId>{7}), kPrompt.size(), 4, 1);
  bool has_branches = false;
  for (const auto& record : run()) has_branches = has_branches || !record.parents.empty();
  EXPECT_TRUE(has_branches);
}

}  // namespace
}  // namespace foretoken
