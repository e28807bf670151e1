#include "common/base/cores.h"

#include <gtest/gtest.h>

namespace foretoken {
namespace {

TEST(CpuLists, AreWrittenAsTheKernelWritesThem) {
  EXPECT_EQ(to_text(CpuList{}), "");
  EXPECT_EQ(to_text(CpuList{3}), "3");
  EXPECT_EQ(to_text(CpuList{0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
}

TEST(CpuLists, AreReadAsTheyAreWritten) {
  for (const CpuList& cpus : {CpuList{}, CpuList{7}, CpuList{0, 1, 5}, CpuList{2, 4, 6, 7, 8}}) {
    const auto read = cpu_list_from(to_text(cpus));
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(*read, cpus);
  }
  EXPECT_EQ(cpu_list_from("4-5,0,4").value(), (CpuList{0, 4, 5}));
}

TEST(CpuLists, OthersAreRefused) {
  for (const char* text : {"a", "1,", ",1", "3-1", "1-", "-1", "1 2", "99999", "0-99999", "1;2"})
    EXPECT_FALSE(cpu_list_from(text).ok()) << text;
  std::string flood = "0";
  while (flood.size() < 9000) flood += ",0-1023";
  EXPECT_FALSE(cpu_list_from(flood).ok());
}

TEST(CpuLists, ThisProcessMayRunSomewhere) {
  const CpuList cpus = allowed_cpus();
  ASSERT_FALSE(cpus.empty());
  EXPECT_GE(physical_cores(cpus), 1);
  EXPECT_LE(physical_cores(cpus), static_cast<int>(cpus.size()));
}

TEST(CpuLists, BeginWithOneProcessorOfEachCore) {
  const auto in_pairs = [](int cpu) { return cpu / 2; };
  EXPECT_EQ(spread_over_cores({0, 1, 2, 3, 5}, in_pairs), (CpuList{0, 2, 5, 1, 3}));
  const auto in_halves = [](int cpu) { return cpu % 4; };
  EXPECT_EQ(spread_over_cores({0, 1, 2, 3, 4, 5, 6, 7}, in_halves),
            (CpuList{0, 1, 2, 3, 4, 5, 6, 7}));
  CpuList here = spread_over_cores(allowed_cpus());
  here.resize(static_cast<std::size_t>(physical_cores(allowed_cpus())));
  EXPECT_EQ(physical_cores(here), static_cast<int>(here.size()));
}

TEST(Cores, AreAtMostAsManyAsTheLimit) {
  EXPECT_EQ(usable_cores(8, 0), 8);
  EXPECT_EQ(usable_cores(8, 3), 3);
  EXPECT_EQ(usable_cores(2, 3), 2);
  EXPECT_EQ(usable_cores(0, 1), 1);
  EXPECT_EQ(usable_cores(), usable_cores(physical_cores(allowed_cpus()), cpu_limit()));
}

TEST(Cores, OfALimitAreOwnAsLongAsItSuffices) {
  // Processors that no machine has: each counts as a core.
  const CpuList cpus{1016, 1017, 1018, 1019, 1020, 1021, 1022, 1023};
  for (const int limit : {0, 6, 8}) {
    EXPECT_TRUE(have_own_cores({"m", cpus, 2, limit}, {"m", cpus, 4})) << limit;
    EXPECT_TRUE(have_own_cores({"m", cpus, 4}, {"m", cpus, 2, limit})) << limit;
  }
  EXPECT_FALSE(have_own_cores({"m", cpus, 2, 5}, {"m", cpus, 4}));
  EXPECT_FALSE(have_own_cores({"m", cpus, 4}, {"m", cpus, 2, 5}));
}

TEST(Cores, OfDifferentMachinesOrSetsAreOwn) {
  const CoreUse target{"m", {0, 1, 2, 3}, 4};
  EXPECT_TRUE(have_own_cores(target, {"n", {0, 1, 2, 3}, 4}));
  EXPECT_TRUE(have_own_cores(target, {"m", {4, 5}, 2}));
  EXPECT_FALSE(have_own_cores(target, {"m", {3, 4}, 2})) << "one of them is both's";
}

TEST(Cores, AreOwnWhereThereAreAsManyAsThreads) {
  const CpuList cpus = allowed_cpus();
  const int n_cores = physical_cores(cpus);
  EXPECT_TRUE(have_own_cores({"m", cpus, n_cores - 1}, {"m", cpus, 1}));
  EXPECT_FALSE(have_own_cores({"m", cpus, n_cores}, {"m", cpus, 1}));
}

TEST(Cores, AreNotOwnWhereNothingIsKnown) {
  EXPECT_FALSE(have_own_cores({"", {0}, 1}, {"m", {1}, 1}));
  EXPECT_FALSE(have_own_cores({"m", {}, 1}, {"m", {1}, 1}));
  EXPECT_FALSE(have_own_cores({"m", {0}, 1}, {"n", {1}, 0})) << "its threads";
}

}  // namespace
}  // namespace foretoken
