#include "services/router/pool.h"

#include <gtest/gtest.h>

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const TimePoint kStart = TimePoint{} + seconds(100);
constexpr Duration kHeartbeat = milliseconds(250);
constexpr Duration kPatience = Pool::kMissed * kHeartbeat;

wire::Header header(std::uint64_t worker, std::uint64_t incarnation) {
  wire::Header header;
  header.sender = WorkerId{worker};
  header.incarnation = Incarnation{incarnation};
  return header;
}

Peer peer(const std::string& routing) { return {.socket = 1, .routing = routing}; }

wire::Hello target(const std::string& name = "target-0") {
  return {
      .role = wire::Role::kTarget, .name = name, .fingerprints = {1, 2, 3, 4}, .model_name = "m"};
}

TEST(Pool, AWorkerThatSaysHelloIsReady) {
  Pool pool(kHeartbeat);
  const auto arrival = pool.hello(header(1, 1), peer("a"), target(), kStart);
  EXPECT_TRUE(arrival.accepted);
  EXPECT_TRUE(arrival.is_new);
  ASSERT_EQ(1u, pool.ready(wire::Role::kTarget).size());
  EXPECT_TRUE(pool.ready(wire::Role::kDraft).empty());
}

TEST(Pool, HelloTwiceIsOnce) {
  Pool pool(kHeartbeat);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  const auto arrival = pool.hello(header(1, 1), peer("b"), target(), kStart);
  EXPECT_TRUE(arrival.accepted);
  EXPECT_FALSE(arrival.is_new);
  EXPECT_EQ("b", pool.find(WorkerId{1})->peer.routing) << "it answers where it spoke last";
}

TEST(Pool, RoutersAndToolsCannotRegister) {
  Pool pool(kHeartbeat);
  for (const auto role : {wire::Role::kRouter, wire::Role::kTool})
    EXPECT_FALSE(pool.hello(header(1, 1), peer("a"), {.role = role}, kStart).accepted);
  EXPECT_TRUE(pool.all().empty());
}

TEST(Pool, ANewLifeReplacesTheOldWhichIsRefusedWhileTheNewIsThere) {
  Pool pool(kHeartbeat);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  EXPECT_TRUE(pool.hello(header(1, 2), peer("b"), target(), kStart).replaced);
  EXPECT_FALSE(pool.heartbeat(header(1, 1), peer("a"), {}, kStart)) << "a late frame of the dead";
  EXPECT_FALSE(pool.hello(header(1, 1), peer("a"), target(), kStart).accepted);
  EXPECT_EQ(Incarnation{2}, pool.find(WorkerId{1})->incarnation);
}

TEST(Pool, AReplacedLifeReturnsWhenTheNewOneSaidGoodbye) {
  Pool pool(kHeartbeat);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  pool.hello(header(1, 2), peer("b"), target(), kStart);
  ASSERT_TRUE(pool.end(WorkerId{1}, Incarnation{2}));
  EXPECT_FALSE(pool.heartbeat(header(1, 1), peer("a"), {}, kStart)) << "it must say hello";
  ASSERT_TRUE(pool.hello(header(1, 1), peer("a"), target(), kStart).is_new);
  EXPECT_EQ(Incarnation{1}, pool.find(WorkerId{1})->incarnation);
  EXPECT_FALSE(pool.hello(header(1, 2), peer("b"), target(), kStart).accepted) << "it said goodbye";
}

TEST(Pool, AReplacedLifeReturnsWhenTheNewOneIsSilentForThePatience) {
  Pool pool(kHeartbeat);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  pool.hello(header(1, 2), peer("b"), target(), kStart);
  pool.lose(WorkerId{1});
  EXPECT_FALSE(pool.hello(header(1, 1), peer("a"), target(), kStart + kPatience).accepted)
      << "the other may be back in a moment";
  const TimePoint later = kStart + kPatience + milliseconds(1);
  EXPECT_TRUE(pool.hello(header(1, 1), peer("a"), target(), later).is_new);
  EXPECT_FALSE(pool.hello(header(1, 2), peer("b"), target(), later).accepted)
      << "they do not take turns";
  EXPECT_EQ(Incarnation{1}, pool.find(WorkerId{1})->incarnation);
  pool.lose(WorkerId{1});
  EXPECT_TRUE(pool.hello(header(1, 1), peer("a"), target(), later).accepted)
      << "a broken connection does not keep it out of its own place";
}

