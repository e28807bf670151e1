// The bodies and events that OpenAI's clients read: required keys, their order, and what joins.
#include <gmock/gmock.h>

#include "common/base/utf8.h"
#include "services/edge/anthropic.h"
#include "services/edge/openai.h"
#include "services/edge/responses.h"
#include "services/edge/triton.h"

namespace foretoken::edge {
namespace {

wire::ClientReply reply(const std::string& text) {
  wire::ClientReply reply;
  reply.model = "demo";
  reply.text = text;
  reply.finish_reason = "stop";
  reply.stop_reason = std::string("END");
  reply.usage = {.prompt_tokens = 3, .completion_tokens = 2, .total_tokens = 5, .cached_tokens = 1};
  reply.system_fingerprint = "f00";
  return reply;
}

OpenAiAsk ask_for(std::size_t n, bool include_usage = false) {
  OpenAiAsk ask;
  ask.generation.choices.resize(n);
  ask.n = n;
  ask.model = "demo";
  ask.include_usage = include_usage;
  return ask;
}

std::vector<Json> events_in(const std::string& stream) {
  std::vector<Json> events;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t end = stream.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    const std::string line = stream.substr(at, end - at);
    EXPECT_EQ(line.rfind("data: ", 0), 0U) << line;
    events.push_back(line == "data: [DONE]" ? Json("[DONE]") : Json::parse(line.substr(6)));
    at = end + 2;
  }
  return events;
}

TEST(ChatEncoder, AWholeAnswerHasEveryRequiredKey) {
  const auto encoder = chat_encoder(ask_for(1), "1", 7);
  const Json body = Json::parse(encoder->whole({reply("hi")}));
  EXPECT_EQ(body["id"], "chatcmpl-1");
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["created"], 7);
  EXPECT_EQ(body["model"], "demo");
  EXPECT_EQ(body["system_fingerprint"], "f00");
  const Json& choice = body["choices"][0];
  EXPECT_EQ(choice["message"],
            Json::parse(R"({"role": "assistant", "content": "hi", "refusal": null})"));
  EXPECT_TRUE(choice.contains("logprobs") && choice["logprobs"].is_null());
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], "END");
  EXPECT_EQ(body["usage"]["total_tokens"], 5);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
}

