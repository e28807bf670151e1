// Bytes that another packer made from another listing (make_golden.py) decode to the values of the
// rule and back.
#include <gtest/gtest.h>

#include <fstream>

#include "common/wire/client_codec.h"
#include "common/wire/codec.h"
#include "tests/message_text/describe.h"
#include "tests/wire/fill.h"

namespace foretoken::wire {
namespace {

std::vector<Bytes> golden(const std::string& name, const std::string& version = "1.6") {
  std::ifstream in(std::string(FORETOKEN_SOURCE_DIR) + "/tests/golden/wire/" + version + "/" +
                   name + ".hex");
  std::vector<Bytes> lines;
  for (std::string line; std::getline(in, line);) {
    Bytes bytes;
    for (std::size_t i = 0; i + 1 < line.size(); i += 2)
      bytes += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
    lines.push_back(std::move(bytes));
  }
  return lines;
}

// As a sender of an older minor version leaves them: fields appended since then have their
// defaults.
template <class M>
void leave_out_what_came_after_one_five(M&) {}
void leave_out_what_came_after_one_five(Open& m) { m.proposers = 0; }
void leave_out_what_came_after_one_five(Hello& m) {
  m.source = {};
  m.proposers = 0;
}
void leave_out_what_came_after_one_five(Assign& m) { m.source = {}; }
void leave_out_what_came_after_one_five(LinkAsk& m) {
  m.cpus = {};
  m.threads = {};
}
void leave_out_what_came_after_one_five(Proposal& m) {
  for (ProposalRecord& record : m.records) record.is_partial = {};
}
void leave_out_what_came_after_one_five(StreamOpen& m) {
  m.end_tokens = {};
  m.continues = false;
}
void leave_out_what_came_after_one_five(CloseSequence& m) {
  m.from = {};
  m.tail = {};
}

template <class M>
void leave_out_what_came_after_one_four(M&) {}
void leave_out_what_came_after_one_four(Open& m) { m.tokens_interval_us = 0; }

template <class M>
void leave_out_what_came_after_one_three(M&) {}
void leave_out_what_came_after_one_three(SamplingParams& p) {
  p.json_schema = {};
  p.regex = {};
  p.gbnf = {};
}
void leave_out_what_came_after_one_three(Encode& m) { m.without_thinking = false; }
void leave_out_what_came_after_one_three(Open& m) { leave_out_what_came_after_one_three(m.params); }
void leave_out_what_came_after_one_three(Attach& m) {
  leave_out_what_came_after_one_three(m.params);
}

template <class M>
void leave_out_what_came_after_one_two(M&) {}
void leave_out_what_came_after_one_two(Hello& m) {
  m.tool_format = {};
  m.drafts_for = {};
}
void leave_out_what_came_after_one_two(MetricsRequest& m) { m.passes = false; }
void leave_out_what_came_after_one_two(MetricsReply& m) { m.passes = {}; }
void leave_out_what_came_after_one_two(Encode& m) {
  m.variables = {};
  m.tool_choice = Encode{}.tool_choice;
  m.tool_name = {};
  m.continue_final_message = false;
}
void leave_out_what_came_after_one_two(Encoded& m) {
  m.tool_format = {};
  m.marker_tokens = {};
  m.reasons = false;
  m.begun = {};
}
void leave_out_what_came_after_one_two(StreamOpen& m) { m.token_ends = false; }
void leave_out_what_came_after_one_two(Text& m) { m.ends = {}; }

template <class M>
void leave_out_what_came_after_one_one(M&) {}
void leave_out_what_came_after_one_one(Hello& m) {
  const Hello defaults;
  m.device = defaults.device;
  m.dtype = defaults.dtype;
  m.proposer = defaults.proposer;
  m.draft_len = defaults.draft_len;
}
void leave_out_what_came_after_one_one(Assign& m) { m.order = Assign{}.order; }
void leave_out_what_came_after_one_one(SamplingParams& p) {
  p.n_prompt_logprobs = SamplingParams{}.n_prompt_logprobs;
}
void leave_out_what_came_after_one_one(Open& m) {
  leave_out_what_came_after_one_one(m.params);
  m.prompt_logprobs_from = Open{}.prompt_logprobs_from;
}
void leave_out_what_came_after_one_one(Attach& m) { leave_out_what_came_after_one_one(m.params); }
void leave_out_what_came_after_one_one(Done& m) {
  m.draft_len = Done{}.draft_len;
  m.rounds_by_length = {};
  m.prompt_logprobs_until = Done{}.prompt_logprobs_until;
}
void leave_out_what_came_after_one_one(Proposal& m) {
  for (ProposalRecord& record : m.records) record.took_us = {};
}
void leave_out_what_came_after_one_one(Decode& m) { m.bytes_of = {}; }
void leave_out_what_came_after_one_one(Text& m) {
  m.bytes_of = {};
  m.n_bytes = {};
  m.bytes = {};
}

void leave_out_what_came_after_one_zero(Heartbeat& m) {
  const Heartbeat defaults;
  m.turn = defaults.turn;
  m.activity = defaults.activity;
  m.busy_us = defaults.busy_us;
  m.bound_us = defaults.bound_us;
  m.set_aside = defaults.set_aside;
}
void leave_out_what_came_after_one_zero(HeartbeatReply& m) { m.needed = HeartbeatReply{}.needed; }
void leave_out_what_came_after_one_zero(Encode& m) { m.flow = Encode{}.flow; }
void leave_out_what_came_after_one_zero(Open& m) {
  m.flow = Open{}.flow;
  m.flow_weight = Open{}.flow_weight;
}
template <class M>
void leave_out_what_came_after_one_zero(M&) {}

template <class M>
void expect_decodes(const M& expected, const std::string& version) {
  const auto incoming = decode(golden(std::string(M::kName), version));
  ASSERT_TRUE(incoming.ok()) << M::kName << " " << incoming.error().message;
  EXPECT_EQ(incoming->message, Message(expected)) << print(incoming->message);
}

TEST(Golden, EveryMessageOfEarlierVersionsDecodes) {
  each_message([](auto expected) {
    GoldenFiller().value(expected);
    leave_out_what_came_after_one_five(expected);
    expect_decodes(expected, "1.5");
    leave_out_what_came_after_one_four(expected);
    expect_decodes(expected, "1.4");
    leave_out_what_came_after_one_three(expected);
    expect_decodes(expected, "1.3");
    leave_out_what_came_after_one_two(expected);
    expect_decodes(expected, "1.2");
    leave_out_what_came_after_one_one(expected);
    expect_decodes(expected, "1.1");
    leave_out_what_came_after_one_zero(expected);
    expect_decodes(expected, "1.0");
  });
}

TEST(Golden, EveryMessageOfThisVersionDecodes) {
  each_message([](auto expected) {
    GoldenFiller().value(expected);
    const Frames frames = golden(std::string(expected.kName));
    ASSERT_EQ(frames.size(), 2u) << expected.kName << ": tests/wire/make_golden.py makes it";
    const auto incoming = decode(frames);
    ASSERT_TRUE(incoming.ok()) << expected.kName << " " << incoming.error().message;
    EXPECT_EQ(incoming->message, Message(expected)) << print(incoming->message);
    EXPECT_EQ(incoming->header.request, (RequestId{0x1122334455667788, 0x99AABBCCDDEEFF00}));
    EXPECT_EQ(incoming->header.sender.value, 0x0102030405060708u);
    EXPECT_EQ(incoming->header.incarnation.value, 0xF1F2F3F4F5F6F7F8u);
    EXPECT_EQ(incoming->header.sequence, 42u);
  });
}

// Holds while nothing has been appended; a new field replaces this by the old bytes' decoding
// alone.
TEST(Golden, EveryMessageEncodesToTheSameBytes) {
  each_message([](auto message) {
    GoldenFiller().value(message);
    Header header = decode(golden(std::string(message.kName)))->header;
    EXPECT_EQ(encode(header, message), golden(std::string(message.kName))) << message.kName;
  });
}

TEST(Golden, AClientRequestInAnotherLanguageIsUnderstood) {
  const auto outcome = read_client_request(golden("client_request").at(0));
  ASSERT_TRUE(outcome.request.ok()) << outcome.request.error().message;
  const ClientRequest& r = *outcome.request;
  EXPECT_EQ(r.op, ClientOp::kGenerate);
  EXPECT_EQ(r.prompt_kind, PromptKind::kMessages);
  EXPECT_EQ(r.messages, (std::vector<ChatMessage>{{"system", "Be brief.", {R"({"name": "x"})"}},
                                                  {"user", "Say \"é\"\nnow"}}));
  EXPECT_EQ(r.tools.text, "[]");
  EXPECT_EQ(r.tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(r.tool_name, "add");
  EXPECT_EQ(r.chat_template_kwargs.text, R"({"a": 1})");
  EXPECT_TRUE(r.continue_final_message && r.token_ends);
  EXPECT_EQ(r.model, "demo");
  SamplingParams p;
  p.max_tokens = 64;
  p.min_tokens = 2;
  p.temperature = 0.75f;
  p.top_k = 40;
  p.top_p = 0.5f;
  p.min_p = 0.25f;
  p.repetition_penalty = 1.5f;
  p.presence_penalty = -0.5f;
  p.frequency_penalty = 0.5f;
  p.logit_bias = {{7, -100.0f}, {9, 2.5f}};
  p.stop_token_ids = {3, 5};
  p.ignore_eos = true;
  p.seed = ~std::uint64_t{0};
  p.choice = 7;
  p.n_logprobs = 0;
  p.n_prompt_logprobs = 4;
  EXPECT_EQ(r.params, p);
  EXPECT_EQ(r.bad_words, std::vector<std::string>{"damn"});
  EXPECT_EQ(r.stop, std::vector<std::string>{"\n\n"});
  EXPECT_TRUE(r.stream);
  for (const char* key : {"seed", "temperature", "top_k", "top_p", "max_tokens"})
    EXPECT_TRUE(r.given.contains(key)) << key;
  EXPECT_TRUE(r.include_stop_str_in_output);
  EXPECT_FALSE(r.adaptive || r.skip_special_tokens || r.add_generation_prompt ||
               r.add_special_tokens);
  EXPECT_EQ(r.num_draft_tokens, 0);
  EXPECT_EQ(r.proposer, ProposerKind::kNgram);
  EXPECT_EQ(r.prediction, "yes");
  EXPECT_EQ(r.timeout_ms, 5000u);
  EXPECT_EQ(r.request_id, (RequestId{0x0001020304050607, 0x08090a0b0c0d0e0f}));
  EXPECT_EQ(r.tenant, "acme");
  EXPECT_EQ(r.priority, 9);
}

}  // namespace
}  // namespace foretoken::wire
