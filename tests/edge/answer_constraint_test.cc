// What constrains an answer's text, in every protocol's own words: the key of the router that it
// becomes, and the field that an error names.
#include "services/edge/answer_constraint.h"

#include <gmock/gmock.h>

#include <string>

#include "services/edge/anthropic.h"
#include "services/edge/openai.h"
#include "services/edge/responses.h"

namespace foretoken::edge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kSchema = R"({"type":"object","properties":{"b":{"const":1.5},"a":{}}})";

std::string with_schema(std::string text) { return text.replace(text.find('@'), 1, kSchema); }

OrderedJson asking(const std::string& fields, const char* prompt) {
  return OrderedJson::parse("{" + std::string(prompt) + (fields.empty() ? "" : ", ") + fields +
                            "}");
}
constexpr const char* kConversation = R"("messages": [{"role": "user", "content": "hi"}])";
Result<OpenAiAsk> chat_with(const std::string& fields, bool strict = false) {
  return read_chat(asking(fields, kConversation), {.strict = strict});
}
Result<OpenAiAsk> text_with(const std::string& fields) {
  return read_completion(asking(fields, R"("prompt": "hi")"), {});
}

struct Way {
  std::string name;
  std::string fields;  // @ is the schema
  std::string field;   // that an error is about
  SamplingParams wanted = {};
};

void PrintTo(const Way& way, std::ostream* out) { *out << way.fields; }

std::vector<Way> ways() {
  const SamplingParams schema{.json_schema = kSchema};
  const SamplingParams any_object{.json_schema = R"({"type":"object"})"};
  const SamplingParams regex{.regex = "a+"};
  const SamplingParams gbnf{.gbnf = "root ::= \"a\""};
  const SamplingParams choice{.regex = R"(a\.b|\(c\)|é/-)"};
  const std::string grammar = R"("root ::= \"a\"")";
  const std::string choices = R"x(["a.b", "(c)", "é/-"])x";
  return {
      {"Nothing", "", ""},
      {"Text", R"("response_format": {"type": "text"}, "structured_outputs": null)", ""},
      {"AnyObject", R"("response_format": {"type": "json_object"})", "response_format", any_object},
      {"ObjectWithSchema", R"("response_format": {"type": "json_object", "schema": @})",
       "response_format.schema", schema},
      {"Format",
       R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": @}})",
       "response_format.json_schema.schema", schema},
      {"Outputs", R"("structured_outputs": {"json": @, "regex": null})", "structured_outputs.json",
       schema},
      {"OutputsText", R"("structured_outputs": {"json": "[]"})", "structured_outputs.json",
       SamplingParams{.json_schema = "[]"}},
      {"OutputsRegex", R"("structured_outputs": {"regex": "a+", "disable_any_whitespace": true})",
       "structured_outputs.regex", regex},
      {"OutputsChoice", R"("structured_outputs": {"choice": )" + choices + "}",
       "structured_outputs.choice", choice},
      {"OutputsGrammar", R"("structured_outputs": {"grammar": )" + grammar + "}",
       "structured_outputs.grammar", gbnf},
      {"OutputsObject", R"("structured_outputs": {"json_object": true})",
       "structured_outputs.json_object", any_object},
      {"GuidedJson", R"("guided_json": @)", "guided_json", schema},
      {"GuidedRegex", R"("guided_regex": "a+")", "guided_regex", regex},
      {"GuidedChoice", R"("guided_choice": )" + choices, "guided_choice", choice},
      {"GuidedGrammar", R"("guided_grammar": )" + grammar, "guided_grammar", gbnf},
      {"Schema", R"("json_schema": @)", "json_schema", schema},
      {"SchemaText", R"("json_schema": "{}")", "json_schema", SamplingParams{.json_schema = "{}"}},
      {"Regex", R"("regex": "a+")", "regex", regex},
      {"Gbnf", R"("gbnf": )" + grammar, "gbnf", gbnf},
      {"Grammar", R"("grammar": )" + grammar, "grammar", gbnf},
      {"NoGrammar", R"("grammar": "")", ""},
  };
}

