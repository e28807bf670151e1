#include "services/target/draft_proposer.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/spec/prefix_hash.h"
#include "common/spec/proposal.h"

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Fingerprint kVocabulary = 77;
constexpr PrefixHash kRoot = 12345;

// Remembers what was sent where; time stands still until told.
class RecordingBus final : public Bus {
 public:
  TimePoint now() const override { return clock.now(); }
  SocketId bind(const std::string&, Door) override { return ++last_; }
  SocketId connect(const std::string& endpoint) override {
    sockets[++last_] = endpoint;
    return last_;
  }
  void close(SocketId socket) override { sockets.erase(socket); }
  std::string endpoint(SocketId) const override { return {}; }
  void send(const Peer& to, Frames frames, const Posting& posting) override {
    EXPECT_FALSE(is_door(sockets.at(to.socket)));
    auto decoded = wire::decode(frames);
    EXPECT_TRUE(decoded.ok());
    sent.emplace_back(sockets.at(to.socket), decoded->message);
    last_socket = to.socket;
    last_posting = posting;
  }
  SendResult try_send(const Peer& to, const Frames& frames) override {
    EXPECT_TRUE(is_door(sockets.at(to.socket)));
    if (sockets.at(to.socket) == full) return SendResult::kBusy;
    auto decoded = wire::decode(frames);
    EXPECT_TRUE(decoded.ok());
    sent.emplace_back(sockets.at(to.socket), decoded->message);
    return SendResult::kSent;
  }
  static bool is_door(const std::string& endpoint) { return endpoint.starts_with("shm://"); }
  std::optional<Delivery> receive(TimePoint) override { return std::nullopt; }

  // The messages of one type sent to one draft, which are then forgotten.
  template <class M>
  std::vector<M> take(const std::string& endpoint) {
    std::vector<M> found;
    std::erase_if(sent, [&](const auto& entry) {
      const M* message = std::get_if<M>(&entry.second);
      if (entry.first != endpoint || message == nullptr) return false;
      found.push_back(*message);
      return true;
    });
    return found;
  }

  ManualClock clock;
  std::map<SocketId, std::string> sockets;
  std::vector<std::pair<std::string, wire::Message>> sent;
  SocketId last_socket = 0;  // of send()
  Posting last_posting;
  std::string full;  // an endpoint that takes nothing

 private:
  SocketId last_ = 0;
};

class DraftProposerTest : public testing::Test {
 protected:
  void SetUp() override {
    bus.clock.set(TimePoint{} + seconds(100));
    drafts.start(bus);
    store.open(SeqId{1}, stored);
  }
  void assign(std::uint64_t id,
              std::uint64_t incarnation = 1,
              std::uint32_t places = 8,
              Fingerprint vocabulary = kVocabulary,
              std::uint32_t order = 0) {
    drafts.assign({.draft = WorkerId{id},
                   .incarnation = Incarnation{incarnation},
                   .name = "draft-" + std::to_string(id),
                   .endpoint = endpoint(id),
                   .fingerprints = {.vocabulary = vocabulary},
                   .max_sequences = places,
                   .order = order});
  }
  static std::string endpoint(std::uint64_t id) { return "ipc://draft-" + std::to_string(id); }
  void open(std::uint64_t seq) { drafts.open(opening(seq)); }
  Opening opening(std::uint64_t seq) {
    texts.insert_or_assign(seq, CommittedTokens(kRoot, prompt));
    return {.seq = SeqId{seq},
            .text = texts.at(seq),
            .n_prompt = static_cast<std::uint32_t>(prompt.size()),
            .params = params,
            .prediction = {},
            .tenant_salt = 77};
  }
  // `answer`: all committed tokens after the prompt.
  void ask(std::uint64_t seq, const std::vector<TokenId>& answer, std::uint32_t budget = 4) {
    CommittedTokens& text = texts.at(seq);
    for (std::size_t i = text.size() - prompt.size(); i < answer.size(); ++i)
      text.append(answer[i]);
    const Ask one{.seq = SeqId{seq}, .budget = budget, .step = target_step};
    drafts.ask(std::span(&one, 1));
  }
  // What a draft says about sequence 1.
  void propose(std::uint64_t draft,
               std::uint32_t lease,
               std::uint32_t epoch,
               const std::vector<TokenId>& tokens,
               Position base = 3,
               std::uint64_t incarnation = 1,
               std::uint32_t took_us = 0) {
    wire::Proposal proposal;
    proposal.records.push_back({.seq = SeqId{1},
                                .lease = Lease{lease},
                                .epoch = Epoch{epoch},
                                .base = base,
                                .prefix = prefix_hash_extend(kRoot, std::span(prompt).first(base)),
                                .tokens = tokens,
                                .confidence = std::vector<std::uint8_t>(tokens.size(), 200),
                                .known = base,
                                .took_us = took_us});
    tell(draft, proposal, incarnation);
  }
  void tell(std::uint64_t draft, wire::Message message, std::uint64_t incarnation = 1) {
    wire::Header header;
    header.sender = WorkerId{draft};
    header.incarnation = Incarnation{incarnation};
    for (const auto& [socket, where] : bus.sockets)
      if (where == endpoint(draft)) return drafts.on_message(socket, header, std::move(message));
  }
  DraftReadiness readiness(std::uint64_t seq = 1) {
    return drafts.outlook(SeqId{seq}, bus.now()).readiness;
  }

  RecordingBus bus;
  wire::Speaker speaker{WorkerId{9}, Incarnation{9}};
  DraftProposer drafts{{.vocabulary = kVocabulary, .end_tokens = {}, .rules = {}}, speaker};
  std::vector<TokenId> prompt{5, 6, 7};
  SamplingParams params;
  CommittedTokens stored{kRoot, prompt};
  std::map<std::uint64_t, CommittedTokens> texts;
  Duration target_step{};
  ProposalStore store{100};
};

