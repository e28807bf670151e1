// Whole steps through every op on the emulated device: plain = verified in blocks = recorded, on
// every path, bit for bit; and the benchmark's report about it.
#include <gtest/gtest.h>

#include <algorithm>

#include "bench/gpu/iterate.h"
#include "bench/gpu/report.h"
#include "bench/gpu/step.h"
#include "common/base/result.h"
#include "kernels/cuda/emulated.h"
#include "kernels/emu/machine.h"

namespace foretoken {
namespace {

bench::GpuOptions emulated() {
  bench::GpuOptions options;
  options.backend = [](CudaPath path) { return emu::make_backend(9, path); };
  options.small = true;
  options.seconds = 0;  // checks, and not one timing
  return options;
}

TEST(Steps, EveryPathGivesOneTextHoweverItIsCut) {
  const bench::Report report = bench::measure(emulated(), [](const bench::Report&) {});
  EXPECT_EQ(report.checks.size(), 2u * (1 + 4 * 4));
  for (const bench::Check& check : report.checks) EXPECT_TRUE(check.passed) << check.what;
  EXPECT_FALSE(report.failed());
  EXPECT_TRUE(report.rows.empty());
  EXPECT_FALSE(report.not_run.empty()) << "what the time did not allow is listed";
  EXPECT_NE(report.to_table().find("not run for lack of time"), std::string::npos);
}

TEST(Steps, OlderDevicesAreMeasuredWithoutTheRing) {
  bench::GpuOptions options = emulated();
  options.backend = [](CudaPath path) { return emu::make_backend(8, path); };
  const bench::Report report = bench::measure(options, [](const bench::Report&) {});
  EXPECT_EQ(report.checks.size(), 2u * (1 + 4));
  EXPECT_FALSE(report.failed());
}

TEST(Steps, OnlyThePathThatPrefetchesDoes) {
  const bench::Model model = bench::models(true).front();
  for (const CudaPath path : {CudaPath::kRingOverlap, CudaPath::kRingPrefetch}) {
    const auto backend = emu::make_backend(9, path);
    bench::Step step(*backend, model, DType::kBf16, 40);
    const std::int64_t before = emu::n_prefetched();
    step.run(*backend, 1);
    // All of a tiny model fits into what is fetched: every matrix once.
    EXPECT_EQ(emu::n_prefetched() - before,
              path == CudaPath::kRingPrefetch ? step.weight_bytes() : 0);
  }
}

// What bench/gpu/notes.md counts with: embed, five a layer, lm_head, three of choose.
TEST(Steps, ALayerIsFiveLaunchesOnTheRing) {
  const bench::Model model = bench::models(true).front();
  const auto backend = emu::make_backend(9, CudaPath::kRingOverlap);
  bench::Step step(*backend, model, DType::kF8E4M3, 40);
  for (const std::int32_t n_rows : {1, 11, 16}) {
    step.set_rows(*backend, std::vector<std::int32_t>(static_cast<std::size_t>(n_rows), 3), 40);
    const std::int64_t before = emu::n_launches();
    step.run(*backend, n_rows);
    EXPECT_EQ(emu::n_launches() - before, 1 + 5 * model.n_layers + 1 + 3) << n_rows << " rows";
  }
}

// The oracle may accept what it likes: rounds write what the target writes by itself.
TEST(Rounds, WriteThePlainTextHoweverMuchIsAccepted) {
  const auto backend = emu::make_backend(9, CudaPath::kSimple);
  const bench::Model& model = bench::models(true).front();
  bench::Step target(*backend, model, DType::kBf16, 40), draft(*backend, model, DType::kF8E4M3, 40);
  const std::vector<std::int32_t> kept = bench::plain_text(*backend, target, 0, 8);
  ASSERT_EQ(kept.size(), 9u);
  double least = 0;
  for (const double acceptance : {0.0, 1.0}) {
    bool same_text = false;
    const bench::Iteration one =
        bench::measure_rounds(*backend, target, draft, kept,
                              {.context = 0, .n_drafted = 2, .acceptance = acceptance}, same_text);
    EXPECT_TRUE(same_text) << acceptance;
    EXPECT_GE(one.tokens_per_round, least);
    least = one.tokens_per_round;
    if (acceptance == 0) {
      EXPECT_EQ(one.tokens_per_round, 1);
    }
    if (acceptance == 1) {
      EXPECT_EQ(one.tokens_per_round, 3);
    }
  }
  std::vector<std::int32_t> other = kept;
  other[5] = other[5] == 1 ? 2 : 1;
  bool same_text = true;
  bench::measure_rounds(*backend, target, draft, other,
                        {.context = 0, .n_drafted = 2, .acceptance = 0.0}, same_text);
  EXPECT_FALSE(same_text) << "another text is noticed";
}

TEST(Rounds, RatesAreOfTheAcceptanceThatWasSaid) {
  const bench::Iteration one{.n_drafted = 2, .acceptance = 0.5, .milliseconds = 10};
  EXPECT_DOUBLE_EQ(one.tokens_per_second(), 175);  // 1 + 1/2 + 1/4 tokens in 10 ms
}

TEST(Table, HasAtMostTwentyFourLinesAndNamesWhatFailed) {
  bench::Report report;
  report.device = "device";
  for (int i = 0; i < 50; ++i)
    for (const int rows : {1, 11})
      report.rows.push_back({"thing " + std::to_string(i), "bfloat16", "ring", rows,
                             i < 20 ? 1024 : 0, 10.0 + rows, 0.01, 100, 0.5});
  for (int i = 0; i < 5; ++i) report.checks.push_back({"promise " + std::to_string(i), i > 3});
  report.not_run = {"more"};
  const std::string table = report.to_table();
  EXPECT_LE(std::count(table.begin(), table.end(), '\n'), 24);
  EXPECT_NE(table.find("FAILED: promise 0"), std::string::npos);
  EXPECT_NE(table.find("5 checks, 4 failed"), std::string::npos);
  EXPECT_TRUE(report.failed());
  EXPECT_NE(report.to_json().find("\"passed\": false"), std::string::npos);
}

}  // namespace
}  // namespace foretoken
