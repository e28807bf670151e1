// The tokenizer's duties towards the router, with the demo tokenizer and without sockets: what it
// answers, what it forgets, and that repeated, early and foreign messages change nothing.
#include "services/tokenizer/tokenizer_service.h"

#include <gmock/gmock.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "services/chat_template/chat_template.h"
#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr RequestId kId{1, 2};

// The router's end of the wire.
class RouterBus final : public Bus {
 public:
  TimePoint now() const override { return clock.now(); }
  SocketId bind(const std::string&, Door) override { return 1; }
  SocketId connect(const std::string&) override { return 1; }
  void close(SocketId) override {}
  std::string endpoint(SocketId) const override { return {}; }
  void send(const Peer&, Frames frames, const Posting&) override {
    auto decoded = wire::decode(frames);
    EXPECT_TRUE(decoded.ok());
    sent.emplace_back(decoded->header.request, std::move(decoded->message));
  }
  std::optional<Delivery> receive(TimePoint) override { return std::nullopt; }

  ManualClock clock;
  std::vector<std::pair<RequestId, wire::Message>> sent;
};

const Tokenizer& demo_tokenizer() {
  static const auto tokenizer =
      value_or_throw(Tokenizer::load(std::string(FORETOKEN_SOURCE_DIR) + "/models/demo-target"));
  return *tokenizer;
}

class TokenizerServiceTest : public testing::Test {
 protected:
  TokenizerServiceTest() { make({}, {}); }

  void make(TokenizerServiceOptions options,
            ChatRenderer render,
            const Tokenizer& tokenizer = demo_tokenizer()) {
    configure_log(LogLevel::kError, LogFormat::kText, "test");
    options.router = "ipc://router";
    bus.clock.set(TimePoint{} + seconds(100));
    service.emplace(options, wire::Hello{.role = wire::Role::kTokenizer}, tokenizer,
                    std::move(render), speaker, metrics);
    service->start(bus);
    hear(wire::HelloReply{.accepted = true}, {});
    bus.sent.clear();
  }
  void hear(const wire::Message& message, RequestId id = kId, std::uint64_t router = 1) {
    wire::Speaker them(WorkerId{1}, Incarnation{router});
    service->on_message(
        {.peer = {.socket = 1, .routing = {}}, .frames = wire::encode(them, id, message)});
    service->on_turn(bus.clock.now());
  }
  void wait(Duration time) {
    bus.clock.advance(time);
    service->on_turn(bus.clock.now());
  }
  // The one answer of this kind to `id`; what else was sent is dropped.
  template <class M>
  M answer(RequestId id = kId) {
    std::vector<M> found;
    for (const auto& [to, message] : bus.sent)
      if (to == id && std::holds_alternative<M>(message)) found.push_back(std::get<M>(message));
    bus.sent.clear();
    EXPECT_EQ(found.size(), 1u) << M::kName;
    return found.empty() ? M{} : found.front();
  }
  template <class M>
  M ask(const wire::Message& message, RequestId id = kId) {
    bus.sent.clear();
    hear(message, id);
    return answer<M>(id);
  }
  bool said_goodbye() const {
    for (const auto& [to, message] : bus.sent)
      if (std::holds_alternative<wire::Goodbye>(message)) return true;
    return false;
  }
  static std::vector<TokenId> ids_of(const std::string& text,
                                     AddSpecialTokens add = AddSpecialTokens::kNo) {
    return value_or_throw(demo_tokenizer().encode(text, add));
  }

  RouterBus bus;
  wire::Speaker speaker{WorkerId{2}, Incarnation{2}};
  Metrics metrics;
  std::optional<TokenizerService> service;
};

TEST_F(TokenizerServiceTest, APromptIsEncodedAsTheTokenizerDoes) {
  const std::string text = "Once upon a time, \xF0\x9F\xA6\x8A said {\"a\": 1}.\n";
  EXPECT_EQ(ask<wire::Encoded>(wire::Encode{.text = text}).tokens,
            ids_of(text, AddSpecialTokens::kYes));
  EXPECT_EQ(ask<wire::Encoded>(wire::Encode{.text = text, .add_special_tokens = false}).tokens,
            ids_of(text));
}

TEST_F(TokenizerServiceTest, CodePointsBeyondOurTablesAreCounted) {
  ask<wire::Encoded>(wire::Encode{.text = "Grüße"});
  EXPECT_THAT(ask<wire::MetricsReply>(wire::MetricsRequest{}).text,
              HasSubstr("foretoken_tokenizer_unassigned_code_points_total 0"));
  ask<wire::Encoded>(wire::Encode{.text = "a\u0378b\U0001FFF0"});
  EXPECT_THAT(ask<wire::MetricsReply>(wire::MetricsRequest{}).text,
              HasSubstr("foretoken_tokenizer_unassigned_code_points_total 2"));
}

