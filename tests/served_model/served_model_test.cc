#include "services/served_model/served_model.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/model/hf_folder.h"
#include "common/model/init_random.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/support/scripted_model.h"
#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

const std::string kFolder = std::string(FORETOKEN_SOURCE_DIR) + "/models/demo-draft";

const std::string kTargetFolder = std::string(FORETOKEN_SOURCE_DIR) + "/models/demo-target";

ModelPlan plan_of(const std::string& role) { return {.role = role, .folder = kFolder}; }

std::string what_is_wrong(const std::function<void()>& call) {
  try {
    call();
  } catch (const FatalError& error) {
    return error.what();
  }
  return "nothing";
}

class FakeRuntime final : public Runtime {
 public:
  const LoadedConfig& loaded() const override { return loaded_; }
  const std::string& id() const override { return name_; }
  const std::string& name() const override { return name_; }
  WorkerId worker() const override { return {}; }
  Incarnation incarnation() const override { return {}; }
  Metrics& metrics() override { return metrics_; }
  void progress(const std::string& text) override { said.push_back(text); }
  void check_stop() override {}
  int serve(Service&) override {
    said.push_back("serve");
    return 17;
  }

  std::vector<std::string> said;

 private:
  LoadedConfig loaded_;
  std::string name_ = "draft-0";
  Metrics metrics_;
};

class Idle final : public Service {
 public:
  void start(Bus&) override {}
  void on_message(Delivery) override {}
  TimePoint on_turn(TimePoint) override { return TimePoint::max(); }
  void drain(TimePoint) override {}
  bool drained() const override { return true; }
  std::string status() const override { return ""; }
};

struct Engine {
  FakeRuntime& runtime;
  void release_ranks() { runtime.said.push_back("release"); }
};

TEST(ServeModel, LoadsSaysSoAndHandsOverWhatTheTokenizerAndTheModelHave) {
  configure_log(LogLevel::kError, LogFormat::kText, "test");
  FakeRuntime runtime;
  ModelPlan plan = plan_of("draft");
  plan.compute.threads = 1;
  const int code = serve_model(plan, runtime, [&](const ServedModel& served) {
    const auto tokenizer = value_or_throw(Tokenizer::load(kFolder));
    EXPECT_EQ(served.vocabulary.vocabulary, tokenizer->vocabulary_fingerprint());
    EXPECT_EQ(served.vocabulary.text, tokenizer->text_fingerprint());
    EXPECT_EQ(served.vocabulary.n_ids,
              std::min<std::int64_t>(static_cast<std::int64_t>(tokenizer->vocab_size()),
                                     served.model.config().vocab_size));
    EXPECT_GT(served.free_bytes, 0u);
    EXPECT_EQ(served.ranks.size(), 1);
    return 5;
  });
  EXPECT_EQ(code, 5);
  EXPECT_EQ(runtime.said.back(), "loading the draft, 100 %");
}

// Neither config.json nor generation_config.json names one, and tokenizer_config.json does.
TEST(ServeModel, EndsWithTheTokenizersEndTokenWhereTheModelNamesNone) {
  const test::TempFolder folder;
  RandomModelRecipe recipe{.config = tiny_config(Family::kLlama)};
  const auto tokenizer = value_or_throw(Tokenizer::load(kFolder));
  recipe.config.vocab_size = static_cast<std::int32_t>(tokenizer->vocab_size());
  recipe.config.eos_token_ids = {};
  write_random_model(folder.path(), recipe);
  copy_tokenizer_files(kFolder, folder.path());
  FakeRuntime runtime;
  ModelPlan plan{.role = "target", .folder = folder.path().string()};
  plan.compute.threads = 1;
  serve_model(plan, runtime, [&](const ServedModel& served) {
    const wire::Hello hello =
        model_hello(wire::Role::kTarget, "target-0", served.model, served.vocabulary, {});
    EXPECT_EQ(hello.end_tokens, std::vector{*tokenizer->token_to_id("<|im_end|>")});
    return 0;
  });
}