TEST(ChatEncoder, AStreamBeginsWithTheRoleAndEndsWithUsageAndDone) {
  const auto encoder = chat_encoder(ask_for(1, true), "1", 7);
  std::string stream = encoder->on_piece(0, {.text = "he"});
  stream += encoder->on_piece(0, {.text = ""});
  stream += encoder->on_reply(0, reply("y"));
  stream += encoder->end();
  const auto events = events_in(stream);
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  std::string joined;
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(events[i]["id"], "chatcmpl-1");
    EXPECT_EQ(events[i]["object"], "chat.completion.chunk");
    EXPECT_TRUE(events[i]["usage"].is_null());
    EXPECT_TRUE(events[i]["choices"][0].contains("finish_reason"));
    joined += events[i]["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(joined, "hey");
  EXPECT_EQ(events[3]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events[3]["choices"][0]["delta"], Json::object());
  EXPECT_EQ(events[4]["choices"], Json::array());
  EXPECT_EQ(events[4]["usage"]["completion_tokens"], 2);
  EXPECT_EQ(events[5], "[DONE]");
}

// The names of the model in a stream's events.
std::vector<Json> models_in(const std::string& stream) {
  std::vector<Json> models;
  for (std::size_t at = 0; (at = stream.find("data: {", at)) != std::string::npos; ++at) {
    const Json event = Json::parse(stream.substr(at + 6, stream.find('\n', at) - at - 6));
    for (const char* place : {"/model", "/model_name", "/message/model", "/response/model"})
      if (const Json::json_pointer where(place); event.contains(where))
        models.push_back(event.at(where));
  }
  return models;
}

TEST(Encoders, SayOneModelAndFingerprintInAllEventsOfAStream) {
  OpenAiAsk ask = ask_for(2, true);
  ask.model = "an-alias";
  ask.prompts = {"Once"};
  AnthropicAsk messages;
  messages.model = "an-alias";
  TritonAsk triton;
  triton.model = "an-alias";
  triton.generation.choices.resize(1);
  auto responses =
      read_responses(OrderedJson::parse(R"({"model": "an-alias", "input": "hi"})"), true);
  ASSERT_TRUE(responses.ok());
  wire::ClientPiece piece{.text = "he"};
  piece.model = "demo";
  piece.system_fingerprint = "f00";
  std::vector<std::unique_ptr<Encoder>> openai;
  openai.push_back(chat_encoder(ask, "1", 7));
  openai.push_back(completion_encoder(ask, "1", 7));
  for (const auto& encoder : openai) {
    std::string stream = encoder->on_piece(0, piece);
    stream += encoder->on_piece(1, piece);
    stream += encoder->on_reply(0, reply("y"));
    stream += encoder->on_reply(1, reply("y")) + encoder->end();
    EXPECT_THAT(models_in(stream), testing::Each("demo"));
    for (const auto& event : events_in(stream))
      EXPECT_TRUE(event == "[DONE]" || event["system_fingerprint"] == "f00") << event;
  }
  std::vector<std::unique_ptr<Encoder>> others;
  others.push_back(message_encoder(messages, "1", "req-1"));
  others.push_back(responses_encoder(*responses, "1", 7));
  others.push_back(triton_encoder(triton, 7));
  for (const auto& encoder : others) {
    std::string stream = encoder->on_piece(0, piece);
    stream += encoder->on_reply(0, reply("y"));
    EXPECT_THAT(models_in(stream), testing::Each("demo"));
    EXPECT_FALSE(models_in(stream).empty());
  }
  // An answer of one part alone says it from the beginning, too.
  EXPECT_THAT(models_in(chat_encoder(ask, "1", 7)->on_reply(0, reply("y"))), testing::Each("demo"));
}

// Clients read a stream line by line or in blocks, and some take every block for JSON.
TEST(Encoders, KeepAStreamOpenWithEventsThatAddNothing) {
  const auto text_with_pings = [](Encoder& encoder, const char* text) {
    std::string stream = encoder.ping();
    stream += encoder.on_piece(0, {.text = "he"});
    stream += encoder.ping();
    stream += encoder.on_reply(0, reply("y"));
    std::string joined;
    for (const auto& event : events_in(stream))
      joined += event.value(Json::json_pointer(text), std::string());
    return joined;
  };
  TritonAsk triton;
  triton.generation.choices.resize(1);
  triton.includes_input = true;
  triton.prompt = "oh ";
  EXPECT_EQ(text_with_pings(*chat_encoder(ask_for(1), "1", 7), "/choices/0/delta/content"), "hey");
  EXPECT_EQ(text_with_pings(*completion_encoder(ask_for(1), "1", 7), "/choices/0/text"), "hey");
  EXPECT_EQ(text_with_pings(*triton_encoder(triton, 7), "/text_output"), "oh heyEND");
  AnthropicAsk messages;
  EXPECT_EQ(message_encoder(messages, "1", "req-1")->ping(),
            "event: ping\ndata: {\"type\":\"ping\"}\n\n");
}

// Some clients join the roles of all deltas, and others take the first delta's for the whole.
TEST(ChatEncoder, APingBeforeTheFirstTokenSaysTheRoleInItsPlace) {
  OpenAiAsk ask = ask_for(1);
  ask.returns_token_ids = true;
  const auto encoder = chat_encoder(ask, "1", 7);
  std::string stream = encoder->ping();
  stream += encoder->ping();
  stream += encoder->on_piece(0, {.text = "he", .token_ids = {5}, .prompt_token_ids = {3, 4}});
  const auto events = events_in(stream);
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events[1]["choices"][0]["delta"], Json::object());
  EXPECT_TRUE(events[1]["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(events[2]["choices"][0]["delta"], Json::object());
  EXPECT_EQ(events[2]["prompt_token_ids"], Json({3, 4}));
  EXPECT_EQ(events[3]["choices"][0]["delta"], Json::parse(R"({"content": "he"})"));
}

TEST(Encoders, APingIsOfAChoiceThatHasNotEnded) {
  std::vector<std::unique_ptr<Encoder>> encoders;
  encoders.push_back(chat_encoder(ask_for(2), "1", 7));
  encoders.push_back(completion_encoder(ask_for(2), "1", 7));
  for (const auto& encoder : encoders) {
    EXPECT_EQ(events_in(encoder->ping()).front()["choices"][0]["index"], 0);
    encoder->on_reply(0, reply("y"));
    EXPECT_EQ(events_in(encoder->ping()).front()["choices"][0]["index"], 1);
  }
}

TEST(TritonEncoder, AStopWordBelongsToTheAnswerAndTheEndTokenDoesNot) {
  TritonAsk ask;
  ask.generation.choices.resize(1);
  wire::ClientReply ended = reply("hi");  // by the stop word END
  EXPECT_EQ(Json::parse(triton_encoder(ask, 7)->whole({ended}))["text_output"], "hiEND");
  EXPECT_EQ(events_in(triton_encoder(ask, 7)->on_reply(0, ended)).front()["text_output"], "hiEND");
  for (const wire::StopReason& reason : {wire::StopReason(TokenId{69}), wire::StopReason()}) {
    ended.stop_reason = reason;
    EXPECT_EQ(Json::parse(triton_encoder(ask, 7)->whole({ended}))["text_output"], "hi");
  }
}

TEST(ChatEncoder, AReportSaysWhichTokensAChunkIsAndHowManyWereGuessed) {
  OpenAiAsk ask = ask_for(1);
  ask.reports_guesses = true;
  const auto encoder = chat_encoder(ask, "1", 7);
  const auto events =
      events_in(encoder->on_piece(0, {.text = "he", .token_ids = {5, 6, 7}, .accepted = 2}) +
                chat_encoder(ask_for(1), "1", 7)->on_piece(0, {.text = "he", .token_ids = {5}}));
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[1]["choices"][0]["token_ids"], Json({5, 6, 7}));
  EXPECT_EQ(events[1]["choices"][0]["accepted_tokens"], 2);
  EXPECT_FALSE(events[3]["choices"][0].contains("token_ids"));
}

// Half a character, the mark of a call: a piece may have tokens and no text.
TEST(ChatEncoder, AReportHasTheTokensOfAPieceWithoutText) {
  OpenAiAsk ask = ask_for(1);
  ask.reports_guesses = true;
  const auto encoder = chat_encoder(ask, "1", 7);
  std::string stream = encoder->on_piece(0, {.token_ids = {5, 6}, .accepted = 1});
  wire::ClientReply rest = reply("hi");
  rest.token_ids = {7};
  stream += encoder->on_reply(0, rest);
  const auto events = events_in(stream);
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[1]["choices"][0]["delta"], Json::parse(R"({"content": ""})"));
  EXPECT_EQ(events[1]["choices"][0]["token_ids"], Json({5, 6}));
  EXPECT_EQ(events[1]["choices"][0]["accepted_tokens"], 1);
  EXPECT_EQ(events[2]["choices"][0]["token_ids"], Json({7}));
  EXPECT_EQ(events_in(chat_encoder(ask_for(1), "1", 7)->on_piece(0, {.token_ids = {5}})).size(),
            1U);
}

