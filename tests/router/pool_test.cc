#include "services/router/pool.h"

#include <gtest/gtest.h>

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const TimePoint kStart = TimePoint{} + seconds(100);
constexpr Duration kPatience = seconds(1);

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
  Pool pool(kPatience);
  const auto arrival = pool.hello(header(1, 1), peer("a"), target(), kStart);
  EXPECT_TRUE(arrival.accepted);
  EXPECT_TRUE(arrival.is_new);
  ASSERT_EQ(1u, pool.ready(wire::Role::kTarget).size());
  EXPECT_TRUE(pool.ready(wire::Role::kDraft).empty());
}

TEST(Pool, HelloTwiceIsOnce) {
  Pool pool(kPatience);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  const auto arrival = pool.hello(header(1, 1), peer("b"), target(), kStart);
  EXPECT_TRUE(arrival.accepted);
  EXPECT_FALSE(arrival.is_new);
  EXPECT_EQ("b", pool.find(WorkerId{1})->peer.routing) << "it answers where it spoke last";
}

TEST(Pool, ClientsAndToolsCannotRegister) {
  Pool pool(kPatience);
  for (const auto role : {wire::Role::kRouter, wire::Role::kEdge, wire::Role::kTool})
    EXPECT_FALSE(pool.hello(header(1, 1), peer("a"), {.role = role}, kStart).accepted);
  EXPECT_TRUE(pool.all().empty());
}

TEST(Pool, ANewLifeReplacesTheOldWhichIsRefusedWhileTheNewIsThere) {
  Pool pool(kPatience);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  EXPECT_TRUE(pool.hello(header(1, 2), peer("b"), target(), kStart).replaced);
  EXPECT_FALSE(pool.heartbeat(header(1, 1), peer("a"), {}, kStart)) << "a late frame of the dead";
  EXPECT_FALSE(pool.hello(header(1, 1), peer("a"), target(), kStart).accepted);
  EXPECT_EQ(Incarnation{2}, pool.find(WorkerId{1})->incarnation);
}

TEST(Pool, AReplacedLifeReturnsWhenTheNewOneSaidGoodbye) {
  Pool pool(kPatience);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  pool.hello(header(1, 2), peer("b"), target(), kStart);
  ASSERT_TRUE(pool.end(WorkerId{1}, Incarnation{2}));
  EXPECT_FALSE(pool.heartbeat(header(1, 1), peer("a"), {}, kStart)) << "it must say hello";
  ASSERT_TRUE(pool.hello(header(1, 1), peer("a"), target(), kStart).is_new);
  EXPECT_EQ(Incarnation{1}, pool.find(WorkerId{1})->incarnation);
  EXPECT_FALSE(pool.hello(header(1, 2), peer("b"), target(), kStart).accepted) << "it said goodbye";
}

TEST(Pool, AReplacedLifeReturnsWhenTheNewOneIsSilentForThePatience) {
  Pool pool(kPatience);
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
  Pool pool(kPatience);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  for (std::uint64_t life = 2; life < 100; ++life) {
    ASSERT_TRUE(pool.hello(header(1, life), peer("b"), target(), kStart).accepted);
    ASSERT_FALSE(pool.hello(header(1, 1), peer("a"), target(), kStart).accepted) << life;
  }
}

TEST(Pool, AReplacedLifeThatReturnsIsReplacedByTheNextAtOnce) {
  Pool pool(kPatience);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  pool.hello(header(1, 2), peer("b"), target(), kStart);
  pool.end(WorkerId{1}, Incarnation{2});
  pool.hello(header(1, 1), peer("a"), target(), kStart);  // it may be dead: this may have come late
  EXPECT_TRUE(pool.hello(header(1, 3), peer("c"), target(), kStart).replaced);
}

TEST(Pool, ASilentWorkerIsLostAfterThePatienceAndMayComeBack) {
  Pool pool(kPatience);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  EXPECT_TRUE(pool.expire(kStart + kPatience).empty());
  EXPECT_TRUE(pool.heartbeat(header(1, 1), peer("a"), {}, kStart + kPatience));
  EXPECT_TRUE(pool.expire(kStart + 2 * kPatience).empty());
  const auto lost = pool.expire(kStart + 2 * kPatience + milliseconds(1));
  ASSERT_EQ(1u, lost.size());
  EXPECT_TRUE(pool.expire(kStart + 3 * kPatience).empty()) << "lost once, not twice";
  EXPECT_TRUE(pool.ready(wire::Role::kTarget).empty());
  EXPECT_FALSE(pool.heartbeat(header(1, 1), peer("a"), {}, kStart + 3 * kPatience))
      << "it must say hello";
  EXPECT_TRUE(pool.hello(header(1, 1), peer("a"), target(), kStart + 3 * kPatience).is_new);
  EXPECT_EQ(1u, pool.ready(wire::Role::kTarget).size());
}

TEST(Pool, ADrainingWorkerIsAliveButNotReady) {
  Pool pool(kPatience);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  pool.heartbeat(header(1, 1), peer("a"), {.draining = true}, kStart);
  EXPECT_TRUE(pool.ready(wire::Role::kTarget).empty());
  EXPECT_EQ(1u, pool.alive(wire::Role::kTarget).size());
}

TEST(Pool, AGoodbyeEndsThatLifeForGood) {
  Pool pool(kPatience);
  pool.hello(header(1, 1), peer("a"), target(), kStart);
  EXPECT_FALSE(pool.end(WorkerId{1}, Incarnation{9})) << "somebody else's goodbye";
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
  EXPECT_NE("", why_not_served({.name = "tokenizer-0", .fingerprints = {5, 0, 0, 0}}, target()));
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
}

}  // namespace
}  // namespace foretoken
