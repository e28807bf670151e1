// A draft that takes several steps on the device before its host hears of it says what one says
// that is asked step by step: token for token, whatever the budgets, the end tokens, the blocks and
// who comes and goes.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <random>
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
#include "kernels/cuda/emulated.h"
#endif

namespace foretoken {
namespace {

using test::draft_options, test::keep_what_was_asked_for, test::kRoot, test::kTarget, test::kStart,
    test::run, test::Said, test::SaidOf, test::step;

// Two engines hear the same words; one of them chains.
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
        stepwise_(model, backend, draft_options(1, block_tokens_)),
        chaining_(other, other_backend, draft_options(max_chained_, block_tokens_)) {}

  void play(int n_rounds) {
    for (int i = 0; i < n_rounds; ++i) {
      if (texts_.empty() || (texts_.size() < 5 && one_in(3))) join();
      if (texts_.size() > 1 && one_in(6)) leave();
      follow_some();
      SaidOf want, got;
      std::uint64_t none = 0;
      if (one_in(3)) {  // records overtake guesses
        none += step(stepwise_, want);
        n_chained += step(chaining_, got);
        if (one_in(2)) follow_some();
      }
      none += run(stepwise_, want);
      n_chained += run(chaining_, got);
      EXPECT_EQ(none, 0u);
      for (SaidOf* all : {&want, &got}) keep_what_was_asked_for(*all, texts_);
      EXPECT_EQ(got, want) << "round " << i;
      for (const auto& [seq, said] : want) {
        const auto& ends = texts_.at(seq).endings;
        n_ended += !said.tokens.empty() &&
                   std::find(ends.begin(), ends.end(), said.tokens.back()) != ends.end();
        last_[seq] = said.tokens;
      }
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(stepwise_.snapshot().n_kept, chaining_.snapshot().n_kept);
  }

  std::uint64_t n_chained = 0, n_ended = 0;

 private:
  struct Text {
    std::vector<TokenId> tokens, endings;
    Epoch epoch{};
    std::uint32_t budget = 0;
  };
  bool one_in(std::uint64_t n) { return dice_() % n == 0; }
  TokenId token() { return static_cast<TokenId>(dice_() % static_cast<std::uint64_t>(vocab_)); }

  void join() {
    const std::uint64_t seq = ++n_joined_;
    Text text;
    for (std::uint64_t n = 1 + dice_() % 20; n > 0; --n) text.tokens.push_back(token());
    wire::Attach request{.seq = SeqId{seq}, .lease = Lease{1}, .root = kRoot};
    SamplingParams& p = request.params;
    p.temperature = one_in(2) ? 0.0f : 1.0f;
    p.seed = dice_();
    p.max_tokens = 1000;
    if (one_in(3)) p.top_k = 1 + static_cast<std::uint32_t>(dice_() % 20);
    if (one_in(3)) p.top_p = 0.8f;
    if (one_in(4)) p.min_p = 0.05f;
    if (one_in(4)) p.logit_bias = {{token(), 2.0f}, {token(), -50.0f}};
    if (one_in(4)) p.min_tokens = static_cast<std::uint32_t>(dice_() % 12);
    if (one_in(8)) p.repetition_penalty = 1.3f;
    if (one_in(12)) p.bad_words = {{token(), token()}};
    for (std::uint64_t n = dice_() % 5; n > 0; --n) p.stop_token_ids.push_back(token());
    p.ignore_eos = true;
    text.endings = p.stop_token_ids;
    request.n_prompt = static_cast<std::uint32_t>(text.tokens.size());
    request.tokens = text.tokens;
    request.prefix = prefix_hash_extend(kRoot, text.tokens);
    request.budget = text.budget = static_cast<std::uint32_t>(dice_() % 12);
    wire::Attach same = request;
    (void)stepwise_.attach(kTarget, std::move(request), kStart);
    (void)chaining_.attach(kTarget, std::move(same), kStart);
    texts_[seq] = std::move(text);
  }

  void leave() {
    const auto at = std::next(texts_.begin(), static_cast<std::ptrdiff_t>(dice_() % texts_.size()));
    stepwise_.detach(kTarget, {SeqId{at->first}, Lease{1}});
    chaining_.detach(kTarget, {SeqId{at->first}, Lease{1}});
    last_.erase(at->first);
    texts_.erase(at);
  }

  // A target that keeps some of what was last proposed, and adds a token of its own.
  void follow_some() {
    for (auto& [seq, text] : texts_) {
      if (one_in(4)) continue;
      const auto from = static_cast<Position>(text.tokens.size());
      const std::vector<TokenId> proposed = last_[seq];
      const std::size_t n_kept = proposed.empty() ? 0 : dice_() % (proposed.size() + 1);
      text.tokens.insert(text.tokens.end(), proposed.begin(),
                         proposed.begin() + static_cast<std::ptrdiff_t>(n_kept));
      text.tokens.push_back(token());
      last_[seq] = {};
      text.epoch = Epoch{text.epoch.value + 1};
      text.budget = static_cast<std::uint32_t>(dice_() % 14);
      const wire::ProposeRecord request{.seq = SeqId{seq},
                                        .lease = Lease{1},
                                        .epoch = text.epoch,
                                        .from = from,
                                        .tail = {text.tokens.begin() + from, text.tokens.end()},
                                        .prefix = prefix_hash_extend(kRoot, text.tokens),
                                        .budget = text.budget};
      (void)stepwise_.follow(kTarget, request, kStart);
      (void)chaining_.follow(kTarget, request, kStart);
    }
  }

  std::mt19937_64 dice_;
  std::int32_t vocab_;
  std::int32_t block_tokens_ = one_in(2) ? 4 : 16;
  std::uint32_t max_chained_ = one_in(3) ? 3 : 16;
  DraftEngine stepwise_, chaining_;
  std::map<std::uint64_t, Text> texts_;
  std::map<std::uint64_t, std::vector<TokenId>> last_;  // proposed
  std::uint64_t n_joined_ = 0;
};

TEST(Chain, OfAScriptedModelIsWhatItsStepsAre) {
  const auto backend = make_backend({.device = "cpu", .n_threads = 1});
  std::uint64_t n_chained = 0, n_ended = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    ScriptedModel model({.vocab_size = 40, .max_model_len = 200, .eos_token_ids = {}});
    Pair pair(model, *backend, model, *backend, seed, 40);
    pair.play(30);
    if (HasFailure()) return;
    n_chained += pair.n_chained;
    n_ended += pair.n_ended;
  }
  EXPECT_GT(n_chained, 2000u);
  EXPECT_GT(n_ended, 100u);
}

// The replayed and the called, in every combination of family and weights.
TEST(Chain, OfARandomDecoderIsWhatItsStepsAre) {
  std::uint64_t n_chained = 0, seed = 100;
  for (const WeightDType dtype :
       {WeightDType::kF32, WeightDType::kBf16, WeightDType::kI8, WeightDType::kI4})
    for (const Family family : {Family::kLlama, Family::kQwen3})
      for (const Record record : {Record::kOff, Record::kOn}) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const test::TempFolder folder;
        write_random_model(folder / "model", {.config = tiny_config(family), .seed = ++seed});
        const auto backend = make_backend({.device = "cpu", .n_threads = 1});
        const auto other = make_backend({.device = "cpu", .n_threads = 1, .record = record});
        const LoadOptions load{.dtype = dtype, .max_rows = 64, .max_model_len = 128};
        const auto model = load_model(folder / "model", *backend, load);
        const auto same = load_model(folder / "model", *other, load);
        Pair pair(*model, *backend, *same, *other, seed, 256);
        pair.play(20);
        if (HasFailure()) return;
        n_chained += pair.n_chained;
      }
  EXPECT_GT(n_chained, 300u);
}