TEST(OpenAiModels, AnAliasThatStandsForManyNamesIsNotListed) {
  const Json list =
      openai_models({{.name = "demo", .aliases = {"small", "claude-*"}, .n_targets = 1}}, 7);
  ASSERT_EQ(2U, list["data"].size());
  EXPECT_EQ("demo", list["data"][0]["id"]);
  EXPECT_EQ("small", list["data"][1]["id"]);
}

TEST(ChatEncoder, WithoutIncludeUsageNoChunkHasTheKey) {
  const auto encoder = chat_encoder(ask_for(1), "1", 7);
  for (const auto& event : events_in(encoder->on_reply(0, reply("y")) + encoder->end()))
    EXPECT_FALSE(event.is_object() && event.contains("usage"));
}

struct Counts {
  std::vector<int> prompt, completion;
};
// What each event of a stream counts so far.
Counts counts_in(const std::string& stream) {
  Counts counts;
  for (const auto& event : events_in(stream)) {
    if (!event.is_object()) continue;
    const Json& usage = event.at("usage");
    counts.prompt.push_back(usage.at("prompt_tokens").get<int>());
    counts.completion.push_back(usage.at("completion_tokens").get<int>());
    EXPECT_EQ(usage.at("total_tokens"), counts.prompt.back() + counts.completion.back());
  }
  return counts;
}