TEST(ServeModel, RunsTheServiceWithTheConfiguredPatienceAndThenLetsTheRanksGo) {
  FakeRuntime runtime;
  ModelPlan plan = plan_of("draft");
  plan.compute.threads = 1;
  plan.compute.rank_deadline_ms = 321;
  const int code = serve_model(plan, runtime, [&](const ServedModel& served) {
    EXPECT_NE(served.ranks.patience(), milliseconds(321)) << "engines are made after loading";
    runtime.said.clear();
    Idle service;
    Engine engine{runtime};
    const int served_code = served.run(service, engine);
    EXPECT_EQ(served.ranks.patience(), milliseconds(321));
    return served_code;
  });
  EXPECT_EQ(code, 17);
  EXPECT_THAT(runtime.said, ::testing::ElementsAre("serve", "release"));
}

TEST(ServeModel, RefusesPinnedRanksByTheKeyOfTheRole) {
  FakeRuntime runtime;
  for (const char* role : {"draft", "target"}) {
    ModelPlan plan = plan_of(role);
    plan.compute.tensor_parallel = 2;
    plan.compute.pin = true;
    EXPECT_THAT(
        what_is_wrong([&] { serve_model(plan, runtime, [](const ServedModel&) { return 0; }); }),
        HasSubstr(std::string(role) + ".pin"));
  }
}

// ---- from configuration

TEST(BackendOf, TheConfiguredInstructionSetIsTheBackends) {
  ModelPlan plan = plan_of("target");
  std::vector<std::string_view> words;
  for (const auto& [word, isa] : {std::pair{"auto", CpuIsa::kAuto},
                                  {"scalar", CpuIsa::kScalar},
                                  {"avx2", CpuIsa::kAvx2},
                                  {"avx512", CpuIsa::kAvx512},
                                  {"avx512_bf16", CpuIsa::kAvx512Bf16},
                                  {"amx", CpuIsa::kAmx}}) {
    words.push_back(word);
    plan.compute.isa = word;
    EXPECT_EQ(backend_options(plan, {}).isa, isa) << word;
    EXPECT_EQ(cpu_isa_from_name(word), isa) << "so that the default above is no other word's";
  }
  EXPECT_EQ(isa_name().choices, words);
  EXPECT_EQ(cpu_isa_from_name("sse"), std::nullopt);
}

TEST(LoadOptionsOf, OnlyTheFolderThatWasNotNamedIsOurs) {
  Config config;
  EXPECT_TRUE(load_options(config, {}).packed_cache.is_own);
  config.model.packed_cache = "/srv/packed";
  EXPECT_FALSE(load_options(config, {}).packed_cache.is_own);
}

