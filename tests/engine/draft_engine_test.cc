// A draft engine alone: what it says after any sequence of records, how it treats its peers, and
// that its cache is always that of a fresh prefill.
#include "common/engine/draft_engine.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "common/kv/invariants.h"
#include "common/spec/prefix_hash.h"
#include "kernels/include/backend.h"
#include "tests/engine/attach_request.h"
#include "tests/support/plain_decode.h"
#include "tests/support/scripted_model.h"

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr PrefixHash kRoot = 42;
const TimePoint kStart{std::chrono::hours(1)};

ScriptedOptions model_options() {
  return {.vocab_size = 40, .max_model_len = 200, .eos_token_ids = {}};
}

DraftEngineOptions engine_options() {
  DraftEngineOptions options;
  options.kv = {.n_blocks = 200, .block_tokens = 4};
  options.max_batch_rows = 64;
  options.prefill_chunk = 64;
  return options;
}

constexpr TargetKey kTarget{WorkerId{1}, Incarnation{5}};

wire::Attach attach_request(std::uint64_t seq,
                            std::vector<TokenId> tokens,
                            std::uint32_t budget,
                            const SamplingParams& params = {.temperature = 0, .max_tokens = 100}) {
  return test::attach_message(SeqId{seq}, kRoot, std::move(tokens), budget, params);
}

class DraftEngineTest : public ::testing::Test {
 protected:
  void start(const DraftEngineOptions& options = engine_options()) {
    engine_ = std::make_unique<DraftEngine>(model_, *backend_, options);
  }

  // Runs until nothing is left to do, and returns everything that was said.
  std::vector<wire::ProposalRecord> run(TimePoint now = kStart) {
    std::vector<wire::ProposalRecord> said;
    for (int i = 0; engine_->has_work(); ++i) {
      EXPECT_LT(i, 1000) << "no end";
      if (i >= 1000) break;
      const DraftOutput& output = engine_->step(now);
      for (const ReadyProposal& ready : output.proposals) {
        EXPECT_EQ(ready.to, kTarget);
        said.push_back(ready.record);
      }
      for (const auto& [of, busy] : output.busy) {
        EXPECT_EQ(of, kTarget);
        busy_.push_back(busy);
      }
      most_rows_ = std::max(most_rows_, output.n_rows);
    }
    const auto violations = kv_violations(engine_->kv().snapshot());
    EXPECT_TRUE(violations.empty()) << violations.front();
    return said;
  }

  DraftOutcome follow(std::uint64_t seq,
                      const std::vector<TokenId>& committed,
                      Position from,
                      std::uint32_t budget,
                      std::uint32_t epoch,
                      std::uint32_t lease = 1) {
    return engine_->follow(kTarget,
                           {.seq = SeqId{seq},
                            .lease = Lease{lease},
                            .epoch = Epoch{epoch},
                            .from = from,
                            .tail = {committed.begin() + from, committed.end()},
                            .prefix = prefix_hash_extend(kRoot, committed),
                            .budget = budget},
                           kStart);
  }

  std::vector<TokenId> plain(std::vector<TokenId> prompt,
                             std::uint32_t n,
                             SamplingParams params = {.temperature = 0}) {
    params.max_tokens = n;
    OpenRequest request{.prompt = std::move(prompt), .params = params};
    return plain_decode(model_, *backend_, request, 200).ids;
  }

  std::unique_ptr<Backend> backend_ = make_backend({.device = "cpu", .n_threads = 1});
  ScriptedModel model_{model_options()};
  std::unique_ptr<DraftEngine> engine_;
  std::vector<wire::DraftBusy> busy_;
  std::uint32_t most_rows_ = 0;
};

const std::vector<TokenId> kPrompt{3, 1, 4, 1, 5, 9, 2, 6, 5};
constexpr Position kPromptEnd = 9;

TEST_F(DraftEngineTest, GuessesAsItsModelWouldWrite) {
  start();
  for (const float temperature : {0.0f, 1.0f}) {
    const SamplingParams params{
        .temperature = temperature, .repetition_penalty = 1.3f, .seed = 9, .max_tokens = 100};
    const auto seq = temperature > 0 ? 2u : 1u;
    ASSERT_TRUE(std::holds_alternative<Applied>(
        engine_->attach(kTarget, attach_request(seq, kPrompt, 6, params), kStart)));
    const auto said = run();
    ASSERT_EQ(said.size(), 1u);
    EXPECT_EQ(said[0].base, kPrompt.size());
    EXPECT_EQ(said[0].prefix, prefix_hash_extend(kRoot, kPrompt));
    EXPECT_EQ(said[0].tokens, plain(kPrompt, 6, params));
    EXPECT_EQ(said[0].confidence.size(), 6u);
  }
}

// A pass takes 10 ms and 1 ms for each row. While the prompt of 2 is read, 1 has chains to make.
TEST_F(DraftEngineTest, AChainBesideALongPromptTakesTwiceItsTimeAtMost) {
  DraftEngineOptions options = engine_options();
  options.max_step = milliseconds(100);
  start(options);
  TimePoint now = kStart;
  const auto step = [&]() -> const DraftOutput& {
    const DraftOutput& output = engine_->step(now);
    if (output.n_rows > 0) {
      const Duration took = milliseconds(10 + output.n_rows);
      engine_->record_step_time(took);
      now += took;
    }
    return output;
  };
  std::vector<TokenId> committed = kPrompt;
  (void)engine_->attach(kTarget, attach_request(1, committed, 6), now);
  std::vector<TokenId> chain;
  while (chain.empty())
    for (const auto& said : step().proposals) chain = said.record.tokens;
  const auto text = plain(kPrompt, 60);
  (void)engine_->attach(kTarget, attach_request(2, std::vector<TokenId>(180, 7), 4), now);
  bool is_read = false;
  Duration longest{};
  for (std::uint32_t epoch = 1; !is_read; ++epoch) {
    ASSERT_LT(epoch, 12u);
    committed.insert(committed.end(), text.begin() + 4 * (epoch - 1), text.begin() + 4 * epoch);
    (void)follow(1, committed, kPromptEnd, 6, epoch);
    const TimePoint asked = now;
    for (bool is_answered = false; !is_answered;)
      for (const auto& said : step().proposals) {
        is_answered = is_answered || said.record.seq == SeqId{1};
        is_read = is_read || said.record.seq == SeqId{2};
      }
    longest = std::max(longest, now - asked);
  }
  // Four passes make a chain of six again, each of 11 ms alone and of 22 ms beside a prompt.
  EXPECT_LE(longest, milliseconds(4 * 11 * 5 / 2));
}

