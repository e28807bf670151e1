// A pass that is replayed has the bits of one that is called, whatever its shape, and shapes are
// forgotten where there are too many: on the CPU, and with the CUDA kernels on an emulated device.
#include "common/engine/recordings.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "common/engine/step.h"
#include "common/model/config.h"
#include "common/model/init_random.h"
#include "common/model/load_model.h"
#include "tests/support/temp_folder.h"
#if defined(FORETOKEN_EMU)
#include "kernels/cuda/emulated.h"
#endif

namespace foretoken {
namespace {

using BackendMaker = std::unique_ptr<Backend> (*)(Record);

std::unique_ptr<Backend> cpu(Record record) {
  return make_backend({.device = "cpu", .n_threads = 1, .record = record});
}

TEST(Recordings, AShapeIsCalledOnceThenRecordedAndReplayed) {
  const auto backend = cpu(Record::kOn);
  Recordings recordings(*backend, 2);
  const Buffer from = backend->allocate(4), to = backend->allocate(4);
  int n_calls = 0;
  const auto run = [&](std::int32_t n_rows) {
    recordings.run({.n_rows = n_rows}, [&] {
      ++n_calls;
      backend->copy(to.as<int>(), from.as<int>(), 4);
    });
    int value = 0;
    backend->download(&value, to.as<int>(), 4);
    return value;
  };
  for (int i = 1; i <= 4; ++i) {
    backend->upload(from.as<int>(), &i, 4);
    EXPECT_EQ(run(7), i);
  }
  EXPECT_EQ(n_calls, 2) << "once for itself, once to be recorded";
  EXPECT_EQ(recordings.stats().n_recorded, 1u);
  EXPECT_EQ(recordings.stats().n_replayed, 3u);
  run(8);
  run(7);
  run(9);  // 8 has not been used for longest
  EXPECT_EQ(recordings.size(), 2u);
  EXPECT_EQ(recordings.stats().n_forgotten, 1u);
  n_calls = 0;
  run(7);
  EXPECT_EQ(n_calls, 0) << "what is used stays";
  run(8);
  EXPECT_EQ(n_calls, 1);
  recordings.clear();
  run(7);
  EXPECT_EQ(n_calls, 2);
  run(Recordings::kMostRows + 1);
  run(Recordings::kMostRows + 1);
  EXPECT_EQ(recordings.size(), 1u) << "large passes are not worth it";
}

TEST(Recordings, WhereNothingIsGainedCallsAreMade) {
  const auto backend = cpu(Record::kAuto);
  Recordings recordings(*backend);
  int n_calls = 0;
  for (int i = 0; i < 5; ++i) recordings.run({.n_rows = 1}, [&] { ++n_calls; });
  EXPECT_EQ(n_calls, 5);
  EXPECT_EQ(recordings.size(), 0u);
}

// One engine's worth of step: a cache, a model, and sequences that verify random proposals.
class Verifier {
 public:
  Verifier(const std::filesystem::path& folder, WeightDType dtype, std::unique_ptr<Backend> backend)
      : backend_(std::move(backend)),
        model_(
            load_model(folder, *backend_, {.dtype = dtype, .max_rows = 128, .max_model_len = 512})),
        kv_({.n_blocks = 200, .block_tokens = 4}),
        step_(*model_, *backend_, kv_, 250) {}