TEST(ChatEncoder, ContinuousUsageCountsWhatWasDelivered) {
  OpenAiAsk ask = ask_for(2, true);
  ask.continuous_usage = true;
  const auto encoder = chat_encoder(ask, "1", 7);
  std::string stream = encoder->on_piece(1, {.text = "a", .token_ids = {5}, .prompt_tokens = 3});
  stream += encoder->on_piece(0, {.text = "h", .token_ids = {6}, .prompt_tokens = 3});
  stream += encoder->on_reply(0, reply("i"));
  stream += encoder->on_reply(1, reply("b"));
  stream += encoder->end();
  const Counts counts = counts_in(stream);
  // The role and the text of a first piece, the rest and the end of a reply, the usage.
  EXPECT_THAT(counts.completion, testing::ElementsAre(1, 1, 2, 2, 3, 3, 4, 4, 4));
  EXPECT_THAT(counts.prompt, testing::Each(3));
}

TEST(CompletionEncoder, ContinuousUsageCountsEveryPrompt) {
  OpenAiAsk ask = ask_for(2, true);
  ask.n = 1;
  ask.prompts = {"a", "b"};
  ask.continuous_usage = true;
  const auto encoder = completion_encoder(ask, "1", 7);
  std::string stream = encoder->on_piece(1, {.text = "x", .token_ids = {5}, .prompt_tokens = 3});
  stream += encoder->on_piece(0, {.text = "y", .token_ids = {6}, .prompt_tokens = 3});
  stream += encoder->on_reply(0, reply("z"));
  stream += encoder->on_reply(1, reply("z"));
  stream += encoder->end();
  const Counts counts = counts_in(stream);
  EXPECT_THAT(counts.completion, testing::ElementsAre(1, 2, 3, 4, 4));
  EXPECT_THAT(counts.prompt, testing::ElementsAre(3, 6, 6, 6, 6));
}

TEST(ChatEncoder, MetricsDivideTheRoundsByTheirGuesses) {
  wire::ClientReply guessed = reply("hi");
  auto& speculation = guessed.metrics.speculative_decoding;
  speculation.acceptance_histogram = {3, 5, 1};
  speculation.acceptance_histogram_by_draft_length = {{"1", {2, 5}}, {"2", {1, 0, 1}}};
  const auto said = [](const wire::ClientReply& of) {
    const Json body = Json::parse(chat_encoder(ask_for(1), "1", 7)->whole({of}));
    return body.at("metrics").at("speculative_decoding");
  };
  EXPECT_EQ(said(guessed).at("acceptance_histogram"), Json({3, 5, 1}));
  EXPECT_EQ(said(guessed).at("acceptance_histogram_by_draft_length"),
            Json::parse(R"({"1": [2, 5], "2": [1, 0, 1]})"));
  EXPECT_EQ(said(reply("hi")).at("acceptance_histogram_by_draft_length"), Json::object());
}

