#include "common/base/json_writer.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "common/base/json.h"

namespace foretoken {
namespace {

TEST(JsonWriter, WritesWhatTheLibraryReads) {
  const std::string odd = "quote \" backslash \\ line\nbell \x07 caf\xc3\xa9";
  JsonWriter out;
  out.begin_object(JsonWriter::Layout::kLineEach).field(odd, odd).field("none", std::string());
  out.field("n", std::int64_t{-3}).field("is", true).field("x", 1.25, 1);
  out.field("great", std::numeric_limits<double>::max(), 3);
  out.field("no number", std::numeric_limits<double>::quiet_NaN(), 3);
  out.key("empty").begin_array().end_array();
  out.key("rows").begin_array(JsonWriter::Layout::kLineEach);
  for (const int n : {1, 2}) out.begin_object().field("n", n).field("is", false).end_object();
  out.end_array().key("deep").begin_array().begin_array().value("x").end_array().end_array();
  out.end_object();
  const auto read = parse_json(out.text());
  ASSERT_TRUE(read.ok()) << read.error().message << "\n" << out.text();
  EXPECT_EQ(*read, Json({{odd, odd},
                         {"none", ""},
                         {"n", -3},
                         {"is", true},
                         {"x", 1.2},
                         {"great", std::numeric_limits<double>::max()},
                         {"no number", nullptr},
                         {"empty", Json::array()},
                         {"rows", {{{"n", 1}, {"is", false}}, {{"n", 2}, {"is", false}}}},
                         {"deep", Json::array({Json::array({"x"})})}}));
}

TEST(JsonWriter, PutsSpacesWhereScriptsExpectThem) {
  JsonWriter out;
  out.begin_array(JsonWriter::Layout::kLineEach);
  for (const int n : {1, 2})
    out.begin_object()
        .field("n", n)
        .key("to")
        .begin_array()
        .value(n)
        .value(3)
        .end_array()
        .end_object();
  EXPECT_EQ(out.end_array().text(),
            "[\n  {\"n\": 1, \"to\": [1, 3]},\n  {\"n\": 2, \"to\": [2, 3]}]");
}

}  // namespace
}  // namespace foretoken
