#include "common/runtime/args.h"

#include <gmock/gmock.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "common/runtime/service_main.h"

namespace foretoken {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

// A line as CLI11 reads it once its empty values are words of their own.
class EmptyValues : public ::testing::Test {
 protected:
  EmptyValues() {
    app.add_option("-d,--draft", draft);
    app.add_option("--stop", stops)->allow_extra_args(false);
    app.add_flag("--detach", is_detached);
    app.add_option("prompt", prompt);
    CLI::App* verb = app.add_subcommand("bench");
    verb->add_option("--url", url);
  }

  Words separated(const Words& words) { return separate_empty_values(app, words); }
  void parse(const Words& words) {
    Words reversed = separated(words);
    std::reverse(reversed.begin(), reversed.end());
    app.parse(reversed);
  }

  CLI::App app;
  std::string draft = "demo", prompt, url = "here";
  Words stops;
  bool is_detached = false;
};

TEST_F(EmptyValues, TakeNoOtherWord) {
  parse({"--draft=", "a prompt"});
  EXPECT_EQ(draft, "");
  EXPECT_EQ(prompt, "a prompt");
}

TEST_F(EmptyValues, MayComeSeveralTimesAndLast) {
  parse({"--stop=", "--stop=.", "--stop="});
  EXPECT_THAT(stops, ElementsAre("", ".", ""));
}

TEST_F(EmptyValues, BelongToTheOptionsOfTheVerb) {
  EXPECT_THAT(separated({"bench", "--url=", "--draft="}),
              ElementsAre("bench", "--url", "", "--draft="));
  parse({"bench", "--url="});
  EXPECT_EQ(url, "");
}

TEST_F(EmptyValues, AreNotSoughtInFlagsValuesAndBehindTheEndOfOptions) {
  for (const Words& words :
       {Words{"--detach=", "a prompt"}, Words{"--draft", "--stop=", "--detach"},
        Words{"-d", "--stop="}, Words{"--", "--stop="}, Words{"--draft=a="}, Words{"-d="},
        Words{"--unknown="}})
    EXPECT_EQ(separated(words), words);
  EXPECT_THAT(separated({"-dx", "--stop="}), ElementsAre("-dx", "--stop", ""));
}

ParsedArgs parse(Words words) {
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  return parse_args("foretoken-target", "A service.", static_cast<int>(argv.size()), argv.data());
}

TEST(Args, RefuseAnEmptyFile) {
  for (const Words& words : {Words{"foretoken-target", "--config=", "--set", "log.level=debug"},
                             Words{"foretoken-target", "--config", ""}}) {
    testing::internal::CaptureStderr();
    const ParsedArgs parsed = parse(words);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("--config: the path is empty"));
    EXPECT_FALSE(parsed.args);
    EXPECT_EQ(parsed.exit_code, kExitUsage);
  }
}

TEST(Args, ReadTheSettingBehindAFile) {
  const ParsedArgs parsed =
      parse({"foretoken-target", "--config=a.toml", "--set", "log.level=debug"});
  ASSERT_TRUE(parsed.args);
  EXPECT_EQ(parsed.args->config_file, "a.toml");
  EXPECT_THAT(parsed.args->settings, ElementsAre("log.level=debug"));
}

}  // namespace
}  // namespace foretoken
