#include "services/cli/request_flags.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

namespace foretoken::cli {
namespace {

// What the flags make of a request.
class RequestFlags : public ::testing::Test {
 protected:
  RequestFlags() { add_request_flags(&app, request, {}); }

  const wire::ClientRequest& with(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());
    app.parse(words);
    return request;
  }

  CLI::App app;
  wire::ClientRequest request;
};

TEST_F(RequestFlags, EveryKeyButAFewHasOne) {
  std::vector<std::string> without;
  wire::ClientRequest::fields(
      request, [&](const std::string& key, const auto&, const Limit&, wire::Topic, const char*) {
        std::string words = key;
        std::replace(words.begin(), words.end(), '_', '-');
        if (app.get_option_no_throw("--" + words) == nullptr &&
            app.get_option_no_throw("--no-" + words) == nullptr)
          without.push_back(key);
      });
  EXPECT_THAT(without,
              testing::ElementsAre("op", "prompt", "messages", "token_ids", "stream", "timeout_ms",
                                   "continue_final_message", "tools", "tool_choice", "tool_name",
                                   "chat_template_kwargs", "token_ends"));
}

TEST_F(RequestFlags, NothingSaidIsNothingGiven) {
  const auto& got = with({});
  EXPECT_EQ(got.given, wire::GivenKeys{});
  EXPECT_EQ(got.params, SamplingParams{});
}

TEST_F(RequestFlags, EachTypeIsReadIntoItsMember) {
  const auto& got = with({"-t",
                          "0.5",
                          "--top-k",
                          "7",
                          "--seed",
                          "18446744073709551615",
                          "--logprobs",
                          "3",
                          "--logit-bias",
                          "5=-1.5",
                          "--logit-bias",
                          "6=2",
                          "--stop-token-ids",
                          "9",
                          "--stop",
                          "a",
                          "--stop",
                          "b c",
                          "--ignore-eos",
                          "--no-adaptive",
                          "-k",
                          "0",
                          "--proposer",
                          "ngram",
                          "--proposer",
                          "draft",
                          "--tenant",
                          "acme",
                          "--priority",
                          "255",
                          "--request-id",
                          "00112233445566778899aabbccddeeff"});
  EXPECT_EQ(got.params, (SamplingParams{.temperature = 0.5f,
                                        .top_k = 7,
                                        .logit_bias = {{5, -1.5f}, {6, 2.0f}},
                                        .seed = ~std::uint64_t{0},
                                        .stop_token_ids = {9},
                                        .ignore_eos = true,
                                        .n_logprobs = 3}));
  EXPECT_EQ(got.stop, (std::vector<std::string>{"a", "b c"}));
  EXPECT_FALSE(got.adaptive);
  EXPECT_EQ(got.num_draft_tokens, 0);
  EXPECT_EQ(got.proposer, (ProposerSet{ProposerKind::kDraft, ProposerKind::kNgram}));
  EXPECT_EQ(got.tenant, "acme");
  EXPECT_EQ(got.priority, 255);
  EXPECT_EQ(got.request_id, (RequestId{0x0011223344556677, 0x8899aabbccddeeff}));
  EXPECT_TRUE(got.given.contains("temperature") && got.given.contains("num_draft_tokens"));
  EXPECT_FALSE(got.given.contains("top_p"));
}

TEST_F(RequestFlags, ATopKOfMinusOneIsOff) {
  request.params.top_k = 9;
  EXPECT_EQ(with({"--top-k", "-1", "--choice", "127"}).params.top_k, 0u);
  EXPECT_EQ(request.params.choice, 127u);
  EXPECT_THROW(with({"--top-k", "-2"}), CLI::ParseError);
  EXPECT_THROW(with({"--choice", "128"}), CLI::ParseError);
}

// A request over ZeroMQ has one answer: the command sends as many requests as it wants answers.
TEST_F(RequestFlags, SeveralAnswersAreAsManyAsThereAreChoices) {
  EXPECT_EQ(with({"--n", "128"}).n, kMaxChoice + 1);
  EXPECT_THROW(with({"--n", "0"}), CLI::ParseError);
  EXPECT_THROW(with({"--n", "129"}), CLI::ParseError);
}

TEST_F(RequestFlags, OtherNamesMeanTheSame) {
  EXPECT_EQ(with({"--draft-len", "4", "-n", "9", "--fixed"}).num_draft_tokens, 4);
  EXPECT_EQ(request.params.max_tokens, 9u);
  EXPECT_FALSE(request.adaptive);
}

TEST(RequestFlagsOfAVerb, LeaveOutWhatTheVerbDecides) {
  CLI::App app;
  wire::ClientRequest request;
  add_request_flags(&app, request, {"max_tokens"});
  EXPECT_EQ(app.get_option_no_throw("--max-tokens"), nullptr);
  EXPECT_NE(app.get_option_no_throw("--min-tokens"), nullptr);
}

}  // namespace
}  // namespace foretoken::cli