TEST_F(DraftEngineTest, ReadsAPromptInPassesOfTheBound) {
  DraftEngineOptions options = engine_options();
  options.max_step = milliseconds(20);
  start(options);
  (void)engine_->attach(kTarget, attach_request(1, std::vector<TokenId>(190, 7), 1), kStart);
  std::vector<std::uint32_t> rows;
  while (engine_->has_work()) {
    rows.push_back(engine_->step(kStart).n_rows);
    engine_->record_step_time(milliseconds(rows.back()));
  }
  EXPECT_EQ(rows, (std::vector<std::uint32_t>{16, 40, 40, 40, 40, 14}))
      << "alone: twice the bound, after a first pass that tells what a row costs";
}

TEST_F(DraftEngineTest, KeepsItsChainWhereTheTargetAgreesAndCutsItWhereNot) {
  start();
  (void)engine_->attach(kTarget, attach_request(1, kPrompt, 6), kStart);
  const auto chain = run().at(0).tokens;
  std::vector<TokenId> committed = kPrompt;
  committed.insert(committed.end(), {chain[0], chain[1], chain[2] == 7 ? 8 : 7});
  const auto rows_before = engine_->snapshot().n_rows;
  ASSERT_TRUE(std::holds_alternative<Applied>(follow(1, committed, kPromptEnd, 5, 1)));
  EXPECT_EQ(engine_->snapshot().n_kept, 2u);
  EXPECT_EQ(engine_->snapshot().n_cut, 4u);
  const auto said = run();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].epoch, Epoch{1});
  EXPECT_EQ(said[0].tokens, plain(committed, 5));
  // One row for the correction, four for the guesses after it: nothing agreed on was computed
  // again.
  EXPECT_EQ(engine_->snapshot().n_rows - rows_before, 5u);
}

TEST_F(DraftEngineTest, IsTwoTokensBehindAfterARoundThatAcceptedAll) {
  start();
  (void)engine_->attach(kTarget, attach_request(1, kPrompt, 4), kStart);
  std::vector<TokenId> committed = kPrompt;
  const auto chain = run().at(0).tokens;
  committed.insert(committed.end(), chain.begin(), chain.end());
  committed.push_back(committed.back() == 11 ? 12 : 11);  // the bonus
  const auto rows_before = engine_->snapshot().n_rows;
  ASSERT_TRUE(std::holds_alternative<Applied>(follow(1, committed, kPromptEnd, 1, 1)));
  EXPECT_EQ(run().at(0).tokens, plain(committed, 1));
  EXPECT_EQ(engine_->snapshot().n_rows - rows_before, 2u);
}

TEST_F(DraftEngineTest, CutsIntoABlockThatAnotherSequenceShares) {
  start();
  (void)engine_->attach(kTarget, attach_request(1, kPrompt, 10), kStart);
  const auto chain = run().at(0).tokens;
  // A neighbour whose text is what 1 only guessed: it finds 1's blocks.
  std::vector<TokenId> whole = kPrompt;
  whole.insert(whole.end(), chain.begin(), chain.end());
  (void)engine_->attach(kTarget, attach_request(2, whole, 2), kStart);
  EXPECT_EQ(run().at(0).tokens, plain(whole, 2));
  ASSERT_GE(engine_->snapshot().kv.n_hit_tokens, 16u);

  std::vector<TokenId> other(
      whole.begin(), whole.begin() + kPromptEnd + 5);  // 14 tokens: two into a block of four
  other.back() = other.back() == 7 ? 8 : 7;
  (void)follow(1, other, kPromptEnd, 6, 1);
  EXPECT_EQ(run().at(0).tokens, plain(other, 6));
  whole.push_back(20);
  (void)follow(2, whole, static_cast<Position>(whole.size() - 1), 6, 1);
  EXPECT_EQ(run().at(0).tokens, plain(whole, 6));
}

TEST_F(DraftEngineTest, AnswersAtOnceWhatItsChainAlreadyHolds) {
  start();
  (void)engine_->attach(kTarget, attach_request(1, kPrompt, 8), kStart);
  const auto chain = run().at(0).tokens;
  std::vector<TokenId> committed = kPrompt;
  committed.insert(committed.end(), chain.begin(), chain.begin() + 3);
  (void)follow(1, committed, kPromptEnd, 4, 1);
  const DraftOutput& output = engine_->step(kStart);
  EXPECT_EQ(output.n_rows, 0u);
  ASSERT_EQ(output.proposals.size(), 1u);
  EXPECT_EQ(output.proposals[0].record.tokens,
            (std::vector<TokenId>(chain.begin() + 3, chain.end())));
}