TEST(ChatEncoder, APromptCountsOnceForSeveralAnswers) {
  const auto encoder = chat_encoder(ask_for(2), "1", 7);
  const Json body = Json::parse(encoder->whole({reply("a"), reply("b")}));
  EXPECT_EQ(body["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(body["usage"]["completion_tokens"], 4);
  EXPECT_EQ(body["choices"][1]["index"], 1);
  EXPECT_EQ(body["choices"][1]["message"]["content"], "b");
}

TEST(ChatEncoder, AnErrorHasFourKeysWhateverItSays) {
  const auto encoder = chat_encoder(ask_for(1), "1", 7);
  const HttpError error = http_error(Error{ErrorCode::kInvalidValue, "n is 0", "n"});
  EXPECT_EQ(
      Json::parse(encoder->error_body(error)),
      Json::parse(R"({"error": {"message": "n is 0", "type": "invalid_request_error", "param": "n",
                                      "code": "invalid_value"}})"));
  const auto events = events_in(encoder->error_event(http_error(500, "internal error")));
  EXPECT_TRUE(events[0]["error"]["param"].is_null() && events[0]["error"]["code"].is_null());
}

wire::ClientReply call_reply() {
  wire::ClientReply call = reply("<think>hm</think>ok<tool_call>{\"name\":\"f\",\"arguments\":{}}");
  call.form = wire::AnswerForm{"hermes", {}, true, ""};
  call.stop_reason = {};
  return call;
}

TEST(ChatEncoder, ACallIsSaidOnceAndThenItsArguments) {
  OpenAiAsk ask = ask_for(1);
  ask.rules.may_call = true;
  const Json whole = Json::parse(chat_encoder(ask, "1", 7)->whole({call_reply()}));
  const Json& message = whole["choices"][0]["message"];
  EXPECT_EQ(message["content"], "ok");
  EXPECT_EQ(message["reasoning_content"], "hm");
  EXPECT_FALSE(message.contains("reasoning")) << "clients that read both names join the texts";
  EXPECT_EQ(message["tool_calls"][0]["function"],
            Json::parse(R"({"name": "f", "arguments": "{}"})"));
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "tool_calls");
  const auto events = events_in(chat_encoder(ask, "1", 7)->on_reply(0, call_reply()));
  std::vector<std::string> deltas;
  for (const auto& event : events) {
    Json delta = event["choices"][0]["delta"];
    if (delta.contains("tool_calls")) delta["tool_calls"][0].erase("id");
    deltas.push_back(delta.dump());
  }
  EXPECT_THAT(
      deltas,
      testing::ElementsAre(
          R"({"content":"","refusal":null,"role":"assistant"})", R"({"reasoning_content":"hm"})",
          R"({"content":"ok"})",
          R"({"tool_calls":[{"function":{"arguments":"","name":"f"},"index":0,"type":"function"}]})",
          R"({"tool_calls":[{"function":{"arguments":"{}"},"index":0}]})", "{}"));
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "tool_calls");
}

TEST(MessageEncoder, EachEventIsInTheBlockOfItsKind) {
  AnthropicAsk ask;
  ask.rules.may_call = true;
  wire::ClientPiece piece;
  piece.prompt_tokens = 9;
  piece.form = call_reply().form;
  const auto encoder = message_encoder(ask, "1", "req-1");
  wire::ClientReply rest = call_reply();
  rest.form.reset();
  std::string stream = encoder->on_piece(0, piece);
  stream += encoder->on_reply(0, rest);
  std::string order;
  for (std::size_t at = 0; (at = stream.find("data: ", at)) != std::string::npos; ++at) {
    const Json event = Json::parse(stream.substr(at + 6, stream.find('\n', at) - at - 6));
    const std::string type = event["type"];
    if (type == "message_start")
      order += "start" + std::to_string(event["message"]["usage"]["input_tokens"].get<int>());
    if (type == "content_block_start")
      order += " [" + event["content_block"]["type"].get<std::string>();
    if (type == "content_block_delta") order += " " + event["delta"]["type"].get<std::string>();
    if (type == "content_block_stop") order += "]" + std::to_string(event["index"].get<int>());
    if (type == "message_delta") order += " " + event["delta"]["stop_reason"].get<std::string>();
  }
  EXPECT_EQ(order,
            "start9 [thinking thinking_delta signature_delta]0 [text text_delta]1 [tool_use "
            "input_json_delta]2 tool_use");
  const Json whole = Json::parse(message_encoder(ask, "1", "req-1")->whole({call_reply()}));
  EXPECT_EQ(whole["content"][0]["thinking"], "hm");
  EXPECT_EQ(whole["content"][1]["text"], "ok");
  EXPECT_EQ(whole["content"][2]["input"], Json::object());
  EXPECT_EQ(whole["stop_reason"], "tool_use");
}