TEST(BackendOf, ARankTakesItsDeviceByItsNumberOnItsHostOrTheOnlyOneItIsShown) {
  ModelPlan plan = plan_of("target");
  plan.compute.device = "cuda";
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(backend_options(plan, {.n_here = 2, .index_here = 1}).device, "cuda:1");
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  EXPECT_EQ(backend_options(plan, {.n_here = 2, .index_here = 1}).device, "cuda:0");
  setenv("CUDA_VISIBLE_DEVICES", "6,7", 1);
  plan.compute.device = "cuda:1,0";
  EXPECT_EQ(backend_options(plan, {.n_here = 2, .index_here = 1}).device, "cuda:0");
  EXPECT_THAT(what_is_wrong([&] { backend_options(plan, {.n_here = 3, .index_here = 1}); }),
              HasSubstr("target.device"));
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(BackendOf, RecordsAsIsConfigured) {
  ModelPlan plan = plan_of("target");
  for (const auto& [word, record, gains] : {std::tuple{"auto", Record::kAuto, false},
                                            {"on", Record::kOn, true},
                                            {"off", Record::kOff, false}}) {
    plan.compute.record = word;
    BackendOptions options = backend_options(plan, {});
    EXPECT_EQ(options.record, record) << word;
    options.n_threads = 1;
    EXPECT_EQ(make_backend(options)->gains_by_recording(), gains) << word;
  }
  EXPECT_EQ(record_from_name("always"), std::nullopt);
}

TEST(BackendOf, WeightsPayForThreadsWhereTheyMust) {
  ModelPlan plan = plan_of("draft");
  EXPECT_EQ(backend_options(plan, {}, 1).max_threads, 0) << "no limit";
  plan.bytes_per_thread = 100;
  EXPECT_EQ(backend_options(plan, {}, 99).max_threads, 1);
  EXPECT_EQ(backend_options(plan, {}, 350).max_threads, 3);
  EXPECT_EQ(backend_options(plan, {}, 1'000'000).max_threads, 1024);
}

TEST(RanksOf, AreNotStartedWhereTheyCannotHaveADeviceEach) {
  ModelPlan plan = plan_of("target");
  plan.compute.tensor_parallel = 4;
  plan.compute.device = "cuda:0,1";
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_THAT(what_is_wrong([&] { rank_launch(plan, "target-0"); }), HasSubstr("target.device"));
  plan.compute.hostfile = "/h";  // there may be two hosts
  EXPECT_EQ(rank_launch(plan, "target-0").n_ranks, 4);
  plan.compute.hostfile.clear();
  plan.compute.device = "cuda";
  EXPECT_EQ(rank_launch(plan, "target-0").n_ranks, 4);
  setenv("CUDA_VISIBLE_DEVICES", "3", 1);  // all four would be shown this one
  EXPECT_THROW(rank_launch(plan, "target-0"), FatalError);
  unsetenv("CUDA_VISIBLE_DEVICES");
}

std::vector<std::string> differences(const ModelPlan& first, const ModelPlan& second) {
  const auto ranks = make_thread_collectives(2);
  std::vector<std::string> found(2);
  std::thread other(
      [&] { found[1] = what_is_wrong([&] { check_plans_alike(*ranks[1], second); }); });
  found[0] = what_is_wrong([&] { check_plans_alike(*ranks[0], first); });
  other.join();
  return found;
}

TEST(PlansOfRanks, AreAlikeInAllThatTheyComputeWith) {
  const ModelPlan plan = plan_of("target");
  EXPECT_THAT(differences(plan, plan), ::testing::Each("nothing"));
  const auto expect_named = [&](const char* key, const std::function<void(ModelPlan&)>& change) {
    ModelPlan changed = plan;
    change(changed);
    EXPECT_THAT(differences(plan, changed),
                ::testing::Each(HasSubstr("rank 1 has another " + std::string(key))));
  };
  expect_named("model.dtype", [](auto& p) { p.loading.dtype = WeightDType::kI8; });
  expect_named("kv_cache.dtype", [](auto& p) { p.loading.kv_dtype = DType::kF8E4M3; });
  expect_named("model.max_model_len", [](auto& p) { p.loading.max_model_len = 64; });
  expect_named("limits.max_batch_rows", [](auto& p) { p.loading.max_rows = 16; });
  expect_named("target.rank_sums", [](auto& p) { p.compute.rank_sums = "nccl"; });
  expect_named("target.rank_deadline_ms", [](auto& p) { p.compute.rank_deadline_ms = 2000; });
  expect_named("model in ", [](auto& p) { p.folder = kTargetFolder; });
}

TEST(CacheBlocks, AreAsManyAsFitAndNoMoreThanTheLongestSequencesFill) {
  const ScriptedModel model{ScriptedOptions{}};
  const std::int64_t a_sequence = (model.config().max_model_len + 15) / 16;
  EXPECT_EQ(cache_blocks({.memory = "100%", .free_bytes = 1ull << 40}, model, 16, 3),
            3 * a_sequence);
  EXPECT_LT(cache_blocks({.memory = std::to_string(2 * a_sequence * 16) + " tokens",
                          .free_bytes = 1ull << 40},
                         model, 16, 3),
            3 * a_sequence);
  EXPECT_THAT(
      what_is_wrong([&] { cache_blocks({.memory = "much", .key = "draft.memory"}, model, 16, 3); }),
      HasSubstr("draft.memory"));
}

TEST(ServedModel, NamesTheTypesOfItsWeightsOnceEach) {
  EXPECT_EQ("float32", weight_dtypes("float32 29"));
  EXPECT_EQ("bfloat16, int8", weight_dtypes("bfloat16 2, int8 14"));
  EXPECT_EQ("", weight_dtypes(""));
}

}  // namespace
}  // namespace foretoken
