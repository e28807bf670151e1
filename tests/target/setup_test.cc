#include "services/target/setup.h"

#include <gtest/gtest.h>

#include <cstring>

#include "common/model/init_random.h"
#include "common/transport/memory_links.h"
#include "tests/support/scripted_model.h"
#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

// What two targets must share to go on with each other's answers.
class Numerics : public testing::Test {
 protected:
  Numerics() {
    write_random_model(folder_ / "bf16",
                       {.config = tiny_config(Family::kLlama), .dtype = DType::kBf16});
  }
  std::string of(WeightDType dtype, CpuIsa isa = CpuIsa::kScalar, int n_threads = 1) {
    const auto backend = make_backend({.n_threads = n_threads, .isa = isa});
    return target_numerics(*load_model(folder_ / "bf16", *backend, {.dtype = dtype}), *backend, 16);
  }
  test::TempFolder folder_;
};

TEST_F(Numerics, NameTheTypeInMemoryNotTheWordThatWasConfigured) {
  EXPECT_EQ(of(WeightDType::kAuto), of(WeightDType::kBf16));
  EXPECT_NE(of(WeightDType::kAuto), of(WeightDType::kF32));
  EXPECT_NE(of(WeightDType::kAuto), of(WeightDType::kI8));
  EXPECT_NE(of(WeightDType::kI8), of(WeightDType::kF32));
  EXPECT_NE(of(WeightDType::kI8), of(WeightDType::kI4));
}

TEST_F(Numerics, NameTheKernelsThatWereChosenNotHowManyThreadsRunThem) {
  EXPECT_EQ(of(WeightDType::kAuto, CpuIsa::kScalar, 3), of(WeightDType::kAuto));
  const std::string best = make_backend({.n_threads = 1})->numerics();
  EXPECT_EQ(of(WeightDType::kAuto, CpuIsa::kAuto).substr(0, best.size()), best);
  EXPECT_NE(of(WeightDType::kAuto).find("scalar"), std::string::npos);
  EXPECT_NE(of(WeightDType::kAuto).find("ranks 1"), std::string::npos);
}

TEST(LinkChoice, PinsWhatIsThereAndRefusesByNameWhatIsNot) {
  TargetSection target;
  EXPECT_EQ(link_choice(target), LinkChoice::kAuto);
  target.draft_link = "zeromq";
  EXPECT_EQ(link_choice(target), LinkChoice::kZeroMq);
  target.draft_link = "shared_memory";
  if (MemoryLinks::why_unavailable().empty())
    EXPECT_EQ(link_choice(target), LinkChoice::kSharedMemory);
  else
    EXPECT_THROW(link_choice(target), FatalError);
}

TEST(EngineOf, BoundsItsPassesAsConfigured) {
  const ScriptedModel model{ScriptedOptions{}};
  Config config;
  const auto options = [&] { return target_engine_options(config, model, 1 << 30, {}); };
  EXPECT_EQ(options().max_step, std::chrono::milliseconds(250));
  config.limits.max_step_ms = 0;
  EXPECT_EQ(options().max_step, Duration{});
}

TEST(DraftsOf, AreGivenTheTimeThatIsConfigured) {
  const ScriptedModel model{ScriptedOptions{}};
  Config config;
  config.speculation.draft_deadline_ms = 3000;
  const AttachmentRules rules = draft_pool_options(config, model, {}, {}).rules;
  EXPECT_EQ(rules.miss_floor, std::chrono::seconds(3));
  EXPECT_EQ(rules.miss_ceiling, std::chrono::seconds(3));
}

TEST(SamplingOf, IsWhatTheModelSaysAndTheUsualElse) {
  ModelConfig model;
  EXPECT_EQ(sampling_defaults({}, model), SamplingDefaults{});
  model.generation = {.temperature = 0.5f, .top_k = 20};
  EXPECT_EQ(sampling_defaults({}, model), (SamplingDefaults{.temperature = 0.5f, .top_k = 20}));
  model.generation = {.top_p = 0.5f, .min_p = 0.25f, .repetition_penalty = 1.5f};
  EXPECT_EQ(sampling_defaults({}, model),
            (SamplingDefaults{.top_p = 0.5f, .min_p = 0.25f, .repetition_penalty = 1.5f}));
}

TEST(SamplingOf, IsTheUsualWhereTheFileIsNotWanted) {
  Config config;
  config.model.generation_config = "none";
  ModelConfig model;
  model.generation = {.temperature = 0.5f, .top_k = 20};
  EXPECT_EQ(sampling_defaults(config, model), SamplingDefaults{});
}

TEST(PlanOf, NamesTheTargetsFolderKeysAndLongestSequence) {
  Config config;
  config.model.target = "/t";
  config.model.max_model_len = 99;
  config.target.isa = "scalar";
  const ModelPlan plan = target_plan(config);
  EXPECT_EQ(plan.role, "target");
  EXPECT_EQ(plan.folder, "/t");
  EXPECT_EQ(plan.compute.isa, "scalar");
  EXPECT_EQ(plan.loading.max_model_len, 99);
  EXPECT_EQ(plan.bytes_per_thread, 0u);
}

}  // namespace
}  // namespace foretoken