TEST_F(DraftEngineTest, AsksForWhatItLacks) {
  start();
  const auto unknown = follow(1, kPrompt, 0, 4, 1);
  ASSERT_TRUE(std::holds_alternative<wire::Need>(unknown));
  EXPECT_EQ(std::get<wire::Need>(unknown).reason, NeedReason::kUnknown);

  (void)engine_->attach(kTarget, attach_request(1, kPrompt, 2), kStart);
  (void)run();
  std::vector<TokenId> committed = kPrompt;
  committed.insert(committed.end(), {1, 2, 3});
  const auto gap = follow(1, committed, kPromptEnd + 1, 4, 1);
  ASSERT_TRUE(std::holds_alternative<wire::Need>(gap));
  EXPECT_EQ(std::get<wire::Need>(gap).reason, NeedReason::kGap);
  EXPECT_EQ(std::get<wire::Need>(gap).known, kPrompt.size());
  EXPECT_EQ(std::get<wire::Need>(gap).prefix, prefix_hash_extend(kRoot, kPrompt));

  std::vector<TokenId> other = kPrompt;
  other[2] = 30;
  const auto mismatch = follow(1, other, 0, 4, 2);
  ASSERT_TRUE(std::holds_alternative<wire::Need>(mismatch));
  EXPECT_EQ(std::get<wire::Need>(mismatch).reason, NeedReason::kMismatch);

  // Right tokens under a wrong hash: the earlier text must differ somewhere.
  const auto wrong_hash =
      engine_->follow(kTarget,
                      {.seq = SeqId{1},
                       .lease = Lease{1},
                       .epoch = Epoch{3},
                       .from = static_cast<Position>(kPromptEnd),
                       .tail = {committed.begin() + kPromptEnd, committed.end()},
                       .prefix = 1,
                       .budget = 4},
                      kStart);
  ASSERT_TRUE(std::holds_alternative<wire::Need>(wrong_hash));

  // None of these changed anything.
  ASSERT_TRUE(std::holds_alternative<Applied>(follow(1, committed, kPromptEnd, 4, 4)));
  EXPECT_EQ(run().at(0).tokens, plain(committed, 4));
}

TEST_F(DraftEngineTest, TakesRepeatedAndOvertakenRecordsWithoutHarm) {
  start();
  (void)engine_->attach(kTarget, attach_request(1, kPrompt, 3), kStart);
  std::vector<TokenId> one = kPrompt, two;
  one.push_back(7);
  two = one;
  two.insert(two.end(), {8, 9});
  ASSERT_TRUE(std::holds_alternative<Applied>(follow(1, two, kPromptEnd, 3, 2)));
  EXPECT_TRUE(std::holds_alternative<Ignored>(follow(1, one, kPromptEnd, 0, 1)));
  EXPECT_TRUE(std::holds_alternative<Applied>(follow(1, two, kPromptEnd, 3, 2)));
  // A late copy of the ATTACH, under the same lease: its text is a prefix of what is known.
  EXPECT_TRUE(std::holds_alternative<Applied>(
      engine_->attach(kTarget, attach_request(1, kPrompt, 0), kStart)));
  const auto said = run();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].tokens, plain(two, 3));
}

TEST_F(DraftEngineTest, LeasesFenceOffTheDead) {
  start();
  auto second = attach_request(1, {1, 2, 3}, 2);
  second.lease = Lease{2};
  (void)engine_->attach(kTarget, attach_request(1, kPrompt, 2), kStart);
  ASSERT_TRUE(std::holds_alternative<Applied>(engine_->attach(kTarget, second, kStart)));
  EXPECT_TRUE(std::holds_alternative<Ignored>(
      engine_->attach(kTarget, attach_request(1, kPrompt, 2), kStart)));
  EXPECT_TRUE(std::holds_alternative<Ignored>(follow(1, kPrompt, 0, 2, 9, 1)));
  EXPECT_TRUE(std::holds_alternative<wire::Need>(follow(1, {1, 2, 3}, 0, 2, 1, 3)));
  engine_->detach(kTarget, {SeqId{1}, Lease{1}});
  EXPECT_EQ(engine_->snapshot().n_attached, 1u);
  const auto said = run();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].lease, Lease{2});
  EXPECT_EQ(said[0].tokens, plain({1, 2, 3}, 2));
  engine_->detach(kTarget, {SeqId{1}, Lease{2}});
  EXPECT_EQ(engine_->snapshot().n_attached, 0u);
  EXPECT_EQ(engine_->snapshot().kv.n_used, 0);
}

TEST_F(DraftEngineTest, ForgetsWhoIsSilentForALease) {
  start();
  (void)engine_->attach(kTarget, attach_request(1, kPrompt, 2), kStart);
  (void)run();
  engine_->renew(kTarget, kStart + seconds(6));
  engine_->step(kStart + seconds(15));
  EXPECT_EQ(engine_->snapshot().n_attached, 1u);
  // A former incarnation of the target.
  engine_->renew({WorkerId{1}, Incarnation{4}}, kStart + seconds(15));
  engine_->step(kStart + seconds(16));
  EXPECT_EQ(engine_->snapshot().n_attached, 0u);
  EXPECT_EQ(engine_->snapshot().n_expired, 1u);
  EXPECT_EQ(engine_->snapshot().kv.n_used, 0);
}

TEST_F(DraftEngineTest, ForgetsATargetThatIsGoneAndItsFormerLives) {
  start();
  (void)engine_->attach(kTarget, attach_request(1, kPrompt, 2), kStart);
  const TargetKey reborn{WorkerId{1}, Incarnation{6}}, neighbour{WorkerId{2}, Incarnation{5}};
  (void)engine_->attach(reborn, attach_request(1, kPrompt, 2), kStart);
  (void)engine_->attach(neighbour, attach_request(1, kPrompt, 2), kStart);
  engine_->detach_all(WorkerId{1}, Incarnation{6});
  EXPECT_EQ(engine_->snapshot().n_attached, 2u);
  engine_->detach_all(WorkerId{1});
  EXPECT_EQ(engine_->snapshot().n_attached, 1u);
}

