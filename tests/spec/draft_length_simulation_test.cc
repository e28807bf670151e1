// The draft-length controller against made-up targets and texts, in simulated time. Acceptance is
// synthetic: a coin per token. Bars: never slower than 0.97 of plain, close to the best fixed
// length that knows the truth.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "common/spec/draft_length.h"

namespace foretoken {
namespace {

using Cost = std::function<double(std::uint32_t)>;  // rows -> seconds

double roofline(std::uint32_t rows) { return 0.020 * std::cbrt(1 + std::pow(rows / 200.0, 3)); }
double linear(std::uint32_t rows) { return 0.004 + 0.004 * rows; }
double flat(std::uint32_t rows) { return 0.006 * (1 + 0.01 * rows); }

// Of the best length, with truth and cost known. What is given up: acceptance enters as
// the lower end of its interval, and step times scatter by 5 %, so tokens that are worth little
// more than their rows are left alone.
constexpr double kClose = 0.90;

// A sequence whose next tokens are accepted with probability `truth`, whatever it says.
struct Text {
  double truth = 0;
  std::uint8_t confidence = 0;
  SequenceOdds odds;
};

std::uint8_t honest(double truth) { return static_cast<std::uint8_t>(255 * truth); }

class World {
 public:
  World(std::vector<Text> texts, Cost cost, std::uint32_t seed, std::uint32_t cap = 16)
      : texts_(std::move(texts)), cost_(std::move(cost)), cap_(cap), random_(seed) {}

  void step() {
    std::vector<std::vector<PathToken>> paths;
    std::vector<Candidate> batch;
    for (const Text& text : texts_)
      paths.emplace_back(cap_, PathToken{1, text.confidence, ProposerKind::kDraft});
    for (std::size_t i = 0; i < paths.size(); ++i)
      batch.push_back({.path = paths[i], .cap = cap_, .odds = texts_[i].odds.factor()});
    lengths = controller.cut(batch, 0, 10000);
    const std::uint32_t rows = static_cast<std::uint32_t>(texts_.size()) +
                               std::accumulate(lengths.begin(), lengths.end(), 0u);
    std::uint32_t committed = 0;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      std::uint32_t accepted = 0;
      bool stood = true;
      while (accepted < lengths[i] && stood) {
        stood = std::bernoulli_distribution(texts_[i].truth)(random_);
        accepted += stood ? 1 : 0;
      }
      committed += accepted + 1;
      // The token that a step adds of its own is what would have come anyway: where all that was
      // verified stood, or nothing was, it is evidence of the next proposal.
      const bool next_stood = stood && std::bernoulli_distribution(texts_[i].truth)(random_);
      std::vector<ScoredToken> scored;
      for (std::uint32_t d = 0; d <= accepted && d < cap_; ++d)
        scored.push_back({paths[i][d], d, d < accepted || next_stood});
      controller.observe_round(scored, texts_[i].odds);
      n_verified += lengths[i];
    }
    const double jitter = 1 + 0.05 * (std::uniform_real_distribution<double>(-1, 1)(random_));
    const bool is_disturbed = random_() % 100 < hiccup_percent;
    const double took = (is_disturbed ? 50 : 1) * cost_(rows) * jitter;
    controller.observe_step(rows, committed, Duration(static_cast<std::int64_t>(took * 1e9)));
    if (is_disturbed) return;  // what is measured is speed without disturbance
    seconds += took;
    tokens += committed;
  }

  // Tokens per second over so many steps, relative to plain decoding of the same batch.
  double gain(int n_steps) {
    const double tokens_before = tokens, seconds_before = seconds;
    for (int i = 0; i < n_steps; ++i) step();
    const auto n = static_cast<std::uint32_t>(texts_.size());
    return (tokens - tokens_before) / (seconds - seconds_before) / (n / cost_(n));
  }

  void set_truth(double truth) {
    for (Text& text : texts_) text.truth = truth;
  }

  DraftLength controller{DraftLengthConfig{}};
  std::uint32_t hiccup_percent = 0;  // steps in which another process has the cores
  std::vector<std::uint32_t> lengths;
  std::uint64_t n_verified = 0;
  double tokens = 0;
  double seconds = 0;

