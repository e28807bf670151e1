#include "services/cli/chat_stream.h"

#include <gtest/gtest.h>

#include <string>

#include "common/messages/speculation_object.h"

namespace foretoken::cli {
namespace {

const std::string kStream =
    ": ping\n\n"
    "data: "
    "{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\r\n\r\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a fox\"}}],\"usage\":null}\n\n"
    "data:{\"choices\":[{\"index\":0,\"delta\":{\"content\":\" ran\"}}]}\n\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":5,"
    "\"prompt_tokens_details\":{\"cached_tokens\":4}},\"metrics\":"
    "{\"speculative_decoding\":{\"num_spec_steps\":2,\"num_draft_tokens\":6,"
    "\"num_accepted_draft_tokens\":3,\"acceptance_histogram\":[0,1,1,0],"
    "\"acceptance_histogram_by_draft_length\":{\"3\":[0,1,1,0]}}}}\n\n"
    "data: [DONE]\n\n";

std::vector<wire::ClientAnswer> read_in_pieces(const std::string& stream, std::size_t size) {
  ChatStream reader;
  std::vector<wire::ClientAnswer> all;
  for (std::size_t at = 0; at < stream.size(); at += size)
    for (auto& answer : reader.read(std::string_view(stream).substr(at, size)))
      all.push_back(std::move(answer));
  EXPECT_TRUE(reader.is_over());
  return all;
}

TEST(ChatStream, SaysTheSameWhereverTheBytesAreCut) {
  for (std::size_t size = 1; size <= kStream.size(); ++size) {
    const auto answers = read_in_pieces(kStream, size);
    ASSERT_EQ(3u, answers.size()) << size;  // an event without text is no piece
    EXPECT_EQ("a fox", std::get<wire::ClientPiece>(answers[0]).text);
    EXPECT_EQ(" ran", std::get<wire::ClientPiece>(answers[1]).text);
    const auto& reply = std::get<wire::ClientReply>(answers[2]);
    EXPECT_EQ("length", reply.finish_reason);
    EXPECT_EQ(7u, reply.usage.prompt_tokens);
    EXPECT_EQ(5u, reply.usage.completion_tokens);
    EXPECT_EQ(4u, reply.usage.cached_tokens);
    const auto& guesses = reply.metrics.speculative_decoding;
    EXPECT_EQ(3u, guesses.num_accepted_draft_tokens);
    EXPECT_EQ((std::vector<std::uint32_t>{0, 1, 1, 0}), guesses.acceptance_histogram);
    EXPECT_EQ(guesses.acceptance_histogram, guesses.acceptance_histogram_by_draft_length.at("3"));
  }
}

TEST(ChatStream, CountsPiecesWhereAServerSaysNoUsage) {
  const auto answers = read_in_pieces(
      "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}],\"usage\":[1]}\n\ndata: [DONE]\n\n", 9);
  EXPECT_EQ(1u, std::get<wire::ClientReply>(answers.back()).usage.completion_tokens);
}

TEST(ChatStream, EndsWithAnErrorInTheStream) {
  for (const std::string event : {"{\"error\":{\"message\":\"out of time\"}}", "out of time"}) {
    const auto answers = read_in_pieces("data: " + event + "\n\ndata: [DONE]\n\n", 100);
    ASSERT_EQ(1u, answers.size());
    EXPECT_EQ("out of time", std::get<wire::ClientError>(answers[0]).error.message);
  }
}

// The texts of the pieces of a stream with these deltas.
std::vector<std::string> pieces_of(const std::vector<std::string>& deltas) {
  std::string stream;
  for (const auto& delta : deltas) stream += "data: {\"choices\":[{\"delta\":" + delta + "}]}\n\n";
  std::vector<std::string> texts;
  for (const auto& answer : read_in_pieces(stream + "data: [DONE]\n\n", 50))
    if (const auto* piece = std::get_if<wire::ClientPiece>(&answer)) texts.push_back(piece->text);
  return texts;
}

TEST(ChatStream, ThoughtsAreTextOnceWhicheverNameTheyHave) {
  EXPECT_EQ((std::vector<std::string>{"a", "b", "c", "de"}),
            pieces_of({R"({"role":"assistant","content":""})",
                       R"({"reasoning_content":"a","reasoning":"a"})", R"({"reasoning":"b"})",
                       R"({"reasoning_content":"c","content":null})",
                       R"({"reasoning":"d","content":"e"})", R"({"reasoning":null})"}));
}

TEST(ChatStream, CallsAreTextWithoutTheirIds) {
  const auto call = [](const std::string& id) {
    return pieces_of(
        {R"({"tool_calls":[{"index":0,"id":")" + id +
             R"(","type":"function","function":{"name":"weather","arguments":""}}]})",
         R"({"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":"}}]})",
         R"({"tool_calls":[{"index":0,"function":{"arguments":"1}"}},{"function":5}]})",
         R"({"tool_calls":{}})"});
  };
  EXPECT_EQ((std::vector<std::string>{"weather", "{\"city\":", "1}"}), call("call_1"));
  EXPECT_EQ(call("call_1"), call("call_2"));
}

