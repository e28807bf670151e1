#include "services/cli/up_settings.h"

#include <gmock/gmock.h>

#include <sstream>
#include <utility>
#include <vector>

#include "tests/support/temp_folder.h"

namespace foretoken::cli {
namespace {

using ::testing::Contains;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

constexpr auto kTwoModels =
    "[model.chat]\ntarget = \"/m/chat\"\n[model.code]\ntarget = \"/m/code\"\n";

Settings settings_with(const std::string& toml, std::vector<std::string> flags = {}) {
  const test::TempFolder folder;
  const LoadedConfig loaded =
      load_config({folder.write("f.toml", toml).string(), {}, std::move(flags)});
  EXPECT_THAT(loaded.errors, ::testing::IsEmpty());
  return settings_of(loaded);
}

TEST(UpSettings, ASettingOfOneModelIsComparedWhetherOrNotItIsGivenBothTimes) {
  const Settings plain = settings_with(kTwoModels);
  const Settings shorter = settings_with(kTwoModels, {"speculation.chat.draft_len=3"});
  EXPECT_EQ(differences(plain, shorter), "  speculation.chat.draft_len: it runs with 8, not 3\n");
  EXPECT_EQ(differences(shorter, plain), "  speculation.chat.draft_len: it runs with 3, not 8\n");
  EXPECT_EQ(differences(plain, settings_with(kTwoModels, {"speculation.chat.draft_len=8"})), "");
}

TEST(UpSettings, ASettingOfAllModelsIsComparedForThoseThatHaveNoneOfTheirOwn) {
  const Settings plain = settings_with(kTwoModels, {"target.chat.threads=2"});
  EXPECT_EQ(
      differences(plain, settings_with(kTwoModels, {"target.chat.threads=2", "target.threads=4"})),
      "  target.code.threads: it runs with 0, not 4\n");
  EXPECT_EQ(
      differences(plain, settings_with(kTwoModels, {"target.chat.threads=2", "edge.port=8001"})),
      "  edge.port: it runs with 8000, not 8001\n");
}

TEST(UpSettings, OneModelHasPlainKeys) {
  const Settings settings = settings_with("", {"target.threads=4"});
  EXPECT_THAT(settings, Contains(Pair("target.threads", "4")));
  EXPECT_THAT(settings, Contains(Pair("models", "[]")));
}

TEST(UpSettings, WhichSystemIsMeantIsNoSettingOfIt) {
  const Settings settings = settings_with("");
  EXPECT_THAT(settings, Not(Contains(Key("bus.client"))));
  EXPECT_THAT(settings, Not(Contains(Key("bus.runtime_dir"))));
}

TEST(UpSettings, LinesAreReadAsTheyWereWritten) {
  const Settings settings = settings_with(kTwoModels, {"model.chat.alias=a = b"});
  std::istringstream lines(lines_of(settings));
  EXPECT_EQ(read_settings(lines), settings);
}

TEST(UpSettings, AKeyOfOneVersionAloneIsNoDifference) {
  EXPECT_EQ(differences({{"old.key", "1"}, {"log.level", "\"info\""}},
                        {{"new.key", "1"}, {"log.level", "\"info\""}}),
            "");
}

}  // namespace
}  // namespace foretoken::cli
