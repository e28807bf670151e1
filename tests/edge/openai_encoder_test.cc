// The bodies and events that OpenAI's clients read: required keys, their order, and what joins.
#include <gmock/gmock.h>

#include "services/edge/openai.h"

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

TEST(ChatEncoder, WithoutIncludeUsageNoChunkHasTheKey) {
  const auto encoder = chat_encoder(ask_for(1), "1", 7);
  for (const auto& event : events_in(encoder->on_reply(0, reply("y")) + encoder->end()))
    EXPECT_FALSE(event.is_object() && event.contains("usage"));
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