class ConstraintInBody : public ::testing::TestWithParam<Way> {};

TEST_P(ConstraintInBody, BecomesAKeyOfTheRequest) {
  std::string fields = GetParam().fields;
  if (fields.find('@') != std::string::npos) fields = with_schema(fields);
  for (const auto& ask : {chat_with(fields, true), text_with(fields)}) {
    ASSERT_TRUE(ask.ok()) << ask.error().message;
    EXPECT_EQ(ask->generation.constraint_field, GetParam().field);
    const SamplingParams& params = ask->generation.choices.at(0).params;
    EXPECT_EQ(params.json_schema, GetParam().wanted.json_schema);
    EXPECT_EQ(params.regex, GetParam().wanted.regex);
    EXPECT_EQ(params.gbnf, GetParam().wanted.gbnf);
    EXPECT_THAT(ask->ignored, ElementsAre());
  }
}

INSTANTIATE_TEST_SUITE_P(AnswerConstraint,
                         ConstraintInBody,
                         ::testing::ValuesIn(ways()),
                         [](const auto& way) { return way.param.name; });

TEST(AnswerConstraint, IsRefusedByTheNameOfItsField) {
  const std::string long_text = "\"" + std::string(kMaxConstraintBytes + 1, 'x') + "\"";
  std::string many = "[\"a\"";
  for (std::size_t i = 0; i < kChoicesOfTextLimit.most; ++i) many += ",\"a\"";
  struct Case {
    std::string fields, param, words;
  };
  for (const Case& bad : std::vector<Case>{
           {R"("response_format": 5)", "response_format", "it must be an object"},
           {R"("response_format": {})", "response_format.type", "type is null; it must be text"},
           {R"("response_format": {"type": "json_schema"})", "response_format.json_schema.schema",
            "is missing"},
           {R"("response_format": {"type": "json_schema", "json_schema": {"schema": true}})",
            "response_format.json_schema.schema", "is of type boolean; it must be an object"},
           {R"("structured_outputs": "json")", "structured_outputs", "it must be an object"},
           {R"("structured_outputs": {})", "structured_outputs", "needs one of json, regex"},
           {R"("structured_outputs": {"whitespace_pattern": " "})", "structured_outputs",
            "needs one of json, regex"},
           {R"("structured_outputs": {"structural_tag": "x"})", "structured_outputs.structural_tag",
            "is not supported"},
           {R"("structured_outputs": {"json_object": 1})", "structured_outputs.json_object",
            "must be true or false"},
           {R"("structured_outputs": {"json": "{}", "regex": "a"})", "structured_outputs.regex",
            "structured_outputs.json and structured_outputs.regex both constrain the answer"},
           {R"("regex": "a", "response_format": {"type": "json_object"})", "regex",
            "response_format and regex both constrain the answer"},
           {R"("grammar": "root ::= [a]", "gbnf": "root ::= [a]")", "grammar",
            "gbnf and grammar both constrain the answer"},
           {R"("structured_outputs": {"choice": []})", "structured_outputs.choice",
            "a list of 1 to 1024 texts"},
           {R"("guided_choice": )" + many + "]", "guided_choice", "a list of 1 to 1024 texts"},
           {R"("guided_choice": ["a", ""])", "guided_choice", "guided_choice[1] must be a text"},
           {R"("guided_choice": ["a", 1])", "guided_choice", "guided_choice[1] must be a text"},
           {R"("guided_choice": [)" + long_text + "]", "guided_choice",
            "has 65537 bytes as regex; the limit is 65536"},
           {R"("regex": 5)", "regex", "regex is of type number; it must be a text"},
           {R"("regex": "")", "regex", "regex is empty"},
           {R"("guided_grammar": )" + long_text, "guided_grammar",
            "has 65537 bytes as gbnf; the limit is 65536"},
           {R"("json_schema": [])", "json_schema", "it must be an object"},
       }) {
    SCOPED_TRACE(bad.fields.substr(0, 200));
    for (const auto& ask : {chat_with(bad.fields), text_with(bad.fields)}) {
      ASSERT_FALSE(ask.ok());
      EXPECT_EQ(ask.error().param, bad.param);
      EXPECT_THAT(ask.error().message, HasSubstr(bad.words));
    }
  }
}