  struct Sequence {
    SeqId id{};
    std::vector<TokenId> tokens;
    std::unique_ptr<RowRules> rules;
  };
  void open(SeqId id, const std::vector<TokenId>& prompt, const SamplingParams& params) {
    ASSERT_TRUE(kv_.open(id, prompt, 0).ok());
    sequences_.push_back(
        {id, prompt, std::make_unique<RowRules>(params, std::vector<TokenId>{0}, prompt)});
  }
  void close(std::size_t index) {
    kv_.close(sequences_[index].id);
    sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  // Verifies proposals for all sequences; everything that came back, as bytes.
  std::vector<std::byte> round(const std::vector<std::vector<TokenId>>& proposed) {
    step_.begin();
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      Sequence& s = sequences_[i];
      const Position start = kv_.length(s.id);
      const auto known = std::span<const TokenId>(s.tokens).subspan(start);
      SliceRequest request{
          .seq = s.id, .known = known, .proposed = proposed[i], .rules = s.rules.get()};
      if (s.id.value % 2 == 1 && known.size() > 2) {  // its prompt, but for the first row
        request.first_forced = 1;
        request.forced = known.subspan(2);
        request.n_forced_top = 2;
      }
      EXPECT_TRUE(step_.add(request).ok());
    }
    step_.run();
    std::vector<std::byte> all;
    const auto keep = [&](const auto& span) {
      const auto bytes = std::as_bytes(span);
      all.insert(all.end(), bytes.begin(), bytes.end());
    };
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      Sequence& s = sequences_[i];
      for (const Choice& c : step_.choices(i)) {
        keep(std::span(&c.score, 1));
        keep(std::span(&c.token, 1));
        keep(std::span(&c.logprob, 1));
      }
      for (std::size_t k = 0; k < step_.choices(i).size(); ++k) keep(step_.top(i, k));
      const PlanSlice& slice = step_.plan().slices[i];
      for (std::uint32_t k = 0; k < slice.n_forced; ++k) {
        const Choice& forced = step_.forced(i)[k];
        EXPECT_EQ(forced.token, s.tokens[slice.start + slice.n_known - slice.n_forced + k]);
        keep(std::span(&forced.logprob, 1));
        keep(step_.forced_top(i, k));
        ++n_forced;
      }
      const std::uint32_t n = step_.n_accepted(i);
      keep(std::span(&n, 1));
      // What the device says is what the rule says.
      std::uint32_t expected = 0;
      while (expected < proposed[i].size() && proposed[i][expected] == step_.chosen(i)[expected])
        ++expected;
      EXPECT_EQ(n, expected);
      n_accepted += n;
      for (std::uint32_t k = 0; k <= n; ++k) {
        s.tokens.push_back(step_.chosen(i)[k]);
        s.rules->commit(s.tokens.back());
      }
      step_.commit(i, slice.n_known + n, s.tokens);
    }
    return all;
  }
  std::uint64_t n_accepted = 0, n_forced = 0;
  std::vector<Sequence>& sequences() { return sequences_; }
  const RecordingStats& stats() const { return step_.recordings(); }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  KvCache kv_;
  Step step_;
  std::vector<Sequence> sequences_;
};

SamplingParams random_params(std::mt19937_64& dice) {
  SamplingParams p{.temperature = dice() % 3 == 0 ? 0.0f : 1.0f};
  p.seed = dice();
  if (dice() % 2 == 0) p.logit_bias = {{7, 8.0f}};  // now and then what is proposed below
  if (dice() % 3 == 0) p.top_k = 1 + static_cast<std::uint32_t>(dice() % 20);
  if (dice() % 3 == 0) p.top_p = 0.9f;
  if (dice() % 3 == 0) p.repetition_penalty = 1.2f;
  if (dice() % 3 == 0) p.n_logprobs = static_cast<std::int32_t>(dice() % 4);
  return p;
}

void expect_equal_bits(BackendMaker make,
                       Family family,
                       WeightDType dtype,
                       int n_rounds,
                       std::size_t most_sequences,
                       int most_proposed,
                       int n_layers = 2) {
  const test::TempFolder folder;
  ModelConfig config = tiny_config(family);
  config.n_layers = n_layers;
  write_random_model(folder / "model", {.config = config, .seed = 5});
  Verifier called(folder / "model", dtype, make(Record::kOff));
  Verifier recorded(folder / "model", dtype, make(Record::kOn));
  std::mt19937_64 dice(20251121);
  std::uint64_t n_opened = 0;
  for (int i = 0; i < n_rounds; ++i) {
    auto& sequences = called.sequences();
    while (sequences.empty() || (sequences.size() < most_sequences && dice() % 8 == 0)) {
      std::vector<TokenId> prompt(1 + dice() % 9);
      for (TokenId& token : prompt) token = static_cast<TokenId>(1 + dice() % 249);
      const SamplingParams params = random_params(dice);
      const SeqId id{++n_opened};
      called.open(id, prompt, params);
      recorded.open(id, prompt, params);
    }
    std::vector<std::vector<TokenId>> proposed(sequences.size());
    for (std::size_t s = 0; s < proposed.size(); ++s)
      for (std::uint64_t n = dice() % static_cast<std::uint64_t>(most_proposed + 1); n > 0; --n)
        proposed[s].push_back(dice() % 4 == 0 ? static_cast<TokenId>(1 + dice() % 249) : 7);
    const auto want = called.round(proposed);
    ASSERT_EQ(recorded.round(proposed), want) << "round " << i;
    for (std::size_t s = 0; s < sequences.size(); ++s)
      if (sequences[s].tokens.size() > 60 || (sequences.size() > 1 && dice() % 40 == 0)) {
        called.close(s);
        recorded.close(s);
        break;
      }
  }
  EXPECT_EQ(called.stats().n_replayed, 0u);
  EXPECT_GT(recorded.n_accepted, 20u);
  EXPECT_GT(recorded.n_forced, 5u);
  EXPECT_GT(recorded.stats().n_recorded, 5u);
  EXPECT_GT(recorded.stats().n_replayed, static_cast<std::uint64_t>(n_rounds) / 4);
}

TEST(Recordings, TwoHundredVerifyStepsHaveTheBitsOfCallsOnTheCpu) {
  for (const WeightDType dtype :
       {WeightDType::kF32, WeightDType::kBf16, WeightDType::kI8, WeightDType::kI4})
    for (const Family family : {Family::kLlama, Family::kQwen3})
      expect_equal_bits(cpu, family, dtype, 200, 3, 5);
}

// A plan of one row for each rule.
StepPlan plan_of(const std::vector<RowRule>& rules) {
  StepPlan plan;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const auto row = static_cast<std::uint32_t>(i);
    plan.tokens.push_back(6);
    plan.slices.push_back({.seq = SeqId{i + 1},
                           .first_row = row,
                           .n_known = 1,
                           .first_choice = row,
                           .n_choices = 1,
                           .first_block = row,
                           .n_blocks = 1});
    plan.block_tables.push_back(static_cast<std::int32_t>(i));
    plan.logit_rows.push_back(static_cast<std::int32_t>(i));
  }
  plan.rules = rules;
  return plan;
}