TEST_F(DraftEngineTest, RefusesMoreThanItHolds) {
  auto options = engine_options();
  options.max_sequences = 1;
  start(options);
  (void)engine_->attach(kTarget, attach_request(1, kPrompt, 2), kStart);
  const auto refused = engine_->attach(kTarget, attach_request(2, kPrompt, 2), kStart);
  ASSERT_TRUE(std::holds_alternative<wire::DraftBusy>(refused));
  EXPECT_EQ(std::get<wire::DraftBusy>(refused).retry_after_us, 250'000u);
  // Those whose lease is over make room.
  EXPECT_TRUE(std::holds_alternative<Applied>(
      engine_->attach(kTarget, attach_request(2, kPrompt, 2), kStart + seconds(10))));
}

// As if its CLOSE had been lost: the target works on, and renews the leases of all its sequences.
TEST_F(DraftEngineTest, ASequenceThatIsNamedNoMoreMakesRoom) {
  auto options = engine_options();
  options.max_sequences = 2;
  start(options);
  const TargetKey neighbour{WorkerId{2}, Incarnation{5}};
  const auto asks_for_place = [&](Duration after) {
    return engine_->attach(neighbour, attach_request(1, kPrompt, 2), kStart + after);
  };
  (void)engine_->attach(kTarget, attach_request(1, kPrompt, 2), kStart);
  (void)engine_->attach(kTarget, attach_request(2, kPrompt, 2), kStart);
  for (int second = 1; second <= 11; ++second) engine_->renew(kTarget, kStart + seconds(second));
  EXPECT_TRUE(std::holds_alternative<wire::DraftBusy>(asks_for_place(seconds(11))))
      << "in a long pass a target names none of its sequences";
  (void)engine_->attach(kTarget, attach_request(2, kPrompt, 2), kStart + seconds(12));
  EXPECT_TRUE(std::holds_alternative<Applied>(asks_for_place(seconds(12))));
  EXPECT_EQ(engine_->snapshot().n_expired, 1u);
  EXPECT_EQ(engine_->snapshot().n_attached, 2u);
}

TEST_F(DraftEngineTest, IgnoresWhatCannotBe) {
  start();
  auto bad_token = attach_request(1, {1, -1}, 2);
  EXPECT_TRUE(std::holds_alternative<Ignored>(engine_->attach(kTarget, bad_token, kStart)));
  auto bad_split = attach_request(1, kPrompt, 2);
  bad_split.n_prompt = 50;
  EXPECT_TRUE(std::holds_alternative<Ignored>(engine_->attach(kTarget, bad_split, kStart)));
  auto bad_hash = attach_request(1, kPrompt, 2);
  bad_hash.prefix ^= 1;
  EXPECT_TRUE(std::holds_alternative<wire::Need>(engine_->attach(kTarget, bad_hash, kStart)));
  EXPECT_TRUE(
      std::holds_alternative<Ignored>(engine_->attach(kTarget, attach_request(1, {}, 2), kStart)));
  EXPECT_EQ(engine_->snapshot().n_attached, 0u);
}

TEST_F(DraftEngineTest, FindsAPromptsBlocksAgainButNotAnotherTenants) {
  start();
  const auto n_hits_of = [&](std::uint64_t seq, std::uint64_t salt) {
    const auto before = engine_->snapshot().kv.n_hit_tokens;
    wire::Attach request = attach_request(seq, kPrompt, 2);
    request.tenant_salt = salt;
    EXPECT_TRUE(
        std::holds_alternative<Applied>(engine_->attach(kTarget, std::move(request), kStart)));
    run();
    return engine_->snapshot().kv.n_hit_tokens - before;
  };
  EXPECT_EQ(n_hits_of(1, 7), 0u);
  EXPECT_EQ(n_hits_of(2, 8), 0u);
  EXPECT_EQ(n_hits_of(3, 7), 8u);  // two whole blocks of four
}

TEST_F(DraftEngineTest, AnEndTokenBeyondItsVocabularyEndsNothing) {
  start();
  wire::Attach request =
      attach_request(1, kPrompt, 6, {.temperature = 0, .max_tokens = 100, .min_tokens = 50});
  request.end_tokens = {40, -1, 1 << 20};
  ASSERT_TRUE(
      std::holds_alternative<Applied>(engine_->attach(kTarget, std::move(request), kStart)));
  const auto said = run();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].tokens, plain(kPrompt, 6));
}

// A target may have more embeddings of the common vocabulary than its draft.
TEST_F(DraftEngineTest, FallsSilentAtATokenWithoutAnEmbedding) {
  constexpr TokenId kBeyond = 41;
  start();
  const auto expect_empty_answer = [&](const char* where) {
    SCOPED_TRACE(where);
    const auto said = run();
    ASSERT_EQ(said.size(), 1u) << "an empty answer, so that no target waits";
    EXPECT_TRUE(said[0].tokens.empty());
  };
  std::vector<TokenId> prompt = kPrompt;
  prompt[3] = kBeyond;
  const wire::Attach request = attach_request(1, prompt, 5, {.temperature = 0, .regex = "a+"});
  ASSERT_TRUE(std::holds_alternative<Applied>(engine_->attach(kTarget, request, kStart)));
  expect_empty_answer("in the prompt");
  ASSERT_TRUE(std::holds_alternative<Applied>(engine_->attach(kTarget, request, kStart)));
  expect_empty_answer("in the prompt, said again");

  (void)engine_->attach(kTarget, attach_request(2, kPrompt, 5), kStart);
  EXPECT_EQ(run().at(0).tokens.size(), 5u);
  std::vector<TokenId> committed = kPrompt;
  committed.insert(committed.end(), {7, kBeyond, 8});
  ASSERT_TRUE(std::holds_alternative<Applied>(follow(2, committed, kPromptEnd, 5, 1)));
  expect_empty_answer("in the answer");
  EXPECT_EQ(engine_->snapshot().kv.n_used, 0);
  committed.push_back(9);
  ASSERT_TRUE(std::holds_alternative<Applied>(follow(2, committed, kPromptEnd + 3, 5, 2)));
  expect_empty_answer("before what is written now");

  const SamplingParams params{.temperature = 0, .stop_token_ids = {kBeyond}};
  (void)engine_->attach(kTarget, attach_request(3, kPrompt, 5, params), kStart);
  expect_empty_answer("in the rules");
  EXPECT_EQ(engine_->snapshot().n_ignored, 0u);
}

