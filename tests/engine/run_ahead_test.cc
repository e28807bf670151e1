// A draft that begins where a verdict will end, before anybody has told it the verdict, says what
// one says that waits for the record: token for token, whatever the verdict was, and where it was
// none.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/engine/draft_engine.h"
#include "common/model/config.h"
#include "common/model/init_random.h"
#include "common/model/load_model.h"
#include "common/spec/prefix_hash.h"
#include "tests/engine/attach_request.h"
#include "tests/engine/draft_twins.h"
#include "tests/support/scripted_model.h"
#include "tests/support/temp_folder.h"
#if defined(FORETOKEN_EMU)
#include "kernels/emu/runtime_emu.h"
#endif

namespace foretoken {
namespace {

using test::draft_key, test::draft_options, test::keep_what_was_asked_for, test::kRoot,
    test::kStart, test::run, test::SaidOf;

constexpr std::int32_t kEntries = 64;

// A board and the view of it, in one process.
struct Board {
  explicit Board(Backend& backend) {
    std::string why;
    owner = backend.make_board(kEntries, why);
    EXPECT_NE(owner, nullptr) << why;
    view = backend.open_board(owner->card(), why);
    EXPECT_NE(view, nullptr) << why;
  }
  std::unique_ptr<VerdictBoard> owner;
  std::shared_ptr<BoardView> view;
};

// Two engines hear the same records; one of them hears of verdicts before.
class Pair {
 public:
  Pair(Model& model,
       Backend& backend,
       Model& other,
       Backend& other_backend,
       std::uint64_t seed,
       std::int32_t vocab)
      : dice_(seed),
        vocab_(vocab),
        board_(other_backend),
        late_(model, backend, draft_options(1, block_tokens_)),
        early_(other, other_backend, draft_options(max_chained_, block_tokens_)) {}

  void play(int n_rounds) {
    for (int i = 0; i < n_rounds; ++i) {
      if (texts_.empty() || (texts_.size() < 4 && one_in(3))) join();
      if (texts_.size() > 1 && one_in(8)) leave();
      draw_verdicts();
      SaidOf none, want, got;
      if (!one_in(8)) run(early_, none);  // else the records overtake the notices
      EXPECT_TRUE(none.empty()) << "nobody has asked";
      follow();
      run(late_, want);
      run(early_, got);
      keep_what_was_asked_for(want, texts_);
      keep_what_was_asked_for(got, texts_);
      EXPECT_EQ(got, want) << "round " << i;
      for (const auto& [seq, said] : want) last_[seq] = said.tokens;
      if (::testing::Test::HasFailure()) return;
    }
    n_expected += early_.snapshot().n_expected;
    n_taken += early_.snapshot().n_taken;
  }

  std::uint64_t n_expected = 0, n_taken = 0, n_forged = 0;

 private:
  struct Text {
    std::vector<TokenId> tokens;
    Epoch epoch{};
    std::uint32_t budget = 0;
    std::size_t n_kept = 0;  // of the round under way
    TokenId own = -1;
  };
  bool one_in(std::uint64_t n) { return dice_() % n == 0; }
  TokenId token() { return static_cast<TokenId>(dice_() % static_cast<std::uint64_t>(vocab_)); }

  void join() {
    const std::uint64_t seq = ++n_joined_;
    Text text;
    for (std::uint64_t n = 1 + dice_() % 20; n > 0; --n) text.tokens.push_back(token());
    SamplingParams p{.temperature = one_in(2) ? 0.0f : 1.0f, .seed = dice_(), .max_tokens = 1000};
    if (one_in(3)) p.top_k = 1 + static_cast<std::uint32_t>(dice_() % 20);
    if (one_in(3)) p.top_p = 0.8f;
    if (one_in(4)) p.logit_bias = {{token(), 2.0f}, {token(), -50.0f}};
    if (one_in(4)) p.min_tokens = static_cast<std::uint32_t>(dice_() % 12);
    if (one_in(8)) p.repetition_penalty = 1.3f;
    if (one_in(12)) p.bad_words = {{token(), token()}};
    for (std::uint64_t n = dice_() % 4; n > 0; --n) p.stop_token_ids.push_back(token());
    p.ignore_eos = true;
    text.budget = static_cast<std::uint32_t>(dice_() % 10);
    const auto request = test::attach_request(draft_key(seq), kRoot, text.tokens, text.budget, p);
    (void)late_.attach(request, kStart);
    (void)early_.attach(request, kStart);
    texts_[seq] = std::move(text);
    SaidOf want, got;
    run(late_, want);
    run(early_, got);
    keep_what_was_asked_for(want, texts_);
    keep_what_was_asked_for(got, texts_);
    EXPECT_EQ(got, want) << "sequence " << seq;
    for (const auto& [at, said] : want) last_[at] = said.tokens;
  }

