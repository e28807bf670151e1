// What models wrote, as tokens, and the events that it is. However the tokens are cut into pieces,
// the joined events are the same, and the same as those of the whole answer at once.
#include "services/edge/answer_events.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <utility>

#include "common/base/json.h"

namespace foretoken::edge {
namespace {

const wire::AnswerForm kHermes{
    "hermes", {"<tool_call>", "</tool_call>", "<think>", "</think>"}, true, ""};
const wire::AnswerForm kHermesByText{"hermes", {}, true, ""};
const wire::AnswerForm kLlama{"llama", {"<|python_tag|>"}, false, ""};
const wire::AnswerForm kMistral{"mistral", {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}, false, ""};
const wire::AnswerForm kMistralList{"mistral", {"[TOOL_CALLS]"}, false, ""};

wire::AnswerForm begun(wire::AnswerForm form, std::string text) {
  form.begun = std::move(text);
  return form;
}

// "T:" text, "R:" reasoning, "C0:name" a call, "A:" its arguments, "E" its end.
std::string written(const AnswerEvents& events) {
  std::string all;
  for (const AnswerEvent& event : events.list()) {
    if (!all.empty()) all += "|";
    if (const auto* text = std::get_if<TextEvent>(&event)) all += "T:" + text->text;
    if (const auto* thinking = std::get_if<ThinkingEvent>(&event)) all += "R:" + thinking->text;
    if (const auto* call = std::get_if<CallBegin>(&event))
      all += "C" + std::to_string(call->index) + ":" + call->name;
    if (const auto* arguments = std::get_if<CallArguments>(&event)) all += "A:" + arguments->text;
    if (std::holds_alternative<CallEnd>(event)) all += "E";
  }
  return all;
}

struct Fixture {
  const char* name;
  wire::AnswerForm form;
  std::vector<std::string> tokens;
  const char* events;
  const char* finish = "stop";
  std::uint32_t n_reasoning = 0;
  bool one_call = false;
  bool may_call = true;
  bool checks_names = false;
};

void PrintTo(const Fixture& fixture, std::ostream* out) { *out << fixture.name; }

const std::vector<Fixture>& fixtures() {
  static const std::vector<Fixture> all{
      {"PlainText", kHermes, {"Hel", "lo ", "world", " \n"}, "T:Hello world \n"},
      {"OneCall",
       kHermes,
       {"<tool_call>", "\n",           "{\"", "name", "\":",  " \"",         "get", "_weather",
        "\",",         " \"arguments", "\":", " {\"", "city", "\":",         " \"", "Köln",
        " {",          "\\\"",         "}\"", "}}",   "\n",   "</tool_call>"},
       "C0:get_weather|A:{\"city\": \"Köln {\\\"}\"}|E",
       "tool_calls"},
      {"TextBeforeTwoCalls",
       kHermes,
       {"Let me see", ".", "\n\n", "<tool_call>", "{\"name\":\"a\",\"arguments\":{}}",
        "</tool_call>", "\n", "<tool_call>", "{\"name\":\"b\",",
        "\"arguments\":{\"x\":[1,{\"y\":2}]}", "}\n", "</tool_call>", "\n"},
       "T:Let me see.|C0:a|A:{}|E|C1:b|A:{\"x\":[1,{\"y\":2}]}|E",
       "tool_calls"},
      {"ABrokenCallBeforeAnother",
       kHermes,
       {"<tool_call>", "{\"name\":\"a\",\"arguments\":{\"x\":1", "</tool_call>", "\n",
        "<tool_call>", "{\"name\":\"b\",\"arguments\":{}}", "</tool_call>"},
       "C0:a|A:{\"x\":1|C1:b|A:{}|E",
       "tool_calls"},
      {"TextBehindABrokenCall",
       kHermes,
       {"<tool_call>", "{\"name\":\"a\",\"arguments\":{\"x\":1", "]", " sorry", "</tool_call>",
        " more "},
       "C0:a|A:{\"x\":1|T:] sorrymore "},
      {"TextBehindACallWithoutItsLastBracket",
       kHermes,
       {"<tool_call>", "{\"name\":\"f\",\"arguments\":{}", "; so", " it is ", "</tool_call>"},
       "C0:f|A:{}|E|T:; so it is",
       "tool_calls"},
      {"OneBracketTooManyBehindACall",
       kHermes,
       {"<tool_call>", "{\"name\":\"f\",\"arguments\":{}}", "}", "\n", "</tool_call>", "\n",
        "<tool_call>", "{\"name\":\"g\",\"arguments\":{}}", "}</", "tool", "_call>"},
       "C0:f|A:{}|E|T:}|C1:g|A:{}|E|T:}</tool_call>",
       "tool_calls"},
      {"OneBracketTooManyBeforeAMarkerAsText",
       kHermesByText,
       {"<tool_call>{\"name\":\"f\",", "\"arguments\":{}}}\n</tool_call>"},
       "C0:f|A:{}|E|T:}",
       "tool_calls"},
      {"OnlyTheFirstCall",
       kHermes,
       {"<tool_call>", "{\"name\":\"a\",\"arguments\":{}}", "</tool_call>", "\n", "<tool_call>",
        "{\"name\":\"b\",\"arguments\":{}}", "</tool_call>", "bye"},
       "C0:a|A:{}|E",
       "tool_calls",
       0,
       true},
      {"ArgumentsBeforeTheName",
       kHermes,
       {"<tool_call>", "{\"arguments\":{\"a\":1},", "\"name\"", ":\"f\"}", "</tool_call>"},
       "C0:f|A:{\"a\":1}|E",
       "tool_calls"},
      {"ArgumentsAsAText",
       kHermes,
       {"<tool_call>", "{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":", "1}\"}", "</tool_call>"},
       "C0:f|A:{\"a\":1}|E",
       "tool_calls"},
      {"ControlCharactersInStrings",
       kHermesByText,
       {"<tool_call>{\"name\":\"f\",\n\"arguments\":{\n\"a\":", "\"x\n", "\ty\\", "\n\\\\\r\"",
        "\n}}</tool_call>"},
       "C0:f|A:{\n\"a\":\"x\\n\\ty\\n\\\\\\r\"\n}|E",
       "tool_calls"},
      {"AControlCharacterInTheName",
       kHermes,
       {"<tool_call>", "{\"name\":\"f\n\",\"arguments\":{}}", "</tool_call>"},
       "T:<tool_call>{\"name\":\"f\n\",\"arguments\":{}}</tool_call>"},
      {"WithoutArguments",
       kHermes,
       {"<tool_call>", "{\"name\":\"now\"}", "</tool_call>"},
       "C0:now|A:{}|E",
       "tool_calls"},
      {"WithoutTheLastBracket",
       kHermes,
       {"<tool_call>", "{\"name\":\"f\",\"arguments\":{\"a\":1}", "\n", "</tool_call>", "done"},
       "C0:f|A:{\"a\":1}|E|T:done",
       "tool_calls"},
      {"CutInItsArguments",
       kHermes,
       {"<tool_call>", "{\"name\":\"f\",\"arguments\":{\"a\":", " \"b"},
       "C0:f|A:{\"a\": \"b",
       "stop"},
      {"CutInItsName", kHermes, {"ok ", "<tool_call>", "{\"na"}, "T:ok <tool_call>{\"na"},
      {"AMarkerInProse",
       kHermes,
       {"Write ", "<", "tool", "_call", ">", " and", " {}", "."},
       "T:Write <tool_call> and {}."},
      {"AMarkerThatBeginsNothing",
       kHermes,
       {"The tag ", "<tool_call>", " begins", " a call", " </", "tool_call", ">"},
       "T:The tag <tool_call> begins a call </tool_call>"},
      {"MarkersInsideOfAString",
       kHermes,
       {"<tool_call>", "{\"name\":\"f\",\"arguments\":{\"a\":\"", "</tool_call>", "\"}}",
        "</tool_call>"},
       "C0:f|A:{\"a\":\"</tool_call>\"}|E",
       "tool_calls"},
      {"MarkersAsText",
       kHermesByText,
       {"so <tool", "_call>{\"name\":\"f\",\"argu", "ments\":{}}</too", "l_call> <", "b>"},
       "T:so|C0:f|A:{}|E|T:<b>",
       "tool_calls"},
      {"ToolsThatMayNotBeCalled",
       kHermes,
       {"<tool_call>", "{\"name\":\"f\",\"arguments\":{}}", "</tool_call>"},
       "T:<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
       "stop",
       0,
       false,
       false},
      {"Thoughts",
       kHermes,
       {"<think>", "\n", "Hm", ".\n\n", "So", "\n", "</think>", "\n\n", "Yes", ".\n"},
       "R:Hm.\n\nSo|T:Yes.\n",
       "stop",
       7},
      {"ThoughtsThatThePromptBegan",
       begun(kHermes, "<think>"),
       {"\n", "Hm", "\n", "</think>", "\n", "Yes"},
       "R:Hm|T:Yes",
       "stop",
       4},
      {"ThoughtsWithoutAnEnd", kHermes, {"<think>", "I", " th", "ink "}, "R:I think", "stop", 4},
      {"ThoughtsAsText",
       kHermesByText,
       {"<thi", "nk>a</", "b></th", "ink>c"},
       "R:a</b>|T:c",
       "stop",
       3},
      {"ThoughtsThenACall",
       kHermes,
       {"<think>", "a", " <tool_call>", " b", "</think>", "\n", "<tool_call>",
        "{\"name\":\"f\",\"arguments\":{\"a\":null}}", "</tool_call>"},
       "R:a <tool_call> b|C0:f|A:{\"a\":null}|E",
       "tool_calls",
       5},
      {"ASecondThoughtIsText",
       kHermes,
       {"<think>", "a", "</think>", "b", "<think>", "c"},
       "R:a|T:b<think>c",
       "stop",
       3},
      {"ACallThatThePromptBegan",
       begun(kHermes, "<tool_call>\n{\"name\": \"f\", \"arguments\":"),
       {" {\"", "a\":1", "}}", "\n", "</tool_call>"},
       "C0:f|A:{\"a\":1}|E",
       "tool_calls"},
      {"ACallOfAnyToolThatThePromptBegan",
       begun(kHermes, "<tool_call>\n{\"name\": \""),
       {"g", "o\", ", "\"arguments\": {}}"},
       "C0:go|A:{}|E",
       "tool_calls"},
      {"LlamaCall",
       kLlama,
       {"\n", "{\"", "name\": ", "\"f\", \"parameters\": {\"a\"", ": \"1\"}}"},
       "C0:f|A:{\"a\": \"1\"}|E",
       "tool_calls"},
      {"LlamaCallsBehindTheTag",
       kLlama,
       {"<|python_tag|>", "{\"type\": \"function\", \"name\": \"f\",", " \"parameters\": {}}", "; ",
        "{\"name\": \"g\", \"arguments\": {}}"},
       "C0:f|A:{}|E|C1:g|A:{}|E",
       "tool_calls"},
      {"LlamaJsonThatIsNoCall",
       kLlama,
       {"{\"name\": \"Bob\", ", "\"parameters\": {}}"},
       "T:{\"name\": \"Bob\", \"parameters\": {}}"},
      {"LlamaNameWithoutAnObject",
       kLlama,
       {"{\"name\": \"f\"", ", \"age\": 3}", " ok"},
       "T:{\"name\": \"f\", \"age\": 3} ok"},
      {"LlamaCode", kLlama, {"<|python_tag|>", "print", "(1)"}, "T:print(1)"},
      {"LlamaJsonInText",
       kLlama,
       {"See ", "{\"name\": \"f\", \"parameters\": {}}"},
       "T:See {\"name\": \"f\", \"parameters\": {}}"},
      {"LlamaTextBehindABrokenCall",
       kLlama,
       {"{\"name\": \"f\", \"parameters\": {\"a\": 1", "]}", "\n", "Sorry."},
       "C0:f|A:{\"a\": 1|T:]}\nSorry."},
      {"MistralTextBehindABrokenList",
       kMistralList,
       {"[TOOL_CALLS]", "[{\"name\": \"f\", \"arguments\": {}} ", "; no", "]"},
       "C0:f|A:{}|E|T:; no]",
       "tool_calls"},
      {"MistralTextBehindBrokenArguments",
       kMistral,
       {"[TOOL_CALLS]", "f", "[ARGS]", "{\"a\": 1", "] no"},
       "C0:f|A:{\"a\": 1|T:] no"},
      {"MistralList",
       kMistralList,
       {"[TOOL_CALLS]", " [{\"name\"", ": \"f\", \"arguments\": {\"a\": [1", "]}}, {",
        "\"name\": \"g\", \"arguments\": {}}]"},
       "C0:f|A:{\"a\": [1]}|E|C1:g|A:{}|E",
       "tool_calls"},
      {"MistralBehindAByteThatWasHeldBack",
       kMistralList,
       {"Ok.", "", "\n[TOOL_CALLS]", " [{\"name\": \"f\", \"arguments\": {}}]"},
       "T:Ok.|C0:f|A:{}|E",
       "tool_calls"},
      {"AnEndOfThoughtsBehindHalfACharacter",
       kHermes,
       {"<think>", "Hm", "", "\uFFFD</think>", "Yes"},
       "R:Hm\uFFFD|T:Yes",
       "stop",
       4},
      {"MistralArguments",
       kMistral,
       {"Ok.", "[TOOL_CALLS]", "f", "_1", "[ARGS]", "{\"a\"", ": {}}", "[TOOL_CALLS]", "g",
        "[ARGS]", "{}"},
       "T:Ok.|C0:f_1|A:{\"a\": {}}|E|C1:g|A:{}|E",
       "tool_calls"},
      {"MistralCallId",
       kMistral,
       {"[TOOL_CALLS]", "f", "[CALL_ID]", "abc", "123", "[ARGS]", "{}"},
       "C0:f|A:{}|E",
       "tool_calls"},
      {"MistralNameAlone",
       kMistral,
       {"[TOOL_CALLS]", "what", "\n", "ever"},
       "T:[TOOL_CALLS]what\never"},
      {"NoFormat", {"none", {}, false, ""}, {"<think>", "{", "}"}, "T:<think>{}"},
      {"AForbiddenCallBeforeAnother",
       kHermes,
       {"Hm.", "\n", "<tool_call>", "\n{\"name\": \"x\", ", "\"arguments\": {\"a\": 1}}", "\n",
        "</tool_call>", "\n", "<tool_call>", "{\"name\":\"f\",\"arguments\":{}}", "</tool_call>"},
       "T:Hm.\n<tool_call>\n{\"name\": \"x\", \"arguments\": {\"a\": 1}}\n</tool_call>|C0:f|A:{}|E",
       "tool_calls",
       0,
       false,
       true,
       true},
      {"AForbiddenCallIsNotTheOneThatIsWanted",
       kHermes,
       {"<tool_call>", "{\"name\":\"x\",\"arguments\":{}}", "</tool_call>", "<tool_call>",
        "{\"name\":\"f\",\"arguments\":{}}", "</tool_call>", "bye"},
       "T:<tool_call>{\"name\":\"x\",\"arguments\":{}}</tool_call>|C0:f|A:{}|E",
       "tool_calls",
       0,
       true,
       true,
       true},
      {"AForbiddenCallWithoutItsLastBracket",
       kHermes,
       {"<tool_call>", "{\"name\":\"x\",\"arguments\":{}", "</tool_call>", "done"},
       "T:<tool_call>{\"name\":\"x\",\"arguments\":{}</tool_call>done",
       "stop",
       0,
       false,
       true,
       true},
      {"AForbiddenCallInMarkersAsText",
       kHermesByText,
       {"<tool_call>{\"arguments\":{\"a\":1},", "\"name\":\"x\"}</too", "l_call> ok"},
       "T:<tool_call>{\"arguments\":{\"a\":1},\"name\":\"x\"}</tool_call> ok",
       "stop",
       0,
       false,
       true,
       true},
      {"AForbiddenCallThatThePromptBegan",
       begun(kHermes, "<tool_call>\n{\"name\": \""),
       {"x\", ", "\"arguments\": {}}", "\n", "</tool_call>"},
       "T:<tool_call>\n{\"name\": \"x\", \"arguments\": {}}\n</tool_call>",
       "stop",
       0,
       false,
       true,
       true},
      {"LlamaForbiddenBehindACall",
       kLlama,
       {"{\"name\": \"f\", \"parameters\": {}}", "; ", "{\"name\": \"x\", ", "\"parameters\": {}}"},
       "C0:f|A:{}|E|T:; {\"name\": \"x\", \"parameters\": {}}",
       "tool_calls",
       0,
       false,
       true,
       true},
      {"MistralForbiddenInAList",
       kMistralList,
       {"[TOOL_CALLS]", "[{\"name\": \"f\", \"arguments\": {}}", ", {\"name\": \"x\",",
        " \"arguments\": {}}", "]"},
       "C0:f|A:{}|E|T:, {\"name\": \"x\", \"arguments\": {}}]",
       "tool_calls",
       0,
       false,
       true,
       true},
      {"MistralForbiddenArguments",
       kMistral,
       {"[TOOL_CALLS]", "x", "[ARGS]", "{\"a\":", " 1}", "[TOOL_CALLS]", "f", "[ARGS]", "{}"},
       "T:[TOOL_CALLS]x[ARGS]{\"a\": 1}|C0:f|A:{}|E",
       "tool_calls",
       0,
       false,
       true,
       true},
  };
  return all;
}

AnswerReader reader_of(const Fixture& fixture) {
  return AnswerReader({.may_call = fixture.may_call,
                       .tool_names = {"f", "g"},
                       .checks_names = fixture.checks_names,
                       .one_call = fixture.one_call,
                       .key = 7});
}

// Pieces that end before the tokens of these numbers, and the reply with the rest.
AnswerEvents streamed(const Fixture& fixture, const std::vector<std::size_t>& cuts) {
  AnswerReader reader = reader_of(fixture);
  AnswerEvents events;
  std::size_t next = 0;
  std::uint32_t end = 0;
  const auto fill = [&](auto& part, std::size_t until) {
    if (next == 0 && end == 0) part.form = fixture.form;
    for (; next < until; ++next) {
      part.text += fixture.tokens[next];
      part.token_ids.push_back(static_cast<TokenId>(next));
      part.token_ends.push_back(end += static_cast<std::uint32_t>(fixture.tokens[next].size()));
    }
  };
  for (const std::size_t cut : cuts) {
    if (cut <= next || cut >= fixture.tokens.size()) continue;
    wire::ClientPiece piece;
    fill(piece, cut);
    events.add(reader.on_piece(piece));
  }
  wire::ClientReply reply;
  reply.finish_reason = "stop";
  fill(reply, fixture.tokens.size());
  events.add(reader.on_reply(reply));
  EXPECT_EQ(reader.finish_reason(reply), fixture.finish);
  EXPECT_EQ(reader.n_reasoning_tokens(), fixture.n_reasoning);
  return events;
}

class Answers : public testing::TestWithParam<Fixture> {};

TEST_P(Answers, AreTheirEvents) { EXPECT_EQ(written(streamed(GetParam(), {})), GetParam().events); }

TEST_P(Answers, AreTheSameHoweverTheirTokensAreCut) {
  const Fixture& fixture = GetParam();
  const AnswerEvents whole = streamed(fixture, {});
  const std::size_t n = fixture.tokens.size();
  for (std::size_t first = 0; first <= n; ++first)
    for (std::size_t second = first; second <= n; ++second)
      ASSERT_EQ(written(streamed(fixture, {first, second})), written(whole))
          << "cut before tokens " << first << " and " << second;
  std::vector<std::size_t> each(n);
  for (std::size_t i = 0; i < n; ++i) each[i] = i;
  EXPECT_EQ(streamed(fixture, each), whole) << "each token alone";
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::size_t> cuts;
    for (std::size_t i = 1; i < n; ++i)
      if (random() % 3 == 0) cuts.push_back(i);
    ASSERT_EQ(streamed(fixture, cuts), whole) << "round " << round;
  }
}