// Masks come and go, and their memory moves as it grows.
void expect_masks_to_be_kept(std::unique_ptr<Backend> backend) {
  const test::TempFolder folder;
  ModelConfig config = tiny_config(Family::kLlama);
  config.n_layers = 1;
  write_random_model(folder / "model", {.config = config, .seed = 5});
  const auto model = load_model(folder / "model", *backend, {.max_rows = 128});
  PlanRunner runner(*model, *backend, {.n_blocks = 8, .block_tokens = 4, .n_valid_ids = 250});
  const auto n_words = static_cast<std::size_t>(mask_words(250));
  std::mt19937_64 dice(20260301);
  TokenId unmasked = -1;
  for (int i = 0; i < 24; ++i) {
    std::vector<RowRule> rules(2);
    std::vector<std::uint32_t> masks;
    std::vector<TokenId> only(rules.size(), -1);
    for (std::size_t r = 0; r < rules.size(); ++r) {
      rules[r] = {.temperature = 1, .seed = 9};
      if (i < 4 || dice() % 3 == 0) continue;  // recorded before any mask is there
      masks.resize(masks.size() + dice() % 2 * n_words * 50);
      rules[r].mask_begin = static_cast<std::int32_t>(masks.size());
      masks.resize(masks.size() + n_words);
      only[r] = static_cast<TokenId>(dice() % 250);
      masks[static_cast<std::size_t>(rules[r].mask_begin + only[r] / 32)] |= 1u << only[r] % 32;
    }
    StepPlan plan = plan_of(rules);
    plan.masks = masks;
    runner.run(plan);
    if (i == 0) unmasked = runner.chosen()[0];
    for (std::size_t r = 0; r < rules.size(); ++r)
      EXPECT_EQ(runner.chosen()[r], only[r] >= 0 ? only[r] : unmasked)
          << "pass " << i << " row " << r;
  }
  EXPECT_GT(runner.recordings().n_recorded, 1u);
  EXPECT_GT(runner.recordings().n_replayed, 10u);
}

TEST(Recordings, PassesThatAreReplayedHaveTheMasksOfTheirPlan) {
  expect_masks_to_be_kept(cpu(Record::kOn));
}

TEST(RecordingsDeathTest, MasksAreAsLongAsTheVocabularyAndNotOfAChain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const test::TempFolder folder;
  write_random_model(folder / "model", {.config = tiny_config(Family::kLlama), .seed = 5});
  const auto backend = cpu(Record::kOff);
  const auto model = load_model(folder / "model", *backend, {.max_rows = 128});
  PlanRunner runner(*model, *backend, {.n_blocks = 8, .block_tokens = 4, .n_valid_ids = 250});
  StepPlan plan = plan_of({{.mask_begin = 1}});
  plan.masks.assign(8, 0);
  EXPECT_DEATH(runner.run(plan), "shorter than the vocabulary");
  plan.rules[0].mask_begin = 0;
  plan.n_ahead = 1;
  plan.n_endings = {0};
  plan.rules_ahead = plan.rules;
  EXPECT_DEATH(runner.run(plan), "a chain");
}

#if defined(FORETOKEN_EMU)
TEST(Recordings, PassesThatAreReplayedHaveTheMasksOfTheirPlanOnAnEmulatedDevice) {
  expect_masks_to_be_kept(emu::make_backend(9, CudaPath::kSimple, Record::kOn));
}

TEST(Recordings, TwoHundredVerifyStepsHaveTheBitsOfCallsOnAnEmulatedDevice) {
  const auto simple = [](Record record) { return emu::make_backend(9, CudaPath::kSimple, record); };
  expect_equal_bits(simple, Family::kLlama, WeightDType::kBf16, 200, 2, 2, 1);
}
#endif

}  // namespace
}  // namespace foretoken
