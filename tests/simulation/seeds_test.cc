// The whole system under faults drawn from a seed, each run judged by the history checker; and that
// a seed tells the same story each time.
#include <gmock/gmock.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/simulation/scenario.h"

namespace foretoken::test {
namespace {

constexpr std::uint64_t kShards = 20;

std::uint64_t seeds_per_shard() {
  const char* set = std::getenv("FORETOKEN_TEST_SEEDS");  // in all; sanitizers take fewer
  return set == nullptr ? 200 / kShards : std::strtoull(set, nullptr, 10) / kShards;
}

volatile std::uint64_t seed_under_way = 0;

// A check of the services' own that fails ends the process: say whose story it was.
void on_abort(int) {
  std::fprintf(stderr, "aborted in seed %llu: simulation_test --seed %llu --trace\n",
               static_cast<unsigned long long>(seed_under_way),
               static_cast<unsigned long long>(seed_under_way));
}

class Seeds : public testing::TestWithParam<std::uint64_t> {
 protected:
  static void SetUpTestSuite() { std::signal(SIGABRT, on_abort); }
  // Runs that met no trouble prove nothing.
  static void TearDownTestSuite() {
    std::signal(SIGABRT, SIG_DFL);
    if (n_seeds_ < 100) return;  // a filter picked some, or a sanitizer takes fewer
    EXPECT_GT(met_.kills, n_seeds_ / 4);
    EXPECT_GT(met_.stops, n_seeds_ / 8);
    EXPECT_GT(met_.cuts, n_seeds_ / 8);
    EXPECT_GT(met_.breaks, n_seeds_ / 8);
    EXPECT_GT(met_.jumps, n_seeds_ / 8);
    EXPECT_GT(met_.slow, n_seeds_ / 4);
    EXPECT_GT(met_.lost, 10 * n_seeds_);
    EXPECT_GT(met_.busy, n_seeds_);
    EXPECT_GT(met_.no_peer, n_seeds_ / 10);
    EXPECT_GT(met_.migrated, n_seeds_ / 10);
    EXPECT_GT(met_.replayed, n_seeds_ / 2);
    EXPECT_GT(met_.joined, n_seeds_ / 4);
    EXPECT_GT(met_.cut, n_seeds_ / 4);
    EXPECT_GT(met_.asks, met_.requests);
    EXPECT_GT(met_.accepted, 10 * n_seeds_);
    EXPECT_GT(met_.remembered, n_seeds_ / 10);
    EXPECT_GT(met_.scored, n_seeds_ / 2);
  }
  static void add(const Outcome::Counts& counts) {
    ++n_seeds_;
    met_.kills += counts.kills, met_.stops += counts.stops, met_.cuts += counts.cuts;
    met_.breaks += counts.breaks, met_.jumps += counts.jumps, met_.slow += counts.slow;
    met_.lost += counts.lost, met_.busy += counts.busy;
    met_.no_peer += counts.no_peer, met_.migrated += counts.migrated;
    met_.replayed += counts.replayed, met_.joined += counts.joined, met_.cut += counts.cut;
    met_.asks += counts.asks, met_.requests += counts.requests, met_.accepted += counts.accepted;
    met_.remembered += counts.remembered, met_.scored += counts.scored;
  }
  static inline Outcome::Counts met_;
  static inline std::uint64_t n_seeds_ = 0;
};

TEST_P(Seeds, BreakNoRule) {
  const std::uint64_t n = seeds_per_shard();
  for (std::uint64_t seed = GetParam() * n; seed < (GetParam() + 1) * n; ++seed) {
    seed_under_way = seed;
    const Outcome outcome = run_seed(seed);
    EXPECT_THAT(outcome.violations, testing::IsEmpty())
        << "seed " << seed << ": simulation_test --seed " << seed << " --trace";
    add(outcome.counts);
  }
}
INSTANTIATE_TEST_SUITE_P(Shard, Seeds, testing::Range<std::uint64_t>(0, kShards));

TEST(Seed, TellsTheSameStoryEachTimeAndAnotherSeedAnother) {
  for (const std::uint64_t seed : {3u, 14u, 15u}) {
    const Outcome first = run_seed(seed);
    const Outcome again = run_seed(seed);
    EXPECT_EQ(first.trace, again.trace) << "seed " << seed;
    EXPECT_EQ(first.violations, again.violations) << "seed " << seed;
    EXPECT_NE(first.trace, run_seed(seed + 1000).trace) << "seed " << seed;
  }
}

}  // namespace
}  // namespace foretoken::test
