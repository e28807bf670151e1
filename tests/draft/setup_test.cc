#include "services/draft/setup.h"

#include <gmock/gmock.h>

#include "common/base/log.h"
#include "tests/support/scripted_model.h"
#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

TEST(PlanOf, NamesTheDraftsFolderKeysAndWhatIsWanted) {
  Config config;
  config.model.draft = "/d";
  config.model.max_model_len = 99;
  config.draft.isa = "scalar";
  const ModelPlan plan = draft_plan(config);
  EXPECT_EQ(plan.role, "draft");
  EXPECT_EQ(plan.folder, "/d");
  EXPECT_EQ(plan.compute.isa, "scalar");
  EXPECT_EQ(plan.loading.most_model_len, 99) << "more than that is not wanted, less will do";
  EXPECT_EQ(plan.loading.max_model_len, 0);
  EXPECT_GT(plan.bytes_per_thread, 0u);
}

TEST(HelloOf, NamesTheDraftByItsFolderWithOrWithoutASlash) {
  const ScriptedModel model{ScriptedOptions{}};
  for (const char* folder : {"models/small", "models/small/"})
    EXPECT_EQ(draft_hello({}, {.folder = folder}, "draft-0", model, {}, {}).model_name, "small");
}

TEST(MemoryOptions, TextsThatAllShareMayTakeAllPlaces) {
  Config config;
  config.memory.tenant_share = 0.125;
  config.memory.share = "tenant";
  EXPECT_EQ(memory_guesser_options(config, {}).memories.tenant_share, 0.125);
  config.memory.share = "all";
  EXPECT_EQ(memory_guesser_options(config, {}).memories.tenant_share, 1);
}

TEST(KeepTexts, AFolderThatAnotherMemoryHasIsCounted) {
  configure_log(LogLevel::kError, LogFormat::kText, "test");
  const test::TempFolder folder;
  Config config;
  config.memory.tokens = 1 << 16;
  config.memory.folder = folder.path().string();
  const ModelVocabulary vocabulary{.vocabulary = 5, .n_ids = 100};
  const auto other = LogFolder::open({.folder = folder.path(), .vocabulary = 5, .n_ids = 100});
  ASSERT_TRUE(other.ok());
  MemoryGuesser memory(memory_guesser_options(config, vocabulary));
  keep_texts(memory, config.memory, vocabulary);
  Metrics metrics;
  memory.list_metrics(metrics);
  EXPECT_THAT(metrics.text(), testing::HasSubstr("\nforetoken_memory_log_errors_total 1\n"));
}

}  // namespace
}  // namespace foretoken
