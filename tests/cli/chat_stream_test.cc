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
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":5},\"metrics\":"
    "{\"speculative_decoding\":{\"num_spec_steps\":2,\"num_draft_tokens\":6,"
    "\"num_accepted_draft_tokens\":3,\"acceptance_histogram\":[0,1,1,0]}}}\n\n"
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
    const auto& guesses = reply.metrics.speculative_decoding;
    EXPECT_EQ(3u, guesses.num_accepted_draft_tokens);
    EXPECT_EQ((std::vector<std::uint32_t>{0, 1, 1, 0}), guesses.acceptance_histogram);
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