TEST_F(DraftEngineTest, FallsSilentAtItsLongestContext) {
  auto options = engine_options();
  options.max_model_len = kPromptEnd + 2;
  start(options);
  (void)engine_->attach(kTarget, attach_request(1, kPrompt, 5), kStart);
  EXPECT_EQ(run().at(0).tokens.size(), 2u);
  std::vector<TokenId> committed = kPrompt;
  committed.insert(committed.end(), {1, 2, 3});
  (void)follow(1, committed, kPromptEnd, 5, 1);
  const auto said = run();
  ASSERT_EQ(said.size(), 1u) << "an empty answer, so that no target waits";
  EXPECT_TRUE(said[0].tokens.empty());
  EXPECT_EQ(engine_->snapshot().kv.n_used, 0);
}

// A sequence may be far longer than the draft's context, and a target may never stop sending.
TEST_F(DraftEngineTest, KeepsNoTokensOfASequenceThatHasOutgrownIt) {
  auto options = engine_options();
  options.max_model_len = 32;
  start(options);
  (void)engine_->attach(kTarget, attach_request(1, kPrompt, 0), kStart);
  std::vector<TokenId> committed = kPrompt;
  Position sent = kPromptEnd;
  for (std::uint32_t epoch = 1; epoch <= 300; ++epoch) {
    for (TokenId t = 1; t <= 7; ++t) committed.push_back(t);
    const auto outcome = follow(1, committed, sent, 4, epoch);
    ASSERT_TRUE(std::holds_alternative<Applied>(outcome)) << epoch;
    sent = static_cast<Position>(committed.size());
    const auto said = run();
    ASSERT_EQ(said.size(), 1u);
    EXPECT_EQ(said[0].base, sent);
    ASSERT_LE(engine_->snapshot().n_remembered, 32u);
  }
  EXPECT_EQ(engine_->snapshot().n_remembered, 0u);
  // It still follows: what repeats or overlaps is taken, what does not fit is not.
  EXPECT_TRUE(std::holds_alternative<Applied>(follow(1, committed, sent - 5, 4, 301)));
  committed.push_back(3);
  committed[sent - 1] ^= 1;
  EXPECT_TRUE(std::holds_alternative<wire::Need>(follow(1, committed, sent - 5, 4, 302)));
  std::vector<TokenId> gap(committed.size() + 3, 1);
  EXPECT_TRUE(std::holds_alternative<wire::Need>(follow(1, gap, sent + 1, 4, 303)));
  // And one that is too long from the beginning.
  (void)engine_->attach(kTarget, attach_request(2, std::vector<TokenId>(500, 1), 4), kStart);
  EXPECT_EQ(run().at(0).tokens.size(), 0u);
  EXPECT_EQ(engine_->snapshot().n_remembered, 0u);
}

TEST_F(DraftEngineTest, StopsBehindAnEndToken) {
  const auto text = plain(kPrompt, 8);
  const SamplingParams params{.temperature = 0, .max_tokens = 100, .stop_token_ids = {text[2]}};
  start();
  (void)engine_->attach(kTarget, attach_request(1, kPrompt, 8, params), kStart);
  const auto said = run();
  ASSERT_EQ(said.size(), 1u);
  const auto first = std::find(text.begin(), text.end(), text[2]);
  EXPECT_EQ(said[0].tokens, std::vector<TokenId>(text.begin(), first + 1));
}

TEST_F(DraftEngineTest, GivesEveryoneItsTurnHoweverSmallAPass) {
  auto options = engine_options();
  options.max_batch_rows = 1;
  start(options);
  for (std::uint64_t seq = 1; seq <= 6; ++seq)
    (void)engine_->attach(kTarget, attach_request(seq, {static_cast<TokenId>(seq), 2, 3}, 100),
                          kStart);
  std::vector<std::uint32_t> n_guesses(7, 0);
  for (int i = 0; i < 6 * 13; ++i) engine_->step(kStart);
  // Three rows of prompt and ten guesses each.
  EXPECT_EQ(engine_->snapshot().n_drafted, 6u * 11u);
  EXPECT_EQ(engine_->snapshot().n_rows, 6u * 13u);
}

TEST_F(DraftEngineTest, PrefillsAPromptBeforeAnythingIsAskedAndThenKeepsQuiet) {
  start();
  const std::vector<TokenId> prompt(100, 3);
  (void)engine_->attach(kTarget, attach_request(1, prompt, 0), kStart);
  EXPECT_TRUE(run().empty());
  const auto rows = engine_->snapshot().n_rows;
  EXPECT_EQ(rows, 99u);
  std::vector<TokenId> committed = prompt;
  committed.push_back(5);
  (void)follow(1, committed, 100, 0, 1);
  EXPECT_FALSE(engine_->has_work());
  (void)follow(1, committed, 100, 3, 2);
  EXPECT_EQ(run().at(0).tokens, plain(committed, 3));
}