#if defined(FORETOKEN_EMU)
TEST(Chain, OnAnEmulatedDeviceIsWhatItsStepsAre) {
  const test::TempFolder folder;
  write_random_model(folder / "model", {.config = tiny_config(Family::kLlama), .seed = 9});
  const auto backend = emu::make_backend(9, CudaPath::kSimple, Record::kOff);
  const LoadOptions load{.dtype = WeightDType::kBf16, .max_rows = 64, .max_model_len = 128};
  const auto model = load_model(folder / "model", *backend, load);
  for (const CudaPath path : {CudaPath::kSimple, CudaPath::kRingPrefetch}) {
    const auto other = emu::make_backend(9, path);
    const auto same = load_model(folder / "model", *other, load);
    Pair pair(*model, *backend, *same, *other, 7, 256);
    pair.play(6);
    EXPECT_GT(pair.n_chained, 10u);
  }
}
#endif

wire::Attach request_of(std::uint64_t seq,
                        std::vector<TokenId> tokens,
                        std::uint32_t budget,
                        const SamplingParams& params) {
  return test::attach_message(SeqId{seq}, kRoot, std::move(tokens), budget, params);
}

class ChainTest : public ::testing::Test {
 protected:
  void attach(std::uint64_t seq, std::uint32_t budget, SamplingParams params) {
    params.max_tokens = 1000;
    ASSERT_TRUE(std::holds_alternative<Applied>(engine_.attach(
        kTarget, request_of(seq, {3, 1, 4, static_cast<TokenId>(seq)}, budget, params), kStart)));
  }
  std::vector<std::uint32_t> steps_of_passes() {
    std::vector<std::uint32_t> steps;
    while (engine_.has_work()) steps.push_back(engine_.step(kStart).n_steps);
    return steps;
  }
  std::unique_ptr<Backend> backend_ = make_backend({.device = "cpu", .n_threads = 1});
  ScriptedModel model_{{.vocab_size = 40, .max_model_len = 200, .eos_token_ids = {}}};
  DraftEngine engine_{model_, *backend_, draft_options(16, 4)};
};

