#include "common/wire/client_codec.h"
#include "common/messages/limits.h"

#include <gmock/gmock.h>

#include <functional>
#include <limits>

#include "common/wire/msgpack_writer.h"

namespace foretoken::wire {
namespace {

using ::testing::HasSubstr;
using Write = std::function<void(MsgpackWriter&)>;

struct Pair {
  std::string key;
  Write value;
};

Bytes map_of(const std::vector<Pair>& pairs) {
  Bytes bytes;
  MsgpackWriter out(bytes);
  out.map(pairs.size());
  for (const auto& [key, value] : pairs) {
    out.str(key);
    value(out);
  }
  return bytes;
}

Write names(const std::vector<std::string>& all) {
  return [all](MsgpackWriter& out) {
    out.array(all.size());
    for (const std::string& name : all) out.str(name);
  };
}
Write str(const std::string& text) {
  return [text](MsgpackWriter& out) { out.str(text); };
}
Write num(std::int64_t n) {
  return [n](MsgpackWriter& out) { out.integer(n); };
}
Write big(std::uint64_t n) {
  return [n](MsgpackWriter& out) { out.uint(n); };
}
Write real(double d) {
  return [d](MsgpackWriter& out) { out.float64(d); };
}
Write flag(bool b) {
  return [b](MsgpackWriter& out) { out.boolean(b); };
}
Write bin(const std::string& b) {
  return [b](MsgpackWriter& out) { out.bin(b); };
}
Write nil() {
  return [](MsgpackWriter& out) { out.nil(); };
}
Write list(const std::vector<Write>& elements) {
  return [elements](MsgpackWriter& out) {
    out.array(elements.size());
    for (const auto& element : elements) element(out);
  };
}
Write map(const std::vector<Pair>& pairs) {
  return [pairs](MsgpackWriter& out) {
    out.map(pairs.size());
    for (const auto& [key, value] : pairs) {
      out.str(key);
      value(out);
    }
  };
}
Write many(std::size_t n, const Write& element) { return list(std::vector<Write>(n, element)); }

struct HostileCase {
  std::string name;
  std::vector<Pair> pairs;
  ErrorCode code;
  std::string param;
  std::string words;
};

std::vector<HostileCase> hostile_cases() {
  const Pair prompt{"prompt", str("x")};
  constexpr auto kValue = ErrorCode::kInvalidValue;
  constexpr auto kRequest = ErrorCode::kInvalidRequest;
  constexpr auto kUnsupported = ErrorCode::kUnsupportedParameter;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const auto with = [&](std::string key, Write value) {
    return std::vector<Pair>{prompt, {std::move(key), std::move(value)}};
  };
  const auto message = [](const Write& role, const Write& content) {
    return list({map({{"role", role}, {"content", content}})});
  };
  return {
      {"NoPrompt", {}, kRequest, "prompt", "one of prompt, messages and token_ids is required"},
      {"TwoPrompts", with("token_ids", list({num(1)})), kRequest, "prompt", "only one of"},
      {"UnknownKey", with("temprature", real(1)), kRequest, "temprature",
       "did you mean \"temperature\"?"},
      {"UnknownKeyFarFromAny", with("zzzzzzzzzz", real(1)), kRequest, "zzzzzzzzzz", "unknown key"},
      {"EmptyKey", with("", real(1)), kRequest, "",
       "unknown key \"\": a key of the request is empty"},
      {"MaxTokensBelowItsLeast", with("max_tokens", num(-1)), kValue, "max_tokens",
       "is -1; it must be from 0 to 4294967295"},
      {"DraftTokensBelowTheirLeast", with("num_draft_tokens", num(-3)), kValue, "num_draft_tokens",
       "is -3; it must be from 0 to 32"},
      {"PriorityNegative", with("priority", num(-1)), kValue, "priority",
       "is -1; it must be from 0 to 255"},
      {"TimeoutNegative", with("timeout_ms", num(-1)), kValue, "timeout_ms",
       "is -1; it must be from 1 to 3600000"},
      {"NNegative", with("n", num(-1)), kValue, "n", "is -1; it must be 1"},
      {"DuplicateKey",
       {prompt, {"top_k", num(1)}, {"top_k", num(2)}},
       kRequest,
       "top_k",
       "given twice"},
      {"Echo", with("echo", flag(true)), kUnsupported, "echo", "not supported"},
      {"ToolsNoText", with("tools", list({})), kValue, "tools", "must be a string"},
      {"ToolsNoJson", with("tools", str("[")), kValue, "tools", "is no JSON"},
      {"ToolsNoList", with("tools", str("{}")), kValue, "tools", "must be a JSON list"},
      {"ToolsWithoutMessages", with("tools", str("[]")), kRequest, "tools", "needs messages"},
      {"VariablesNoObject", with("chat_template_kwargs", str("[]")), kValue, "chat_template_kwargs",
       "must be a JSON object"},
      {"NTwo", with("n", num(2)), kValue, "n", "is 2; it must be 1"},
      {"NHuge", with("n", big(~0ull)), kValue, "n", "it must be 1"},
      {"Rejection", with("acceptance", str("rejection")), kUnsupported, "acceptance", "coupled"},
      {"PromptNotText",
       {{"prompt", num(3)}},
       kValue,
       "prompt",
       "must be a string; found an integer"},
      {"PromptBinary",
       {{"prompt", bin("abc")}},
       kValue,
       "prompt",
       "must be a string; found binary"},
      {"PromptInvalidUtf8", {{"prompt", str("a\xff")}}, kValue, "prompt", "not valid UTF-8"},
      {"PromptSurrogate", {{"prompt", str("\xed\xa0\x80")}}, kValue, "prompt", "not valid UTF-8"},
      {"PromptOverlong", {{"prompt", str("\xc0\xaf")}}, kValue, "prompt", "not valid UTF-8"},
      {"PromptTooLong",
       {{"prompt", str(std::string((1 << 20) + 1, 'x'))}},
       kValue,
       "prompt",
       "the limit is 1048576"},
      {"TokensEmpty",
       {{"token_ids", list({})}},
       kValue,
       "token_ids",
       "token_ids is an empty list; it must have at least one token id"},
      {"TokensNegative",
       {{"token_ids", list({num(1), num(-1)})}},
       kValue,
       "token_ids",
       "is -1; it must be from 0"},
      {"TokensTooLarge",
       {{"token_ids", list({big(1ull << 31)})}},
       kValue,
       "token_ids",
       "it must be from 0 to 2147483647"},
      {"TokensFloat", {{"token_ids", list({real(1)})}}, kValue, "token_ids", "must be an integer"},
      {"TokensNotAList", {{"token_ids", num(5)}}, kValue, "token_ids", "must be an array"},
      {"MessagesEmpty",
       {{"messages", list({})}},
       kValue,
       "messages",
       "messages is an empty list; it must have at least one message"},
      {"MessagesNotMaps", {{"messages", list({str("hi")})}}, kValue, "messages", "must be a map"},
      {"MessagesBadRole",
       {{"messages", message(str("god"), str("x"))}},
       kValue,
       "messages",
       "role \"god\""},
      {"MessagesNoContent",
       {{"messages", list({map({{"role", str("user")}})})}},
       kValue,
       "messages",
       "without content"},
      {"MessagesExtraKey",
       {{"messages",
         list({map({{"role", str("user")}, {"content", str("x")}, {"evil", num(1)}})})}},
       kValue,
       "messages",
       "key \"evil\""},
      {"MessagesImage",
       {{"messages",
         message(str("user"), list({map({{"type", str("image_url")}, {"url", str("x")}})}))}},
       kValue,
       "messages",
       "content part 0 of type \"image_url\""},
      {"MessagesContentNumber",
       {{"messages", message(str("user"), num(3))}},
       kValue,
       "messages",
       "must be an array"},
      {"MaxTokensZero", with("max_tokens", num(0)), kValue, "max_tokens",
       "at least 1 without prompt_logprobs"},
      {"MaxTokensNegative", with("max_tokens", num(-5)), kValue, "max_tokens", "is -5"},
      {"MaxTokensHuge", with("max_tokens", big(1ull << 40)), kValue, "max_tokens",
       "from 0 to 4294967295"},
      {"MaxTokensFloat", with("max_tokens", real(10)), kValue, "max_tokens",
       "must be an integer; found a float"},
      {"MaxTokensText", with("max_tokens", str("10")), kValue, "max_tokens",
       "must be an integer; found a string"},
      {"MaxTokensBool", with("max_tokens", flag(true)), kValue, "max_tokens", "found a boolean"},
      {"MinAboveMax",
       {prompt, {"max_tokens", num(3)}, {"min_tokens", num(4)}},
       kValue,
       "min_tokens",
       "at most max_tokens"},
      {"TemperatureNan", with("temperature", real(nan)), kValue, "temperature",
       "not a finite number"},
      {"TemperatureInf", with("temperature", real(inf)), kValue, "temperature",
       "not a finite number"},
      {"TemperatureNegative", with("temperature", real(-0.1)), kValue, "temperature",
       "from 0 to 100"},
      {"TemperatureHuge", with("temperature", real(1e300)), kValue, "temperature",
       "is 1e+300; it must be from 0 to 100"},
      {"TemperatureText", with("temperature", str("hot")), kValue, "temperature",
       "temperature must be a number; found a string"},
      {"TopPZero", with("top_p", real(0)), kValue, "top_p", "above 0 and at most 1"},
      {"TopPAboveOne", with("top_p", real(1.0001)), kValue, "top_p", "above 0 and at most 1"},
      {"TopPNan", with("top_p", real(nan)), kValue, "top_p", "not a finite number"},
      {"TopKNegative", with("top_k", num(-2)), kValue, "top_k",
       "is -2; it must be from 0 to 2147483647, or -1"},
      {"ChoiceNegative", with("choice", num(-1)), kValue, "choice", "from 0 to 127"},
      {"ChoiceHuge", with("choice", num(128)), kValue, "choice",
       "is 128; it must be from 0 to 127"},
      {"PredictionMissing", with("proposer", str("prediction")), kValue, "prediction",
       "needs the expected answer under prediction"},
      {"TopKHuge", with("top_k", big(1ull << 31)), kValue, "top_k", "to 2147483647"},
      {"MinPOne", with("min_p", real(1)), kValue, "min_p", "below 1"},
      {"RepetitionZero", with("repetition_penalty", real(0)), kValue, "repetition_penalty",
       "above 0"},
      {"PresenceThree", with("presence_penalty", real(3)), kValue, "presence_penalty",
       "from -2 to 2"},
      {"FrequencyNan", with("frequency_penalty", real(nan)), kValue, "frequency_penalty",
       "not a finite number"},
      {"BiasList", with("logit_bias", list({num(1)})), kValue, "logit_bias", "must be a map"},
      {"BiasKeyText", with("logit_bias", map({{"five", num(1)}})), kValue, "logit_bias",
       "not a token id"},
      {"BiasKeyNegative", with("logit_bias", map({{"-5", num(1)}})), kValue, "logit_bias",
       "not a token id"},
      {"BiasValue", with("logit_bias", map({{"5", num(101)}})), kValue, "logit_bias",
       "from -100 to 100"},
      {"BiasValueNan", with("logit_bias", map({{"5", real(nan)}})), kValue, "logit_bias",
       "not a finite number"},
      {"BiasTwice", with("logit_bias", map({{"5", num(1)}, {"05", num(2)}})), kValue, "logit_bias",
       "token id 5 twice"},
      {"BiasTooMany",
       with("logit_bias",
            [](MsgpackWriter& out) {
              out.map(301);
              for (int i = 0; i < 301; ++i) {
                out.integer(i);
                out.integer(1);
              }
            }),
       kValue, "logit_bias", "the limit is 300"},
      {"StopEmpty", with("stop", str("")), kValue, "stop", "empty string"},
      {"StopTooMany", with("stop", many(17, str("x"))), kValue, "stop", "the limit is 16"},
      {"StopTooLong", with("stop", str(std::string(257, 'x'))), kValue, "stop", "the limit is 256"},
      {"StopNumber", with("stop", list({num(5)})), kValue, "stop", "must be a string"},
      {"StopIdsTooMany", with("stop_token_ids", many(65, num(1))), kValue, "stop_token_ids",
       "the limit is 64"},
      {"BadWordsTooMany", with("bad_words", many(65, str("x"))), kValue, "bad_words",
       "the limit is 64"},
      {"BadWordsInvalidUtf8", with("bad_words", str("\xf5")), kValue, "bad_words",
       "not valid UTF-8"},
      {"RegexEmpty", with("regex", str("")), kValue, "regex", "regex is empty"},
      {"SchemaMap", with("json_schema", map({{"type", str("object")}})), kValue, "json_schema",
       "must be a string"},
      {"GrammarTooLong", with("gbnf", str(std::string(65537, 'x'))), kValue, "gbnf",
       "has 65537 bytes; the limit is 65536"},
      {"TwoConstraints",
       {{"prompt", str("x")}, {"gbnf", str("x")}, {"json_schema", str("{}")}},
       kValue,
       "gbnf",
       "json_schema and gbnf are both given"},
      {"ConstraintAndCalls",
       {{"messages", list({map({{"role", str("user")}, {"content", str("x")}})})},
        {"tools", str("[{}]")},
        {"regex", str("x")}},
       ErrorCode::kUnsupportedParameter,
       "tool_choice",
       "tool_choice is \"auto\" and the answer is constrained"},
      {"OpenAIsFormat", with("response_format", map({{"type", str("json_object")}})),
       ErrorCode::kUnsupportedParameter, "response_format", "use json_schema, regex or gbnf"},
      {"SeedFloat", with("seed", real(1)), kValue, "seed", "must be an integer"},
      {"SeedBeyond64Bits", with("seed", real(0x1p64)), kValue, "seed",
       "it must be an integer from -9223372036854775808 to 18446744073709551615"},
      {"LogprobsTooMany", with("logprobs", num(21)), kValue, "logprobs", "from 0 to 20"},
      {"LogprobsNegative", with("logprobs", num(-1)), kValue, "logprobs", "is -1"},
      {"StreamNumber", with("stream", num(1)), kValue, "stream", "must be a boolean"},
      {"IgnoreEosText", with("ignore_eos", str("yes")), kValue, "ignore_eos", "must be a boolean"},
      {"DraftTokensTooMany", with("num_draft_tokens", num(33)), kValue, "num_draft_tokens",
       "from 0 to 32"},
      {"DraftTokensNegative", with("num_draft_tokens", num(-1)), kValue, "num_draft_tokens",
       "is -1"},
      {"ProposerUnknown", with("proposer", str("oracle")), kValue, "proposer",
       "must be default, draft"},
      {"ProposerUnknownAmongOthers", with("proposer", names({"draft", "oracle"})), kValue,
       "proposer", "is \"oracle\"; it must be default, draft"},
      {"ProposersNone", with("proposer", names({})), kValue, "proposer", "is an empty list"},
      {"ProposerNoneBesideOthers", with("proposer", names({"draft", "none"})), kValue, "proposer",
       "stand alone"},
      {"ProposersTooMany",
       with("proposer", names({"draft", "draft", "draft", "draft", "draft", "draft", "draft"})),
       kValue, "proposer", "has 7 names; the limit is 6"},
      {"TimeoutZero", with("timeout_ms", num(0)), kValue, "timeout_ms", "from 1 to 3600000"},
      {"TimeoutHuge", with("timeout_ms", num(3'600'001)), kValue, "timeout_ms",
       "from 1 to 3600000"},
      {"IdShort", with("request_id", str("abc")), kValue, "request_id", "32 hexadecimal digits"},
      {"IdNotHex", with("request_id", str(std::string(32, 'g'))), kValue, "request_id",
       "32 hexadecimal digits"},
      {"IdBinShort", with("request_id", bin("abc")), kValue, "request_id", "it must have 16"},
      {"ModelTooLong", with("model", str(std::string(129, 'm'))), kValue, "model",
       "the limit is 128"},
      {"PriorityTooHigh", with("priority", num(256)), kValue, "priority", "from 0 to 255"},
      {"OpUnknown", {{"op", str("explode")}}, kValue, "op", "must be generate, cancel"},
      {"CancelWithoutId",
       {{"op", str("cancel")}},
       kRequest,
       "request_id",
       "cancel needs request_id"},
      {"TooManyKeys", std::vector<Pair>(65, Pair{"prompt", str("x")}), ErrorCode::kMalformed, "",
       "the limit is 64"},
      {"KeyTooLong",
       {{std::string(129, 'k'), num(1)}},
       ErrorCode::kMalformed,
       "",
       "a key of the request"},
      {"KeyInvalidUtf8", {{"\xff", num(1)}}, ErrorCode::kMalformed, "", "not valid UTF-8"},
  };
}

class HostileRequest : public ::testing::TestWithParam<HostileCase> {};

TEST_P(HostileRequest, IsRefusedByName) {
  const auto& c = GetParam();
  const auto outcome = read_client_request(map_of(c.pairs));
  ASSERT_FALSE(outcome.request.ok());
  EXPECT_EQ(outcome.request.error().code, c.code) << outcome.request.error().message;
  EXPECT_EQ(outcome.request.error().param, c.param) << outcome.request.error().message;
  EXPECT_THAT(outcome.request.error().message, HasSubstr(c.words));
}

INSTANTIATE_TEST_SUITE_P(ClientCodec,
                         HostileRequest,
                         ::testing::ValuesIn(hostile_cases()),
                         [](const auto& c) { return c.param.name; });

TEST(ClientCodec, RefusesWhatIsNoMapOrNotWhole) {
  Bytes whole = map_of({{"prompt", str("hello")}});
  for (std::size_t n = 0; n < whole.size(); ++n) {
    const auto outcome = read_client_request(whole.substr(0, n));
    ASSERT_FALSE(outcome.request.ok()) << n;
  }
  EXPECT_EQ(read_client_request(whole + "x").request.error().code, ErrorCode::kMalformed);
  EXPECT_THAT(read_client_request("\x93\x01\x02\x03").request.error().message,
              HasSubstr("msgpack map"));
  Bytes number_key;
  MsgpackWriter out(number_key);
  out.map(1);
  out.uint(1);
  out.uint(1);
  EXPECT_THAT(read_client_request(number_key).request.error().message,
              HasSubstr("a key of the request must be a string"));
}

// The client sorts answers by it, so it is found behind whatever cannot be read.
TEST_P(HostileRequest, IsStillNamedWhereverItsIdStands) {
  const Pair id{"request_id", str("00112233-4455-6677-8899-aabbccddeeff")};
  std::vector<Pair> pairs = GetParam().pairs;
  const auto is_id = [](const Pair& pair) { return pair.key == "request_id"; };
  if (std::any_of(pairs.begin(), pairs.end(), is_id) || GetParam().param == "request_id") return;
  pairs.push_back(id);
  const auto outcome = read_client_request(map_of(pairs));
  if (outcome.request.ok()) return;
  EXPECT_EQ(outcome.request_id, (RequestId{0x0011223344556677, 0x8899aabbccddeeff}));
}

TEST(ClientCodec, NamesARequestWithTooManyOrStrangeKeys) {
  std::vector<Pair> pairs;
  for (int i = 0; i < 300; ++i) pairs.push_back({"key" + std::to_string(i), num(1)});
  pairs.push_back({"request_id", str("00112233-4455-6677-8899-aabbccddeeff")});
  EXPECT_EQ(read_client_request(map_of(pairs)).request_id,
            (RequestId{0x0011223344556677, 0x8899aabbccddeeff}));
  Bytes bytes;
  MsgpackWriter out(bytes);
  out.map(2);
  out.uint(1);
  out.uint(1);
  out.str("request_id");
  out.str("00112233-4455-6677-8899-aabbccddeeff");
  EXPECT_EQ(read_client_request(bytes).request_id,
            (RequestId{0x0011223344556677, 0x8899aabbccddeeff}));
}

TEST(ClientCodec, MessagesTravelOnAsJson) {
  EXPECT_EQ(
      messages_json(
          std::vector<ChatMessage>{{"user", "one\ntwo\t\"three\" \\ é"}, {"assistant", ""}}),
      R"([{"role":"user","content":"one\ntwo\t\"three\" \\ é"},{"role":"assistant","content":""}])");
}

