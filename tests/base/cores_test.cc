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

TEST(Cores, AreAtMostAsManyAsTheLimit) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), physical_cores(allowed_cpus()));
  const int limit = cpu_limit();
  EXPECT_TRUE(limit == 0 || usable_cores() <= limit);
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