TEST_F(ChainTest, EndsWithTheFirstThatHasWhatItWants) {
  attach(1, 9, {.temperature = 0});
  attach(2, 4, {.temperature = 0});
  EXPECT_EQ(steps_of_passes(), (std::vector<std::uint32_t>{1, 3, 5}));  // prompts, 2's, 1's
}

// What a rule says of the third guess may depend on the second: the host counts, so it is asked.
TEST_F(ChainTest, RulesThatLookAtTokensAreAskedStepByStep) {
  SamplingParams words{.temperature = 0};
  words.bad_words = {{1, 2}};
  SamplingParams one_word{.temperature = 0};
  one_word.bad_words = {{1}};
  const std::vector<std::uint32_t> stepwise(5, 1), chained{1, 4};
  std::uint64_t seq = 0;
  for (const auto& [params, want] :
       {std::pair{SamplingParams{.temperature = 0, .repetition_penalty = 1.1f}, stepwise},
        {SamplingParams{.temperature = 0, .presence_penalty = 0.5f}, stepwise},
        {SamplingParams{.temperature = 1, .frequency_penalty = 0.5f}, stepwise},
        {words, stepwise},
        {one_word, chained},
        {SamplingParams{.temperature = 1, .top_k = 5, .top_p = 0.9f, .min_p = 0.01f}, chained}}) {
    attach(++seq, 5, params);
    EXPECT_EQ(steps_of_passes(), want) << "sequence " << seq;
    engine_.detach(kTarget, {SeqId{seq}, Lease{1}});
  }
}

// Where steps are not recorded the host listens after each, or a correction would wait for the
// rest.
TEST_F(ChainTest, TheCpuStepsOneByOneUnlessAsked) {
  DraftEngine engine(model_, *backend_, draft_options(0, 4));
  const auto recording = make_backend({.device = "cpu", .n_threads = 1, .record = Record::kOn});
  DraftEngine other(model_, *recording, draft_options(0, 4));
  for (DraftEngine* one : {&engine, &other}) {
    (void)one->attach(kTarget, request_of(1, {1, 2, 3}, 6, {.temperature = 0}), kStart);
    std::uint32_t most = 0;
    while (one->has_work()) most = std::max(most, one->step(kStart).n_steps);
    EXPECT_EQ(most, one == &engine ? 1u : 5u);
  }
}

// A scripted model that has no next token at all after one of them.
class SilentModel final : public Model {
 public:
  explicit SilentModel(const ScriptedOptions& options) : inner_(options) {}
  TokenId silent_after = -1;
  const ModelConfig& config() const override { return inner_.config(); }
  KvGeometry kv_geometry(std::int32_t block_tokens) const override {
    return inner_.kv_geometry(block_tokens);
  }
  Fingerprint fingerprint() const override { return inner_.fingerprint(); }
  std::size_t weight_bytes() const override { return 0; }
  std::int32_t max_rows() const override { return inner_.max_rows(); }
  void forward(const StagedBatch& batch, const PagedKv& kv, float* logits) override {
    inner_.forward(batch, kv, logits);
    const std::int32_t n = config().vocab_size;
    for (std::int32_t i = 0; i < batch.n_logit_rows; ++i)
      if (batch.tokens[batch.logit_rows[i]] == silent_after)
        std::fill_n(logits + std::int64_t{i} * n, n, -std::numeric_limits<float>::infinity());
  }

