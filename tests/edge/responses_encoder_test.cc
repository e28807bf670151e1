// The events of /v1/responses: their order, their numbers, and what they join to.
#include <gmock/gmock.h>

#include "services/edge/responses.h"

namespace foretoken::edge {
namespace {

wire::ClientReply response_reply(const std::string& text) {
  wire::ClientReply reply;
  reply.model = "demo";
  reply.text = text;
  reply.finish_reason = "stop";
  reply.usage = {.prompt_tokens = 3, .completion_tokens = 2, .total_tokens = 5, .cached_tokens = 1};
  return reply;
}

ResponsesAsk responses_ask() {
  auto ask = read_responses(OrderedJson::parse(R"({"model": "demo", "input": "hi"})"), true);
  EXPECT_TRUE(ask.ok());
  return ask.ok() ? *ask : ResponsesAsk{};
}

// Each with its name, which is its type.
std::vector<Json> named_events_in(const std::string& stream) {
  std::vector<Json> events;
  for (std::size_t at = stream.find("data: "); at != std::string::npos;
       at = stream.find("data: ", at + 1)) {
    events.push_back(Json::parse(stream.substr(at + 6, stream.find('\n', at) - at - 6)));
    const std::string name = "event: " + events.back()["type"].get<std::string>() + "\n";
    EXPECT_EQ(stream.compare(at - name.size(), name.size(), name), 0) << stream;
  }
  return events;
}

TEST(ResponsesEncoder, EventsAreNumberedAndEndWithTheWholeObject) {
  const auto encoder = responses_encoder(responses_ask(), "1", 7);
  std::string stream = encoder->on_piece(0, {.text = "he"});
  stream += encoder->on_reply(0, response_reply("y"));
  const std::vector<Json> events = named_events_in(stream);
  ASSERT_EQ(events.size(), 10U);
  for (std::size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["sequence_number"], i);
  EXPECT_EQ(events[0]["type"], "response.created");
  EXPECT_EQ(events[9]["type"], "response.completed");
  const Json& response = events[9]["response"];
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "hey");
  EXPECT_EQ(response["output"][0]["id"], events[4]["item_id"]);
  EXPECT_EQ(response["usage"]["total_tokens"], 5);
  EXPECT_FALSE(response["store"].get<bool>());
  EXPECT_EQ(encoder->end(), "data: [DONE]\n\n");
}

// OpenAI's clients gather an answer from its events so: a delta to a part that was not added is an
// error.
TEST(ResponsesEncoder, EachPartIsAddedBeforeItsTextAndDoneBehindIt) {
  ResponsesAsk ask = responses_ask();
  ask.rules.may_call = true;
  const auto encoder = responses_encoder(ask, "1", 7);
  wire::ClientPiece piece{.text = "<think>h", .token_ids = {1}, .token_ends = {8}};
  piece.form = wire::AnswerForm{"hermes", {}, true, ""};
  std::string stream = encoder->on_piece(0, piece);
  stream += encoder->on_reply(
      0, response_reply("m</think>ok<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"));
  std::string order;
  Json output = Json::array();
  for (const Json& event : named_events_in(stream)) {
    if (!event.contains("output_index")) continue;  // of the answer as a whole
    const std::string type = event["type"].get<std::string>().substr(sizeof "response." - 1);
    order += type + " ";
    if (type == "output_item.added") output.push_back(event["item"]);
    if (!event.contains("content_index")) continue;
    EXPECT_EQ(event["content_index"], 0);
    const auto at = event["output_index"].get<std::size_t>();
    ASSERT_LT(at, output.size()) << order;
    Json& content = output[at]["content"];
    if (type == "content_part.added") content.push_back(event["part"]);
    ASSERT_EQ(content.size(), 1U) << order;
    if (event.contains("delta"))
      content[0]["text"] =
          content[0]["text"].get<std::string>() + event["delta"].get<std::string>();
    EXPECT_TRUE(type != "content_part.done" || content[0] == event["part"]) << event;
  }
  EXPECT_EQ(order,
            "output_item.added content_part.added reasoning_text.delta reasoning_text.delta "
            "reasoning_text.done content_part.done output_item.done "
            "output_item.added content_part.added output_text.delta output_text.done "
            "content_part.done output_item.done "
            "output_item.added function_call_arguments.delta function_call_arguments.done "
            "output_item.done ");
  EXPECT_EQ(output[0]["content"], Json::parse(R"([{"type": "reasoning_text", "text": "hm"}])"));
  EXPECT_EQ(output[1]["content"][0]["text"], "ok");
}

// Of a thought, a text, a call and a text, and of the token that ends them.
TEST(ResponsesEncoder, AMessageHasTheLogProbabilitiesOfItsOwnTokens) {
  ResponsesAsk ask = responses_ask();
  ask.wants_logprobs = true;
  ask.rules.may_call = true;
  wire::ClientReply reply = response_reply("");
  reply.form =
      wire::AnswerForm{"hermes", {"<tool_call>", "</tool_call>", "<think>", "</think>"}, true, ""};
  for (const char* token : {"<think>", "hm", "</think>", "o", "k", "<tool_call>",
                            R"({"name":"f","arguments":{}})", "</tool_call>", "bye", ""}) {
    reply.text += token;
    reply.token_ids.push_back(1);
    reply.token_ends.push_back(static_cast<std::uint32_t>(reply.text.size()));
    reply.logprobs.push_back({.token_id = 1, .logprob = -0.5, .token = token});
  }
  const Json whole = Json::parse(responses_encoder(ask, "1", 7)->whole({reply}));
  std::string found;
  for (const Json& item : whole["output"]) {
    if (item["type"] != "message") continue;
    for (const Json& entry : item["content"][0]["logprobs"])
      found += entry["token"].get<std::string>() + ",";
    found += item["content"][0]["text"].get<std::string>() + "|";
  }
  EXPECT_EQ(found, "o,k,ok|bye,,bye|");
}

// Of whatever characters: it is kept as text.
TEST(ResponsesEncoder, AnAnswerRepeatsItsRequest) {
  const Json body = Json::parse(R"({
      "model": "demo", "input": "hi", "instructions": "say \"é\"\n}", "metadata": {"a": "{\\"},
      "temperature": 0.5, "tools": [{"type": "function", "name": "f", "description": "d",
                                     "parameters": {"type": "object", "properties": {}}}]})");
  const auto ask = read_responses(OrderedJson(body), true);
  ASSERT_TRUE(ask.ok());
  const Json whole = Json::parse(responses_encoder(*ask, "1", 7)->whole({response_reply("hey")}));
  const auto encoder = responses_encoder(*ask, "1", 7);
  std::string stream = encoder->on_piece(0, {.text = "he"});
  stream += encoder->on_reply(0, response_reply("y"));
  const std::vector<Json> events = named_events_in(stream);
  for (const Json& response : {whole, events.front()["response"], events.back()["response"]}) {
    for (const char* key : {"instructions", "metadata", "temperature"})
      EXPECT_EQ(response[key], body[key]) << response;
    EXPECT_EQ(response["tools"][0]["parameters"], body["tools"][0]["parameters"]);
    EXPECT_EQ(response["top_p"], 1.0);
    EXPECT_EQ(response["tool_choice"], "auto");
  }
  EXPECT_EQ(whole["usage"]["total_tokens"], 5);
}

