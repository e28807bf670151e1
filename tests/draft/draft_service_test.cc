#include "services/draft/draft_service.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/spec/prefix_hash.h"
#include "kernels/include/backend.h"
#include "kernels/include/numerics.h"
#include "services/draft/memory_guesser.h"
#include "services/draft/model_guesser.h"
#include "tests/support/scripted_model.h"

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr SocketId kRouter = 1, kTargets = 2, kDoor = 3;
constexpr const char* kDoorEndpoint = "shm:///run/x/draft-0.memory";
constexpr Fingerprint kVocabulary = 77;

// Both links of a draft; the test is router and targets.
class DraftBus final : public Bus {
 public:
  TimePoint now() const override { return clock.now(); }
  SocketId bind(const std::string& where, Door door) override {
    EXPECT_EQ(door, Door::kDraft);
    if (where == kDoorEndpoint && !has_memory) throw FatalError(ErrorCode::kIo, "no memory today");
    return where == kDoorEndpoint ? kDoor : kTargets;
  }
  void hang_up(const Peer& peer) override { hung_up.push_back(peer.routing); }
  SocketId connect(const std::string&) override { return kRouter; }
  void close(SocketId) override {}
  std::string endpoint(SocketId) const override { return "ipc://draft"; }
  void send(const Peer& to, Frames frames, const Posting&) override {
    auto decoded = wire::decode(frames);
    EXPECT_TRUE(decoded.ok());
    EXPECT_NE(to.socket, kDoor);
    if (to.socket == kTargets) sent.push_back(std::move(decoded->message));
  }
  SendResult try_send(const Peer& to, const Frames& frames) override {
    auto decoded = wire::decode(frames);
    EXPECT_TRUE(decoded.ok());
    EXPECT_EQ(to.socket, kDoor);
    if (is_full) return SendResult::kBusy;
    if (std::count(hung_up.begin(), hung_up.end(), to.routing) > 0)
      ADD_FAILURE() << "it hung up on " << to.routing;
    sent_beside.push_back(std::move(decoded->message));
    return SendResult::kSent;
  }
  std::optional<Delivery> receive(TimePoint) override { return std::nullopt; }