 private:
  std::vector<Text> texts_;
  Cost cost_;
  std::uint32_t cap_;
  std::mt19937 random_;
};

double expected_tokens(double a, std::uint32_t k) { return (1 - std::pow(a, k + 1)) / (1 - a); }

// The best gain of one length for all, with the truth known.
double best_fixed_gain(double a, std::uint32_t batch, const Cost& cost, std::uint32_t cap) {
  double best = 1;
  for (std::uint32_t k = 0; k <= cap; ++k)
    best = std::max(best, expected_tokens(a, k) * cost(batch) / cost(batch * (k + 1)));
  return best;
}

TEST(DraftLengthSimulation, IsNeverSlowerThanPlainWhenNothingIsAccepted) {
  for (const auto& cost : {Cost(roofline), Cost(linear), Cost(flat)})
    for (const std::uint32_t batch : {1u, 4u, 32u, 256u})
      for (const std::uint8_t claimed : {std::uint8_t{60}, std::uint8_t{128}, std::uint8_t{255}}) {
        World world(std::vector<Text>(batch, {0.0, claimed, {}}), cost, 1, 8);
        EXPECT_GE(world.gain(batch > 100 ? 1000 : 2000), 0.97)
            << "batch " << batch << " claims " << int{claimed};
      }
}

TEST(DraftLengthSimulation, ComesCloseToTheBestLengthThatKnowsTheTruth) {
  for (const double a : {0.6, 0.8, 0.9})
    for (const std::uint32_t batch : {1u, 8u, 32u, 64u, 128u, 256u}) {
      World world(std::vector<Text>(batch, {a, honest(a), {}}), roofline, 2);
      world.gain(200);
      const double best = best_fixed_gain(a, batch, roofline, 16);
      const double gain = world.gain(batch > 100 ? 400 : 2000);
      EXPECT_GE(gain, kClose * best) << "a " << a << " batch " << batch << " best " << best;
      EXPECT_GE(gain, 0.97) << "a " << a << " batch " << batch;
    }
}

// Worked by hand from T(n): one length 5 for all gives 2.697, lengths 10 and 1 give 3.257.
TEST(DraftLengthSimulation, AMixedBatchGainsFromALengthPerSequence) {
  const double plain = 32 / roofline(32);
  const double one_for_all =
      16 * (expected_tokens(0.9, 5) + expected_tokens(0.5, 5)) / roofline(32 * 6) / plain;
  const double per_sequence =
      16 * (expected_tokens(0.9, 10) + expected_tokens(0.5, 1)) / roofline(16 * 13) / plain;
  EXPECT_NEAR(one_for_all, 2.697, 0.001);
  EXPECT_NEAR(per_sequence, 3.257, 0.001);
  std::vector<Text> texts(32, {0.9, honest(0.9), {}});
  for (std::size_t i = 0; i < 16; ++i) texts[i] = {0.5, honest(0.5), {}};
  World world(texts, roofline, 3);
  world.gain(300);
  const double gain = world.gain(2000);
  EXPECT_GT(gain, 1.1 * one_for_all);
  EXPECT_GE(gain, 0.95 * per_sequence);
}

// All claim the same: a sequence differs from the others in what became of its own tokens alone.
TEST(DraftLengthSimulation, SequencesOfOneClassAreToldApart) {
  const double plain = 32 / roofline(32);
  const double best = 16 * (expected_tokens(0.9, 10) + 1) / roofline(16 * 12) / plain;
  const double of_class =
      16 * (expected_tokens(0.9, 4) + expected_tokens(0.2, 4)) / roofline(32 * 5) / plain;
  std::vector<Text> texts(32, {0.9, honest(0.55), {}});
  for (std::size_t i = 0; i < 16; ++i) texts[i].truth = 0.2;
  World world(texts, roofline, 8);
  world.gain(300);
  const double gain = world.gain(2000);
  EXPECT_GE(gain, 0.9 * best);
  EXPECT_GE(gain, 1.15 * of_class);
}

TEST(DraftLengthSimulation, LearnsThatADraftIsBetterOrWorseThanItSays) {
  World modest(std::vector<Text>(4, {0.9, honest(0.3), {}}), roofline, 4);
  modest.gain(500);
  EXPECT_GE(modest.gain(2000), kClose * best_fixed_gain(0.9, 4, roofline, 16));
  World boasting(std::vector<Text>(64, {0.2, 250, {}}), roofline, 5);
  boasting.gain(500);
  EXPECT_GE(boasting.gain(2000), 0.97);
}

// It spends no row on finding out: while off, what was proposed is compared with what came.
TEST(DraftLengthSimulation, ComesBackWithinASecondOfTheTextGettingEasier) {
  for (std::uint32_t seed = 1; seed <= 25; ++seed) {
    World world(std::vector<Text>(1, {0.0, honest(0.8), {}}), flat, seed);
    while (world.seconds < 5) world.step();
    EXPECT_TRUE(world.controller.is_off());
    const std::uint64_t n_before = world.n_verified;
    while (world.seconds < 10) world.step();
    EXPECT_EQ(world.n_verified, n_before) << "no row is spent on a source that is always wrong";
    world.set_truth(0.8);
    const double recovered = world.seconds;
    while (world.controller.is_off() && world.seconds < recovered + 5) world.step();
    EXPECT_LT(world.seconds - recovered, 1.0) << "seed " << seed;
    world.gain(300);
    EXPECT_GE(world.gain(2000), kClose * best_fixed_gain(0.8, 1, flat, 16)) << "seed " << seed;
  }
}

// A preempted step says nothing about its length. One that is met as the first of its kind may be
// believed for a while: about one run of a hundred stays below 0.9, so it is the mean that counts.
TEST(DraftLengthSimulation, KeepsItsGainWhereStepsAreDisturbed) {
  constexpr int kSeeds = 20;
  for (const std::uint32_t percent : {1u, 3u})
    for (const double a : {0.6, 0.8, 0.9})
      for (const std::uint32_t batch : {1u, 8u}) {
        double mean = 0, worst = 9;
        for (int seed = 1; seed <= kSeeds; ++seed) {
          World world(std::vector<Text>(batch, {a, honest(a), {}}), flat,
                      static_cast<std::uint32_t>(seed), 4);
          world.hiccup_percent = percent;
          world.gain(200);
          const double part = world.gain(2000) / best_fixed_gain(a, batch, flat, 4);
          mean += part / kSeeds;
          worst = std::min(worst, part);
        }
        SCOPED_TRACE(::testing::Message()
                     << percent << " % disturbed, a " << a << " batch " << batch);
        EXPECT_GE(mean, 0.98);
        EXPECT_GE(worst, 0.8);
      }
}

TEST(DraftLengthSimulation, IsNotSlowerWhenTheTextKeepsChangingSides) {
  for (const auto& cost : {Cost(roofline), Cost(linear), Cost(flat)})
    for (const std::uint32_t batch : {1u, 4u, 32u})
      for (const int phase_steps : {5, 20, 50, 200}) {
        World world(std::vector<Text>(batch, {0.0, 220, {}}), cost, 6);
        for (int step = 0; step < 2000; ++step) {
          world.set_truth(step / phase_steps % 2 == 0 ? 0.9 : 0.0);
          world.step();
        }
        const double plain = batch / cost(batch);
        EXPECT_GE(world.tokens / world.seconds / plain, 0.97)
            << "batch " << batch << " phases of " << phase_steps;
      }
}

TEST(DraftLengthSimulation, DoesNotSwitchFasterThanEveryTenSteps) {
  World world(std::vector<Text>(2, {0.35, 128, {}}), linear, 7);
  bool was_off = false;
  int last_switch_off = -1000, n_switches = 0;
  for (int step = 0; step < 20000; ++step) {
    world.step();
    if (world.controller.is_off() && !was_off) {
      EXPECT_GE(step - last_switch_off, 10);
      last_switch_off = step;
      ++n_switches;
    }
    was_off = world.controller.is_off();
  }
  EXPECT_GT(n_switches, 0);
}

}  // namespace
}  // namespace foretoken