// An answer that max_tokens cut in its second call.
wire::ClientReply cut_reply() {
  wire::ClientReply cut = reply(
      "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"
      "<tool_call>{\"name\":\"g\",\"arguments\":{\"a\"");
  cut.form = wire::AnswerForm{"hermes", {}, true, ""};
  cut.stop_reason = {};
  cut.finish_reason = "length";
  return cut;
}

TEST(Encoders, SayThatACutAnswerWasCutWhateverItHasCalled) {
  OpenAiAsk chat = ask_for(1);
  chat.rules.may_call = true;
  const Json whole = Json::parse(chat_encoder(chat, "1", 7)->whole({cut_reply()}));
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(whole["choices"][0]["message"]["tool_calls"].size(), 2U);
  AnthropicAsk messages;
  messages.rules.may_call = true;
  const Json message = Json::parse(message_encoder(messages, "1", "req-1")->whole({cut_reply()}));
  EXPECT_EQ(message["stop_reason"], "max_tokens");
  EXPECT_EQ(message["content"].size(), 2U);
  auto responses = read_responses(OrderedJson::parse(R"({"model": "demo", "input": "hi"})"), true);
  ASSERT_TRUE(responses.ok());
  responses->rules.may_call = true;
  const Json response = Json::parse(responses_encoder(*responses, "1", 7)->whole({cut_reply()}));
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(response["output"][0]["status"], "completed");
  EXPECT_EQ(response["output"][1]["status"], "incomplete");
}

