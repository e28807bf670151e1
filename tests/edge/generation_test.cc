// A generation between a router and a client: what its stream has where there is nothing to say.
#include "services/edge/generation.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>

#include "services/edge/anthropic.h"
#include "tests/support/temp_folder.h"

namespace foretoken::edge {
namespace {

using namespace std::chrono_literals;

// A client that reads all at once.
struct StreamReader final : HttpExchange {
  std::atomic<int> n_pings = 0;
  std::string stream;

  boost::asio::awaitable<bool> begin_stream(HttpHeaders) override { co_return true; }
  boost::asio::awaitable<bool> write(std::string bytes) override {
    stream += bytes;
    if (bytes.find("event: ping\n") != std::string::npos) ++n_pings;
    co_return true;
  }
  boost::asio::awaitable<void> end_stream(bool) override { co_return; }
  boost::asio::awaitable<void> reply(HttpReply) override { throw std::logic_error("reply"); }
  const HttpRequest& request() const override { throw std::logic_error("request"); }
  bool replace_body(std::size_t) override { return true; }
  HeldRoom hold_answer(std::size_t) override { return HeldRoom::kFree; }
  void add_header(std::string, std::string) override {}
  unsigned status() const override { return 200; }
  bool is_gone() const override { return false; }
  void on_gone(std::function<void()>) override {}
};

// The part of a thought behind so many tokens of one byte each; the first says that it is one.
wire::ClientPiece part_of_thought(const std::string& id, std::uint32_t n_before) {
  constexpr std::string_view kBegin = "<think>";
  const auto offset = n_before == 0 ? 0 : static_cast<std::uint32_t>(kBegin.size()) + n_before;
  wire::ClientPiece piece{.id = id, .text = n_before == 0 ? std::string(kBegin) + "m" : "m"};
  piece.token_ids = {1};
  piece.position = n_before;
  piece.offset = offset;
  piece.token_ends = {offset + static_cast<std::uint32_t>(piece.text.size())};
  if (n_before == 0) piece.form = wire::AnswerForm{"hermes", {}, true, ""};
  return piece;
}

// A router whose model thinks, about a token a millisecond, until its client was pinged so often;
// then it ends the answer.
void think_until_pinged(ZmqTransport& door,
                        const std::atomic<int>& n_pings,
                        int wanted,
                        const std::stop_token& stop) {
  std::optional<Delivery> asked;
  while (!asked || asked->frames.empty()) {
    if (stop.stop_requested()) return;
    asked = door.receive(steady_now() + 10ms);
  }
  const auto request = wire::read_client_request(asked->frames.back());
  ASSERT_TRUE(request.request.ok());
  const auto answer = [&](const wire::ClientAnswer& part) {
    EXPECT_EQ(SendResult::kSent, door.send(asked->peer, Frames{wire::write_client_answer(part)}));
  };
  const TimePoint patience = steady_now() + 20s;
  for (std::uint32_t i = 0; n_pings < wanted && steady_now() < patience; ++i) {
    answer(part_of_thought(wire::hex_of(*request.request_id), i));
    (void)door.receive(steady_now() + 1ms);
  }
  answer(wire::client_error(*request.request_id, {ErrorCode::kDraining, "stopping"}, 0));
}

TEST(Generation, PingsWhilePiecesHaveNothingForTheClient) {
  constexpr int kPings = 3;
  test::TempFolder folder;
  BusSection bus;
  bus.client = "ipc://" + (folder.path() / "client").string();
  ZmqTransport door;
  door.bind(bus.client, Door::kClient);
  StreamReader client;
  const std::jthread router(
      [&](const std::stop_token& stop) { think_until_pinged(door, client.n_pings, kPings, stop); });
  boost::asio::io_context context;
  CallLimits limits;
  limits.timeout = 1h;
  Calls calls(context, bus, limits);
  Generation generation{.stream = true};
  generation.choices.resize(1);
  generation.choices.front().prompt = "Once";
  AnthropicAsk ask;
  ask.hides_thoughts = true;
  const auto encoder = message_encoder(ask, "1", "req-1");
  boost::asio::co_spawn(
      context, generate(client, calls, std::move(generation), *encoder, {.ping_every = 100ms}, {}),
      boost::asio::detached);
  context.run();
  calls.stop();
  EXPECT_GE(client.n_pings.load(), kPings);
  EXPECT_EQ(client.stream.find("thinking_delta"), std::string::npos);
}

}  // namespace
}  // namespace foretoken::edge