// Where no marker is a token, it makes no difference which tokens spelled a text.
TEST_P(Answers, WithoutMarkerTokensAreTheSameOfAnyTokens) {
  Fixture fixture = GetParam();
  if (!fixture.form.marker_tokens.empty()) return;
  fixture.n_reasoning = 0;
  const std::string expected = fixture.events;
  std::string text;
  for (const std::string& token : fixture.tokens) text += token;
  for (std::size_t size = 1; size <= 7; ++size) {
    fixture.tokens.clear();
    for (std::size_t at = 0; at < text.size(); at += size)
      fixture.tokens.push_back(text.substr(at, size));
    AnswerReader reader = reader_of(fixture);
    wire::ClientReply reply;
    reply.form = fixture.form;
    reply.text = text;
    std::uint32_t end = 0;
    for (const std::string& token : fixture.tokens) {
      reply.token_ids.push_back(1);
      reply.token_ends.push_back(end += static_cast<std::uint32_t>(token.size()));
    }
    EXPECT_EQ(written(reader.on_reply(reply)), expected) << size << " bytes a token";
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Answers, testing::ValuesIn(fixtures()), [](const auto& fixture) {
  return std::string(fixture.param.name);
});

TEST(AnswerReader, ATextNamesItsTokens) {
  using Numbers = std::vector<std::uint32_t>;
  const std::pair<Fixture, Numbers> answers[] = {
      {{"BesideAThoughtAndACall",
        kHermes,
        {"<think>", "\n", "Hm", "\n", "</think>", "\n\n", "Ok", "", ".", " \n", "<tool_call>",
         "{\"name\":\"f\",\"arguments\":{}}", "</tool_call>", "\n", "bye", " ", ""},
        "",
        "tool_calls",
        5},
       {6, 7, 8, 14, 15, 16}},
      {{"BesideMarkersAsText",
        kHermesByText,
        {"<thi", "nk>a", "</th", "ink>", " ok <", "b>"},
        "",
        "stop",
        3},
       {4, 5}},
      {{"BytesBeforeAMarker",
        kHermes,
        {"Ok", "", "\uFFFD<tool_call>", "{\"name\":\"f\",\"arguments\":{}}", "</tool_call>"},
        "",
        "tool_calls"},
       {0, 1}},
      {{"OfWhatIsNoCall", kLlama, {"{\"name\": \"Bob\", ", "\"parameters\": {}}", "!"}, ""},
       {0, 1, 2}},
      {{"WithoutAForm", {"none", {}, false, ""}, {"a", "", "b"}, ""}, {0, 1, 2}},
  };
  for (const auto& [fixture, wanted] : answers) {
    std::vector<std::size_t> each(fixture.tokens.size());
    for (std::size_t i = 0; i < each.size(); ++i) each[i] = i;
    for (const auto& cuts : {std::vector<std::size_t>{}, each}) {
      Numbers named;
      const AnswerEvents events = streamed(fixture, cuts);
      for (const AnswerEvent& event : events.list())
        if (const auto* text = std::get_if<TextEvent>(&event))
          named.insert(named.end(), text->tokens.begin(), text->tokens.end());
      EXPECT_EQ(named, wanted) << fixture.name << ", " << cuts.size() << " cuts";
    }
  }
}

TEST(AnswerReader, CallsHaveIdsOfTheRequestAndTheirNumber) {
  const auto ids = [](const wire::AnswerForm& form, const char* text, std::uint64_t key) {
    AnswerReader reader({.may_call = true, .tool_names = {}, .one_call = false, .key = key});
    wire::ClientReply reply;
    reply.form = form;
    reply.text = text;
    std::vector<std::string> found;
    const AnswerEvents events = reader.on_reply(reply);
    for (const AnswerEvent& event : events.list())
      if (const auto* call = std::get_if<CallBegin>(&event)) found.push_back(call->id);
    return found;
  };
  const char* two =
      "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call><tool_call>{\"name\":\"f\","
      "\"arguments\":{}}</tool_call>";
  const auto first = ids(kHermesByText, two, 1);
  ASSERT_EQ(first.size(), 2U);
  EXPECT_THAT(first[0], testing::MatchesRegex("call_[A-Za-z0-9]{24}"));
  EXPECT_NE(first[0], first[1]);
  EXPECT_EQ(ids(kHermesByText, two, 1), first);
  EXPECT_NE(ids(kHermesByText, two, 2)[0], first[0]);
  // Mistral's chat templates take no others.
  EXPECT_THAT(ids({"mistral", {}, false, ""}, "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}}]", 1),
              testing::ElementsAre(testing::MatchesRegex("[A-Za-z0-9]{9}")));
}

// The arguments of the calls of an answer whose tokens end at these bytes.
std::string arguments_of(const wire::AnswerForm& form,
                         const std::string& text,
                         const std::vector<std::uint32_t>& ends) {
  AnswerReader reader({.may_call = true, .tool_names = {"f"}});
  AnswerEvents events;
  std::size_t begin = 0;
  for (const std::uint32_t end : ends) {
    wire::ClientPiece piece{
        .text = text.substr(begin, end - begin), .token_ids = {1}, .token_ends = {end}};
    if (begin == 0) piece.form = form;
    events.add(reader.on_piece(piece));
    begin = end;
  }
  wire::ClientReply reply;
  if (begin == 0) reply.form = form;
  reply.text = text.substr(begin);
  reply.finish_reason = "stop";
  events.add(reader.on_reply(reply));
  EXPECT_EQ(reader.n_calls(), 1U) << text;
  std::string arguments;
  for (const AnswerEvent& event : events.list())
    if (const auto* more = std::get_if<CallArguments>(&event)) arguments += more->text;
  return arguments;
}

// Models write the lines of a file into a string as they are, which is no JSON.
TEST(AnswerReader, ArgumentsWithRawControlCharactersAreJson) {
  const OrderedJson wanted = {{"a", "x\ny\t\x01\x1f\b\f\r\"\x7f"}, {"b\n", 1}};
  const std::string spelled = "{\"a\":\n\"x\ny\t\x01\x1f\b\f\r\\\"\x7f\", \"b\n\": 1}";
  std::string quoted, half_escaped;  // the object as a text, whose line feeds are raw or escaped
  for (const char byte : spelled) {
    const std::string escape = byte == '"' || byte == '\\' ? std::string("\\") + byte : "";
    quoted += escape.empty() ? std::string(1, byte) : escape;
    half_escaped += byte == '\n' ? "\\n" : escape.empty() ? std::string(1, byte) : escape;
  }
  const wire::AnswerForm mistral{"mistral", {}, false, ""};
  const std::pair<wire::AnswerForm, std::string> answers[] = {
      {kHermesByText, R"(<tool_call>{"name":"f","arguments":)" + spelled + "}</tool_call>"},
      {kHermesByText, R"(<tool_call>{"arguments":)" + spelled + R"(,"name":"f"}</tool_call>)"},
      {kHermesByText, R"(<tool_call>{"name":"f","arguments":")" + quoted + "\"}</tool_call>"},
      {kHermesByText, R"(<tool_call>{"name":"f","arguments":")" + half_escaped + "\"}</tool_call>"},
      {{"llama", {}, false, ""}, R"({"name":"f","parameters":)" + spelled + "}"},
      {mistral, R"([TOOL_CALLS][{"name":"f","arguments":)" + spelled + "}]"},
      {mistral, "[TOOL_CALLS]f[ARGS]" + spelled},
  };
  for (const auto& [form, text] : answers) {
    SCOPED_TRACE(text);
    const std::string whole = arguments_of(form, text, {});
    ASSERT_TRUE(parse_json(whole).ok()) << whole;
    EXPECT_EQ(OrderedJson::parse(whole), wanted);
    std::vector<std::uint32_t> each;
    for (std::uint32_t cut = 1; cut < text.size(); ++cut) {
      EXPECT_EQ(arguments_of(form, text, {cut}), whole) << "cut at byte " << cut;
      each.push_back(cut);
    }
    EXPECT_EQ(arguments_of(form, text, each), whole) << "each byte alone";
  }
}