TEST_F(DraftProposerTest, AttachesAtOnceWithEverythingTheDraftNeeds) {
  assign(1);
  open(1);
  const auto attaches = bus.take<wire::Attach>(endpoint(1));
  ASSERT_EQ(1u, attaches.size());
  EXPECT_EQ(prompt, attaches[0].tokens);
  EXPECT_EQ(prefix_hash_extend(kRoot, prompt), attaches[0].prefix);
  EXPECT_EQ(kRoot, attaches[0].root);
  EXPECT_EQ(77u, attaches[0].tenant_salt) << "or tenants share the draft's prefix cache";
  EXPECT_EQ(3u, attaches[0].n_prompt);
  EXPECT_EQ(DraftReadiness::kOpening, readiness());
}

TEST_F(DraftProposerTest, ASequenceWithoutADraftIsDetachedUntilOneIsAssigned) {
  open(1);
  EXPECT_EQ(DraftReadiness::kDetached, readiness());
  assign(1);
  EXPECT_EQ(DraftReadiness::kOpening, readiness());
  EXPECT_EQ(1u, bus.take<wire::Attach>(endpoint(1)).size());
}

TEST_F(DraftProposerTest, WhatIsNotAskedSoonIsAttachedByTheFirstAsk) {
  Opening later = opening(1);
  later.is_asked_soon = false;
  drafts.open(later);
  EXPECT_EQ(DraftReadiness::kDetached, readiness()) << "there is no draft";
  assign(1);
  drafts.turn(bus.now());
  EXPECT_EQ(DraftReadiness::kUnasked, readiness());
  EXPECT_EQ(0u, bus.take<wire::Attach>(endpoint(1)).size());
  ask(1, {8, 9});
  const auto attaches = bus.take<wire::Attach>(endpoint(1));
  ASSERT_EQ(1u, attaches.size());
  EXPECT_EQ((std::vector<TokenId>{5, 6, 7, 8, 9}), attaches[0].tokens);
  EXPECT_EQ(DraftReadiness::kOpening, readiness());
}

TEST_F(DraftProposerTest, AUsableRecordFillsTheStoreAndActivates) {
  assign(1);
  open(1);
  propose(1, 1, 0, {8, 9});
  drafts.collect(bus.now(), store);
  EXPECT_EQ(2u, store.edges(SeqId{1}).size());
  EXPECT_EQ(DraftReadiness::kReady, readiness());
}

// A target that reads a long prompt asks nothing, and a draft frees what it has not heard of for
// ten seconds.
TEST_F(DraftProposerTest, RenewsTheLeasesOfSequencesThatAreNotAskedFor) {
  assign(1);
  assign(2);
  open(1);
  bus.take<wire::Attach>(endpoint(1));
  int n_renewals = 0;
  for (int i = 0; i < 100; ++i) {
    bus.clock.advance(milliseconds(100));
    drafts.turn(bus.now());
    for (const wire::Propose& frame : bus.take<wire::Propose>(endpoint(1))) {
      EXPECT_TRUE(frame.records.empty());
      ++n_renewals;
    }
  }
  EXPECT_EQ(n_renewals, 5) << "every two seconds";
  EXPECT_TRUE(bus.take<wire::Propose>(endpoint(2)).empty()) << "it has no sequence";
}

// Eight prompts at once at a draft that needs 20 ms for a token, as far as a prompt of three can
// tell.
TEST_F(DraftProposerTest, WaitsForThePrefillOfAllThatOpenAsLongAsItWasMeasuredToTake) {
  assign(1, 1, 16);
  open(1);
  bus.clock.advance(milliseconds(64 * 20));
  propose(1, 1, 0, {8});
  drafts.collect(bus.now(), store);
  ASSERT_EQ(DraftReadiness::kReady, readiness());
  prompt.assign(40, 5);
  for (std::uint64_t seq = 2; seq < 10; ++seq) open(seq);
  ask(9, {8});
  bus.clock.advance(milliseconds(320 * 20 + 2000));
  ask(9, {8});
  EXPECT_EQ(DraftReadiness::kOpening, readiness(9));
  EXPECT_TRUE(drafts.take_lost().empty());
  bus.clock.advance(milliseconds(320 * 20));
  ask(9, {8});
  EXPECT_EQ(DraftReadiness::kDetached, readiness(9)) << "twice that and the grace are over";
}

TEST_F(DraftProposerTest, ATargetOfLongStepsWaitsLongerForAnAnswer) {
  assign(1);
  open(1);
  propose(1, 1, 0, {8});
  drafts.collect(bus.now(), store);
  target_step = seconds(1);
  ask(1, {8});
  for (int i = 0; i < 2; ++i) {
    bus.clock.advance(seconds(1));
    ask(1, {8});
    EXPECT_EQ(DraftReadiness::kReady, readiness()) << i;
  }
  bus.clock.advance(seconds(1));
  ask(1, {8});
  EXPECT_EQ(DraftReadiness::kUnready, readiness());
}