  void leave() {
    const auto at = std::next(texts_.begin(), static_cast<std::ptrdiff_t>(dice_() % texts_.size()));
    late_.detach(draft_key(at->first), Lease{1});
    early_.detach(draft_key(at->first), Lease{1});
    last_.erase(at->first);
    texts_.erase(at);
  }

  // What the target's step will say; mostly it is announced, and mostly it stands on the board.
  void draw_verdicts() {
    for (auto& [seq, text] : texts_) {
      const std::vector<TokenId>& proposed = last_[seq];
      const std::size_t n_drafted = one_in(6) ? dice_() % (proposed.size() + 1) : proposed.size();
      text.n_kept = dice_() % (n_drafted + 1);
      text.own = token();
      if (one_in(5)) continue;
      const std::uint64_t tag = ++n_tags_;
      const auto at = static_cast<std::int32_t>(tag % kEntries);
      BoardEntry entry{
          .tag = tag, .n_accepted = static_cast<std::int32_t>(text.n_kept), .next_token = text.own};
      const bool is_forged = one_in(5);
      n_forged += is_forged;
      if (is_forged) switch (dice_() % 5) {
          case 0:
            entry.tag += 1;
            break;
          case 1:
            entry.n_accepted = static_cast<std::int32_t>(n_drafted) + 1;
            break;
          case 2:
            entry.next_token = one_in(2) ? -1 : vocab_;
            break;
          case 3:
            entry.n_accepted = static_cast<std::int32_t>(dice_() % (n_drafted + 1));
            break;
          default:
            entry.next_token = token();
            break;
        }
      board_.owner->entries()[at] = entry;  // host memory here, on the emulated device too
      const auto drafted = std::span<const TokenId>(proposed).first(n_drafted);
      const PrefixHash prefix = prefix_hash_extend(kRoot, text.tokens);
      (void)early_.expect({.key = draft_key(seq),
                           .lease = Lease{1},
                           .base = static_cast<Position>(text.tokens.size()),
                           .prefix = prefix,
                           .n_drafted = static_cast<std::uint32_t>(n_drafted),
                           .drafted = prefix_hash_extend(prefix, drafted),
                           .entry = at,
                           .tag = tag,
                           .budget = 1 + static_cast<std::uint32_t>(dice_() % 12),
                           .board = board_.view});
    }
  }

  void follow() {
    for (auto& [seq, text] : texts_) {
      const auto from = static_cast<Position>(text.tokens.size());
      const std::vector<TokenId>& proposed = last_[seq];
      text.tokens.insert(text.tokens.end(), proposed.begin(),
                         proposed.begin() + static_cast<std::ptrdiff_t>(text.n_kept));
      text.tokens.push_back(text.own);
      last_[seq] = {};
      text.epoch = Epoch{text.epoch.value + 1};
      text.budget = static_cast<std::uint32_t>(dice_() % 12);
      const FollowRequest request{.key = draft_key(seq),
                                  .lease = Lease{1},
                                  .epoch = text.epoch,
                                  .from = from,
                                  .tail = std::span<const TokenId>(text.tokens).subspan(from),
                                  .prefix = prefix_hash_extend(kRoot, text.tokens),
                                  .budget = text.budget};
      EXPECT_TRUE(std::holds_alternative<Applied>(late_.follow(request, kStart)));
      EXPECT_TRUE(std::holds_alternative<Applied>(early_.follow(request, kStart)));
    }
  }

  std::mt19937_64 dice_;
  std::int32_t vocab_;
  std::int32_t block_tokens_ = one_in(2) ? 4 : 16;
  std::uint32_t max_chained_ = one_in(3) ? 1 : 16;
  Board board_;
  DraftEngine late_, early_;
  std::map<std::uint64_t, Text> texts_;
  std::map<std::uint64_t, std::vector<TokenId>> last_;  // proposed
  std::uint64_t n_joined_ = 0, n_tags_ = 0;
};

TEST(RunAhead, OfAScriptedModelSaysWhatTheRecordWouldHaveBrought) {
  const auto backend = make_backend({.device = "cpu", .n_threads = 1});
  std::uint64_t n_expected = 0, n_taken = 0, n_forged = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    ScriptedModel model({.vocab_size = 40, .max_model_len = 200, .eos_token_ids = {}});
    Pair pair(model, *backend, model, *backend, seed, 40);
    pair.play(30);
    if (HasFailure()) return;
    n_expected += pair.n_expected;
    n_taken += pair.n_taken;
    n_forged += pair.n_forged;
  }
  EXPECT_GT(n_taken, 1000u);
  EXPECT_GT(n_expected, n_taken + 100);
  EXPECT_GT(n_forged, 300u);
}

TEST(RunAhead, OfARandomDecoderSaysWhatTheRecordWouldHaveBrought) {
  std::uint64_t n_taken = 0, seed = 100;
  for (const WeightDType dtype : {WeightDType::kF32, WeightDType::kBf16, WeightDType::kI8})
    for (const Record record : {Record::kOff, Record::kOn}) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      const test::TempFolder folder;
      write_random_model(folder / "model", {.config = tiny_config(Family::kLlama), .seed = ++seed});
      const auto backend = make_backend({.device = "cpu", .n_threads = 1});
      const auto other = make_backend({.device = "cpu", .n_threads = 1, .record = record});
      const LoadOptions load{.dtype = dtype, .max_rows = 64, .max_model_len = 128};
      const auto model = load_model(folder / "model", *backend, load);
      const auto same = load_model(folder / "model", *other, load);
      Pair pair(*model, *backend, *same, *other, seed, 256);
      pair.play(20);
      if (HasFailure()) return;
      n_taken += pair.n_taken;
    }
  EXPECT_GT(n_taken, 60u);
}

