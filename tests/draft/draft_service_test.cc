#include "services/draft/draft_service.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/spec/prefix_hash.h"
#include "kernels/include/backend.h"
#include "kernels/include/numerics.h"
#include "tests/support/scripted_model.h"

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr SocketId kRouter = 1, kTargets = 2;
constexpr Fingerprint kVocabulary = 77;

// Both links of a draft; the test is router and targets.
class DraftBus final : public Bus {
 public:
  TimePoint now() const override { return clock.now(); }
  SocketId bind(const std::string&, Door door) override {
    EXPECT_EQ(door, Door::kDraft);
    return kTargets;
  }
  SocketId connect(const std::string&) override { return kRouter; }
  void close(SocketId) override {}
  std::string endpoint(SocketId) const override { return "ipc://draft"; }
  SendResult send(const Peer& to, Frames frames) override {
    auto decoded = wire::decode(frames);
    EXPECT_TRUE(decoded.ok());
    if (to.socket == kTargets) sent.push_back(std::move(decoded->message));
    return SendResult::kSent;
  }
  std::optional<Delivery> receive(TimePoint) override { return std::nullopt; }

  ManualClock clock;
  std::vector<wire::Message> sent;  // to targets
};

class DraftServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    configure_log(LogLevel::kError, LogFormat::kText, "test");
    bus.clock.set(TimePoint{} + seconds(100));
    service.start(bus);
  }
  void hear(const wire::Message& message) {
    service.on_message({.peer = {.socket = kTargets, .routing = "t"},
                        .frames = wire::encode(target, {}, message)});
    for (int i = 0; i < 10; ++i) {
      service.on_turn(bus.now());
      bus.clock.advance(milliseconds(1));
    }
  }
  static wire::Attach attach() {
    wire::Attach attach{.seq = SeqId{1},
                        .lease = Lease{3},
                        .vocabulary = kVocabulary,
                        .noise_version = static_cast<std::uint8_t>(kNoiseVersion),
                        .n_prompt = 3,
                        .tokens = {5, 6, 7},
                        .budget = 4};
    attach.prefix = prefix_hash_extend(attach.root, attach.tokens);
    return attach;
  }
  // Why it will not serve this; empty if it guesses.
  std::string answer_to(const wire::Attach& message) {
    bus.sent.clear();
    hear(message);
    for (const wire::Message& answer : bus.sent) {
      if (const auto* need = std::get_if<wire::Need>(&answer)) {
        EXPECT_EQ(need->seq, message.seq);
        EXPECT_EQ(need->lease, message.lease);
        return std::string(wire::name_of(need->reason));
      }
      if (std::holds_alternative<wire::Proposal>(answer)) return "";
    }
    return "nothing";
  }

  DraftBus bus;
  std::unique_ptr<Backend> backend = make_backend({.n_threads = 1});
  ScriptedModel model{ScriptedOptions{}};
  wire::Speaker speaker{WorkerId{2}, Incarnation{2}};
  wire::Speaker target{WorkerId{1}, Incarnation{1}};
  DraftEngine engine{model, *backend, {.kv = {.n_blocks = 64}}};
  Metrics metrics;
  DraftService service{{.router = "ipc://router", .endpoint = "ipc://d", .vocabulary = kVocabulary},
                       {.role = wire::Role::kDraft},
                       engine,
                       speaker,
                       metrics};
};

TEST_F(DraftServiceTest, GuessesForATargetThatMeansTheSame) { EXPECT_EQ(answer_to(attach()), ""); }

TEST_F(DraftServiceTest, RefusesByNameWhatItWouldGuessForInVain) {
  wire::Attach vocabulary = attach();
  vocabulary.vocabulary = 78;
  EXPECT_EQ(answer_to(vocabulary), "refused");
  wire::Attach noise = attach();
  ++noise.noise_version;
  EXPECT_EQ(answer_to(noise), "refused");
  wire::Attach unknown_noise = attach();
  unknown_noise.noise_version = 0;
  EXPECT_EQ(answer_to(unknown_noise), "refused");
  wire::Attach rejection = attach();
  rejection.acceptance = wire::Acceptance::kRejection;
  EXPECT_EQ(answer_to(rejection), "refused");
  EXPECT_EQ(engine.snapshot().n_attached, 0u);
  EXPECT_EQ(answer_to(attach()), "") << "the same target, once it means the same";
}

TEST_F(DraftServiceTest, AnswersNothingToAnAttachThatCannotBe) {
  wire::Attach empty = attach();
  empty.tokens.clear();
  EXPECT_EQ(answer_to(empty), "nothing");
  wire::Attach long_prompt = attach();
  long_prompt.n_prompt = 4;
  EXPECT_EQ(answer_to(long_prompt), "nothing");
}

}  // namespace
}  // namespace foretoken