TEST_F(DraftProposerTest, TransportIsWhatIsLeftOfTheWayToAnAnswer) {
  assign(1);
  open(1);
  ask(1, {8});
  bus.clock.advance(milliseconds(10));
  propose(1, 1, 1, {8, 9}, 3, 1, /*took_us=*/4'000);
  bus.clock.advance(milliseconds(5));  // in the engine's pass
  drafts.collect(bus.now(), store);
  EXPECT_EQ(1u, drafts.transport().count());
  EXPECT_DOUBLE_EQ(0.006, drafts.transport().sum());
  ask(1, {8});
  propose(1, 1, 2, {8, 9});                // a draft that does not say how long it took
  propose(1, 1, 77, {8, 9}, 3, 1, 4'000);  // that was never asked
  drafts.collect(bus.now(), store);
  EXPECT_EQ(1u, drafts.transport().count());
}

TEST_F(DraftProposerTest, TailsAreCumulativeFromWhatTheDraftConfirmed) {
  assign(1);
  open(1);
  ask(1, {8});
  auto frames = bus.take<wire::Propose>(endpoint(1));
  ASSERT_EQ(1u, frames.size());
  ASSERT_EQ(1u, frames[0].records.size());
  EXPECT_EQ(3u, frames[0].records[0].from);
  EXPECT_EQ(std::vector<TokenId>{8}, frames[0].records[0].tail);
  ask(1, {8, 9});  // the engine's tail begins where it told us last; ours where the draft stands
  frames = bus.take<wire::Propose>(endpoint(1));
  ASSERT_EQ(1u, frames.size());
  EXPECT_EQ((std::vector<TokenId>{8, 9}), frames[0].records[0].tail);
  EXPECT_EQ(Epoch{2}, frames[0].records[0].epoch);
}

TEST_F(DraftProposerTest, NothingFromOtherLeasesLivesOrVocabulariesIsUsed) {
  assign(1);
  assign(2, 1, 8, kVocabulary + 1);
  EXPECT_EQ(1u, drafts.n_drafts()) << "a draft of another vocabulary";
  open(1);
  propose(1, 2, 0, {8});
  propose(1, 0, 0, {8});
  propose(1, 1, 0, {8}, 3, 99);
  drafts.collect(bus.now(), store);
  EXPECT_EQ(0u, store.edges(SeqId{1}).size());
  EXPECT_EQ(DraftReadiness::kOpening, readiness());
  EXPECT_EQ(3u, drafts.counters().stale);
}

TEST_F(DraftProposerTest, SequencesAreSpreadOverDrafts) {
  assign(1);
  assign(2);
  for (std::uint64_t seq = 1; seq <= 4; ++seq) open(seq);
  EXPECT_EQ(2u, bus.take<wire::Attach>(endpoint(1)).size());
  EXPECT_EQ(2u, bus.take<wire::Attach>(endpoint(2)).size());
}

TEST_F(DraftProposerTest, OfEquallyFreeDraftsTheRoutersOrderDecides) {
  assign(1, 1, 8, kVocabulary, 1);
  assign(2, 1, 8, kVocabulary, 0);
  open(1);
  EXPECT_EQ(1u, bus.take<wire::Attach>(endpoint(2)).size());
  open(2);
  EXPECT_EQ(1u, bus.take<wire::Attach>(endpoint(1)).size());
  // A repeated ASSIGN may say another one: a target has come or gone.
  assign(1, 1, 8, kVocabulary, 0);
  assign(2, 1, 8, kVocabulary, 1);
  open(3);
  EXPECT_EQ(1u, bus.take<wire::Attach>(endpoint(1)).size());
}

TEST_F(DraftProposerTest, AFullDraftGetsNoMore) {
  assign(1, 1, 1);
  open(1);
  open(2);
  EXPECT_EQ(1u, bus.take<wire::Attach>(endpoint(1)).size());
  EXPECT_EQ(DraftReadiness::kDetached, readiness(2));
  drafts.close(SeqId{1});
  EXPECT_EQ(1u, bus.take<wire::CloseSequence>(endpoint(1)).size());
  drafts.turn(bus.now());
  EXPECT_EQ(DraftReadiness::kOpening, readiness(2));
}

TEST_F(DraftProposerTest, TheSequencesOfALostDraftMoveToAnotherUnderANewLease) {
  assign(1);
  open(1);
  propose(1, 1, 0, {8});
  drafts.collect(bus.now(), store);
  assign(2);
  drafts.unassign(WorkerId{1}, Incarnation{1});
  const auto attaches = bus.take<wire::Attach>(endpoint(2));
  ASSERT_EQ(1u, attaches.size());
  EXPECT_EQ(Lease{2}, attaches[0].lease);
  EXPECT_EQ(DraftReadiness::kOpening, readiness());
}

TEST_F(DraftProposerTest, ADraftThatComesBackIsAttachedAgain) {
  assign(1, 1);
  open(1);
  drafts.unassign(WorkerId{1}, Incarnation{1});
  EXPECT_EQ(DraftReadiness::kDetached, readiness());
  bus.sent.clear();
  assign(1, 2);
  const auto attaches = bus.take<wire::Attach>(endpoint(1));
  ASSERT_EQ(1u, attaches.size());
  EXPECT_EQ(Lease{2}, attaches[0].lease);
}

TEST_F(DraftProposerTest, ADraftThatStopsAnsweringIsLetGoAndReported) {
  assign(1);
  open(1);
  propose(1, 1, 0, {8});
  drafts.collect(bus.now(), store);
  for (int round = 0; round < 6; ++round) {
    ask(1, {8});
    bus.clock.advance(milliseconds(25));
  }
  EXPECT_EQ(DraftReadiness::kDetached, readiness());
  const auto lost = drafts.take_lost();
  ASSERT_EQ(1u, lost.size());
  EXPECT_EQ(WorkerId{1}, lost[0].draft);
  bus.sent.clear();
  bus.clock.advance(seconds(1));
  ask(1, {8});
  EXPECT_EQ(1u, bus.take<wire::Attach>(endpoint(1)).size()) << "probed after a second";
}

TEST_F(DraftProposerTest, ALaggingDraftIsLeftForOneThatAnswers) {
  assign(1);
  open(1);
  propose(1, 1, 0, {8});
  drafts.collect(bus.now(), store);
  assign(2);
  for (int round = 0; round < 6 && bus.take<wire::Attach>(endpoint(2)).empty(); ++round) {
    ask(1, {8});
    bus.clock.advance(milliseconds(25));
  }
  EXPECT_EQ(DraftReadiness::kOpening, readiness());
  const auto closes = bus.take<wire::CloseSequence>(endpoint(1));
  ASSERT_EQ(1u, closes.size()) << "its place is free again";
  EXPECT_EQ(Lease{1}, closes[0].lease);
}

TEST_F(DraftProposerTest, NeedGapIsAnsweredFromWhatTheDraftKnows) {
  assign(1);
  open(1);
  ask(1, {8, 9});
  bus.sent.clear();
  tell(1, wire::Need{.seq = SeqId{1},
                     .lease = Lease{1},
                     .known = 2,
                     .prefix = prefix_hash_extend(kRoot, std::span(prompt).first(2)),
                     .reason = NeedReason::kGap});
  drafts.turn(bus.now());
  const auto frames = bus.take<wire::Propose>(endpoint(1));
  ASSERT_EQ(1u, frames.size());
  EXPECT_EQ(2u, frames[0].records[0].from);
  EXPECT_EQ((std::vector<TokenId>{7, 8, 9}), frames[0].records[0].tail);
}

TEST_F(DraftProposerTest, NeedUnknownIsAnsweredWithEverything) {
  assign(1);
  open(1);
  ask(1, {8});
  bus.sent.clear();
  tell(1, wire::Need{.seq = SeqId{1}, .lease = Lease{1}, .reason = NeedReason::kUnknown});
  const auto attaches = bus.take<wire::Attach>(endpoint(1));
  ASSERT_EQ(1u, attaches.size());
  EXPECT_EQ((std::vector<TokenId>{5, 6, 7, 8}), attaches[0].tokens);
  EXPECT_EQ(3u, attaches[0].n_prompt);
}

TEST_F(DraftProposerTest, AnAttachThatCouldNotLeaveIsSentAgain) {
  assign(1);
  open(1);
  EXPECT_EQ(1u, bus.take<wire::Attach>(endpoint(1)).size());
  const Posting lost = bus.last_posting;
  ASSERT_NE(lost.ticket, Ticket{});
  EXPECT_EQ(lost.patience, Duration{}) << "said anew, with the tokens that there are by then";
  drafts.on_dropped(bus.last_socket, lost.ticket);
  drafts.turn(bus.now());
  EXPECT_TRUE(bus.take<wire::Attach>(endpoint(1)).empty()) << "not at once";
  ask(1, {8});
  EXPECT_TRUE(bus.take<wire::Propose>(endpoint(1)).empty()) << "it is not attached";
  bus.clock.advance(milliseconds(2));
  drafts.turn(bus.now());
  const auto attaches = bus.take<wire::Attach>(endpoint(1));
  ASSERT_EQ(1u, attaches.size());
  EXPECT_EQ((std::vector<TokenId>{5, 6, 7, 8}), attaches[0].tokens);
  // What is known of an earlier one is no news.
  drafts.on_dropped(bus.last_socket, lost.ticket);
  bus.clock.advance(milliseconds(2));
  drafts.turn(bus.now());
  EXPECT_TRUE(bus.take<wire::Attach>(endpoint(1)).empty());
}

TEST_F(DraftProposerTest, ADraftThatAlwaysNeedsMoreDoesNotGetThePromptAtEachStep) {
  assign(1);
  open(1);
  propose(1, 1, 0, {8});
  drafts.collect(bus.now(), store);
  bus.sent.clear();
  std::size_t n_attaches = 0, n_tokens = 0;
  for (int step = 0; step < 1000; ++step) {
    ask(1, {});
    tell(1, wire::Need{.seq = SeqId{1}, .lease = Lease{1}, .reason = NeedReason::kEvicted});
    // It has one token, it says: then all the others are the tail.
    tell(1, wire::Need{.seq = SeqId{1},
                       .lease = Lease{1},
                       .known = 1,
                       .prefix = prefix_hash_extend(kRoot, std::span(prompt).first(1)),
                       .reason = NeedReason::kGap});
    drafts.turn(bus.now());
    n_attaches += bus.take<wire::Attach>(endpoint(1)).size();
    for (const wire::Propose& propose : bus.take<wire::Propose>(endpoint(1)))
      for (const wire::ProposeRecord& record : propose.records) n_tokens += record.tail.size();
    bus.clock.advance(milliseconds(1));
  }
  EXPECT_GE(n_attaches, 2u);
  EXPECT_LE(n_attaches, 8u);
  EXPECT_LE(n_tokens, 8u * 2u);
}

TEST_F(DraftProposerTest, ADraftThatRefusesIsLeftAlone) {
  assign(1);
  open(1);
  tell(1, wire::Need{.seq = SeqId{1}, .lease = Lease{1}, .reason = NeedReason::kRefused});
  EXPECT_EQ(DraftReadiness::kDetached, readiness());
  bus.sent.clear();
  for (int i = 0; i < 100; ++i) {
    ask(1, {});
    drafts.turn(bus.now());
    bus.clock.advance(milliseconds(100));
  }
  EXPECT_TRUE(bus.sent.empty());
  EXPECT_TRUE(drafts.take_lost().empty()) << "it did answer";
  open(2);
  EXPECT_TRUE(bus.sent.empty()) << "what differs is the same for every sequence";
  assign(1, 2);
  EXPECT_EQ(2u, bus.take<wire::Attach>(endpoint(1)).size()) << "its next life may be another";
}

TEST_F(DraftProposerTest, ASequenceThatADraftRefusesGoesToAnother) {
  assign(1);
  open(1);
  assign(2);
  tell(1, wire::Need{.seq = SeqId{1}, .lease = Lease{1}, .reason = NeedReason::kRefused});
  EXPECT_EQ(1u, bus.take<wire::Attach>(endpoint(2)).size());
  EXPECT_TRUE(drafts.take_lost().empty());
}

TEST_F(DraftProposerTest, ASequenceThatTheOnlyDraftRefusesGoesToOneThatComesLater) {
  assign(1);
  open(1);
  tell(1, wire::Need{.seq = SeqId{1}, .lease = Lease{1}, .reason = NeedReason::kRefused});
  assign(2);
  EXPECT_EQ(1u, bus.take<wire::Attach>(endpoint(2)).size());
}

// An idle target collects nothing.
TEST_F(DraftProposerTest, ARecordThatCannotBeUsedIsNotKept) {
  assign(1);
  propose(1, 1, 0, {8});
  EXPECT_EQ(1u, drafts.counters().stale) << "of no sequence";
  open(1);
  propose(1, 1, 0, std::vector<TokenId>(16 * kMaxDraftTokens + 1, 8));
  EXPECT_EQ(1u, drafts.counters().malformed) << "larger than any guess";
  propose(1, 1, 0, {8});
  drafts.collect(bus.now(), store);
  EXPECT_EQ(1u, drafts.counters().usable);
}

TEST_F(DraftProposerTest, ACloseWaitsForAFullDraftForAsLongAsItHoldsThePlace) {
  assign(1);
  open(1);
  drafts.close(SeqId{1});
  const auto closes = bus.take<wire::CloseSequence>(endpoint(1));
  ASSERT_EQ(1u, closes.size());
  EXPECT_EQ(Lease{1}, closes[0].lease);
  EXPECT_EQ(bus.last_posting.patience, seconds(10));
}

TEST_F(DraftProposerTest, AMemoryHearsTheLastTokensWithTheEndAndIsASourceOfItsOwn) {
  assign(1);
  open(1);
  ask(1, {8, 9});
  drafts.close(SeqId{1});
  EXPECT_TRUE(bus.take<wire::CloseSequence>(endpoint(1)).at(0).tail.empty()) << "a model";
  DraftProposer memories({.kind = ProposerKind::kMemory, .vocabulary = kVocabulary}, speaker);
  EXPECT_EQ(memories.kind(), ProposerKind::kMemory);
  memories.start(bus);
  memories.assign({.draft = WorkerId{2},
                   .incarnation = Incarnation{1},
                   .name = "draft-memory",
                   .endpoint = endpoint(2),
                   .fingerprints = {.vocabulary = kVocabulary},
                   .max_sequences = 8,
                   .source = wire::DraftSource::kMemory});
  memories.open(opening(1));
  EXPECT_EQ(bus.take<wire::Attach>(endpoint(2)).at(0).tenant_salt, 77u);
  wire::Proposal proposal;
  proposal.records.push_back({.seq = SeqId{1},
                              .lease = Lease{1},
                              .base = 3,
                              .prefix = prefix_hash_extend(kRoot, prompt),
                              .tokens = {8, 4},
                              .confidence = {200, 200},
                              .known = 3});
  wire::Header header;
  header.sender = WorkerId{2};
  header.incarnation = Incarnation{1};
  for (const auto& [socket, where] : bus.sockets)
    if (where == endpoint(2)) memories.on_message(socket, header, proposal);
  memories.collect(bus.now(), store);
  ASSERT_EQ(store.edges(SeqId{1}).size(), 2u);
  for (const auto& edge : store.edges(SeqId{1})) EXPECT_EQ(edge.source, ProposerKind::kMemory);
  texts.at(1).append(8);
  texts.at(1).append(9);
  memories.close(SeqId{1});
  const auto closes = bus.take<wire::CloseSequence>(endpoint(2));
  ASSERT_EQ(closes.size(), 1u);
  EXPECT_EQ(closes[0].from, 3u);
  EXPECT_EQ(closes[0].tail, (std::vector<TokenId>{8, 9}));
}

TEST_F(DraftProposerTest, ALyingDraftIsReleasedAfterSixteenMalformedRecords) {
  assign(1);
  open(1);
  for (int i = 0; i < 16; ++i) propose(1, 1, 0, {1000});  // beyond the vocabulary
  drafts.collect(bus.now(), store);
  EXPECT_EQ(DraftReadiness::kDetached, readiness());
  EXPECT_EQ(1u, bus.take<wire::CloseSequence>(endpoint(1)).size());
  EXPECT_EQ(0u, store.edges(SeqId{1}).size());
}

TEST_F(DraftProposerTest, ADraftWhoseGuessesAreNeverRightIsSetAsideAndTriedAgainLater) {
  assign(1);
  open(1);
  assign(2);
  bus.sent.clear();
  const auto round = [&](std::uint32_t n_verified) {
    texts.at(1).append(9);
    const Ask one{.seq = SeqId{1}, .budget = 4, .n_verified = n_verified};
    drafts.ask(std::span(&one, 1));
    drafts.ask(std::span(&one, 1));  // asked twice: the round counts once
    drafts.turn(bus.now());
  };
  round(500);  // of no ask of ours
  for (int i = 0; i < 249; ++i) round(4);
  EXPECT_TRUE(drafts.set_aside().empty());
  EXPECT_TRUE(bus.take<wire::Attach>(endpoint(2)).empty());
  round(4);
  const auto aside = drafts.set_aside();
  ASSERT_EQ(1u, aside.size());
  EXPECT_EQ((wire::DraftSetAside{WorkerId{1}, "0 of 1000 proposals accepted", 30}), aside[0]);
  EXPECT_EQ(1u, bus.take<wire::CloseSequence>(endpoint(1)).size()) << "its place is free again";
  EXPECT_EQ(1u, bus.take<wire::Attach>(endpoint(2)).size()) << "another one guesses";
  open(2);
  EXPECT_EQ(1u, bus.take<wire::Attach>(endpoint(2)).size());
  EXPECT_TRUE(bus.take<wire::Attach>(endpoint(1)).empty());
  bus.clock.advance(seconds(30));
  EXPECT_TRUE(drafts.set_aside().empty());
  open(3);
  EXPECT_EQ(1u, bus.take<wire::Attach>(endpoint(1)).size());
}

TEST_F(DraftProposerTest, ADraftOfMalformedRecordsIsSetAsideAndAloneItIsDecodedPlainly) {
  assign(1);
  open(1);
  for (int i = 0; i < 32; ++i) propose(1, 1, 0, {1000});
  drafts.collect(bus.now(), store);
  drafts.turn(bus.now());
  const auto aside = drafts.set_aside();
  ASSERT_EQ(1u, aside.size());
  EXPECT_EQ("32 malformed records", aside[0].reason);
  bus.sent.clear();
  ask(1, {9});
  drafts.turn(bus.now());
  open(2);
  EXPECT_TRUE(bus.sent.empty()) << "it hears nothing";
  bus.clock.advance(seconds(30));
  drafts.turn(bus.now());
  EXPECT_EQ(2u, bus.take<wire::Attach>(endpoint(1)).size()) << "both sequences go there again";
}

TEST_F(DraftProposerTest, BytesThatAreNoMessageCountAgainstTheDraftThatSentThem) {
  assign(1);
  assign(2);
  for (int i = 0; i < 32; ++i) drafts.on_malformed(bus.sockets.begin()->first);
  drafts.turn(bus.now());
  const auto aside = drafts.set_aside();
  ASSERT_EQ(1u, aside.size());
  EXPECT_EQ(endpoint(aside[0].draft.value), bus.sockets.begin()->second);
}

TEST_F(DraftProposerTest, ABusyDraftIsAskedForNothingUntilItIsNot) {
  assign(1);
  open(1);
  tell(1, wire::DraftBusy{.seq = SeqId{1}, .lease = Lease{1}, .retry_after_us = 100'000});
  ask(1, {8});
  EXPECT_EQ(0u, bus.take<wire::Propose>(endpoint(1)).at(0).records.at(0).budget);
  bus.clock.advance(milliseconds(100));
  ask(1, {8, 9});
  EXPECT_EQ(4u, bus.take<wire::Propose>(endpoint(1)).at(0).records.at(0).budget);
}

TEST_F(DraftProposerTest, AFullDraftIsSentThePromptEachSecondAndIsNotReported) {
  assign(1);
  open(1);
  std::size_t n_attaches = 0;
  for (int step = 0; step < 200; ++step) {
    ask(1, {});
    const std::size_t n = bus.take<wire::Attach>(endpoint(1)).size();
    const bool is_asked = !bus.take<wire::Propose>(endpoint(1)).empty();
    if (n > 0)
      tell(1, wire::DraftBusy{.seq = SeqId{1}, .lease = Lease{1}, .retry_after_us = 250'000});
    if (is_asked) tell(1, wire::Need{.seq = SeqId{1}, .lease = Lease{1}});
    n_attaches += n;
    bus.clock.advance(milliseconds(25));
  }
  EXPECT_EQ(n_attaches, 5u);
  EXPECT_TRUE(drafts.take_lost().empty()) << "it does answer";
}

TEST_F(DraftProposerTest, ASilentDraftIsReportedThoughItWasFullAMomentAgo) {
  assign(1);
  open(1);
  open(2);
  propose(1, 1, 0, {8});
  drafts.collect(bus.now(), store);
  tell(1, wire::DraftBusy{.seq = SeqId{2}, .lease = Lease{1}, .retry_after_us = 250'000});
  tell(1, wire::Need{.seq = SeqId{2}, .lease = Lease{1}});
  for (int round = 0; round < 6; ++round) {
    ask(1, {8});
    bus.clock.advance(milliseconds(25));
  }
  EXPECT_EQ(1u, drafts.take_lost().size());
}

TEST_F(DraftProposerTest, ASequenceWithoutAPlaceAtAFullDraftGoesToAnother) {
  assign(1);
  open(1);
  assign(2);
  tell(1, wire::DraftBusy{.seq = SeqId{1}, .lease = Lease{1}, .retry_after_us = 250'000});
  tell(1, wire::Need{.seq = SeqId{1}, .lease = Lease{1}});
  EXPECT_EQ(1u, bus.take<wire::Attach>(endpoint(2)).size());
  EXPECT_TRUE(drafts.take_lost().empty());
}

// ---- tokens as they are made

TEST_F(DraftProposerTest, ATokenAtATimeIsUsedAtOnceAndItsPaceIsKnown) {
  assign(1);
  open(1);
  ask(1, {});
  const auto frames = bus.take<wire::Propose>(endpoint(1));
  ASSERT_EQ(frames.size(), 1u);
  const std::uint32_t epoch = frames[0].records.at(0).epoch.value;
  const auto part = [&](std::vector<TokenId> tokens, bool is_partial,
                        std::vector<std::uint16_t> parents = {}) {
    wire::Proposal proposal;
    proposal.records.push_back({.seq = SeqId{1},
                                .lease = Lease{1},
                                .epoch = Epoch{epoch},
                                .base = 3,
                                .prefix = prefix_hash_extend(kRoot, prompt),
                                .tokens = std::move(tokens),
                                .parents = std::move(parents),
                                .known = 3,
                                .is_partial = is_partial});
    tell(1, proposal);
    drafts.collect(bus.now(), store);
  };
  bus.clock.advance(milliseconds(6));
  part({8}, true);
  EXPECT_EQ(readiness(), DraftReadiness::kReady);
  EXPECT_EQ(store.edges(SeqId{1}).size(), 1u);
  bus.clock.advance(milliseconds(2));
  // Two of the chain, and two for the case that the first is wrong.
  part({8, 9, 4, 5}, true, {kParentIsBase, 0, kParentIsBase, 2});
  EXPECT_EQ(store.edges(SeqId{1}).size(), 4u);
  const DraftOutlook outlook = drafts.outlook(SeqId{1}, bus.now());
  EXPECT_TRUE(outlook.is_under_way) << "the rest is owed";
  EXPECT_TRUE(outlook.is_stream());
  EXPECT_EQ(outlook.per_token, milliseconds(2));
  EXPECT_EQ(outlook.next_in, milliseconds(2));
  part({8, 9, 10, 11}, false);
  EXPECT_FALSE(drafts.outlook(SeqId{1}, bus.now()).is_under_way);
}

// ---- the link

class LinkedDraftTest : public DraftProposerTest {
 protected:
  void SetUp() override {
    configure_log(LogLevel::kError, LogFormat::kText, "test");
    DraftProposerTest::SetUp();
  }
  void use(LinkChoice choice) {
    drafts.~DraftProposer();
    bus.sockets.clear();
    new (&drafts)
        DraftProposer({.vocabulary = kVocabulary,
                       .link = {.choice = choice,
                                .cores = {.machine = "here", .cpus = {0, 1, 5}, .n_threads = 2},
                                .folder = "/run/x"}},
                      speaker);
    drafts.start(bus);
  }
  void say_beside(std::uint64_t draft, const wire::Message& message) {
    wire::Header header;
    header.sender = WorkerId{draft};
    header.incarnation = Incarnation{1};
    for (const auto& [socket, where] : bus.sockets)
      if (where == kDoor) return drafts.on_message(socket, header, message);
    FAIL() << "no link";
  }
  // Asked, offered, opened and confirmed.
  void link(const std::string& shown = "shared_memory") {
    const std::uint64_t draft = 1;
    drafts.turn(bus.now());
    const auto asks = bus.take<wire::LinkAsk>(endpoint(draft));
    ASSERT_EQ(1u, asks.size());
    EXPECT_EQ("here", asks[0].machine);
    tell(draft, wire::LinkOffer{.endpoint = kDoor, .token = 4711});
    drafts.turn(bus.now());
    const auto opens = bus.take<wire::LinkOpen>(kDoor);
    ASSERT_EQ(1u, opens.size());
    EXPECT_EQ(4711u, opens[0].token);
    say_beside(draft, opens[0]);
    ASSERT_EQ(shown, tier());
  }
  std::string tier() {
    const auto links = drafts.links();
    return links.size() == 1 ? std::string(links[0].second) : "";
  }
  void make_active() {
    propose(1, 1, 0, {8, 9});
    drafts.collect(bus.now(), store);
    ASSERT_EQ(DraftReadiness::kReady, readiness());
  }
  SocketId beside() {
    for (const auto& [socket, where] : bus.sockets)
      if (where == kDoor) return socket;
    return 0;
  }
  static constexpr const char* kDoor = "shm:///run/x/draft-1.memory";
};

TEST_F(LinkedDraftTest, ProposeTakesTheLinkOnceTheDraftIsKnownToHaveTheSequence) {
  use(LinkChoice::kAuto);
  assign(1);
  link();
  open(1);
  EXPECT_EQ(1u, bus.take<wire::Attach>(endpoint(1)).size()) << "ATTACH goes as ever";
  ask(1, {8});
  EXPECT_EQ(1u, bus.take<wire::Propose>(endpoint(1)).size()) << "and is not overtaken";
  EXPECT_TRUE(bus.take<wire::Propose>(kDoor).empty());
  make_active();
  ask(1, {8, 9});
  EXPECT_EQ(1u, bus.take<wire::Propose>(kDoor).size());
  EXPECT_TRUE(bus.take<wire::Propose>(endpoint(1)).empty());
  drafts.close(SeqId{1});
  EXPECT_EQ(1u, bus.take<wire::CloseSequence>(endpoint(1)).size());
}

TEST_F(LinkedDraftTest, AnswersOnTheLinkCountAsThoseOnTheConnection) {
  use(LinkChoice::kAuto);
  assign(1);
  link();
  open(1);
  wire::Proposal proposal;
  proposal.records.push_back({.seq = SeqId{1},
                              .lease = Lease{1},
                              .base = 3,
                              .prefix = prefix_hash_extend(kRoot, prompt),
                              .tokens = {8},
                              .confidence = {200},
                              .known = 3});
  say_beside(1, proposal);
  drafts.collect(bus.now(), store);
  EXPECT_EQ(1u, store.edges(SeqId{1}).size());
  EXPECT_EQ(DraftReadiness::kReady, readiness());
}

TEST_F(LinkedDraftTest, WhatTheLinkDoesNotTakeGoesOverTheConnection) {
  use(LinkChoice::kAuto);
  assign(1);
  link();
  open(1);
  make_active();
  bus.full = kDoor;
  ask(1, {8});
  EXPECT_EQ(1u, bus.take<wire::Propose>(endpoint(1)).size());
  EXPECT_EQ(1u, drafts.counters().fallbacks);
}

TEST_F(LinkedDraftTest, ALinkThatIsOverIsReplacedByTheConnectionAndTriedAgain) {
  use(LinkChoice::kAuto);
  assign(1);
  link();
  open(1);
  make_active();
  const SocketId former = beside();
  bus.close(former);
  drafts.on_closed(former, "its ring is torn");
  EXPECT_EQ("zeromq", tier());
  EXPECT_EQ(DraftReadiness::kReady, readiness()) << "it costs the sequence nothing";
  ask(1, {8});
  EXPECT_EQ(1u, bus.take<wire::Propose>(endpoint(1)).size());
  bus.clock.advance(DraftLink::kFirstPause);
  link();
  drafts.on_closed(former, "of the one before");
  EXPECT_EQ("shared_memory", tier());
}

TEST_F(LinkedDraftTest, AStepOfOurOwnIsNotTheDraftsSilence) {
  use(LinkChoice::kAuto);
  assign(1);
  drafts.turn(bus.now());
  bus.full = kDoor;  // not greeted yet
  tell(1, wire::LinkOffer{.endpoint = kDoor, .token = 4711});
  drafts.turn(bus.now());
  bus.clock.advance(2 * DraftLink::kPatience);  // a long step; the greeting came meanwhile
  bus.full.clear();
  drafts.turn(bus.now());
  ASSERT_EQ(1u, bus.take<wire::LinkOpen>(kDoor).size());
  bus.clock.advance(DraftLink::kPatience - milliseconds(1));
  drafts.turn(bus.now());
  say_beside(1, wire::LinkOpen{.token = 4711});
  EXPECT_EQ("shared_memory", tier());
}

TEST_F(LinkedDraftTest, GivesUpADoorThatNeverGreetsOrNeverAnswers) {
  use(LinkChoice::kAuto);
  assign(1);
  for (const bool greets : {false, true}) {
    drafts.turn(bus.now());
    bus.full = greets ? "" : kDoor;
    tell(1, wire::LinkOffer{.endpoint = kDoor, .token = 4711});
    ASSERT_NE(0u, beside());
    drafts.turn(bus.now());
    bus.clock.advance(DraftLink::kPatience);
    drafts.turn(bus.now());
    EXPECT_EQ(0u, beside()) << "greets: " << greets;
    bus.clock.advance(DraftLink::kLongestPause);
  }
}

TEST_F(LinkedDraftTest, OpensNoDoorOutsideItsFolder) {
  for (const char* where :
       {"tcp://10.0.0.1:22", "ipc:///run/x/draft-1.memory", "shm:///run/dbus/system",
        "shm:///run/x/../dbus/system", "shm:///run/xy/draft", "shm://"}) {
    use(LinkChoice::kAuto);
    bus.sockets.clear();
    assign(1);
    drafts.turn(bus.now());
    tell(1, wire::LinkOffer{.endpoint = where, .token = 1});
    EXPECT_EQ(1u, bus.sockets.size()) << where;
    EXPECT_EQ("zeromq", tier()) << where;
  }
}

TEST_F(LinkedDraftTest, TakesNoOfferItDidNotAskForAndNoWordThatIsNotTheLinks) {
  use(LinkChoice::kAuto);
  assign(1);
  tell(1, wire::LinkOffer{.endpoint = kDoor, .token = 1});
  EXPECT_EQ(1u, bus.sockets.size());
  drafts.turn(bus.now());
  tell(1, wire::LinkOffer{.endpoint = kDoor, .token = 1});
  drafts.turn(bus.now());
  tell(1, wire::LinkOpen{.token = 1});
  EXPECT_EQ("zeromq", tier()) << "over the connection it proves nothing";
  say_beside(1, wire::LinkOpen{.token = 2});
  EXPECT_EQ("zeromq", tier());
  say_beside(1, wire::LinkOpen{.token = 1});
  EXPECT_EQ("shared_memory", tier());
}

TEST_F(LinkedDraftTest, APinnedTierKeepsSequencesAwayFromADraftWithoutIt) {
  use(LinkChoice::kSharedMemory);
  assign(1);
  open(1);
  EXPECT_EQ("none", tier());
  EXPECT_TRUE(bus.take<wire::Attach>(endpoint(1)).empty());
  drafts.turn(bus.now());
  EXPECT_EQ(1u, bus.take<wire::LinkAsk>(endpoint(1)).size());
  tell(1, wire::LinkOffer{.reason = "it runs on another machine"});
  drafts.turn(bus.now());
  EXPECT_TRUE(bus.take<wire::Attach>(endpoint(1)).empty());
  EXPECT_EQ(DraftReadiness::kDetached, readiness());
}

TEST_F(LinkedDraftTest, APinnedTierAttachesWhenTheLinkIsUpAndLetsGoWhenItIsOver) {
  use(LinkChoice::kSharedMemory);
  assign(1);
  open(1);
  link();
  drafts.turn(bus.now());
  EXPECT_EQ(1u, bus.take<wire::Attach>(endpoint(1)).size());
  make_active();
  const SocketId former = beside();
  bus.close(former);
  drafts.on_closed(former, "it died");
  EXPECT_EQ(DraftReadiness::kDetached, readiness());
  EXPECT_EQ(1u, bus.take<wire::CloseSequence>(endpoint(1)).size()) << "its place is free again";
  bus.clock.advance(DraftLink::kFirstPause);
  link();
  drafts.turn(bus.now());
  const auto attaches = bus.take<wire::Attach>(endpoint(1));
  ASSERT_EQ(1u, attaches.size());
  EXPECT_EQ(Lease{2}, attaches[0].lease);
}

TEST_F(LinkedDraftTest, NoLinkIsAskedForWhereZeroMqIsPinned) {
  use(LinkChoice::kZeroMq);
  assign(1);
  open(1);
  for (int i = 0; i < 100; ++i) {
    drafts.turn(bus.now());
    bus.clock.advance(seconds(1));
  }
  EXPECT_TRUE(bus.take<wire::LinkAsk>(endpoint(1)).empty());
  EXPECT_EQ("zeromq", tier());
}

TEST_F(LinkedDraftTest, AsksAgainSoonWhereTheConnectionWasNotUpYet) {
  use(LinkChoice::kAuto);
  assign(1);
  drafts.turn(bus.now());
  const auto asks = bus.take<wire::LinkAsk>(endpoint(1));
  ASSERT_EQ(1u, asks.size());
  drafts.on_dropped(bus.last_socket, bus.last_posting.ticket);
  bus.clock.advance(DraftLink::kAskAgain);
  link();
}

TEST_F(LinkedDraftTest, TheLinkEndsWithTheDraft) {
  use(LinkChoice::kAuto);
  assign(1);
  link();
  drafts.unassign(WorkerId{1}, Incarnation{1});
  EXPECT_TRUE(bus.sockets.empty());
}

}  // namespace
}  // namespace foretoken