#if defined(FORETOKEN_EMU)
TEST(RunAhead, OnAnEmulatedDeviceSaysWhatTheRecordWouldHaveBrought) {
  const test::TempFolder folder;
  write_random_model(folder / "model", {.config = tiny_config(Family::kLlama), .seed = 9});
  const auto backend = emu::make_backend(9, CudaPath::kSimple, Record::kOff);
  const LoadOptions load{.dtype = WeightDType::kBf16, .max_rows = 64, .max_model_len = 128};
  const auto model = load_model(folder / "model", *backend, load);
  for (const CudaPath path : {CudaPath::kSimple, CudaPath::kRingPrefetch}) {
    const auto other = emu::make_backend(9, path);
    const auto same = load_model(folder / "model", *other, load);
    std::uint64_t n_taken = 0;
    for (const std::uint64_t seed : {7, 9}) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      Pair pair(*model, *backend, *same, *other, seed, 256);
      pair.play(6);
      n_taken += pair.n_taken;
    }
    EXPECT_GT(n_taken, 5u);
  }
}
#endif

class RunAheadTest : public ::testing::Test {
 protected:
  // The chain after its prompt.
  std::vector<TokenId> attach(std::uint64_t seq, SamplingParams params, std::uint64_t target = 1) {
    params.max_tokens = 1000;
    EXPECT_TRUE(std::holds_alternative<Applied>(engine_.attach(
        test::attach_request(draft_key(seq, target), kRoot, kPrompt, 4, params), kStart)));
    std::vector<TokenId> chain;
    while (engine_.has_work())
      for (const auto& ready : engine_.step(kStart).proposals) chain = ready.tokens;
    return chain;
  }
  ExpectRequest expected(std::uint64_t seq, std::span<const TokenId> drafted) {
    const PrefixHash prefix = prefix_hash_extend(kRoot, kPrompt);
    return {.key = draft_key(seq),
            .lease = Lease{1},
            .base = static_cast<Position>(kPrompt.size()),
            .prefix = prefix,
            .n_drafted = static_cast<std::uint32_t>(drafted.size()),
            .drafted = prefix_hash_extend(prefix, drafted),
            .entry = 3,
            .tag = 77,
            .budget = 4,
            .board = board_.view};
  }

  const std::vector<TokenId> kPrompt{3, 1, 4, 1, 5};
  std::unique_ptr<Backend> backend_ = make_backend({.device = "cpu", .n_threads = 1});
  ScriptedModel model_{{.vocab_size = 40, .max_model_len = 200, .eos_token_ids = {}}};
  Board board_{*backend_};
  DraftEngine engine_{model_, *backend_, draft_options(16, 4)};
};

// Nothing but what this draft said itself, of the tokens it has.
TEST_F(RunAheadTest, ANoticeOfAnotherTextIsOfNoUse) {
  const auto chain = attach(1, {.temperature = 0});
  const ExpectRequest right = expected(1, chain);
  EXPECT_TRUE(engine_.expect(right));
  const auto refused = [&](auto&& change) {
    ExpectRequest wrong = right;
    change(wrong);
    return !engine_.expect(wrong);
  };
  EXPECT_TRUE(refused([](auto& r) { r.key.seq = SeqId{9}; }));
  EXPECT_TRUE(refused([](auto& r) { r.lease = Lease{2}; }));
  EXPECT_TRUE(refused([](auto& r) { r.base += 1; }));
  EXPECT_TRUE(refused([](auto& r) { r.prefix += 1; }));
  EXPECT_TRUE(refused([](auto& r) { r.n_drafted = 1; }));
  EXPECT_TRUE(refused([](auto& r) { r.n_drafted = 500; }));
  // Of a chain that is verified in part the rest may stand as well: it is not guessed again.
  EXPECT_FALSE(engine_.expect(expected(1, std::span(chain).first(2))));
  EXPECT_TRUE(refused([](auto& r) { r.drafted += 1; }));
  EXPECT_TRUE(refused([](auto& r) { r.entry = -1; }));
  EXPECT_TRUE(refused([](auto& r) { r.entry = kEntries; }));
  EXPECT_TRUE(refused([](auto& r) { r.budget = 0; }));
  EXPECT_TRUE(refused([](auto& r) { r.board.reset(); }));
}