TEST(AnswerReader, AControlCharacterBehindABackslashIsOneEscape) {
  const std::string text = "[TOOL_CALLS]f[ARGS]{\"a\": \"\\\n\\\x02\"}";
  EXPECT_EQ(arguments_of({"mistral", {}, false, ""}, text, {}), R"({"a": "\n\u0002"})");
}

wire::ClientReply cut_reply(const char* text) {
  wire::ClientReply reply;
  reply.form = kHermesByText;
  reply.text = text;
  reply.finish_reason = "length";
  return reply;
}

TEST(AnswerReader, ACutAnswerSaysSoWhateverItHasCalled) {
  const wire::ClientReply reply = cut_reply(
      "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call><tool_call>{\"name\":\"g\",\"ar");
  AnswerReader reader({.may_call = true});
  (void)reader.on_reply(reply);
  EXPECT_EQ(reader.n_calls(), 1U);
  EXPECT_EQ(reader.finish_reason(reply), "length");
  // Where one call is wanted the cut took nothing of the answer.
  AnswerReader one({.may_call = true, .one_call = true});
  (void)one.on_reply(reply);
  EXPECT_EQ(one.finish_reason(reply), "tool_calls");
  const wire::ClientReply first = cut_reply("<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":");
  AnswerReader none({.may_call = true, .one_call = true});
  (void)none.on_reply(first);
  EXPECT_EQ(none.finish_reason(first), "length");
}

TEST(AnswerReader, WhatAStopStringCutOffIsNotRead) {
  AnswerReader reader({.may_call = true, .tool_names = {}, .one_call = false, .key = 0});
  wire::ClientPiece piece;
  piece.form = kHermes;
  piece.text = "a ";
  piece.token_ids = {1, 2, 3};
  piece.token_ends = {2, 4, 6};
  AnswerEvents events = reader.on_piece(piece);
  wire::ClientReply reply;
  reply.text = "b";
  reply.finish_reason = "stop";
  events.add(reader.on_reply(reply));
  EXPECT_EQ(written(events), "T:a b");
}

TEST(AnswerKey, IsOfTheQuestionAndNotOfGuessing) {
  wire::ClientRequest request;
  request.prompt_kind = wire::PromptKind::kMessages;
  request.messages = {{"user", "hi"}};
  request.given = {"messages"};
  const std::uint64_t key = answer_key(request);
  wire::ClientRequest guessed = request;
  guessed.num_draft_tokens = 0;
  guessed.proposer = ProposerKind::kNgram;
  guessed.stream = true;
  guessed.given = {"messages", "num_draft_tokens", "proposer", "stream"};
  EXPECT_EQ(answer_key(guessed), key);
  guessed.params.choice = 1;
  EXPECT_NE(answer_key(guessed), key);
  request.messages[0].content = "ho";
  EXPECT_NE(answer_key(request), key);
}

}  // namespace
}  // namespace foretoken::edge
