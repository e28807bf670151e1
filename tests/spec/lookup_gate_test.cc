#include "common/spec/lookup_gate.h"

#include <gtest/gtest.h>

#include "common/spec/lookup_gains.h"

namespace foretoken {
namespace {

constexpr double kLeastGain = 0.03;

using AtHand = LookupGate::AtHand;

// Asks of so many rounds in which each ask brings `n_tokens`.
int asks_in(LookupGate& gate,
            int n_rounds,
            std::uint32_t n_tokens,
            AtHand at_hand = AtHand::kLittle) {
  int n_asks = 0;
  for (int i = 0; i < n_rounds; ++i) {
    const bool is_due = gate.is_due(kLeastGain, at_hand);
    if (is_due) gate.ask(at_hand);
    n_asks += is_due;
    gate.observe(is_due ? n_tokens : 0);
  }
  return n_asks;
}

TEST(LookupGate, ShortTextsOfATenantAreAskedForNowAndThenToo) {
  LookupGains gains;
  for (int i = 0; i < 300; ++i) gains.observe(7, 0);
  ASSERT_LT(gains.of(7), kLeastGain);
  int n_asks = 0;
  for (int text = 0; text < 100; ++text) {
    LookupGate gate(gains.of(7), gains.n_unasked(7));
    for (int round = 0; round < 8; ++round) {
      if (gate.is_due(kLeastGain, AtHand::kLittle)) {
        gate.ask(AtHand::kLittle);
        gains.note_ask(7);
        ++n_asks;
      }
      gate.observe(0);
      gains.note_round(7);
    }
  }
  EXPECT_EQ(n_asks, 49) << "after every sixteenth round, of all texts together";
}

TEST(LookupGate, AsksAfterEveryRoundWhereTokensStand) {
  LookupGate gate;
  EXPECT_EQ(asks_in(gate, 500, 1), 500);
}

TEST(LookupGate, AsksSeldomWhereNothingStandsAndAlwaysAgainOnceSomethingDoes) {
  LookupGate gate;
  asks_in(gate, 200, 0);
  EXPECT_EQ(asks_in(gate, 160, 0), 10);
  asks_in(gate, LookupGate::kLongestPause, 4);
  EXPECT_EQ(asks_in(gate, 100, 4), 100);
}

// One token of sixty asks is less than they cost, one of ten is more.
TEST(LookupGate, WeighsWhatAsksBringAgainstWhatTheyCost) {
  LookupGate rare, often;
  int n_rare = 0, n_often = 0;
  for (int i = 0; i < 100; ++i) {
    n_rare += asks_in(rare, 59, 0) + asks_in(rare, 1, 1);
    n_often += asks_in(often, 9, 0) + asks_in(often, 1, 1);
  }
  EXPECT_LT(n_rare, 3000);
  EXPECT_EQ(n_often, 1000);
}

TEST(LookupGate, BeginsAsOthersDid) {
  LookupGate gate(0.001);
  EXPECT_FALSE(gate.is_due(kLeastGain, AtHand::kLittle));
  EXPECT_EQ(asks_in(gate, 64, 0), 3);
}

TEST(LookupGate, CountsWhatAnAskBringsInLaterRounds) {
  LookupGate gate;
  EXPECT_FALSE(gate.n_brought()) << "nothing was asked";
  gate.ask(AtHand::kLittle);
  gate.observe(8);
  gate.observe(7);
  EXPECT_EQ(gate.n_brought(), 15u);
  gate.ask(AtHand::kLittle);
  EXPECT_EQ(gate.n_brought(), 0u);
  gate.ask(AtHand::kPlenty);
  EXPECT_FALSE(gate.n_brought()) << "this says nothing of asks with little at hand";
}

TEST(LookupGate, AsksWithPlentyAtHandSeldomUntilItBringsTokensThereToo) {
  LookupGate gate;
  EXPECT_EQ(asks_in(gate, 160, 0, AtHand::kPlenty), 9);
  EXPECT_EQ(asks_in(gate, 100, 1), 100) << "with little at hand it is another matter";
  asks_in(gate, LookupGate::kLongestPause + 1, 1, AtHand::kPlenty);
  EXPECT_EQ(asks_in(gate, 100, 1, AtHand::kPlenty), 100);
}

TEST(LookupGains, AreOfEachTenantAlone) {
  LookupGains gains;
  EXPECT_EQ(gains.of(1), 1);
  for (int i = 0; i < 300; ++i) {
    gains.observe(1, 4);
    gains.observe(2, 0);
  }
  EXPECT_NEAR(gains.of(1), 4, 0.01);
  EXPECT_NEAR(gains.of(2), 0, 0.01);
  EXPECT_EQ(gains.of(3), 1);
}

TEST(LookupGains, ForgetTheTenantWithoutAsksForLongest) {
  LookupGains gains;
  for (std::uint64_t salt = 0; salt < LookupGains::kMostTenants; ++salt) gains.observe(salt, 9);
  gains.observe(0, 9);  // now tenant 1 is the oldest
  gains.observe(LookupGains::kMostTenants, 9);
  EXPECT_EQ(gains.n_tenants(), LookupGains::kMostTenants);
  EXPECT_GT(gains.of(0), 1);
  EXPECT_EQ(gains.of(1), 1);
  EXPECT_GT(gains.of(2), 1);
}

}  // namespace
}  // namespace foretoken