TEST_F(DraftEngineTest, TheOldestGoesOnWhenBlocksRunOutAndOthersComeBackLater) {
  auto options = engine_options();
  options.kv.n_blocks = 6;  // 24 tokens
  start(options);
  (void)engine_->attach(kTarget, attach_request(1, std::vector<TokenId>(12, 1), 6), kStart);
  (void)engine_->attach(kTarget, attach_request(2, std::vector<TokenId>(12, 2), 6), kStart);
  const auto said = run();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].seq, SeqId{1});
  ASSERT_EQ(busy_.size(), 1u);
  EXPECT_EQ(busy_[0].seq, SeqId{2});

  const std::vector<TokenId> two(12, 2);
  EXPECT_TRUE(std::holds_alternative<wire::DraftBusy>(follow(2, two, 12, 6, 1)));
  const wire::ProposeRecord again{.seq = SeqId{2},
                                  .lease = Lease{1},
                                  .epoch = Epoch{2},
                                  .from = 12,
                                  .tail = {},
                                  .prefix = prefix_hash_extend(kRoot, two),
                                  .budget = 6};
  ASSERT_TRUE(
      std::holds_alternative<Applied>(engine_->follow(kTarget, again, kStart + seconds(1))));
  EXPECT_EQ(run(kStart + seconds(1)).at(0).tokens, plain(two, 6));
}

// A target waits for an answer as long as answers usually take, which is too short for a prompt.
TEST_F(DraftEngineTest, SaysWhenALongTextHasToBeReadAgain) {
  auto options = engine_options();
  options.kv.n_blocks = 30;  // 120 tokens
  start(options);
  const std::vector<TokenId> one(100, 1), two(100, 2);
  (void)engine_->attach(kTarget, attach_request(1, one, 6), kStart);
  EXPECT_EQ(run().size(), 1u);
  (void)engine_->attach(kTarget, attach_request(2, two, 6), kStart);
  EXPECT_EQ(run().size(), 1u) << "an idle one makes room";

  EXPECT_TRUE(std::holds_alternative<Applied>(follow(1, one, 100, 0, 1))) << "nothing is asked";
  EXPECT_TRUE(std::holds_alternative<Applied>(follow(1, one, 100, 6, 2))) << "guessed before";
  EXPECT_EQ(run().at(0).tokens, plain(one, 6));
  std::vector<TokenId> committed = one;
  committed.push_back(plain(one, 1)[0] == 5 ? 6 : 5);
  const auto outcome = follow(1, committed, 100, 6, 3);
  ASSERT_TRUE(std::holds_alternative<wire::Need>(outcome));
  EXPECT_EQ(std::get<wire::Need>(outcome).reason, NeedReason::kEvicted);
  EXPECT_EQ(std::get<wire::Need>(outcome).known, committed.size());

  wire::Attach again = attach_request(1, committed, 6);
  again.n_prompt = 100;
  EXPECT_TRUE(std::holds_alternative<Applied>(engine_->attach(kTarget, again, kStart)));
  EXPECT_TRUE(std::holds_alternative<Applied>(follow(1, committed, 100, 6, 4)))
      << "its target waits for a prefill";
  EXPECT_EQ(run().at(0).tokens, plain(committed, 6));
  EXPECT_EQ(engine_->snapshot().n_needs, 1u);
}

TEST_F(DraftEngineTest, TellsHowFarItIsWhenTheNextRecordOvertakesItsAnswer) {
  start();
  (void)engine_->attach(kTarget, attach_request(1, kPrompt, 0), kStart);
  const auto text = plain(kPrompt, 8);
  std::vector<TokenId> committed = kPrompt;
  (void)follow(1, committed, kPromptEnd, 6, 1);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(engine_->step(kStart).proposals.empty());
  committed.push_back(text[0]);
  (void)follow(1, committed, kPromptEnd, 6, 2);
  ASSERT_TRUE(engine_->has_work());
  const auto said = run();
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[0].epoch, Epoch{1});
  EXPECT_EQ(said[0].base, committed.size());
  EXPECT_EQ(said[0].tokens, (std::vector<TokenId>{text[1], text[2]}));
  EXPECT_EQ(said[1].epoch, Epoch{2});
  EXPECT_EQ(said[1].tokens, std::vector<TokenId>(text.begin() + 1, text.begin() + 7));
  // A draft that has guessed nothing yet keeps quiet: it is not ready to be waited for.
  committed.push_back(text[1] == 5 ? 6 : 5);
  (void)follow(1, committed, kPromptEnd, 6, 3);
  (void)follow(1, committed, kPromptEnd, 6, 4);
  EXPECT_EQ(run().size(), 1u);
}

// A random life of one sequence, as a target would tell it: how much of the chain stood, what came
// instead, how far to look, and which records were lost, repeated or late.
struct Life {
  wire::Attach attach;
  struct Move {
    std::vector<TokenId> committed;
    Position from = 0;
    std::uint32_t budget = 0;
  };
  std::vector<Move> moves;
};