  ManualClock clock;
  std::vector<wire::Message> sent;  // to targets
  std::vector<wire::Message> sent_beside;
  std::vector<std::string> hung_up;
  bool has_memory = true;
  bool is_full = false;
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
  void hear_router(const wire::Message& message) {
    wire::Speaker router{WorkerId{9}, Incarnation{1}};
    service.on_message(
        {.peer = {.socket = kRouter, .routing = {}}, .frames = wire::encode(router, {}, message)});
    service.on_turn(bus.now());
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
  ModelGuesser guesser{engine};
  Metrics metrics;
  DraftService service{{.router = "ipc://router",
                        .endpoint = "ipc://d",
                        .vocabulary = kVocabulary,
                        .memory_endpoint = kDoorEndpoint,
                        .cores = {.machine = "here", .cpus = {0, 1}, .n_threads = 2},
                        .run_ahead = 5},
                       {.role = wire::Role::kDraft},
                       guesser,
                       speaker,
                       metrics};
};

TEST_F(DraftServiceTest, GuessesForATargetThatMeansTheSame) { EXPECT_EQ(answer_to(attach()), ""); }

TEST_F(DraftServiceTest, SaysHowLongItTookForItsAnswer) {
  service.on_message(
      {.peer = {.socket = kTargets, .routing = "t"}, .frames = wire::encode(target, {}, attach())});
  bus.clock.advance(milliseconds(3));
  for (int i = 0; i < 10; ++i) service.on_turn(bus.now());
  const auto* answer = std::get_if<wire::Proposal>(&bus.sent.back());
  ASSERT_NE(nullptr, answer);
  EXPECT_EQ(3'000u, answer->records.at(0).took_us);
  hear_router(wire::MetricsRequest{});
  EXPECT_NE(metrics.text().find("spec_decode_round_seconds_sum{phase=\"propose\"} 0.003\n"),
            std::string::npos)
      << metrics.text();
}

// A zero of what a memory does not count would read as guesses of which none was right.
TEST_F(DraftServiceTest, ListsWhatItsKindOfGuesserCounts) {
  MemoryGuesser memory({.clock = [] { return TimePoint{}; }});
  Metrics of_memory;
  DraftService remembering{
      {.router = "ipc://router"}, {.role = wire::Role::kDraft}, memory, speaker, of_memory};
  remembering.start(bus);
  wire::Speaker router{WorkerId{9}, Incarnation{1}};
  remembering.on_message({.peer = {.socket = kRouter, .routing = {}},
                          .frames = wire::encode(router, {}, wire::MetricsRequest{})});
  hear_router(wire::MetricsRequest{});
  for (const char* name : {"draft_steps_total", "draft_tokens_kept_total", "draft_tokens_cut_total",
                           "draft_branches_total"}) {
    EXPECT_NE(metrics.text().find(name), std::string::npos) << name;
    EXPECT_EQ(of_memory.text().find(name), std::string::npos) << name;
  }
  EXPECT_NE(of_memory.text().find("draft_tokens_total"), std::string::npos);
}

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
  rejection.acceptance = AcceptanceRule::kRejection;
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

// ---- the link

class LinkedDraftServiceTest : public DraftServiceTest {
 protected:
  wire::LinkOffer offer_to(const std::string& machine) {
    bus.sent.clear();
    hear(wire::LinkAsk{machine});
    for (const wire::Message& answer : bus.sent)
      if (const auto* offer = std::get_if<wire::LinkOffer>(&answer)) return *offer;
    ADD_FAILURE() << "no offer";
    return {};
  }
  // The most tokens that came of an answer of four, from now on.
  std::size_t longest_chain() {
    bus.sent.clear();
    hear(attach());
    for (int i = 0; i < 30; ++i) service.on_turn(bus.now());
    std::size_t longest = 0;
    for (const wire::Message& message : bus.sent)
      if (const auto* proposal = std::get_if<wire::Proposal>(&message))
        for (const wire::ProposalRecord& record : proposal->records)
          longest = std::max(longest, record.tokens.size());
    return longest;
  }
  void hear_beside(const wire::Message& message, const std::string& link, wire::Speaker& who) {
    service.on_message(
        {.peer = {.socket = kDoor, .routing = link}, .frames = wire::encode(who, {}, message)});
    for (int i = 0; i < 10; ++i) {
      service.on_turn(bus.now());
      bus.clock.advance(milliseconds(1));
    }
  }
  void link(const std::string& name = "l") {
    const wire::LinkOffer offer = offer_to("here");
    bus.sent_beside.clear();
    hear_beside(wire::LinkOpen{offer.token}, name, target);
    ASSERT_EQ(bus.sent_beside, std::vector<wire::Message>{wire::LinkOpen{offer.token}});
    bus.sent_beside.clear();
  }
  static std::size_t n_proposals(const std::vector<wire::Message>& messages) {
    return static_cast<std::size_t>(
        std::count_if(messages.begin(), messages.end(),
                      [](const auto& m) { return std::holds_alternative<wire::Proposal>(m); }));
  }
  wire::Speaker stranger{WorkerId{77}, Incarnation{1}};
};

// A target that says nothing of its cores may share ours.
TEST_F(LinkedDraftServiceTest, RunsAheadForATargetThatLeavesItCoresOfItsOwn) {
  EXPECT_EQ(longest_chain(), 4u);
  hear(wire::LinkAsk{.machine = "here", .cpus = "0-3", .threads = 64});
  EXPECT_EQ(longest_chain(), 4u);
  hear(wire::LinkAsk{.machine = "here", .cpus = "nonsense", .threads = 1});
  EXPECT_EQ(longest_chain(), 4u);
  hear(wire::LinkAsk{.machine = "here", .cpus = "2-3", .threads = 64});
  EXPECT_EQ(longest_chain(), 9u);
}

// A guess for the one that is far away takes time of the one that is not.
TEST_F(LinkedDraftServiceTest, RunsAheadForNoneWhereATargetOfTheMachineSharesItsCores) {
  hear(wire::LinkAsk{.machine = "there", .cpus = "0-1", .threads = 2});
  wire::Speaker other{WorkerId{9}, Incarnation{9}};
  service.on_message(
      {.peer = {.socket = kTargets, .routing = "o"},
       .frames = wire::encode(other, {},
                              wire::LinkAsk{.machine = "here", .cpus = "1-3", .threads = 64})});
  EXPECT_EQ(longest_chain(), 4u);
  service.on_message({.peer = {.socket = kTargets, .routing = "o"},
                      .frames = wire::encode(other, {}, wire::Goodbye{.reason = "drained"})});
  EXPECT_EQ(longest_chain(), 9u);
}

// It would take a part of an answer for all of it.
TEST_F(LinkedDraftServiceTest, DoesNotRunAheadForATargetThatDoesNotSayWhatItComputesWith) {
  hear(wire::LinkAsk{.machine = "there"});
  EXPECT_EQ(longest_chain(), 4u);
}

TEST_F(LinkedDraftServiceTest, RunsAheadForATargetOnAnotherMachine) {
  hear(wire::LinkAsk{.machine = "there", .cpus = "0-1", .threads = 2});
  EXPECT_EQ(longest_chain(), 9u);
}

TEST_F(LinkedDraftServiceTest, ShowsItsDoorToWhoeverMayBeOnThisMachine) {
  for (const char* machine : {"here", ""}) {
    const wire::LinkOffer offer = offer_to(machine);
    EXPECT_EQ(offer.endpoint, kDoorEndpoint) << machine;
    EXPECT_NE(offer.token, 0u);
  }
  const wire::LinkOffer offer = offer_to("there");
  EXPECT_EQ(offer.endpoint, "");
  EXPECT_EQ(offer.token, 0u);
  EXPECT_NE(offer.reason.find("another machine"), std::string::npos);
}

TEST_F(LinkedDraftServiceTest, AnswersOnTheLinkAndFallsBackWhereItIsFull) {
  link();
  bus.sent.clear();
  hear(attach());
  EXPECT_GT(n_proposals(bus.sent_beside), 0u);
  EXPECT_EQ(n_proposals(bus.sent), 0u);
  bus.is_full = true;
  wire::Attach again = attach();
  again.lease = Lease{4};
  hear(again);
  EXPECT_GT(n_proposals(bus.sent), 0u);
}

TEST_F(LinkedDraftServiceTest, ShowsOutWhoeverHasNoTokenOrAnothers) {
  const wire::LinkOffer offer = offer_to("here");
  hear_beside(wire::LinkOpen{offer.token + 1}, "a", target);
  hear_beside(wire::LinkOpen{offer.token}, "b", stranger);
  hear_beside(wire::LinkOpen{0}, "c", stranger);
  hear_beside(wire::Goodbye{}, "d", target);
  EXPECT_EQ(bus.hung_up, (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_TRUE(bus.sent_beside.empty());
  hear_beside(wire::LinkOpen{offer.token}, "e", target);
  EXPECT_EQ(bus.sent_beside.size(), 1u);
  hear_beside(wire::LinkOpen{offer.token}, "f", target);
  EXPECT_EQ(bus.hung_up.back(), "f") << "a token opens one link";
}

TEST_F(LinkedDraftServiceTest, NobodyElseMaySpeakOnALink) {
  link();
  hear_beside(wire::Propose{}, "l", stranger);
  EXPECT_EQ(bus.hung_up, std::vector<std::string>{"l"});
  bus.sent.clear();
  hear(attach());
  EXPECT_GT(n_proposals(bus.sent), 0u) << "the target goes on as before";
}

TEST_F(LinkedDraftServiceTest, ShowsOutWhoeverSpeaksNoMessage) {
  service.on_message({.peer = {.socket = kDoor, .routing = "stranger"}, .frames = {"garbage"}});
  EXPECT_EQ(bus.hung_up, std::vector<std::string>{"stranger"});
  link();
  service.on_message({.peer = {.socket = kDoor, .routing = "l"}, .frames = {"garbage"}});
  EXPECT_EQ(bus.hung_up.back(), "l");
  service.on_message({.peer = {.socket = kTargets, .routing = "t"}, .frames = {"garbage"}});
  EXPECT_EQ(bus.hung_up.size(), 2u) << "a connection is not a link";
  bus.sent.clear();
  hear(attach());
  EXPECT_GT(n_proposals(bus.sent), 0u) << "the target goes on as before";
}

TEST_F(LinkedDraftServiceTest, ASecondFirstWordEndsTheLinkAndNotTheTarget) {
  link();
  const wire::LinkOffer offer = offer_to("here");
  hear_beside(wire::LinkOpen{offer.token}, "l", target);
  EXPECT_EQ(bus.hung_up, std::vector<std::string>{"l"});
  bus.sent.clear();
  hear(attach());
  EXPECT_GT(n_proposals(bus.sent), 0u);
  EXPECT_TRUE(bus.sent_beside.empty());
  hear_beside(wire::LinkOpen{offer.token}, "m", target);
  EXPECT_EQ(bus.sent_beside.size(), 1u) << "the token still opens one";
}

TEST_F(LinkedDraftServiceTest, ANewLinkTakesThePlaceOfTheOld) {
  link("old");
  link("new");
  EXPECT_EQ(bus.hung_up, std::vector<std::string>{"old"});
  hear(attach());
  EXPECT_GT(n_proposals(bus.sent_beside), 0u);
}

TEST_F(LinkedDraftServiceTest, ALinkEndsWithItsTarget) {
  link();
  hear(wire::Goodbye{});
  EXPECT_EQ(bus.hung_up, std::vector<std::string>{"l"});
}

// No message for an hour: that is no reason to close the link.
TEST_F(LinkedDraftServiceTest, AnIdleLinkStays) {
  link();
  for (int i = 0; i < 60; ++i) {
    bus.clock.advance(std::chrono::minutes(1));
    service.on_turn(bus.now());
  }
  EXPECT_TRUE(bus.hung_up.empty());
  bus.sent_beside.clear();
  hear(attach());
  EXPECT_GT(n_proposals(bus.sent_beside), 0u);
}

TEST_F(LinkedDraftServiceTest, ATargetGoesOnWithoutALinkThatIsOver) {
  link();
  service.on_closed({.socket = kDoor, .routing = "l"}, "it died");
  bus.sent.clear();
  hear(attach());
  EXPECT_GT(n_proposals(bus.sent), 0u);
  EXPECT_TRUE(bus.sent_beside.empty());
}

TEST_F(LinkedDraftServiceTest, SaysWhyThereIsNoDoor) {
  bus.has_memory = false;
  Metrics other_metrics;
  DraftService other({.router = "ipc://router",
                      .endpoint = "ipc://d",
                      .vocabulary = kVocabulary,
                      .memory_endpoint = kDoorEndpoint},
                     {.role = wire::Role::kDraft}, guesser, speaker, other_metrics);
  other.start(bus);
  other.on_message({.peer = {.socket = kTargets, .routing = "t"},
                    .frames = wire::encode(target, {}, wire::LinkAsk{"here"})});
  const auto* offer = std::get_if<wire::LinkOffer>(&bus.sent.back());
  ASSERT_NE(offer, nullptr);
  EXPECT_EQ(offer->endpoint, "");
  EXPECT_EQ(offer->reason, "no memory today");
}

TEST_F(DraftServiceTest, ADrainGuessesOnWhileTheRouterWantsIt) {
  hear_router(wire::HelloReply{.accepted = true});
  hear(attach());
  service.drain(bus.now() + seconds(30));
  for (int i = 0; i < 5; ++i) {
    bus.clock.advance(seconds(1));
    hear_router(wire::HeartbeatReply{.known = true, .needed = true});
    ASSERT_FALSE(service.drained());
  }
  hear_router(wire::HeartbeatReply{.known = true, .needed = false});
  EXPECT_TRUE(service.drained());
  EXPECT_TRUE(std::any_of(bus.sent.begin(), bus.sent.end(), [](const wire::Message& message) {
    return std::holds_alternative<wire::Goodbye>(message);
  })) << "its target need not find out by misses";
}

TEST_F(DraftServiceTest, AnIdleDrainLeavesAtOnce) {
  hear_router(wire::HelloReply{.accepted = true});
  service.drain(bus.now() + seconds(30));
  EXPECT_TRUE(service.drained());
}

TEST_F(DraftServiceTest, ADrainEndsAtItsDeadline) {
  hear_router(wire::HelloReply{.accepted = true});
  hear(attach());
  service.drain(bus.now() + seconds(2));
  bus.clock.advance(milliseconds(1700));
  hear_router(wire::HeartbeatReply{.known = true, .needed = true});
  EXPECT_FALSE(service.drained());
  bus.clock.advance(milliseconds(100));
  service.on_turn(bus.now());
  EXPECT_TRUE(service.drained());
}

}  // namespace
}  // namespace foretoken