TEST_F(RunAheadTest, RulesThatChangeFromTokenToTokenWaitForTheRecord) {
  SamplingParams words{.temperature = 0};
  words.bad_words = {{1, 2}};
  std::uint64_t seq = 0;
  for (const auto& params : {words, SamplingParams{.temperature = 0, .repetition_penalty = 1.2f},
                             SamplingParams{.temperature = 0, .min_tokens = 3}}) {
    const auto chain = attach(++seq, params);
    EXPECT_FALSE(engine_.expect(expected(seq, chain))) << seq;
  }
}

// Its step would stand still until this target's verdict.
TEST_F(RunAheadTest, ADraftOfTwoTargetsWaitsForNoVerdict) {
  const auto chain = attach(1, {.temperature = 0});
  (void)attach(2, {.temperature = 0}, 8);
  board_.owner->entries()[3] = {.tag = 77, .n_accepted = 1, .next_token = 6};
  EXPECT_TRUE(engine_.expect(expected(1, chain)));
  while (engine_.has_work()) (void)engine_.step(kStart);
  EXPECT_EQ(engine_.snapshot().n_expected, 0u);
}

// Whoever loses its blocks to another, or whose target takes the board away, expects nothing any
// more.
TEST_F(RunAheadTest, WhatIsExpectedGoesWithTheCacheAndWithTheBoard) {
  DraftEngineOptions few = draft_options(16, 4);
  few.kv.n_blocks = 4;
  DraftEngine engine(model_, *backend_, few);
  const auto attach_to = [&](std::uint64_t seq, const std::vector<TokenId>& prompt) {
    SamplingParams params{.temperature = 0};
    params.max_tokens = 1000;
    (void)engine.attach(test::attach_request(draft_key(seq), kRoot, prompt, 4, params), kStart);
  };
  attach_to(1, kPrompt);
  std::vector<TokenId> chain;
  while (engine.has_work())
    for (const auto& ready : engine.step(kStart).proposals) chain = ready.tokens;
  ASSERT_TRUE(engine.expect(expected(1, chain)));
  attach_to(2, {9, 8, 7, 6, 5, 4, 3, 2, 1});
  for (int i = 0; engine.has_work(); ++i) {
    ASSERT_LT(i, 100);
    (void)engine.step(kStart);
  }
  EXPECT_EQ(engine.snapshot().n_expected, 0u);

  const auto other = attach(1, {.temperature = 0});
  ASSERT_TRUE(engine_.expect(expected(1, other)));
  board_.view.reset();
  while (engine_.has_work()) (void)engine_.step(kStart);
  EXPECT_EQ(engine_.snapshot().n_expected, 0u);
}

TEST_F(RunAheadTest, TheAnswerIsThereWhenTheRecordComes) {
  const auto chain = attach(1, {.temperature = 0});
  board_.owner->entries()[3] = {.tag = 77, .n_accepted = 2, .next_token = 6};
  ASSERT_TRUE(engine_.expect(expected(1, chain)));
  const DraftOutput& early = engine_.step(kStart);
  EXPECT_EQ(early.n_steps, 4u);
  EXPECT_TRUE(early.proposals.empty());
  EXPECT_FALSE(engine_.has_work());
  EXPECT_EQ(engine_.snapshot().n_taken, 1u);

  std::vector<TokenId> committed = kPrompt;
  committed.insert(committed.end(), {chain[0], chain[1], 6});
  (void)engine_.follow({.key = draft_key(1),
                        .lease = Lease{1},
                        .epoch = Epoch{1},
                        .from = static_cast<Position>(kPrompt.size()),
                        .tail = std::span<const TokenId>(committed).subspan(kPrompt.size()),
                        .prefix = prefix_hash_extend(kRoot, committed),
                        .budget = 4},
                       kStart);
  const DraftOutput& answer = engine_.step(kStart);
  EXPECT_EQ(answer.n_rows, 0u);  // nothing was left to compute
  ASSERT_EQ(answer.proposals.size(), 1u);
  EXPECT_EQ(answer.proposals[0].base, committed.size());
  EXPECT_EQ(answer.proposals[0].tokens.size(), 4u);
  EXPECT_EQ(engine_.snapshot().n_kept, 2u);  // the target's own token was no guess
}

}  // namespace
}  // namespace foretoken