Life random_life(std::uint64_t seq, std::mt19937_64& rng, const std::vector<TokenId>& shared) {
  const auto draw = [&](std::uint64_t n) { return static_cast<std::uint32_t>(rng() % n); };
  SamplingParams params{.temperature = draw(2) ? 0.0f : 0.9f, .seed = rng(), .max_tokens = 100};
  if (draw(3) == 0) params.top_k = 1 + draw(10);
  if (draw(3) == 0) params.presence_penalty = 0.5f;
  if (draw(3) == 0) params.repetition_penalty = 1.2f;
  std::vector<TokenId> prompt(shared.begin(), shared.begin() + 1 + draw(shared.size()));
  for (std::uint32_t i = draw(8); i > 0; --i) prompt.push_back(static_cast<TokenId>(draw(40)));
  Life life{.attach = attach_request(seq, prompt, draw(6), params), .moves = {}};
  // What the target writes is what the draft's own model writes, but for a mistake now and then.
  ScriptedModel model(model_options());
  std::vector<TokenId> committed = prompt;
  Position confirmed = static_cast<Position>(prompt.size());
  for (int i = 0; i < 12; ++i) {
    const auto backend = make_backend({.device = "cpu", .n_threads = 1});
    const std::uint32_t n = 1 + draw(5);
    SamplingParams rest = params;
    rest.max_tokens = static_cast<std::uint32_t>(committed.size() - prompt.size()) + n;
    OpenRequest request{.prompt = prompt, .params = rest};
    const auto text = plain_decode(model, *backend, request, 200).ids;
    if (std::equal(committed.begin() + static_cast<std::ptrdiff_t>(prompt.size()), committed.end(),
                   text.begin()))
      committed.insert(committed.end(), text.end() - n, text.end());
    if (draw(2)) committed.push_back(static_cast<TokenId>(draw(40)));
    const Position from = draw(2) ? confirmed : static_cast<Position>(prompt.size());
    if (draw(5) == 0) continue;  // lost
    life.moves.push_back({committed, from, draw(7)});
    confirmed = static_cast<Position>(committed.size());
  }
  return life;
}

TEST_F(DraftEngineTest, ItsCacheIsThatOfAFreshPrefillWhateverItFollowed) {
  int n_compared = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 rng(seed);
    std::vector<TokenId> shared;
    for (int i = 0; i < 14; ++i) shared.push_back(static_cast<TokenId>(rng() % 40));
    auto options = engine_options();
    options.kv.block_tokens = static_cast<std::int32_t>(1 + rng() % 8);
    start(options);
    const Life life = random_life(1, rng, shared);
    (void)engine_->attach(kTarget, life.attach, kStart);
    (void)run();
    for (std::uint32_t i = 0; i < life.moves.size(); ++i) {
      const auto& move = life.moves[i];
      const auto rows_before = engine_->snapshot().n_rows;
      ASSERT_TRUE(std::holds_alternative<Applied>(
          follow(1, move.committed, move.from, move.budget, i + 1)));
      const auto said = run();
      const bool has_computed = engine_->snapshot().n_rows > rows_before;
      const std::vector<float> logits(model_.last_logits().begin(), model_.last_logits().end());
      if (move.budget == 0) continue;
      DraftEngine fresh(model_, *backend_, engine_options());
      auto attach = attach_request(1, move.committed, move.budget, life.attach.params);
      attach.n_prompt = life.attach.n_prompt;
      (void)fresh.attach(kTarget, attach, kStart);
      std::vector<wire::ProposalRecord> expected;
      while (fresh.has_work())
        for (const ReadyProposal& ready : fresh.step(kStart).proposals)
          expected.push_back(ready.record);
      ASSERT_EQ(expected.size(), 1u);
      ASSERT_EQ(said.size(), 1u);
      ASSERT_GE(said[0].tokens.size(), expected[0].tokens.size());
      ASSERT_TRUE(
          std::equal(expected[0].tokens.begin(), expected[0].tokens.end(), said[0].tokens.begin()));
      ASSERT_TRUE(std::equal(expected[0].confidence.begin(), expected[0].confidence.end(),
                             said[0].confidence.begin()));
      if (has_computed) {  // both ended with the logits of the last guess
        ASSERT_EQ(said[0].tokens.size(), expected[0].tokens.size());
        const auto fresh_logits = model_.last_logits();
        EXPECT_TRUE(
            std::equal(fresh_logits.begin(), fresh_logits.end(), logits.begin(), logits.end()));
        ++n_compared;
      }
    }
  }
  EXPECT_GT(n_compared, 200);
}

TEST_F(DraftEngineTest, ManyTogetherSayWhatEachSaysAlone) {
  for (std::uint64_t seed = 1; seed <= 15; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 rng(seed);
    std::vector<TokenId> shared;
    for (int i = 0; i < 14; ++i) shared.push_back(static_cast<TokenId>(rng() % 40));
    std::vector<Life> lives;
    for (std::uint64_t seq = 1; seq <= 5; ++seq) lives.push_back(random_life(seq, rng, shared));

    std::vector<std::vector<wire::ProposalRecord>> alone(6), together(6);
    const auto keep = [](std::vector<std::vector<wire::ProposalRecord>>& into,
                         const std::vector<wire::ProposalRecord>& said) {
      for (const auto& proposal : said) into[proposal.seq.value].push_back(proposal);
    };
    for (const Life& life : lives) {
      start();
      (void)engine_->attach(kTarget, life.attach, kStart);
      keep(alone, run());
      for (std::uint32_t i = 0; i < life.moves.size(); ++i) {
        (void)follow(life.attach.seq.value, life.moves[i].committed, life.moves[i].from,
                     life.moves[i].budget, i + 1);
        keep(alone, run());
      }
    }
    auto options = engine_options();
    options.max_batch_rows = static_cast<std::int32_t>(1 + rng() % 40);
    options.prefill_chunk = static_cast<std::int32_t>(1 + rng() % 20);
    start(options);
    for (const Life& life : lives) (void)engine_->attach(kTarget, life.attach, kStart);
    keep(together, run());
    for (std::uint32_t i = 0; i < 12; ++i) {
      for (const Life& life : lives)
        if (i < life.moves.size())
          (void)follow(life.attach.seq.value, life.moves[i].committed, life.moves[i].from,
                       life.moves[i].budget, i + 1);
      keep(together, run());
    }
    for (std::size_t seq = 1; seq <= 5; ++seq) {
      ASSERT_EQ(together[seq].size(), alone[seq].size());
      for (std::size_t i = 0; i < alone[seq].size(); ++i) {
        EXPECT_EQ(together[seq][i].tokens, alone[seq][i].tokens);
        EXPECT_EQ(together[seq][i].confidence, alone[seq][i].confidence);
        EXPECT_EQ(together[seq][i].prefix, alone[seq][i].prefix);
      }
    }
  }
}