TEST(ChatStream, KnowsThatNoServiceTakesRequests) {
  const auto code = [](const std::string& name) {
    return http_failure(503, R"({"error":{"message":"no","code":")" + name + R"("}})").code;
  };
  EXPECT_EQ(ErrorCode::kUnavailable, code("no_target"));
  EXPECT_EQ(ErrorCode::kDraining, code("draining"));
}

TEST(ChatStream, KnowsThatTheTimeWasUp) {
  const std::string late = R"({"error":{"message":"out of time","code":"deadline_exceeded"}})";
  const std::string other = R"({"error":{"message":"no","code":"model_not_found"}})";
  const auto code_in_stream = [](const std::string& event) {
    const auto answers = read_in_pieces("data: " + event + "\n\n", 100);
    return std::get<wire::ClientError>(answers.back()).error.code;
  };
  EXPECT_EQ("deadline_exceeded", code_in_stream(late));
  EXPECT_EQ("internal", code_in_stream(other));
  EXPECT_EQ("internal", code_in_stream(R"({"error":{"message":"no","code":400}})"));

  EXPECT_EQ(ErrorCode::kDeadlineExceeded, http_failure(500, late).code);
  EXPECT_EQ(ErrorCode::kDeadlineExceeded, http_failure(504, "<html>").code);
  EXPECT_EQ("HTTP 504: <html>", http_failure(504, "<html>").message);
  EXPECT_EQ(ErrorCode::kInternal, http_failure(503, other).code);
  EXPECT_EQ("HTTP 503: no", http_failure(503, other).message);
}

TEST(ChatStream, ABodyHasTheFieldsOfHttp) {
  wire::ClientRequest request;
  request.prompt_kind = wire::PromptKind::kMessages;
  request.messages = {{"user", "hello"}};
  request.model = "tiny";
  request.params.max_tokens = 5;
  request.params.top_k = 3;
  request.num_draft_tokens = 2;
  request.proposer = ProposerKind::kNgram;
  request.timeout_ms = 100;
  const Json body = chat_body(request);
  EXPECT_EQ(Json::parse("{\"draft_len\":2,\"proposer\":\"ngram\"}"), body["speculation"]);
  EXPECT_EQ(3, body["top_k"]);
  EXPECT_EQ("hello", body["messages"][0]["content"]);
  EXPECT_TRUE(body["stream_options"]["include_usage"].get<bool>());
  EXPECT_FALSE(body.contains("timeout_ms"));
  EXPECT_FALSE(body.contains("num_draft_tokens"));
  request.adaptive = false;
  for (const auto& member : wire::kSpeculationMembers) request.given.insert(member.key);
  for (const auto& member : wire::kSpeculationMembers) {
    EXPECT_TRUE(chat_body(request)["speculation"].contains(std::string(member.name)));
    EXPECT_FALSE(chat_body(request).contains(std::string(member.key))) << member.key;
  }
  request.num_draft_tokens = 0;
  EXPECT_EQ(Json::parse("{\"enabled\":false}"), chat_body(request)["speculation"]);
}

}  // namespace
}  // namespace foretoken::cli