TEST_F(TokenizerServiceTest, APromptThatIsNotTextIsRefusedByName) {
  const auto failed =
      ask<wire::Failed>(wire::Encode{.kind = wire::PromptKind::kTokens, .tokens = {5, 6, 999'999}});
  EXPECT_EQ(failed.code, ErrorCode::kInvalidValue);
  EXPECT_EQ(failed.param, "token_ids");
  EXPECT_THAT(failed.message, HasSubstr("token_ids[2] is 999999"));
}

TEST_F(TokenizerServiceTest, TokenIdsPassAsTheyAre) {
  EXPECT_THAT(
      ask<wire::Encoded>(wire::Encode{.kind = wire::PromptKind::kTokens, .tokens = {5, 6, 7}})
          .tokens,
      ElementsAre(5, 6, 7));
}

// ---- decoding before encoding, each prompt once

class EncodingTurns : public TokenizerServiceTest {
 protected:
  static std::string words(std::size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += "the thing in there ";
    return text;
  }
  // Arrives, without a turn.
  void arrive(const wire::Message& message, RequestId id) {
    wire::Speaker them(WorkerId{1}, Incarnation{1});
    service->on_message(
        {.peer = {.socket = 1, .routing = {}}, .frames = wire::encode(them, id, message)});
  }
  // Ids of the answers of a kind, in order; what was sent is forgotten.
  template <class M>
  std::vector<std::uint64_t> answered() {
    std::vector<std::uint64_t> ids;
    for (const auto& [id, message] : std::exchange(bus.sent, {}))
      if (std::holds_alternative<M>(message)) ids.push_back(id.low);
    return ids;
  }
  TimePoint turn() { return service->on_turn(bus.clock.now()); }
  double metric(const std::string& name) {
    hear(wire::MetricsRequest{}, {9, 9});
    const std::string text = answer<wire::MetricsReply>({9, 9}).text;
    const auto at = text.find("\nforetoken_" + name);
    return at == std::string::npos ? -1 : std::stod(text.substr(text.find(' ', at)));
  }
};

TEST_F(EncodingTurns, TextOfRunningAnswersGoesBeforePrompts) {
  hear(wire::StreamOpen{}, {1, 1});
  bus.sent.clear();
  for (std::uint64_t i = 10; i < 20; ++i) arrive(wire::Encode{.text = words(100'000)}, {1, i});
  arrive(wire::Decode{.ids = ids_of("hello"), .final = true}, {1, 1});
  EXPECT_THAT(answered<wire::Text>(), ElementsAre(1)) << "before any turn of a prompt";
  turn();
  EXPECT_EQ(1u, answered<wire::Encoded>().size()) << "one long prompt a turn";
}

TEST_F(EncodingTurns, ATurnEncodesSoMuchAndWantsAnother) {
  for (std::uint64_t i = 0; i < 10; ++i) arrive(wire::Encode{.text = words(4000)}, {1, i});
  EXPECT_EQ(bus.clock.now(), turn());
  EXPECT_EQ(5u, answered<wire::Encoded>().size()) << "20,000 bytes";
  turn();
  EXPECT_EQ(5u, answered<wire::Encoded>().size());
  EXPECT_LT(bus.clock.now(), turn());
}

TEST_F(EncodingTurns, WhatMustWaitIsToldSo) {
  for (std::uint64_t i = 0; i < 3; ++i) arrive(wire::Encode{.text = words(20'000)}, {1, i});
  turn();
  EXPECT_EQ(2u, answered<wire::Opened>().size());
  turn();
  EXPECT_THAT(answered<wire::Opened>(), IsEmpty()) << "once";
}

TEST_F(EncodingTurns, APromptAskedForTwiceIsEncodedOnce) {
  const wire::Encode long_one{.text = words(20'000)};
  arrive(long_one, {1, 1});
  arrive(long_one, {1, 1});
  turn();
  turn();
  EXPECT_THAT(answered<wire::Encoded>(), ElementsAre(1));
  arrive(long_one, {1, 1});  // its answer may have got lost
  turn();
  EXPECT_THAT(answered<wire::Encoded>(), ElementsAre(1));
  EXPECT_EQ(1, metric("tokenizer_prompts_total "));
  EXPECT_EQ(2, metric("tokenizer_prompts_repeated_total "));
}

TEST_F(EncodingTurns, AnotherPromptUnderAnIdIsAnotherPrompt) {
  arrive(wire::Encode{.text = words(20'000)}, {1, 1});
  arrive(wire::Encode{.text = "hello"}, {1, 1});
  turn();
  turn();
  EXPECT_EQ(answer<wire::Encoded>({1, 1}).tokens, ids_of("hello", AddSpecialTokens::kYes));
  EXPECT_EQ(ask<wire::Encoded>(wire::Encode{.text = "other"}, {1, 1}).tokens,
            ids_of("other", AddSpecialTokens::kYes));
  EXPECT_EQ(2, metric("tokenizer_prompts_total "));
}

TEST_F(EncodingTurns, WhatNobodyWantsAnyMoreIsNotEncoded) {
  for (std::uint64_t i = 1; i <= 3; ++i)
    arrive(wire::Encode{.text = words(20'000), .flow = i}, {1, i});
  arrive(wire::StreamClose{}, {1, 1});
  turn();
  turn();
  EXPECT_THAT(answered<wire::Encoded>(), ElementsAre(2, 3));
  EXPECT_EQ(1, metric("tokenizer_prompts_unwanted_total "));
}

TEST_F(EncodingTurns, FlowsTakeTurnsAndTheSmallGoFirst) {
  for (std::uint64_t i = 0; i < 6; ++i)
    arrive(wire::Encode{.text = words(40'000), .flow = 1}, {1, i});
  arrive(wire::Encode{.text = words(20'000), .flow = 2}, {1, 100});
  arrive(wire::Encode{.text = "hello", .flow = 1}, {1, 200});
  std::vector<std::uint64_t> order;
  for (int i = 0; i < 3; ++i) {
    turn();
    for (const std::uint64_t id : answered<wire::Encoded>()) order.push_back(id);
  }
  EXPECT_THAT(order, ElementsAre(200, 100, 0, 1)) << "a short one waits for no long one";
}

TEST_F(EncodingTurns, AFullQueueSaysWhenToAskAgain) {
  TokenizerServiceOptions options;
  options.encode_queue = {.max_prompts = 4, .max_bytes = 1'000'000};
  make(options, {});
  for (std::uint64_t i = 0; i < 3; ++i)
    arrive(wire::Encode{.text = words(20'000), .flow = 1}, {1, i});
  const auto busy = answer<wire::Busy>({1, 2});
  EXPECT_EQ(busy.code, ErrorCode::kQueueFull);
  EXPECT_GT(busy.retry_after_ms, 0u);
  EXPECT_THAT(busy.message, HasSubstr("of this tenant or connection 2"));
  arrive(wire::Encode{.text = words(20'000), .flow = 2}, {1, 50});
  EXPECT_THAT(answered<wire::Busy>(), IsEmpty()) << "another finds room";
}

// The service's own thread: what it answers is what a turn would, and the bus is woken for it.
class WokenBus final : public Bus {
 public:
  TimePoint now() const override { return TimePoint{} + seconds(100); }
  SocketId bind(const std::string&, Door) override { return 1; }
  SocketId connect(const std::string&) override { return 1; }
  void close(SocketId) override {}
  std::string endpoint(SocketId) const override { return {}; }
  void send(const Peer&, Frames frames, const Posting&) override {
    sent.push_back(std::move(wire::decode(frames)->message));
  }
  std::optional<Delivery> receive(TimePoint) override { return std::nullopt; }
  void wake() override {
    const std::lock_guard lock(mutex);
    ++n_woken;
    woken.notify_all();
  }
  bool wait_until_woken(int times) {
    std::unique_lock lock(mutex);
    return woken.wait_for(lock, seconds(60), [&] { return n_woken >= times; });
  }
  std::mutex mutex;
  std::condition_variable woken;
  int n_woken = 0;
  std::vector<wire::Message> sent;
};

TEST_F(EncodingTurns, TheThreadAnswersAsATurnWould) {
  WokenBus woken;
  TokenizerServiceOptions options;
  options.long_encodings = LongEncodings::kOnThread;
  TokenizerService threaded(options, wire::Hello{.role = wire::Role::kTokenizer}, demo_tokenizer(),
                            {}, speaker, metrics);
  threaded.start(woken);
  wire::Speaker them(WorkerId{1}, Incarnation{1});
  const auto hear_it = [&](const wire::Message& message, RequestId id) {
    threaded.on_message(
        {.peer = {.socket = 1, .routing = {}}, .frames = wire::encode(them, id, message)});
  };
  hear_it(wire::HelloReply{.accepted = true}, {});
  const std::string text = words(200'000);
  for (std::uint64_t i = 0; i < 4; ++i)
    hear_it(wire::Encode{.text = text, .add_special_tokens = false}, {1, i});
  hear_it(wire::StreamClose{}, {1, 3});
  int n_encoded = 0;
  for (int n = 1; n <= 3; ++n) {
    threaded.on_turn(woken.now());
    hear_it(wire::Encode{.text = text, .add_special_tokens = false},
            {1, static_cast<std::uint64_t>(n) - 1});  // again
    ASSERT_TRUE(woken.wait_until_woken(n));
  }
  threaded.on_turn(woken.now());
  for (const wire::Message& message : woken.sent)
    if (const auto* encoded = std::get_if<wire::Encoded>(&message)) {
      ++n_encoded;
      EXPECT_EQ(encoded->tokens, ids_of(text));
    }
  EXPECT_EQ(3, n_encoded);
}

// A service whose prompts are all long, and go through `render` on the thread.
class EncodingThread : public TokenizerServiceTest {
 protected:
  void start(ChatRenderer render) {
    TokenizerServiceOptions options;
    options.long_encodings = LongEncodings::kOnThread;
    threaded.emplace(options, wire::Hello{.role = wire::Role::kTokenizer}, demo_tokenizer(),
                     std::move(render), speaker, metrics);
    threaded->start(woken);
    wire::Speaker them(WorkerId{1}, Incarnation{1});
    const wire::Encode prompt{.kind = wire::PromptKind::kMessages,
                              .text = std::string(100'000, ' ')};
    threaded->on_message({.peer = {.socket = 1, .routing = {}},
                          .frames = wire::encode(them, {}, wire::HelloReply{.accepted = true})});
    threaded->on_message(
        {.peer = {.socket = 1, .routing = {}}, .frames = wire::encode(them, kId, prompt)});
    threaded->on_turn(woken.now());
  }
  WokenBus woken;
  std::optional<TokenizerService> threaded;
};

TEST_F(EncodingThread, HasEndedBeforeTheBusDoes) {
  std::promise<void> begun, go;
  std::atomic<bool> has_encoded = false;
  start([&](const std::string&, bool, const std::string&) {
    begun.set_value();
    go.get_future().wait();
    return Result<std::string>("text");
  });
  begun.get_future().wait();
  auto ended = std::async(std::launch::async, [&] {
    threaded->on_end();
    const std::lock_guard lock(woken.mutex);
    has_encoded = woken.n_woken == 1;
  });
  // It waits for the encoding, however long that takes.
  EXPECT_EQ(std::future_status::timeout, ended.wait_for(milliseconds(50)));
  go.set_value();
  ended.get();
  EXPECT_TRUE(has_encoded);
}

TEST_F(EncodingThread, WhatItThrowsEndsTheServiceFromTheWorkThread) {
  start([](const std::string&, bool, const std::string&) -> Result<std::string> {
    throw std::runtime_error("broken");
  });
  ASSERT_TRUE(woken.wait_until_woken(1));
  EXPECT_THROW(threaded->on_turn(woken.now()), std::runtime_error);
}

TEST_F(EncodingThread, APromptWithoutMemoryFailsAlone) {
  start([](const std::string&, bool, const std::string&) -> Result<std::string> {
    throw std::bad_alloc();
  });
  ASSERT_TRUE(woken.wait_until_woken(1));
  threaded->on_turn(woken.now());
  const auto failed =
      std::find_if(woken.sent.begin(), woken.sent.end(),
                   [](const wire::Message& m) { return std::holds_alternative<wire::Failed>(m); });
  ASSERT_NE(failed, woken.sent.end());
  EXPECT_EQ(ErrorCode::kOutOfMemory, std::get<wire::Failed>(*failed).code);
  EXPECT_THAT(std::get<wire::Failed>(*failed).message, testing::HasSubstr("100000 bytes"));
}

TEST_F(TokenizerServiceTest, MoreTokensThanAMessageHoldsAreTooLongAContext) {
  const std::vector<TokenId> most(wire::kMaxRequestTokens, 5);
  EXPECT_EQ(ask<wire::Encoded>(wire::Encode{.kind = wire::PromptKind::kTokens, .tokens = most})
                .tokens.size(),
            most.size());
  // The prediction counts, too.
  const auto failed = ask<wire::Failed>(
      wire::Encode{.kind = wire::PromptKind::kTokens, .tokens = most, .prediction = "a"});
  EXPECT_EQ(failed.code, ErrorCode::kContextLengthExceeded);
  EXPECT_EQ(failed.param, "token_ids");
}

TEST_F(TokenizerServiceTest, ATextBeyondOneStringComesInSeveral) {
  TokenId longest = 0;
  std::size_t bytes = 0;
  for (TokenId id = 0; id < static_cast<TokenId>(demo_tokenizer().vocab_size()); ++id) {
    if (!demo_tokenizer().is_token(id)) continue;
    StreamDecoder decoder(demo_tokenizer(), {});
    const std::size_t size = decoder.push(id).text.size() + decoder.finish().text.size();
    if (size > bytes) longest = id, bytes = size;
  }
  ASSERT_GT(bytes, 4u);
  const std::vector<TokenId> ids(4 * wire::kMaxStringBytes / bytes, longest);  // nearly 4 MiB
  hear(wire::StreamOpen{});
  bus.sent.clear();
  hear(wire::Decode{.ids = ids, .final = true});
  std::size_t n_bytes = 0, n_texts = 0;
  Position next = 0;
  for (const auto& [to, message] : bus.sent) {
    const auto* text = std::get_if<wire::Text>(&message);
    if (text == nullptr) continue;
    EXPECT_EQ(text->offset, n_bytes);
    EXPECT_GT(text->next, next);
    EXPECT_EQ(text->final, text->next == ids.size());
    EXPECT_LE(text->text.size(), wire::kMaxStringBytes);
    next = text->next;
    n_bytes += text->text.size();
    ++n_texts;
  }
  EXPECT_EQ(next, ids.size());
  EXPECT_GE(n_texts, 4u);
  EXPECT_NEAR(static_cast<double>(n_bytes), static_cast<double>(ids.size() * bytes), 8.0);
}

TEST_F(TokenizerServiceTest, MessagesNeedATemplate) {
  const auto failed =
      ask<wire::Failed>(wire::Encode{.kind = wire::PromptKind::kMessages, .text = "[]"});
  EXPECT_EQ(failed.code, ErrorCode::kUnsupportedParameter);
  EXPECT_EQ(failed.param, "messages");
}

TEST_F(TokenizerServiceTest, MessagesGoThroughTheTemplate) {
  make({}, [](const std::string& messages, bool open, const std::string&) -> Result<std::string> {
    if (messages == "bad") return Error{ErrorCode::kInvalidValue, "no such role"};
    return messages + (open ? "<open>" : "");
  });
  EXPECT_EQ(
      ask<wire::Encoded>(wire::Encode{.kind = wire::PromptKind::kMessages, .text = "hello"}).tokens,
      ids_of("hello<open>"));
  EXPECT_EQ(ask<wire::Encoded>(wire::Encode{.kind = wire::PromptKind::kMessages,
                                            .text = "hello",
                                            .add_generation_prompt = false})
                .tokens,
            ids_of("hello"));
  const auto failed =
      ask<wire::Failed>(wire::Encode{.kind = wire::PromptKind::kMessages, .text = "bad"});
  EXPECT_EQ(failed.param, "messages");
  EXPECT_EQ(failed.message, "no such role");
}

ModelForm hermes() {
  return {.tool_format = ToolFormat::kHermes,
          .reasons = true,
          .marker_tokens = {"<|im_end|>"},
          .marker_ids = {*demo_tokenizer().token_to_id("<|im_end|>")},
          .before_name = "<tool_call>\n{\"name\": \"",
          .after_name = "\", \"arguments\":"};
}

TEST_F(TokenizerServiceTest, ToolsNeedAFormat) {
  make({}, [](const std::string& messages, bool, const std::string&) { return messages; });
  wire::Encode encode{.kind = wire::PromptKind::kMessages,
                      .text = "[]",
                      .variables = R"({"tools":[]})",
                      .tool_choice = ToolChoice::kAuto};
  const auto failed = ask<wire::Failed>(encode);
  EXPECT_EQ(failed.code, ErrorCode::kUnsupportedParameter);
  EXPECT_EQ(failed.param, "tools");
  encode.tool_choice = ToolChoice::kNone;
  EXPECT_EQ(ask<wire::Encoded>(encode).tool_format, "none");
}

TEST_F(TokenizerServiceTest, APromptEndsWithTheCallThatIsAskedFor) {
  make({.form = hermes()}, [](const std::string&, bool, const std::string& variables) {
    return variables + "<think>\n";
  });
  wire::Encode encode{.kind = wire::PromptKind::kMessages,
                      .text = "[]",
                      .variables = R"({"tools":[]})",
                      .tool_choice = ToolChoice::kAuto};
  const auto free = ask<wire::Encoded>(encode);
  EXPECT_EQ(free.tokens, ids_of(R"({"tools":[]}<think>)"
                                "\n"));
  EXPECT_EQ(free.begun, "<think>");
  EXPECT_EQ(free.tool_format, "hermes");
  EXPECT_TRUE(free.reasons);
  EXPECT_THAT(free.marker_tokens, ElementsAre("<|im_end|>"));
  encode.tool_choice = ToolChoice::kRequired;
  encode.tool_name = "f";
  const auto named = ask<wire::Encoded>(encode, RequestId{3, 3});
  EXPECT_EQ(named.begun, "<tool_call>\n{\"name\": \"f\", \"arguments\":");
  EXPECT_EQ(named.tokens, ids_of("{\"tools\":[],\"enable_thinking\":false}<think>\n\n</think>\n\n" +
                                 named.begun));
}

TEST_F(TokenizerServiceTest, AConstrainedAnswerBeginsWithoutAThought) {
  make({.form = hermes()}, [](const std::string&, bool, const std::string& variables) {
    return variables + "<think>\n";
  });
  wire::Encode encode{.kind = wire::PromptKind::kMessages, .text = "[]", .without_thinking = true};
  const auto closed = ask<wire::Encoded>(encode);
  EXPECT_EQ(closed.tokens, ids_of("{\"enable_thinking\":false}<think>\n\n</think>\n\n"));
  EXPECT_EQ(closed.begun, "");
  encode.kind = wire::PromptKind::kText;
  encode.text = "<think>";
  EXPECT_EQ(ask<wire::Encoded>(encode, RequestId{3, 3}).tokens, ids_of("<think>"))
      << "a prompt is the client's own";
}

// Frames may come mutated: what is in them ends no service.
TEST_F(TokenizerServiceTest, VariablesThatAreNoObjectAreTheRenderersToRefuse) {
  make({.form = hermes()}, [](const std::string&, bool, const std::string& variables) {
    return Result<std::string>(Error{ErrorCode::kInvalidValue, "seen: " + variables});
  });
  for (const char* variables : {"{", "[]", "\xff"}) {
    const wire::Encode encode{.kind = wire::PromptKind::kMessages,
                              .text = "[]",
                              .variables = variables,
                              .tool_choice = ToolChoice::kRequired};
    EXPECT_EQ(ask<wire::Failed>(encode).message, std::string("seen: ") + variables);
  }
}

TEST_F(TokenizerServiceTest, APromptEndsWithTheMessageThatIsContinued) {
  make({}, [](const std::string& messages, bool open, const std::string&) {
    std::string text;
    for (const Json& message : Json::parse(messages))
      text += message["role"].get<std::string>() + ":" + message["content"].get<std::string>() +
              "<|im_end|>";
    return text + (open ? "assistant:" : "");
  });
  const auto continued = [](const std::string& message) {
    return wire::Encode{.kind = wire::PromptKind::kMessages,
                        .text = R"([{"role":"user","content":"go on"},)" + message + "]",
                        .continue_final_message = true};
  };
  const std::string before = "user:go on<|im_end|>assistant:";
  std::uint64_t id = 2;
  // The short ones stand in the marker behind the message, too.
  for (const std::string content : {"go on", "e", "<", "im", "end|>"})
    EXPECT_EQ(
        ask<wire::Encoded>(continued(R"({"role":"assistant","content":")" + content + R"( \n"})"),
                           RequestId{3, ++id})
            .tokens,
        ids_of(before + content));
  for (const std::string message :
       {R"({"role":"assistant","content":" "})", R"({"role":"assistant"})",
        R"({"role":"assistant","content":"a","tool_calls":[{}]})"})
    EXPECT_EQ(ask<wire::Failed>(continued(message), RequestId{3, ++id}).param, "messages");
}

// Real templates of ten families: they trim, split and close what they write in many ways.
TEST_F(TokenizerServiceTest, AMessageIsContinuedInTheTemplatesOfManyFamilies) {
  std::vector<std::pair<std::string, std::string>> sources = {
      {"smollm2",
       "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
       "{{ '<|im_start|>system\nYou are a helpful AI assistant<|im_end|>\n' }}{% endif %}"
       "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
       "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"}};
  for (const auto& entry : std::filesystem::directory_iterator(std::string(FORETOKEN_SOURCE_DIR) +
                                                               "/tests/chat_template/templates"))
    sources.emplace_back(entry.path().filename(),
                         value_or_throw(read_text_file(entry.path(), 1 << 20)));
  ASSERT_GE(sources.size(), 11U);
  std::uint64_t id = 2;
  for (const auto& [name, source] : sources) {
    const auto chat_template = value_or_throw(
        ChatTemplate::compile(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
    const auto render = [&](const std::string& messages, bool open, const std::string& variables) {
      return chat_template->render(messages, open, variables);
    };
    make({}, render);
    const auto messages_with = [](const std::string& content) {
      return to_text(OrderedJson::array({{{"role", "user"}, {"content", "Hello e <"}},
                                         {{"role", "assistant"}, {"content", content}}}));
    };
    const std::string variables = R"({"date_string":"today"})";
    const std::string whole = value_or_throw(render(messages_with("XYZZY"), false, variables));
    const std::string before = whole.substr(0, whole.rfind("XYZZY"));
    for (const std::string content :
         {"Sure", "e", "<", "</", "s", "end", "a \"b\" \\ {c}", "one\n\ntwo", "gr\u00fc\u00df",
          "\uE0F0\uE0F1\uE0F0", "x\uE0F0\uE0F1", "<think>so"}) {
      const wire::Encode encode{.kind = wire::PromptKind::kMessages,
                                .text = messages_with(content + " \n"),
                                .variables = variables,
                                .continue_final_message = true};
      EXPECT_EQ(ask<wire::Encoded>(encode, RequestId{3, ++id}).tokens, ids_of(before + content))
          << name << " " << content;
    }
  }
}

TEST_F(TokenizerServiceTest, AMessageThatTheTemplateDoesNotWriteAsItIsCannotBeContinued) {
  const auto continued = [](const std::string& content) {
    return wire::Encode{.kind = wire::PromptKind::kMessages,
                        .text = R"([{"role":"user","content":")" + content +
                                R"("},{"role":"assistant","content":"Sure"}])",
                        .continue_final_message = true};
  };
  make({}, [](const std::string& messages, bool, const std::string&) {  // the first one alone
    return Json::parse(messages)[0]["content"].get<std::string>();
  });
  std::uint64_t id = 2;
  for (const char* content : {"hi", "\uE0F0\uE0F1\uE0F0", "\uE0F0\uE0F1\uE0F1\uE0F0"})
    EXPECT_EQ(ask<wire::Failed>(continued(content), RequestId{3, ++id}).param, "messages");
  make({}, [](const std::string& messages, bool, const std::string&) {  // ASCII alone
    return Json::parse(messages).dump(-1, ' ', true);
  });
  EXPECT_EQ(ask<wire::Failed>(continued("hi"), RequestId{3, ++id}).param, "messages");
}

TEST_F(TokenizerServiceTest, AMessageThatTheTemplateWritesTwiceHasNoMarkInThePrompt) {
  make({}, [](const std::string& messages, bool, const std::string&) {
    const auto content = Json::parse(messages)[0]["content"].get<std::string>();
    return content + "|" + content + "</s>";
  });
  const wire::Encode encode{.kind = wire::PromptKind::kMessages,
                            .text = R"([{"role":"assistant","content":"go","tool_calls":[]}])",
                            .continue_final_message = true};
  EXPECT_EQ(ask<wire::Encoded>(encode).tokens, ids_of("go|go"));
}

TEST_F(TokenizerServiceTest, TheEndOfEachTokenIsSaidAndItsMarkersLeaveText) {
  make({.form = hermes()}, {});
  const TokenId marker = *demo_tokenizer().token_to_id("<|im_end|>");
  std::vector<TokenId> ids = ids_of("Once upon");
  ids.push_back(marker);
  std::string joined;
  std::vector<std::uint32_t> expected;
  for (const TokenId id : ids) {
    joined += id == marker ? "<|im_end|>" : std::string(demo_tokenizer().token_bytes(id));
    expected.push_back(static_cast<std::uint32_t>(joined.size()));
  }
  hear(wire::StreamOpen{.stop = {"onx"}, .token_ends = true});
  const auto n_first = static_cast<Position>(ids.size() - 1);
  const auto first =
      ask<wire::Text>(wire::Decode{.position = 0, .ids = {ids.begin(), ids.end() - 1}});
  EXPECT_EQ(first.text, "Once up") << "what may become a stop string is held back";
  EXPECT_EQ(first.ends, (std::vector<std::uint32_t>{expected.begin(), expected.end() - 1}));
  const auto last =
      ask<wire::Text>(wire::Decode{.position = n_first, .ids = {marker}, .final = true});
  EXPECT_EQ(first.text + last.text, joined);
  EXPECT_THAT(last.ends, ElementsAre(expected.back()));
  hear(wire::StreamOpen{});
  EXPECT_EQ(ask<wire::Text>(wire::Decode{.ids = {marker}}).text, "");
}

TEST(ModelForm, IsFoundInTheTextOfATemplate) {
  EXPECT_EQ(tool_format_in("a <tool_call>{} </tool_call>"), ToolFormat::kHermes);
  EXPECT_EQ(tool_format_in("<tool_call>\n<function=f>"), ToolFormat::kNone);
  EXPECT_EQ(tool_format_in("'[TOOL_CALLS] [' + tojson"), ToolFormat::kMistral);
  EXPECT_EQ(tool_format_in("{{- '<|python_tag|>' }}"), ToolFormat::kLlama);
  EXPECT_EQ(tool_format_in("{{ messages }}"), ToolFormat::kNone);
  EXPECT_EQ(ModelForm::of(demo_tokenizer(), "auto").tool_format, ToolFormat::kNone);
  const ModelForm named = ModelForm::of(demo_tokenizer(), "mistral");
  EXPECT_EQ(named.before_name + "f" + named.after_name,
            "[TOOL_CALLS][{\"name\": \"f\", \"arguments\":");
}

// As Hermes 3 has it: the template for conversations without tools has no calls in it.
TEST(ModelForm, IsFoundInTheTemplateForTools) {
  const test::TempFolder folder;
  const std::filesystem::path demo = std::string(FORETOKEN_SOURCE_DIR) + "/models/demo-target";
  std::filesystem::copy_file(demo / "tokenizer.json", folder / "tokenizer.json");
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "default", "template": "{{ messages }}</think>"},
                                     {"name": "tool_use", "template": "[TOOL_CALLS] ["}]})");
  const auto tokenizer = value_or_throw(Tokenizer::load(folder.path()));
  const ModelForm form = ModelForm::of(*tokenizer, "auto");
  EXPECT_EQ(form.tool_format, ToolFormat::kMistral);
  EXPECT_EQ(form.before_name, "[TOOL_CALLS] [{\"name\": \"");
  EXPECT_TRUE(form.reasons);
}

TEST_F(TokenizerServiceTest, ABadWordIsBannedAtTheBeginningAndAfterASpace) {
  const auto encoded =
      ask<wire::Encoded>(wire::Encode{.text = "x", .bad_words = {"fox"}, .prediction = "The fox"});
  EXPECT_THAT(encoded.bad_word_tokens, ElementsAre(ids_of("fox"), ids_of(" fox")));
  EXPECT_EQ(encoded.prediction_tokens, ids_of("The fox"));
}

// Vocabularies of sentencepiece put a space before every text, so that "!" by itself is "▁!": no
// answer has that behind a word.
TEST(BadWords, AreBannedBehindOtherTextToo) {
  const auto tokenizer = value_or_throw(
      Tokenizer::load(std::string(FORETOKEN_SOURCE_DIR) + "/tests/tokenizer/fixtures/llama2"));
  const PromptEncoder encode(*tokenizer, {}, {});
  const auto ids_of = [&](const char* token) { return tokenizer->token_to_id(token).value(); };
  const auto encoded = value_or_throw(encode(wire::Encode{.text = "x", .bad_words = {"!"}}));
  EXPECT_THAT(encoded.bad_word_tokens,
              ElementsAre(ElementsAre(ids_of("▁!")), ElementsAre(ids_of("▁"), ids_of("▁!")),
                          ElementsAre(ids_of("!"))));
}

TEST_F(TokenizerServiceTest, TooManyAndTooLongBadWordsAreRefused) {
  for (const auto& words : {std::vector<std::string>(kMaxBadWords + 1, "fox"),
                            std::vector<std::string>{std::string(2000, 'q')}}) {
    const auto failed = ask<wire::Failed>(wire::Encode{.text = "x", .bad_words = words});
    EXPECT_EQ(failed.code, ErrorCode::kInvalidValue);
    EXPECT_EQ(failed.param, "bad_words");
  }
}

TEST_F(TokenizerServiceTest, PiecesJoinedAreTheDecodedText) {
  const std::string text = "Once upon a time, \xF0\x9F\xA6\x8A said hello.";
  const auto ids = ids_of(text);
  hear(wire::StreamOpen{.position = 10});
  std::string joined;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto piece = ask<wire::Text>(wire::Decode{
        .position = static_cast<Position>(10 + i), .ids = {ids[i]}, .final = i + 1 == ids.size()});
    EXPECT_EQ(piece.offset, joined.size());
    EXPECT_EQ(piece.next, static_cast<Position>(10 + i + 1));
    EXPECT_EQ(piece.final, i + 1 == ids.size());
    joined += piece.text;
  }
  EXPECT_EQ(joined, text);
  EXPECT_EQ(ask<wire::Failed>(wire::Decode{.position = 10, .ids = {ids[0]}}).code,
            ErrorCode::kNotFound)
      << "a stream that ended is forgotten";
}

TEST_F(TokenizerServiceTest, BytesOfTokensAreTheirOwnWhateverTheTextHoldsBack) {
  const auto half = demo_tokenizer().token_to_id("Ã");  // one byte of two
  const auto padding = static_cast<TokenId>(demo_tokenizer().vocab_size());
  ASSERT_TRUE(half);
  const TokenId end = demo_tokenizer().eos_ids().front();
  const std::vector<TokenId> the = ids_of(" the");
  ASSERT_EQ(1u, the.size());
  hear(wire::StreamOpen{});
  const auto text = ask<wire::Text>(
      wire::Decode{.position = 0, .ids = {*half}, .bytes_of = {the[0], *half, padding, end}});
  EXPECT_EQ("", text.text);
  EXPECT_EQ(1u, text.next);
  EXPECT_EQ((std::vector<TokenId>{the[0], *half, padding, end}), text.bytes_of);
  const std::string end_text(demo_tokenizer().token_text(end));
  EXPECT_THAT(text.n_bytes, ElementsAre(4u, 1u, 0u, end_text.size()));
  EXPECT_EQ(" the\xC3" + end_text, std::string(text.bytes.begin(), text.bytes.end()));
}

TEST_F(TokenizerServiceTest, TheSameTokensTwiceAddNothing) {
  const auto ids = ids_of("Once upon a time");
  ASSERT_GE(ids.size(), 3u);
  hear(wire::StreamOpen{});
  const auto first = ask<wire::Text>(wire::Decode{.position = 0, .ids = {ids[0], ids[1]}});
  const auto again = ask<wire::Text>(wire::Decode{.position = 0, .ids = {ids[0], ids[1]}});
  EXPECT_EQ(again.text, "");
  EXPECT_EQ(again.offset, first.text.size());
  EXPECT_EQ(again.next, 2);
  // Half known, half new: only the new half gives text.
  const auto rest = ask<wire::Text>(
      wire::Decode{.position = 1, .ids = {ids.begin() + 1, ids.end()}, .final = true});
  EXPECT_EQ(first.text + rest.text, "Once upon a time");
}

TEST_F(TokenizerServiceTest, AGapIsRefusedAndTheStreamKept) {
  const auto ids = ids_of("Once upon a time");
  hear(wire::StreamOpen{});
  EXPECT_EQ(ask<wire::Failed>(wire::Decode{.position = 1, .ids = {ids[1]}}).code,
            ErrorCode::kNotFound);
  EXPECT_EQ(ask<wire::Text>(wire::Decode{.position = 0, .ids = ids, .final = true}).text,
            "Once upon a time");
}

TEST_F(TokenizerServiceTest, AStopStringEndsTheStreamWhereItBegins) {
  const auto ids = ids_of("Once upon a time there was");
  hear(wire::StreamOpen{.stop = {"zebra", " time"}});
  const auto piece = ask<wire::Text>(wire::Decode{.position = 0, .ids = ids});
  EXPECT_TRUE(piece.stopped);
  EXPECT_TRUE(piece.final);
  EXPECT_EQ(piece.stop_string, " time");
  EXPECT_EQ(piece.text, "Once upon a");
  EXPECT_LT(piece.n_tokens, ids.size()) << "tokens after the stop are not consumed";
}

TEST_F(TokenizerServiceTest, AStopStringThatTheFirstMinTokensCompleteIsText) {
  const auto ids = ids_of("Once upon a time there was a time");
  hear(wire::StreamOpen{.stop = {" time"},
                        .min_tokens = static_cast<std::uint32_t>(ids.size() - 1)});
  const auto piece = ask<wire::Text>(wire::Decode{.position = 0, .ids = ids});
  EXPECT_TRUE(piece.stopped);
  EXPECT_EQ(piece.text, "Once upon a time there was a");
  EXPECT_EQ(piece.n_tokens, ids.size());
}

TEST_F(TokenizerServiceTest, TheTokenThatEndsAnAnswerHasNoTextButThatOfAMarker) {
  make({.form = hermes()}, {});
  const TokenId marker = *demo_tokenizer().token_to_id("<|im_end|>");
  auto ids = ids_of("Once upon");
  const TokenId last = ids.back();
  const auto text_of = [&](const wire::StreamOpen& open) {
    hear(open);
    const auto piece = ask<wire::Text>(wire::Decode{.position = 0, .ids = ids, .final = true});
    EXPECT_EQ(piece.n_tokens, ids.size());
    return piece.text;
  };
  EXPECT_EQ(text_of({.end_tokens = {last}}), "Once");
  EXPECT_EQ(text_of({.include_stop = true, .end_tokens = {last}}), "Once upon");
  ids.push_back(marker);
  EXPECT_EQ(text_of({.skip_special_tokens = false, .end_tokens = {marker}}), "Once upon");
  EXPECT_EQ(text_of({.token_ends = true, .end_tokens = {marker}}), "Once upon<|im_end|>");
}

TEST_F(TokenizerServiceTest, AnAnswerThatContinuesATextBeginsWithItsSpace) {
  const auto llama = value_or_throw(
      Tokenizer::load(std::string(FORETOKEN_SOURCE_DIR) + "/tests/tokenizer/fixtures/llama2"));
  make({}, {}, *llama);
  const std::vector<TokenId> ids = value_or_throw(llama->encode("the", AddSpecialTokens::kNo));
  const auto text_of = [&](const wire::StreamOpen& open) {
    hear(open);
    return ask<wire::Text>(wire::Decode{.position = 0, .ids = ids, .final = true}).text;
  };
  EXPECT_EQ(text_of({}), "the");
  EXPECT_EQ(text_of({.continues = true}), " the");
}

TEST_F(TokenizerServiceTest, AStopStringThatCannotBeIsRefusedByName) {
  EXPECT_EQ(ask<wire::Failed>(wire::StreamOpen{.stop = {""}}).param, "stop");
}

TEST_F(TokenizerServiceTest, AClosedStreamIsGoneAndClosingTwiceIsFine) {
  hear(wire::StreamOpen{});
  hear(wire::StreamClose{});
  hear(wire::StreamClose{});
  EXPECT_EQ(ask<wire::Failed>(wire::Decode{.position = 0, .ids = {5}}).code, ErrorCode::kNotFound);
  EXPECT_EQ(service->status(), "0 streams");
}

TEST_F(TokenizerServiceTest, TheStreamUntouchedLongestMakesRoom) {
  make({.max_streams = 2}, {});
  const RequestId a{1, 1}, b{1, 2}, c{1, 3};
  hear(wire::StreamOpen{}, a);
  wait(milliseconds(1));
  hear(wire::StreamOpen{}, b);
  wait(milliseconds(1));
  ask<wire::Text>(wire::Decode{.position = 0, .ids = {300}}, a);
  hear(wire::StreamOpen{}, c);
  EXPECT_EQ(service->status(), "2 streams");
  ask<wire::Text>(wire::Decode{.position = 1, .ids = {300}}, a);
  EXPECT_EQ(ask<wire::Failed>(wire::Decode{.position = 0, .ids = {300}}, b).code,
            ErrorCode::kNotFound);
}

TEST_F(TokenizerServiceTest, AStreamNobodyTouchesIsForgotten) {
  hear(wire::StreamOpen{});
  wait(minutes(4));
  EXPECT_EQ(service->status(), "1 streams");
  wait(minutes(2));
  EXPECT_EQ(service->status(), "0 streams");
}

TEST_F(TokenizerServiceTest, AnotherLifeOfTheRouterWantsNothingOfTheFormer) {
  hear(wire::StreamOpen{});
  hear(wire::HelloReply{.accepted = true}, {}, 1);
  EXPECT_EQ(service->status(), "1 streams") << "the same life said hello again";
  hear(wire::HelloReply{.accepted = true}, {}, 2);
  EXPECT_EQ(service->status(), "0 streams");
}

TEST_F(TokenizerServiceTest, GarbageIsCountedAndNotAnswered) {
  service->on_message({.peer = {.socket = 1, .routing = {}}, .frames = {"garbage"}});
  service->on_message({.peer = {.socket = 1, .routing = {}}, .frames = {}});
  hear(wire::Tokens{.position = 0, .ids = {1}});  // well-formed, and not for a tokenizer
  EXPECT_THAT(bus.sent, IsEmpty());
  EXPECT_THAT(ask<wire::MetricsReply>(wire::MetricsRequest{}).text,
              HasSubstr("foretoken_frames_dropped_total 3"));
}

TEST_F(TokenizerServiceTest, ADrainServesUntilTheRouterNeedsItNoMore) {
  hear(wire::StreamOpen{});
  service->drain(bus.clock.now() + seconds(30));
  bool said_so = false;
  for (const auto& [to, message] : bus.sent)
    if (const auto* beat = std::get_if<wire::Heartbeat>(&message)) said_so = beat->draining;
  EXPECT_TRUE(said_so) << "at once, and not with the next heartbeat";
  for (int i = 0; i < 20; ++i) {
    wait(seconds(1));
    hear(wire::HeartbeatReply{.known = true, .needed = true}, {});
    ASSERT_FALSE(service->drained()) << i;
  }
  EXPECT_EQ(ask<wire::Encoded>(wire::Encode{.text = "a"}, {9, 9}).tokens,
            ids_of("a", AddSpecialTokens::kYes))
      << "accepted before, not encoded yet";
  hear(wire::HeartbeatReply{.known = true, .needed = false}, {});
  wait(milliseconds(0));
  EXPECT_TRUE(service->drained());
  EXPECT_TRUE(said_goodbye());
}

TEST_F(TokenizerServiceTest, ADrainEndsAtItsDeadlineAndMovesWhatIsLeft) {
  hear(wire::StreamOpen{});
  service->drain(bus.clock.now() + seconds(3));
  wait(milliseconds(2700));
  hear(wire::HeartbeatReply{.known = true, .needed = true}, {});
  EXPECT_FALSE(service->drained());
  wait(milliseconds(100));
  EXPECT_TRUE(service->drained());
  EXPECT_TRUE(said_goodbye()) << "so that the router replays it elsewhere";
}

TEST_F(TokenizerServiceTest, ADrainWaitsForNoRouterThatIsGone) {
  hear(wire::StreamOpen{});
  service->drain(bus.clock.now() + seconds(30));
  wait(seconds(4));
  EXPECT_FALSE(service->drained());
  wait(seconds(2));
  EXPECT_TRUE(service->drained()) << "silent for longer than RouterConnection::kRouterSilence";

  make({}, {});
  hear(wire::StreamOpen{});
  service->drain(bus.clock.now() + seconds(30));
  hear(wire::Goodbye{}, {}, 2);
  EXPECT_FALSE(service->drained()) << "of another life";
  hear(wire::Goodbye{}, {});
  EXPECT_TRUE(service->drained());
}

TEST_F(TokenizerServiceTest, AnIdleDrainEndsWithTheFirstAnswerOfTheRouter) {
  service->drain(bus.clock.now() + seconds(30));
  EXPECT_FALSE(service->drained());
  hear(wire::HeartbeatReply{.known = true, .needed = false}, {});
  EXPECT_TRUE(service->drained());
  EXPECT_TRUE(said_goodbye());
}

}  // namespace
}  // namespace foretoken