// ---- running ahead

TEST_F(DraftEngineTest, GoesOnOnceItHasAnsweredAndTellsEachGuess) {
  DraftEngineOptions options = engine_options();
  options.run_ahead = 3;
  start(options);
  engine_->attach(kTarget, attach_request(1, kPrompt, 2), kStart);
  const auto said = run();
  const std::vector<TokenId> text = plain(kPrompt, 5);
  ASSERT_EQ(said.size(), 5u);
  for (std::size_t i = 0; i < said.size(); ++i) {
    EXPECT_EQ(said[i].tokens, std::vector(text.begin(), text.begin() + 1 + static_cast<int>(i)));
    EXPECT_EQ(said[i].base, kPromptEnd);
    EXPECT_EQ(said[i].epoch, said[0].epoch);
    EXPECT_EQ(said[i].is_partial, i == 0) << "two were asked for";
  }
}

TEST_F(DraftEngineTest, OnlyATargetThatIsLetRunAheadGetsMoreThanItAskedFor) {
  start(engine_options());
  constexpr TargetKey kOther{WorkerId{7}, Incarnation{1}};
  engine_->set_run_ahead(kOther, 3);
  engine_->attach(kTarget, attach_request(1, kPrompt, 2), kStart);
  engine_->attach(kOther, attach_request(1, kPrompt, 2), kStart);
  std::map<TargetKey, std::size_t> longest;
  while (engine_->has_work())
    for (const ReadyProposal& ready : engine_->step(kStart).proposals)
      longest[ready.to] = std::max(longest[ready.to], ready.record.tokens.size());
  EXPECT_EQ(longest[kTarget], 2u);
  EXPECT_EQ(longest[kOther], 5u);
}

// Of a sequence that is there already, too.
TEST_F(DraftEngineTest, ATargetIsLetRunAheadAtAnyTime) {
  start(engine_options());
  engine_->attach(kTarget, attach_request(1, kPrompt, 2), kStart);
  ASSERT_EQ(run().back().tokens.size(), 2u);
  engine_->set_run_ahead(kTarget, 3);
  EXPECT_EQ(run().back().tokens.size(), 5u);
}

TEST_F(DraftEngineTest, ToldGuessesThatWereNotAskedForHaveNoTimeOfAnAnswer) {
  DraftEngineOptions options = engine_options();
  options.run_ahead = 1;
  start(options);
  engine_->attach(kTarget, attach_request(1, kPrompt, 1), kStart);
  std::vector<TimePoint> asked;
  while (engine_->has_work())
    for (const ReadyProposal& ready : engine_->step(kStart).proposals) asked.push_back(ready.asked);
  EXPECT_EQ(asked, (std::vector<TimePoint>{kStart, TimePoint{}}));
}

// The tokens it needs are there already, so no pass stands between question and answer.
TEST_F(DraftEngineTest, AChainThatWentOnIsTheNextAnswerAtOnce) {
  DraftEngineOptions options = engine_options();
  options.run_ahead = 6;
  start(options);
  engine_->attach(kTarget, attach_request(1, kPrompt, 3), kStart);
  run();
  std::vector<TokenId> committed = kPrompt;
  const std::vector<TokenId> text = plain(kPrompt, 9);
  committed.insert(committed.end(), text.begin(), text.begin() + 4);
  follow(1, committed, kPromptEnd, 3, 1);
  const DraftOutput& output = engine_->step(kStart);
  EXPECT_EQ(output.n_rows, 0u);
  ASSERT_EQ(output.proposals.size(), 1u);
  EXPECT_EQ(output.proposals[0].record.epoch, Epoch{1});
  EXPECT_EQ(output.proposals[0].record.tokens, std::vector(text.begin() + 4, text.end()));
}

TEST_F(DraftEngineTest, ASequenceThatIsOwedNothingWaitsForThoseThatAre) {
  DraftEngineOptions options = engine_options();
  options.run_ahead = 8;
  start(options);
  engine_->attach(kTarget, attach_request(1, kPrompt, 1), kStart);
  while (engine_->step(kStart).proposals.empty()) {
  }
  engine_->attach(kTarget, attach_request(2, {7, 7, 8}, 3), kStart);
  for (;;) {
    const DraftOutput& output = engine_->step(kStart);
    if (output.proposals.empty()) continue;
    EXPECT_EQ(output.proposals.front().record.seq, SeqId{2});
    EXPECT_EQ(output.proposals.size(), 1u);
    break;
  }
}

TEST_F(DraftEngineTest, AfterARejectionTheChainIsThatOfAFreshAttachment) {
  DraftEngineOptions options = engine_options();
  options.run_ahead = 8;
  start(options);
  std::vector<TokenId> committed = kPrompt;
  engine_->attach(kTarget, attach_request(1, committed, 4), kStart);
  std::mt19937 random(11);
  for (std::uint32_t epoch = 1; epoch < 30; ++epoch) {
    for (auto n = random() % 12; n > 0 && engine_->has_work(); --n) engine_->step(kStart);
    const auto from = static_cast<Position>(committed.size());
    const std::vector<TokenId> right = plain(committed, 3);
    committed.insert(committed.end(), right.begin(), right.begin() + random() % 3);
    committed.push_back(static_cast<TokenId>(random() % 40));
    follow(1, committed, from, 4, epoch);
  }
  const auto said = run();
  EXPECT_EQ(said.back().tokens, plain(committed, 12));
}

}  // namespace
}  // namespace foretoken