TEST(CompletionEncoder, AStreamJoinsToTheWholeWithItsEcho) {
  OpenAiAsk ask = ask_for(1);
  ask.echo = true;
  ask.prompts = {"Once"};
  const Json whole = Json::parse(completion_encoder(ask, "1", 7)->whole({reply(" upon a")}));
  EXPECT_EQ(whole["choices"][0]["text"], "Once upon a");
  EXPECT_EQ(whole["object"], "text_completion");
  const auto encoder = completion_encoder(ask, "1", 7);
  std::string joined;
  std::string stream = encoder->on_piece(0, {.text = " upon"});
  stream += encoder->on_reply(0, reply(" a"));
  for (const auto& event : events_in(stream))
    joined += event["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(joined, "Once upon a");
}

wire::LogprobEntry entry_of(TokenId id, double logprob) {
  wire::LogprobEntry entry{.token_id = id,
                           .top_ids = {7, 8},
                           .top_logprobs = {-0.5, -1.5},
                           .token = "t" + std::to_string(id),
                           .top_tokens = {"t7", "t8"},
                           .top_bytes = {{'t', '7'}, {'t', '8'}}};
  entry.logprob = logprob;
  return entry;
}

TEST(CompletionEncoder, ListsThePromptsTokensWithItsEchoAlone) {
  OpenAiAsk ask = ask_for(1);
  ask.prompts = {"Once"};
  ask.wants_logprobs = true;
  ask.n_prompt_logprobs = 1;
  wire::ClientReply whole = reply(" upon");
  whole.prompt_logprobs = {wire::LogprobEntry{.token_id = 1, .token = "Once"}};
  whole.logprobs = {entry_of(8, -1.5)};
  const auto tokens = [&] {
    const Json body = Json::parse(completion_encoder(ask, "1", 7)->whole({whole}));
    EXPECT_EQ(body["choices"][0]["prompt_logprobs"].size(), 1U);
    return body["choices"][0]["logprobs"]["tokens"];
  };
  EXPECT_EQ(tokens(), Json({"t8"}));
  ask.echo = true;
  EXPECT_EQ(tokens(), Json({"Once", "t8"}));
}

wire::LogprobEntry entry_with_bytes(const std::string& bytes) {
  return {.token = utf8::text_of(bytes), .bytes = {bytes.begin(), bytes.end()}};
}

TEST(CompletionEncoder, EchoesCharactersThatSeveralTokensMake) {
  OpenAiAsk ask = ask_for(1);
  ask.echo = true;
  ask.prompts = {std::nullopt};
  ask.wants_logprobs = true;
  wire::ClientReply whole = reply("!");
  whole.prompt_logprobs = {entry_with_bytes("na"), entry_with_bytes("\xC3"),
                           entry_with_bytes("\xAFve")};
  whole.logprobs = {entry_with_bytes("!")};
  const Json body = Json::parse(completion_encoder(ask, "1", 7)->whole({whole}));
  EXPECT_EQ(body["choices"][0]["text"], "naïve!");
  EXPECT_EQ(body["choices"][0]["logprobs"]["text_offset"], Json({0, 2, 3, 5}));
}

TEST(CompletionEncoder, OffsetsPointIntoTheTextWithItsEcho) {
  const auto offsets = [](const std::string& prompt, const std::vector<std::string>& tokens) {
    OpenAiAsk ask = ask_for(1);
    ask.echo = true;
    ask.prompts = {prompt};
    ask.wants_logprobs = true;
    const auto encoder = completion_encoder(ask, "1", 7);
    wire::ClientPiece piece{.text = " upon"};
    for (const auto& token : tokens) piece.prompt_logprobs.push_back(entry_with_bytes(token));
    piece.logprobs = {entry_with_bytes(" upon")};
    wire::ClientReply last = reply(" a");
    last.logprobs = {entry_with_bytes(" a")};
    std::string stream = encoder->on_piece(0, piece);
    stream += encoder->on_reply(0, last);
    const auto events = events_in(stream);
    Json all = events.at(0)["choices"][0]["logprobs"]["text_offset"];
    for (const Json& at : events.at(1)["choices"][0]["logprobs"]["text_offset"]) all.push_back(at);
    return all;
  };
  EXPECT_EQ(offsets("Once", {"Once"}), Json({0, 4, 9}));
  EXPECT_EQ(offsets("Once", {"<s>", " Once"}), Json({0, 0, 4, 9}));
  EXPECT_EQ(offsets("Once more", {"<s>", " Once", " more", "</s>"}), Json({0, 0, 4, 9, 9, 14}));
  EXPECT_EQ(offsets(" Once", {" ", " Once"}), Json({0, 1, 5, 10}));
  EXPECT_EQ(offsets("a Ä b", {"a", " ä", " b"}), Json({0, 1, 3, 5, 10})) << "normalised";
  EXPECT_EQ(offsets("Ä", {"ä"}), Json({0, 1, 6})) << "normalised from the first token on";
  EXPECT_EQ(offsets("", {"<s>"}), Json({0, 0, 5})) << "none of the text is the prompt's";
}

TEST(CompletionEncoder, AnEmptyTextIsEchoedWithoutTheTokenBeforeEveryText) {
  OpenAiAsk ask = ask_for(1);
  ask.echo = true;
  ask.prompts = {std::string()};
  wire::ClientReply whole = reply("Once");
  whole.prompt_logprobs = {entry_with_bytes("<s>")};
  const Json body = Json::parse(completion_encoder(ask, "1", 7)->whole({whole}));
  EXPECT_EQ(body["choices"][0]["text"], "Once");
}

// A reader finds out by the map whether the token was the likeliest.
TEST(CompletionEncoder, OfTokensWithOneTextTheLikeliestIsListed) {
  OpenAiAsk ask = ask_for(1);
  ask.prompts = {"Once"};
  ask.wants_logprobs = true;
  ask.n_top_logprobs = 3;
  wire::LogprobEntry entry{.token_id = 8,
                           .top_ids = {7, 9, 8},
                           .top_logprobs = {-0.5, -1.0, -1.5},
                           .token = "\uFFFD",
                           .top_tokens = {"\uFFFD", "a", "\uFFFD"},
                           .top_bytes = {{0xF0}, {'a'}, {0x9F}}};
  entry.logprob = -1.5;
  wire::ClientReply whole = reply("");
  whole.logprobs = {entry};
  const Json body = Json::parse(completion_encoder(ask, "1", 7)->whole({whole}));
  const Json& lists = body["choices"][0]["logprobs"];
  EXPECT_EQ(lists["token_logprobs"], Json({-1.5}));
  EXPECT_EQ(lists["top_logprobs"], Json::array({{{"\uFFFD", -0.5}, {"a", -1.0}}}));
}

// Its form is vLLM's: ids as keys, the prompt's own token first, with a rank where it is known.
TEST(ChatEncoder, APromptHasItsProbabilitiesAndIdsIfAskedFor) {
  OpenAiAsk ask = ask_for(1);
  ask.n_prompt_logprobs = 2;
  ask.returns_token_ids = true;
  wire::ClientReply whole = reply("hi");
  whole.token_ids = {5, 6};
  whole.prompt_token_ids = {1, 8, 9};
  whole.prompt_logprobs = {wire::LogprobEntry{.token_id = 1}, entry_of(8, -1.5), entry_of(9, -3.5)};
  const Json body = Json::parse(chat_encoder(ask, "1", 7)->whole({whole}));
  EXPECT_EQ(body["prompt_token_ids"], Json({1, 8, 9}));
  EXPECT_EQ(body["choices"][0]["token_ids"], Json({5, 6}));
  EXPECT_EQ(body["prompt_logprobs"], Json::parse(R"([null,
              {"8": {"logprob": -1.5, "rank": 2, "decoded_token": "t8"},
               "7": {"logprob": -0.5, "rank": 1, "decoded_token": "t7"}},
              {"9": {"logprob": -3.5, "rank": null, "decoded_token": "t9"},
               "7": {"logprob": -0.5, "rank": 1, "decoded_token": "t7"},
               "8": {"logprob": -1.5, "rank": 2, "decoded_token": "t8"}}])"));
  const Json without = Json::parse(chat_encoder(ask_for(1), "1", 7)->whole({whole}));
  EXPECT_FALSE(without.contains("prompt_token_ids") || without.contains("prompt_logprobs") ||
               without["choices"][0].contains("token_ids"));
}

// The body says overloaded_error, and a client asks again by the status alone.
TEST(MessageEncoder, AnErrorHasTheStatusThatFitsItsType) {
  AnthropicAsk ask;
  const auto encoder = message_encoder(ask, "1", "req-1");
  const auto full = http_error(Error{ErrorCode::kQueueFull, "full"});
  EXPECT_EQ(encoder->error_status(full), 529U);
  EXPECT_EQ(Json::parse(encoder->error_body(full))["error"]["type"], "overloaded_error");
  const auto bad = http_error(Error{ErrorCode::kInvalidValue, "n is 0", "n"});
  EXPECT_EQ(encoder->error_status(bad), 400U);
  EXPECT_EQ(chat_encoder(ask_for(1), "1", 7)->error_status(full), 429U);
}

TEST(HttpErrors, SayWhetherToAskAgain) {
  const auto full = http_error(Error{ErrorCode::kQueueFull, "full"}, 2500);
  EXPECT_EQ(full.status, 429U);
  EXPECT_EQ(retry_headers(full), (HttpHeaders{{"Retry-After", "3"}, {"retry-after-ms", "2500"}}));
  const auto internal = http_error(Error{ErrorCode::kInternal, "ours"});
  EXPECT_EQ(internal.status, 500U);
  EXPECT_EQ(retry_headers(internal), (HttpHeaders{{"x-should-retry", "false"}}));
  EXPECT_EQ(http_error(Error{ErrorCode::kUnavailable, "gone"}).retry_after_ms, 1000U);
  EXPECT_TRUE(retry_headers(http_error(404, "none")).empty());
}

}  // namespace
}  // namespace foretoken::edge