TEST(Pool, AReplacedLifeThatKeepsAskingIsRefusedHoweverManyLivesFollow) {
  Pool pool(kHeartbeat);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  for (std::uint64_t life = 2; life < 100; ++life) {
    ASSERT_TRUE(pool.hello(header(1, life), peer("b"), target(), kStart).accepted);
    ASSERT_FALSE(pool.hello(header(1, 1), peer("a"), target(), kStart).accepted) << life;
  }
}

TEST(Pool, AReplacedLifeThatReturnsIsReplacedByTheNextAtOnce) {
  Pool pool(kHeartbeat);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  pool.hello(header(1, 2), peer("b"), target(), kStart);
  pool.end(WorkerId{1}, Incarnation{2});
  pool.hello(header(1, 1), peer("a"), target(), kStart);  // it may be dead: this may have come late
  EXPECT_TRUE(pool.hello(header(1, 3), peer("c"), target(), kStart).replaced);
}

// A router that turns every 100 ms and has read everything.
std::vector<Pool::Loss> listen(Pool& pool, TimePoint from, TimePoint until) {
  std::vector<Pool::Loss> lost;
  for (TimePoint now = from; now <= until; now += milliseconds(100)) {
    pool.count_silence(now);
    for (Pool::Loss& loss : pool.expire(now)) lost.push_back(std::move(loss));
  }
  return lost;
}

TEST(Pool, ASilentWorkerIsLostAfterThePatienceAndMayComeBack) {
  Pool pool(kHeartbeat);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  EXPECT_TRUE(listen(pool, kStart, kStart + kPatience).empty());
  EXPECT_TRUE(pool.heartbeat(header(1, 1), peer("a"), {}, kStart + kPatience));
  EXPECT_TRUE(listen(pool, kStart + kPatience, kStart + 2 * kPatience).empty());
  const auto lost =
      listen(pool, kStart + 2 * kPatience, kStart + 2 * kPatience + milliseconds(100));
  ASSERT_EQ(1u, lost.size());
  EXPECT_EQ("8 heartbeats are missing", lost[0].why);
  EXPECT_TRUE(listen(pool, kStart + 2 * kPatience, kStart + 3 * kPatience).empty())
      << "lost once, not twice";
  EXPECT_TRUE(pool.ready(wire::Role::kTarget).empty());
  EXPECT_FALSE(pool.heartbeat(header(1, 1), peer("a"), {}, kStart + 3 * kPatience))
      << "it must say hello";
  EXPECT_TRUE(pool.hello(header(1, 1), peer("a"), target(), kStart + 3 * kPatience).is_new);
  EXPECT_EQ(1u, pool.ready(wire::Role::kTarget).size());
}

TEST(Pool, ARouterThatDidNotRunHasMissedNothing) {
  Pool pool(kHeartbeat);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  pool.count_silence(kStart);
  pool.count_silence(kStart + seconds(30));  // stopped and continued
  EXPECT_TRUE(pool.expire(kStart + seconds(30)).empty());
  EXPECT_TRUE(pool.heartbeat(header(1, 1), peer("a"), {}, kStart + seconds(30)));
}

TEST(Pool, WhatWaitsToBeReadIsNoSilence) {
  Pool pool(kHeartbeat);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  // The router is busy with messages that arrived in the first half second.
  for (int ms = 0; ms <= 20'000; ms += 100) {
    pool.count_silence(kStart + milliseconds(std::min(ms, 500)));
    ASSERT_TRUE(pool.expire(kStart + milliseconds(ms)).empty()) << ms;
  }
}

