// Lines as they reach standard error.
#include "common/base/log.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "common/base/json.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;

std::string logged(LogFormat format, LogLevel level, std::string_view sentence, LogFields fields) {
  configure_log(LogLevel::kInfo, format, "draft-0");
  ::testing::internal::CaptureStderr();
  log(level, sentence, fields);
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, WritesASentenceAndPairsAsText) {
  EXPECT_THAT(logged(LogFormat::kText, LogLevel::kWarning, "draft lost",
                     {{"peer", "draft-1"}, {"why", "two words"}, {"n", 3}}),
              HasSubstr("draft-0: draft lost peer=draft-1 why=\"two words\" n=3\n"));
}

TEST(Log, WritesOneJsonObjectPerLineWhateverTheValues) {
  const std::string line = logged(LogFormat::kJson, LogLevel::kError, "a \"quoted\" sentence",
                                  {{"text", "line\nbreak \x01 \\"},
                                   {"n", -3},
                                   {"share", 0.5},
                                   {"on", true},
                                   {"odd", 0.0 / 0.0}});
  const auto parsed = parse_json(line.substr(0, line.size() - 1));
  ASSERT_TRUE(parsed.ok()) << line;
  EXPECT_EQ((*parsed)["event"], "a \"quoted\" sentence");
  EXPECT_EQ((*parsed)["text"], "line\nbreak \x01 \\");
  EXPECT_EQ((*parsed)["n"], -3);
  EXPECT_EQ((*parsed)["share"], 0.5);
  EXPECT_EQ((*parsed)["on"], true);
  EXPECT_EQ((*parsed)["level"], "error");
  EXPECT_EQ((*parsed)["service"], "draft-0");
}

// A name that a user chose: bytes that are no UTF-8 would make the line no JSON.
TEST(Log, ReplacesWhatIsNotUtf8) {
  const std::pair<const char*, const char*> cases[] = {
      {"caf\xc3\xa9 \xf0\x9f\x8e\x89", "caf\xc3\xa9 \xf0\x9f\x8e\x89"},  // is
      {"a\xff z", "a\xef\xbf\xbd z"},
      {"cut \xe2\x82", "cut \xef\xbf\xbd"},
      {"\xc0\xaf too long", "\xef\xbf\xbd\xef\xbf\xbd too long"},
      {"\xed\xa0\x80 half", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd half"},
      {"\xf5\x80\x80\x80 beyond", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd beyond"}};
  for (const auto& [name, shown] : cases) {
    const std::string line =
        logged(LogFormat::kJson, LogLevel::kInfo, "worker joined", {{"worker", name}});
    const auto parsed = parse_json(line.substr(0, line.size() - 1));
    ASSERT_TRUE(parsed.ok()) << line;
    EXPECT_EQ((*parsed)["worker"], shown);
  }
}

TEST(Log, LeavesOutWhatIsLessImportant) {
  EXPECT_EQ(logged(LogFormat::kText, LogLevel::kDebug, "detail", {}), "");
}

TEST(Log, DropsAndCountsWhatIsTooMuch) {
  configure_log(LogLevel::kInfo, LogFormat::kText, "x");
  ::testing::internal::CaptureStderr();
  const auto before = dropped_log_lines();
  for (int i = 0; i < 1000; ++i) log_info("again");
  const std::string text = ::testing::internal::GetCapturedStderr();
  const auto lines = static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
  EXPECT_EQ(lines + (dropped_log_lines() - before), 1000u);
  EXPECT_GE(dropped_log_lines(), before + 1);
}

}  // namespace
}  // namespace foretoken
