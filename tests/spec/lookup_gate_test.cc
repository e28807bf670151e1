#include "common/spec/lookup_gate.h"

#include <gtest/gtest.h>

namespace foretoken {
namespace {

constexpr double kLeastGain = 0.03;

// Asks of so many rounds in which each ask brings `n_tokens`.
int asks_in(LookupGate& gate, int n_rounds, std::uint32_t n_tokens) {
  int n_asks = 0;
  for (int i = 0; i < n_rounds; ++i) {
    const bool is_due = gate.is_due(kLeastGain);
    if (is_due) gate.asked();
    n_asks += is_due;
    gate.observe(is_due ? n_tokens : 0);
  }
  return n_asks;
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
  EXPECT_FALSE(gate.is_due(kLeastGain));
  EXPECT_EQ(asks_in(gate, 64, 0), 3);
}

TEST(LookupGate, CountsWhatAnAskBringsInLaterRounds) {
  LookupGate gate;
  gate.asked();
  gate.observe(8);
  gate.observe(7);
  EXPECT_EQ(gate.asked(), 15u);
  EXPECT_EQ(gate.asked(), 0u);
}

}  // namespace
}  // namespace foretoken