TEST(Pool, ALongStepIsNoDeathAndOneBeyondItsBoundIsStuck) {
  Pool pool(kHeartbeat);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  wire::Heartbeat beat{.activity = wire::Activity::kStep, .bound_us = 30'000'000};
  for (int s = 0; s <= 30; ++s) {
    beat.busy_us = static_cast<std::uint64_t>(s) * 1'000'000;
    ASSERT_TRUE(pool.heartbeat(header(1, 1), peer("a"), beat, kStart + seconds(s)));
    ASSERT_TRUE(pool.expire(kStart + seconds(s)).empty()) << s;
  }
  beat.busy_us = 30'400'000;
  ASSERT_TRUE(pool.heartbeat(header(1, 1), peer("a"), beat, kStart + seconds(31)));
  const auto lost = pool.expire(kStart + seconds(31));
  ASSERT_EQ(1u, lost.size());
  EXPECT_NE(std::string::npos, lost[0].why.find("no progress for 30.4 s in one turn (step)"))
      << lost[0].why;
  EXPECT_FALSE(pool.heartbeat(header(1, 1), peer("a"), beat, kStart + seconds(32)))
      << "its heartbeats alone do not bring it back; a hello, which takes a turn, does";
}

TEST(Pool, ASilenceIsProbedAFewTimesBeforeTheWorkerIsLost) {
  Pool pool(kHeartbeat);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  int n_probes = 0;
  Duration first{};
  for (int ms = 0; ms <= 2000; ms += 5) {
    pool.count_silence(kStart + milliseconds(ms));
    const auto probes = pool.to_probe();
    if (!probes.empty() && n_probes == 0) first = milliseconds(ms);
    n_probes += static_cast<int>(probes.size());
  }
  EXPECT_EQ(milliseconds(375), first) << "one and a half heartbeats";
  EXPECT_EQ(14, n_probes) << "and then one every half of a heartbeat";
  ASSERT_TRUE(pool.heartbeat(header(1, 1), peer("a"), {}, kStart + kPatience));
  pool.count_silence(kStart + kPatience + milliseconds(5));
  EXPECT_TRUE(pool.to_probe().empty());
}

TEST(Pool, ADrainingWorkerIsAliveButNotReady) {
  Pool pool(kHeartbeat);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  pool.heartbeat(header(1, 1), peer("a"), {.draining = true}, kStart);
  EXPECT_TRUE(pool.ready(wire::Role::kTarget).empty());
  EXPECT_EQ(1u, pool.alive(wire::Role::kTarget).size());
}

TEST(Pool, AGoodbyeEndsThatLifeForGood) {
  Pool pool(kHeartbeat);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  EXPECT_FALSE(pool.end(WorkerId{1}, Incarnation{9})) << "the goodbye of another life";
  EXPECT_TRUE(pool.end(WorkerId{1}, Incarnation{1}));
  EXPECT_EQ(nullptr, pool.find(WorkerId{1}));
  EXPECT_FALSE(pool.hello(header(1, 1), peer("a"), target(), kStart).accepted);
}

TEST(Pool, IncompatiblePairsAreNamed) {
  wire::Hello draft{.role = wire::Role::kDraft,
                    .name = "draft-7",
                    .endpoint = "ipc://x",
                    .fingerprints = {1, 0, 9, 0}};
  EXPECT_EQ("", why_not_paired(target(), draft))
      << "another model of the same vocabulary is what a draft is";
  draft.fingerprints.vocabulary = 5;
  const std::string reason = why_not_paired(target(), draft);
  EXPECT_NE(std::string::npos, reason.find("draft-7"));
  EXPECT_NE(std::string::npos, reason.find("target-0"));
  EXPECT_NE("", why_not_served({.name = "tokenizer-0", .fingerprints = {5, 2, 0, 0}}, target()));
  EXPECT_NE("", why_not_served({.name = "tokenizer-0", .fingerprints = {1, 5, 0, 0}}, target()))
      << "another chat template makes another prompt";
  EXPECT_EQ("", why_not_served({.name = "tokenizer-0", .fingerprints = {1, 2, 0, 0}}, target()));
}