TEST(ResponsesEncoder, AnAnswerRepeatsTheModelsDefaults) {
  ResponsesAsk ask = responses_ask();
  repeat_defaults({.temperature = 0.6F, .top_p = 0.9F}, ask);
  const Json whole = Json::parse(responses_encoder(ask, "1", 7)->whole({response_reply("hey")}));
  EXPECT_EQ(whole["temperature"], 0.6);
  EXPECT_EQ(whole["top_p"], 0.9);
}

// OpenAI's client raises the nested form alone; others read the flat one.
TEST(ResponsesEncoder, AnErrorEventHasBothForms) {
  const auto encoder = responses_encoder(responses_ask(), "1", 7);
  encoder->on_piece(0, {.text = "he"});
  const auto events = named_events_in(
      encoder->error_event(http_error(Error{ErrorCode::kDeadlineExceeded, "too late"})));
  ASSERT_EQ(events.size(), 2U);
  const Json& body = events[0];
  EXPECT_EQ(body["type"], "error");
  EXPECT_EQ(body["sequence_number"], 5);
  EXPECT_EQ(body["message"], "too late");
  EXPECT_EQ(body["error"]["message"], "too late");
  EXPECT_EQ(body["code"], "deadline_exceeded");
  EXPECT_EQ(body["error"]["code"], "deadline_exceeded");
}