TEST(AnswerConstraint, MembersWithoutAnEffectAreNamed) {
  const std::string fields = R"("structured_outputs": {"regex": "a", "whitespace_pattern": " "})";
  const auto ask = chat_with(fields);
  ASSERT_TRUE(ask.ok());
  EXPECT_THAT(ask->ignored, ElementsAre("structured_outputs.whitespace_pattern"));
  EXPECT_EQ(chat_with(fields, true).error().param, "structured_outputs.whitespace_pattern");
}

TEST(AnswerConstraint, GoesWithToolsThatAreNotCalled) {
  const std::string fields =
      R"("regex": "a", "tools": [{"type": "function", "function": {"name": "f"}}])";
  EXPECT_EQ(chat_with(fields).error().param, "tool_choice");
  EXPECT_THAT(chat_with(fields).error().message, HasSubstr(R"(tool_choice may be "none")"));
  EXPECT_TRUE(chat_with(fields + R"(, "tool_choice": "none")").ok());
}

TEST(AnswerConstraint, OfAResponseStandsInItsTextAndIsRepeated) {
  const std::string format =
      with_schema(R"({"type": "json_schema", "name": "n", "strict": true, "schema": @})");
  const auto ask =
      read_responses(asking(R"("text": {"format": )" + format + "}", R"("input": "hi")"), true);
  ASSERT_TRUE(ask.ok()) << ask.error().message;
  EXPECT_EQ(ask->generation.choices.at(0).params.json_schema, kSchema);
  EXPECT_EQ(ask->generation.constraint_field, "text.format.schema");
  EXPECT_THAT(ask->echo, HasSubstr(R"("text":{"format":)" + OrderedJson::parse(format).dump()));
  const auto free = read_responses(asking("", R"("input": "hi")"), true);
  EXPECT_THAT(free->echo, HasSubstr(R"("text":{"format":{"type":"text"}})"));
  const auto bad = read_responses(
      asking(R"("text": {"format": {"type": "json_schema"}})", R"("input": "hi")"), true);
  EXPECT_EQ(bad.error().param, "text.format.schema");
}

TEST(AnswerConstraint, OfAMessageIsItsFormatAndLeavesNoThought) {
  const std::string format = with_schema(R"({"type": "json_schema", "schema": @})");
  const std::string thinking = R"(, "thinking": {"type": "enabled"})";
  const auto body = [](const std::string& fields) {
    return asking(R"("max_tokens": 9, )" + fields, kConversation);
  };
  const auto ask =
      read_messages(body(R"("output_config": {"format": )" + format + "}" + thinking), false);
  ASSERT_TRUE(ask.ok()) << ask.error().message;
  EXPECT_EQ(ask->generation.choices.at(0).params.json_schema, kSchema);
  EXPECT_EQ(ask->generation.constraint_field, "output_config.format.schema");
  EXPECT_THAT(ask->ignored, ElementsAre("thinking"));
  const auto older = read_messages(body(R"("output_format": )" + format), false);
  ASSERT_TRUE(older.ok()) << older.error().message;
  EXPECT_EQ(older->generation.choices.at(0).params.json_schema, kSchema);
  EXPECT_EQ(older->generation.constraint_field, "output_format.schema");
  const auto count = read_count(body(R"("output_format": )" + format), false);
  ASSERT_TRUE(count.ok()) << count.error().message;
  EXPECT_EQ(count->request.params.json_schema, kSchema) << "its prompt is the answer's";
}

}  // namespace
}  // namespace foretoken::edge