TEST(Pool, ARequestMovesOnlyBetweenEqualModelsAndNumerics) {
  wire::Hello other = target("target-1");
  EXPECT_TRUE(can_continue(target(), other));
  other.fingerprints.text = 99;
  EXPECT_TRUE(can_continue(target(), other));
  other.fingerprints.numerics = 99;
  EXPECT_FALSE(can_continue(target(), other));
  other = target();
  other.fingerprints.model = 99;
  EXPECT_FALSE(can_continue(target(), other));
  other = target();
  other.max_model_len = 99;
  EXPECT_FALSE(can_continue(target(), other)) << "it might end earlier there";
}

// ---- one name is one model

wire::Hello other_weights(const std::string& name) {
  wire::Hello hello = target(name);
  hello.fingerprints.model = 0xabcdef;
  return hello;
}

TEST(Pool, TwoModelsOfOneNameAreNotTakenAndBothFingerprintsAreNamed) {
  Pool pool(kHeartbeat);
  ASSERT_TRUE(pool.hello(header(1, 1), peer("a"), target(), kStart).accepted);
  const auto refused = pool.hello(header(2, 1), peer("b"), other_weights("target-1"), kStart);
  EXPECT_FALSE(refused.accepted);
  EXPECT_EQ(ErrorCode::kIncompatible, refused.code);
  for (const char* part : {"\"m\"", "target-0", "target-1", "model 0000000000000003",
                           "model 0000000000abcdef", "numerics 0000000000000004", "model.name"})
    EXPECT_NE(std::string::npos, refused.message.find(part)) << refused.message;
  EXPECT_EQ(nullptr, pool.find(WorkerId{2}));
  EXPECT_TRUE(pool.hello(header(3, 1), peer("c"), target("target-2"), kStart).accepted) << "equal";
}

TEST(Pool, WhateverChangesTextMakesAnotherModel) {
  const auto refused = [](auto&& change) {
    wire::Hello changed = target("target-1");
    change(changed);
    Pool pool(kHeartbeat);
    pool.hello(header(1, 1), peer("a"), target(), kStart);
    return !pool.hello(header(2, 1), peer("b"), changed, kStart).accepted;
  };
  EXPECT_TRUE(refused([](wire::Hello& h) { h.fingerprints.numerics = 9; }));
  EXPECT_TRUE(refused([](wire::Hello& h) { h.fingerprints.vocabulary = 9; }));
  EXPECT_TRUE(refused([](wire::Hello& h) { h.fingerprints.text = 9; })) << "the chat template";
  EXPECT_TRUE(refused([](wire::Hello& h) { h.noise_version = 9; }));
  EXPECT_TRUE(refused([](wire::Hello& h) { h.end_tokens = {9}; }));
  EXPECT_TRUE(refused([](wire::Hello& h) { h.sampling.temperature = 0.5f; }));
  EXPECT_TRUE(refused([](wire::Hello& h) { h.max_model_len = 9; })) << "or ends it earlier";
  EXPECT_FALSE(refused([](wire::Hello& h) { h.max_sequences = 9; }));
}

TEST(Pool, TargetsOfOneNameTakePromptsOfOneLengthAndBothLengthsAreNamed) {
  Pool pool(kHeartbeat);
  wire::Hello longer = target(), shorter = target("target-1");
  longer.max_model_len = 8192;
  shorter.max_model_len = 4096;
  ASSERT_TRUE(pool.hello(header(1, 1), peer("a"), longer, kStart).accepted);
  const auto refused = pool.hello(header(2, 1), peer("b"), shorter, kStart);
  EXPECT_FALSE(refused.accepted);
  for (const char* part :
       {"\"m\"", "target-0", "target-1", "model.max_model_len (4096 and 8192 tokens)"})
    EXPECT_NE(std::string::npos, refused.message.find(part)) << refused.message;
}

