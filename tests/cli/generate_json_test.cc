#include "services/cli/generate_json.h"

#include <gtest/gtest.h>

#include <string>

namespace foretoken::cli {
namespace {

wire::ClientReply timed_reply() {
  wire::ClientReply reply{.id = "7", .text = "hi"};
  reply.usage = {
      .prompt_tokens = 10, .completion_tokens = 6, .total_tokens = 16, .cached_tokens = 4};
  reply.metrics.time_to_first_token_ms = 12.5;
  reply.metrics.generation_time_ms = 40;
  reply.metrics.speculative_decoding.num_draft_tokens = 8;
  reply.metrics.speculative_decoding.num_accepted_draft_tokens = 3;
  return reply;
}

TEST(GenerateJson, AnAnswerHasItsTimesAsLlamaCppNamesThem) {
  const OrderedJson document = generate_json({timed_reply()});
  EXPECT_EQ("foretoken.generate/1", document["schema"].get<std::string>());
  EXPECT_EQ("hi", document["text"].get<std::string>());
  EXPECT_EQ(R"({"prompt_n":6,"prompt_ms":12.5,"predicted_n":6,"predicted_ms":40.0,)"
            R"("predicted_per_second":150.0,"draft_n":8,"draft_n_accepted":3})",
            to_text(document["timings"]));
}

TEST(GenerateJson, OneTokenHasNoSpeed) {
  wire::ClientReply reply = timed_reply();
  reply.usage.completion_tokens = 1;
  reply.metrics.generation_time_ms = 0;
  const OrderedJson document = generate_json({reply});
  EXPECT_TRUE(document["timings"]["predicted_per_second"].is_null());
  EXPECT_EQ(1, document["timings"]["predicted_n"].get<int>());
}

TEST(GenerateJson, EachOfSeveralAnswersHasItsOwnTimes) {
  wire::ClientReply other = timed_reply();
  other.metrics.time_to_first_token_ms = 20;
  const OrderedJson document = generate_json({timed_reply(), other});
  EXPECT_EQ("foretoken.generate/1", document["schema"].get<std::string>());
  ASSERT_EQ(2u, document["answers"].size());
  EXPECT_DOUBLE_EQ(12.5, document["answers"][0]["timings"]["prompt_ms"].get<double>());
  EXPECT_DOUBLE_EQ(20, document["answers"][1]["timings"]["prompt_ms"].get<double>());
  EXPECT_FALSE(document.contains("timings"));
}

}  // namespace
}  // namespace foretoken::cli