TEST(ClientCodec, RefusesMessagesThatQuotingMakesTooLong) {
  const auto read = [](std::size_t n, const char* op, char c) {
    Bytes bytes;
    MsgpackWriter out(bytes);
    out.map(2);
    out.str("op");
    out.str(op);
    out.str("messages");
    out.array(1);
    out.map(2);
    out.str("role");
    out.str("user");
    out.str("content");
    out.str(std::string(n, c));
    return read_client_request(bytes);
  };
  EXPECT_TRUE(read(100'000, "generate", '\x01').request.ok());
  for (const char* op : {"generate", "tokenize"}) {
    EXPECT_TRUE(read(500'000, op, '"').request.ok());
    for (const auto& [n, c] : {std::pair{1'000'000, '\x01'}, std::pair{600'000, '"'}}) {
      const auto outcome = read(static_cast<std::size_t>(n), op, c);
      ASSERT_FALSE(outcome.request.ok()) << op;
      EXPECT_EQ(outcome.request.error().code, ErrorCode::kInvalidValue);
      EXPECT_EQ(outcome.request.error().param, "messages");
    }
  }
}

TEST(ClientCodec, DetokenizeTakesSoManyIds) {
  ClientRequest request{.op = ClientOp::kDetokenize};
  request.prompt_kind = PromptKind::kTokens;
  request.token_ids.assign(kMaxDetokenizeIds, 5);
  EXPECT_TRUE(read_client_request(write_client_request(request)).request.ok());
  request.token_ids.push_back(5);
  const auto outcome = read_client_request(write_client_request(request));
  ASSERT_FALSE(outcome.request.ok());
  EXPECT_EQ(outcome.request.error().param, "token_ids");
}

TEST(ClientCodec, FillsInDefaults) {
  const auto outcome =
      read_client_request(map_of({{"prompt", str("x")}, {"seed", nil()}, {"top_k", nil()}}));
  ASSERT_TRUE(outcome.request.ok());
  ClientRequest expected;
  EXPECT_EQ(outcome.request->params.max_tokens, kDefaultMaxTokens);
  EXPECT_EQ(outcome.request->given, GivenKeys{"prompt"});
  EXPECT_EQ(outcome.request->num_draft_tokens, -1);
  EXPECT_EQ(outcome.request->proposer, ProposerKind::kDefault);
}

TEST(ClientCodec, ATopKOfMinusOneIsOff) {
  const auto outcome = read_client_request(map_of({{"prompt", str("x")}, {"top_k", num(-1)}}));
  ASSERT_TRUE(outcome.request.ok()) << outcome.request.error().message;
  EXPECT_EQ(outcome.request->params.top_k, 0u);
  EXPECT_TRUE(outcome.request->given.contains("top_k")) << "the model's own default does not hold";
}

TEST(ClientCodec, ARequestOfDefaultsIsItsPromptAlone) {
  EXPECT_EQ(write_client_request({.prompt = "x"}), map_of({{"prompt", str("x")}}));
}

TEST(ClientCodec, AKeyThatWasGivenTravelsEvenIfItSaysTheDefault) {
  ClientRequest request{.prompt = "x"};
  request.given = {"temperature"};
  EXPECT_EQ(write_client_request(request),
            map_of({{"prompt", str("x")}, {"temperature", real(1)}}));
}

TEST(ClientCodecDeathTest, AWordThatIsNoKeyIsNeverGiven) {
  EXPECT_DEATH(GivenKeys{"temprature"}, "internal error");
  EXPECT_DEATH(static_cast<void>(GivenKeys{}.contains("temprature")), "internal error");
}

TEST(ClientCodec, LetsMinTokensRaiseTheDefaultLength) {
  EXPECT_EQ(read_client_request(map_of({{"prompt", str("x")}, {"min_tokens", num(500)}}))
                .request->params.max_tokens,
            500u);
}

TEST(ClientCodec, ReadsWhatItWrites) {
  ClientRequest r;
  r.request_id = RequestId{1, 2};
  r.model = "demo";
  r.prompt_kind = PromptKind::kMessages;
  r.messages = {
      {"system", ""},
      {"user", "a \"quoted\" line\nand \ttab, \\n, \\ and é, \x01 and [{\"role\":\"user\"}]"},
      {"tool", "3", {R"({"tool_call_id": "c1"})"}}};
  r.tools = {"[{}]"};
  r.tool_choice = ToolChoice::kRequired;
  r.tool_name = "add";
  r.chat_template_kwargs = {R"({"b": 1, "a": 2})"};
  r.continue_final_message = r.token_ends = true;
  r.params.max_tokens = 5;
  r.params.min_tokens = 1;
  r.params.temperature = 0;
  r.params.top_k = 3;
  r.params.top_p = 0.5f;
  r.params.min_p = 0.25f;
  r.params.repetition_penalty = 2;
  r.params.presence_penalty = 1;
  r.params.frequency_penalty = -1;
  r.params.logit_bias = {{1, 2.5f}};
  r.params.stop_token_ids = {9};
  r.params.ignore_eos = true;
  r.params.seed = ~0ull;
  r.params.n_logprobs = 2;
  r.params.choice = 5;
  r.stop = {"s"};
  r.bad_words = {"b"};
  r.skip_special_tokens = r.add_special_tokens = r.add_generation_prompt = r.adaptive = false;
  r.include_stop_str_in_output = r.stream = true;
  r.proposer = {ProposerKind::kDraft, ProposerKind::kPrediction};
  r.num_draft_tokens = 8;
  r.prediction = "p";
  r.timeout_ms = 77;
  r.tenant = "t";
  r.priority = 3;
  const Bytes bytes = write_client_request(r);
  const auto outcome = read_client_request(bytes);
  ASSERT_TRUE(outcome.request.ok()) << outcome.request.error().message;
  const ClientRequest& got = *outcome.request;
  EXPECT_EQ(write_client_request(got),
            bytes);  // field by field, as every field differs from its default
  EXPECT_EQ(got.messages, r.messages);
  EXPECT_EQ(got.params, r.params);
  EXPECT_EQ(got.proposer, r.proposer);
  r.op = ClientOp::kCancel;
  EXPECT_EQ(read_client_request(write_client_request(r)).request->op, ClientOp::kCancel);
}

template <class T>
void expect_round_trip(const T& answer) {
  const auto got = read_client_answer(write_client_answer(answer));
  ASSERT_TRUE(got.ok()) << got.error().message;
  ASSERT_TRUE(std::holds_alternative<T>(*got));
  EXPECT_EQ(std::get<T>(*got), answer);
}

TEST(ClientCodec, RoundTripsAnswers) {
  ClientReply reply;
  reply.id = "0123";
  reply.model = "demo";
  reply.text = "é";
  reply.token_ids = {1, 2, 3};
  reply.finish_reason = "stop";
  reply.usage = {5, 3, 8, 2};
  reply.metrics.time_to_first_token_ms = 1.5;
  reply.metrics.speculative_decoding.acceptance_histogram = {0, 1, 2};
  reply.metrics.speculative_decoding.acceptance_histogram_by_draft_length = {{"1", {0, 1}},
                                                                             {"2", {0, 0, 2}}};
  reply.metrics.speculative_decoding.proposer = "draft";
  reply.logprobs = {
      {7, -0.5, {7, 8}, {-0.5, -1.5}, "\xef\xbf\xbd", {0xc3}, {"a", ""}, {{0x61}, {}}}};
  for (const StopReason& reason :
       {StopReason{}, StopReason{TokenId{5}}, StopReason{std::string("\n")}}) {
    reply.stop_reason = reason;
    expect_round_trip(reply);
  }
  reply.token_ends = {1, 3, 70000};
  reply.form = AnswerForm{"hermes", {"<think>"}, true, "<think>"};
  expect_round_trip(reply);
  expect_round_trip(ClientPiece{"id", false, 0, "text", {4}, 1, {}, 7, 30});
  expect_round_trip(client_error({1, 2}, {ErrorCode::kQueueFull, "full", ""}, 100));
  StatusReply status;
  status.models = {"demo"};
  status.services = {{.role = "draft", .name = "draft-0", .state = "ready", .pid = 77}};
  expect_round_trip(status);
  expect_round_trip(MetricsText{"id", true, "# metrics"});
  expect_round_trip(MetricsText{"id", true, std::string(std::size_t{4'000'000}, 'm')});
  expect_round_trip(PassesReply{"id",
                                true,
                                {{.role = "target",
                                  .name = "target-0",
                                  .passes = {.first = 5, .ago_us = {9, 4}, .tokens = {1, 2}}}}});
  expect_round_trip(TokensReply{"id", true, "text", {4, 5}, 2});
}

TEST(ClientCodec, OpsOfTokensWantOneKindOfPrompt) {
  const auto read = [](const std::vector<Pair>& pairs) {
    return read_client_request(map_of(pairs)).request;
  };
  const Pair tokenize{"op", str("tokenize")}, detokenize{"op", str("detokenize")};
  const Pair prompt{"prompt", str("x")}, ids{"token_ids", list({num(1)})};
  const auto text = read({tokenize, prompt, {"add_special_tokens", flag(false)}});
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->op, ClientOp::kTokenize);
  EXPECT_FALSE(text->add_special_tokens);
  const auto tokens = read({detokenize, ids});
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ(tokens->op, ClientOp::kDetokenize);
  for (const auto& request : {*text, *tokens}) {
    const auto again = read_client_request(write_client_request(request)).request;
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->op, request.op);
    EXPECT_EQ(again->prompt, request.prompt);
    EXPECT_EQ(again->token_ids, request.token_ids);
  }
  EXPECT_EQ(read({tokenize, ids}).error().param, "token_ids");
  EXPECT_EQ(read({tokenize}).error().param, "prompt");
  EXPECT_EQ(read({detokenize, prompt}).error().param, "token_ids");
  EXPECT_EQ(read({detokenize, prompt, ids}).error().param, "token_ids");
  EXPECT_EQ(read({detokenize}).error().param, "token_ids");
}

TEST(ClientCodec, SkipsKeysOfANewerServer) {
  const auto got = read_client_answer(map_of(
      {{"id", str("x")}, {"text", str("t")}, {"novel", list({num(1), map({{"a", nil()}})})}}));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(std::get<ClientPiece>(*got).text, "t");
}

TEST(ClientCodec, WritesIdsAsHex) {
  EXPECT_EQ(hex_of({0x0011223344556677, 0x8899aabbccddeeff}), "00112233445566778899aabbccddeeff");
  EXPECT_EQ(request_id_from_hex("00112233445566778899AABBCCDDEEFF"),
            (RequestId{0x0011223344556677, 0x8899aabbccddeeff}));
  EXPECT_EQ(request_id_from_hex(""), std::nullopt);
  EXPECT_EQ(client_error({}, {ErrorCode::kMalformed, "x", ""}, 0).id, "");
}

}  // namespace
}  // namespace foretoken::wire