TEST(ResponsesEncoder, AFailedStreamEndsWithTheAnswerAsFarAsItCame) {
  const auto encoder = responses_encoder(responses_ask(), "1", 7);
  encoder->on_piece(0, {.text = "he", .model = "demo-7"});
  const auto events = named_events_in(
      encoder->error_event(http_error(Error{ErrorCode::kDeadlineExceeded, "too late"})));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1]["type"], "response.failed");
  EXPECT_EQ(events[1]["sequence_number"], 6);
  const Json& response = events[1]["response"];
  EXPECT_EQ(response["id"], "resp_1");
  EXPECT_EQ(response["model"], "demo-7");
  EXPECT_EQ(response["status"], "failed");
  EXPECT_EQ(response["error"], Json::parse(R"({"code": "server_error", "message": "too late"})"));
  EXPECT_TRUE(response["completed_at"].is_null() && response["usage"].is_null());
  ASSERT_EQ(response["output"].size(), 1U);
  EXPECT_EQ(response["output"][0]["status"], "incomplete");
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "he");
}

// OpenAI's client for Node puts the object in the place of what it has gathered: the next delta
// finds its item there.
TEST(ResponsesEncoder, APingIsTheAnswerAsFarAsItCame) {
  const auto encoder = responses_encoder(responses_ask(), "1", 7);
  std::string stream = encoder->ping();
  stream += encoder->on_piece(0, {.text = "he", .model = "demo-7"});
  stream += encoder->ping();
  stream += encoder->on_reply(0, response_reply("y"));
  const std::vector<Json> events = named_events_in(stream);
  ASSERT_EQ(events.size(), 11U);
  for (std::size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["sequence_number"], i);
  EXPECT_EQ(events[0]["type"], "response.created");
  EXPECT_EQ(events[1]["type"], "response.in_progress");
  EXPECT_EQ(events[1]["response"]["model"], "demo");
  EXPECT_EQ(events[5]["type"], "response.in_progress");
  const Json& response = events[5]["response"];
  EXPECT_EQ(response["model"], "demo-7");
  ASSERT_EQ(response["output"].size(), 1U);
  EXPECT_EQ(response["output"][0]["id"], events[4]["item_id"]);
  EXPECT_EQ(response["output"][0]["status"], "in_progress");
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "he");
  EXPECT_EQ(events[10]["response"]["output"][0]["content"][0]["text"], "hey");
}

// A ping may be all that came before.
TEST(ResponsesEncoder, AStreamThatFailsBeforeItsFirstWordHasABeginning) {
  const auto encoder = responses_encoder(responses_ask(), "1", 7);
  const auto events =
      named_events_in(encoder->error_event(http_error(Error{ErrorCode::kQueueFull, "full"})));
  ASSERT_EQ(events.size(), 4U);
  for (std::size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["sequence_number"], i);
  EXPECT_EQ(events[0]["type"], "response.created");
  EXPECT_EQ(events[3]["type"], "response.failed");
  EXPECT_EQ(events[3]["response"]["model"], "demo");
  EXPECT_EQ(events[3]["response"]["error"]["code"], "rate_limit_exceeded");
  EXPECT_TRUE(events[3]["response"]["output"].empty());
}

}  // namespace
}  // namespace foretoken::edge
