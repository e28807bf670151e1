#include "common/base/json.h"

#include <gmock/gmock.h>

#include <random>

namespace foretoken {
namespace {

using testing::HasSubstr;

std::string problem(std::string_view text, const JsonLimits& limits = {}) {
  const auto parsed = parse_json(text, limits);
  return parsed.ok() ? "accepted" : parsed.error().message;
}

TEST(Json, ReadsWhatItWrites) {
  const std::string text = R"({"a":[1,-2,3.5,18446744073709551615,null,true,{"b":"é\n"}],"c":{}})";
  const auto parsed = parse_json(text);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(to_text(*parsed), text);
}

TEST(Json, RefusesAKeyThatAppearsTwiceAtAnyDepth) {
  EXPECT_THAT(problem(R"({"a":1,"a":2})"), HasSubstr("key \"a\" appears twice"));
  EXPECT_THAT(problem(R"([{"x":{"k":[],"k":{}}}])"), HasSubstr("key \"k\" appears twice"));
  EXPECT_EQ(problem(R"([{"k":1},{"k":2,"l":{"k":3}}])"), "accepted");
}

TEST(Json, RefusesWhatIsNotOneJsonValue) {
  for (const char* text :
       {"", " ", "{", "[1,]", "{\"a\":}", "{a:1}", "'a'", "1 2", "nan", "Infinity", "01", "+1",
        "[1", "\"\\x\"", "\"\t\"", "tru", "// c\n1", "{\"a\":1}}", "\xEF\xBB\xBF{}"}) {
    EXPECT_THAT(problem(text), HasSubstr("not valid JSON")) << text;
  }
  EXPECT_THAT(problem("[\"\xff\"]"), HasSubstr("UTF-8"));
  EXPECT_THAT(problem("[\"\xed\xa0\x80\"]"), HasSubstr("UTF-8"));  // a surrogate
  EXPECT_THAT(problem("[1e999]"), HasSubstr("not valid JSON"));
}

TEST(Json, HoldsItsLimits) {
  EXPECT_EQ(problem("[[[]]]", {.max_depth = 3}), "accepted");
  EXPECT_THAT(problem("[[[[]]]]", {.max_depth = 3}), HasSubstr("deeper than 3"));
  EXPECT_EQ(problem("[1,2,3]", {.max_nodes = 4}), "accepted");
  EXPECT_THAT(problem("[1,2,3,4]", {.max_nodes = 4}), HasSubstr("more than 4 values"));
  EXPECT_THAT(problem("[1,2]", {.max_bytes = 4}), HasSubstr("limit of 4"));
  // A million brackets must be refused, not followed.
  EXPECT_THAT(problem(std::string(1'000'000, '[')), HasSubstr("deeper than 64"));
}

TEST(Json, SaysWhere) {
  EXPECT_THAT(problem("{\"a\": 1,\n  \"b\": ]}"), HasSubstr("line 2, column 8"));
}

TEST(Json, SurvivesMutations) {
  constexpr unsigned kSeed = 7;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  const std::string text = R"({"a":[1,-2.5e3,null,true,{"b":"\u00e9\n","c":[[],{}]}],"d":"text"})";
  for (int i = 0; i < 20'000; ++i) {
    std::string mutant = text;
    for (int n = 1 + static_cast<int>(random() % 4); n > 0; --n) {
      const std::size_t at = random() % mutant.size();
      switch (random() % 3) {
        case 0:
          mutant[at] = static_cast<char>(random());
          break;
        case 1:
          mutant.erase(at, 1 + random() % 4);
          break;
        default:
          mutant.insert(at, 1, "{}[],:\"0e-"[random() % 10]);
      }
      if (mutant.empty()) mutant = "0";
    }
    if (const auto parsed = parse_json(mutant); parsed.ok()) {
      const auto again = parse_json(to_text(*parsed));
      ASSERT_TRUE(again.ok()) << mutant;
      ASSERT_EQ(*again, *parsed) << mutant;
    }
  }
}

TEST(Json, AnObjectHasSoManyKeysAtMost) {
  EXPECT_TRUE(parse_json(R"({"a": 1, "b": {"c": 1, "d": 2}})", {.max_keys = 2}).ok());
  const auto three = parse_json(R"([{"a": 1, "b": 2, "c": 3}])", {.max_keys = 2});
  ASSERT_FALSE(three.ok());
  EXPECT_NE(std::string::npos, three.error().message.find("an object of more than 2 keys"));
}

TEST(Json, AFloatHasTheShortestTextThatReadsBack) {
  EXPECT_EQ("[0.6,0.95,1.0,0.0,1e-10,0.3333333432674408]",
            to_text(Json{shortest(0.6f), shortest(0.95f), shortest(1.0f), shortest(0.0f),
                         shortest(1e-10f), static_cast<double>(1.0f / 3.0f)}));
  EXPECT_EQ(0.33333334, shortest(1.0f / 3.0f));
}

}  // namespace
}  // namespace foretoken