 private:
  ScriptedModel inner_;
};

// Where no token can follow, the row that said so stays to be asked: a cache that had it would have
// nothing left to ask.
TEST_F(ChainTest, AGuessThatCouldNotBeMadeIsAskedForAgain) {
  for (const std::uint32_t max_chained : {1u, 16u}) {
    SCOPED_TRACE(::testing::Message() << "chains of " << max_chained);
    SilentModel model({.vocab_size = 40, .max_model_len = 200, .eos_token_ids = {}});
    DraftEngine speaks(model, *backend_, draft_options(max_chained, 4));
    DraftEngine engine(model, *backend_, draft_options(max_chained, 4));
    std::uint64_t n_chained = 0;
    const auto says = [&](DraftEngine& one) {
      (void)one.attach(kTarget, request_of(1, {3, 1, 4}, 9, {.temperature = 0, .max_tokens = 100}),
                       kStart);
      SaidOf said;
      n_chained += run(one, said);
      EXPECT_TRUE(said.contains(1)) << "an answer is owed";
      return said[1];
    };
    const Said whole = says(speaks);
    ASSERT_EQ(whole.tokens.size(), 9u);
    std::size_t n = 3;  // so many guesses, the last of which is said for the first time
    const auto is_new = [&](TokenId token) {
      const auto end = whole.tokens.begin() + static_cast<std::ptrdiff_t>(n - 1);
      return token != 4 && std::find(whole.tokens.begin(), end, token) == end;
    };
    while (n < 9 && !is_new(whole.tokens[n - 1])) ++n;
    ASSERT_LT(n, 9u);
    const auto first = [n](const auto& all) {
      return std::vector(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n));
    };
    const Said part{first(whole.tokens), first(whole.confidences)};
    model.silent_after = whole.tokens[n - 1];
    for (int i = 0; i < 3; ++i) EXPECT_EQ(says(engine), part);
    model.silent_after = -1;
    EXPECT_EQ(says(engine), whole);
    EXPECT_EQ(n_chained > 0, max_chained > 1);
  }
}

TEST_F(ChainTest, AGuessThatAMaskForbidsIsAskedForAgainWhenItIsLifted) {
  SamplingParams params{.temperature = 0, .max_tokens = 100, .min_tokens = 2};
  for (TokenId token = 0; token < 40; ++token) params.stop_token_ids.push_back(token);
  for (int i = 0; i < 2; ++i) {
    SaidOf said;
    (void)engine_.attach(kTarget, request_of(1, {3, 1, 4}, 5, params), kStart);
    (void)run(engine_, said);
    ASSERT_TRUE(said.contains(1)) << "an answer is owed";
    EXPECT_TRUE(said[1].tokens.empty()) << "nothing but end tokens, and these are forbidden";
  }
  const std::vector<TokenId> text{3, 1, 4, 7, 8};
  SaidOf said;
  (void)engine_.follow(kTarget,
                       {.seq = SeqId{1},
                        .lease = Lease{1},
                        .epoch = Epoch{1},
                        .from = 3,
                        .tail = {text.begin() + 3, text.end()},
                        .prefix = prefix_hash_extend(kRoot, text),
                        .budget = 5},
                       kStart);
  (void)run(engine_, said);
  EXPECT_EQ(said[1].tokens.size(), 1u) << "one, for it is an end";
}

// A chain takes blocks for guesses to come only where no sequence has to give any up.
TEST_F(ChainTest, ScarceBlocksMakeItShort) {
  auto options = draft_options(16, 4);
  options.kv.n_blocks = 3;
  DraftEngine engine(model_, *backend_, options);
  (void)engine.attach(kTarget, request_of(1, {1, 2, 3, 4, 5}, 20, {.temperature = 0}), kStart);
  std::size_t n_said = 0, n_busy = 0;
  for (int i = 0; i < 50 && engine.has_work(); ++i) {
    const DraftOutput& output = engine.step(kStart);
    for (const ReadyProposal& one : output.proposals) n_said = one.record.tokens.size();
    n_busy += output.busy.size();
  }
  EXPECT_EQ(n_busy, 1u) << "as a stepwise one would";
  EXPECT_EQ(n_said, 0u);
  EXPECT_EQ(engine.snapshot().kv.n_used, 0);
}

}  // namespace
}  // namespace foretoken