TEST(Pool, AnAliasIsANameToo) {
  Pool pool(kHeartbeat);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  wire::Hello other = other_weights("target-1");
  other.model_name = "n";
  other.aliases = {"x", "m"};
  EXPECT_FALSE(pool.hello(header(2, 1), peer("b"), other, kStart).accepted);
  other.aliases = {"x"};
  EXPECT_TRUE(pool.hello(header(2, 1), peer("b"), other, kStart).accepted);
  wire::Hello third = other_weights("target-2");
  third.fingerprints.model = 77;
  third.model_name = "o";
  third.aliases = {"x"};
  EXPECT_FALSE(pool.hello(header(3, 1), peer("c"), third, kStart).accepted);
  third.aliases = {"*"};
  EXPECT_FALSE(pool.hello(header(3, 1), peer("c"), third, kStart).accepted);
}

TEST(Pool, ANameIsFreeAgainWhenItsTargetLeftAtOnceOrWasLostForAWhile) {
  Pool pool(kHeartbeat);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  pool.end(WorkerId{1}, Incarnation{1});
  ASSERT_TRUE(pool.hello(header(2, 1), peer("b"), other_weights("target-1"), kStart).accepted)
      << "a rolling upgrade";
  EXPECT_FALSE(pool.hello(header(3, 1), peer("c"), target("target-2"), kStart).accepted)
      << "the name means the new one now";
  pool.lose(WorkerId{2});
  EXPECT_FALSE(
      pool.hello(header(3, 1), peer("c"), target("target-2"), kStart + seconds(5)).accepted)
      << "it may be back in a moment";
  const TimePoint later = kStart + seconds(31);
  EXPECT_TRUE(pool.hello(header(3, 1), peer("c"), target("target-2"), later).accepted);
  EXPECT_FALSE(pool.hello(header(2, 1), peer("b"), other_weights("target-1"), later).accepted)
      << "it came back too late";
}

TEST(Pool, ANewLifeOfTheOnlyTargetMayHaveOtherWeightsUnderItsName) {
  Pool pool(kHeartbeat);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  EXPECT_TRUE(pool.hello(header(1, 2), peer("b"), other_weights("target-0"), kStart).accepted);
}

TEST(Pool, ANameThatPassedOnMeansTheNewModelAlone) {
  Pool pool(kHeartbeat);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  pool.end(WorkerId{1}, Incarnation{1});
  pool.hello(header(2, 1), peer("b"), other_weights("target-1"), kStart);
  const auto models = pool.models(kStart);
  ASSERT_EQ(1u, models.size());
  EXPECT_EQ("target-1", models[0]->name);
}

TEST(Pool, ModelsThatLeftOrWereLostCountForAWhileAndNoLonger) {
  Pool pool(kHeartbeat);
  wire::Hello second = other_weights("target-1");
  second.model_name = "n";
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  pool.hello(header(2, 1), peer("b"), second, kStart);
  const auto names = [&](TimePoint now) {
    std::string list;
    for (const wire::Hello* model : pool.models(now)) list += model->model_name;
    return list;
  };
  EXPECT_EQ("mn", names(kStart));
  pool.end(WorkerId{2}, Incarnation{1});
  EXPECT_EQ("mn", names(kStart + seconds(30))) << "it may be restarting";
  EXPECT_EQ("m", names(kStart + seconds(31)));
  pool.lose(WorkerId{1});
  pool.expire(kStart + seconds(240));
  EXPECT_EQ("m", names(kStart + seconds(240))) << "as long as it is shown as gone";
  pool.expire(kStart + seconds(241));
  EXPECT_EQ("", names(kStart + seconds(241)));
}

}  // namespace
}  // namespace foretoken
