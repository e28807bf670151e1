#include "common/base/control_groups.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

int cpus_left(const test::TempFolder& root, const char* groups) {
  std::istringstream in(groups);
  return cpus_of_groups(in, root.path().string());
}

TEST(ControlGroups, TheSmallestLimitOfCpusCounts) {
  const test::TempFolder root;
  std::filesystem::create_directories(root / "slice/job");
  EXPECT_EQ(cpus_left(root, "0::/slice/job\n"), 0) << "no files, as at the root of a host";
  root.write("slice/job/cpu.max", "max 100000\n");
  EXPECT_EQ(cpus_left(root, "0::/slice/job\n"), 0);
  root.write("slice/cpu.max", "400000 100000\n");
  EXPECT_EQ(cpus_left(root, "0::/slice/job\n"), 4);
  root.write("slice/job/cpu.max", "250000 100000\n");
  EXPECT_EQ(cpus_left(root, "0::/slice/job\n"), 2) << "a half more is no thread";
  root.write("cpu.max", "50000 100000\n");
  EXPECT_EQ(cpus_left(root, "0::/slice/job\n"), 1);
  EXPECT_EQ(cpus_left(root, "0::/elsewhere\n"), 1) << "a group that is mounted as the root";
}

TEST(ControlGroups, OfTheFirstVersionThoseOfTheControllerAreRead) {
  const test::TempFolder root;
  std::filesystem::create_directories(root / "cpu/job");
  root.write("cpu/job/cpu.cfs_quota_us", "-1\n");
  root.write("cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpus_left(root, "4:cpu,cpuacct:/job\n"), 0);
  root.write("cpu/job/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(cpus_left(root, "5:cpuset:/job\n4:cpuacct,cpu:/job\nnonsense\n3:\n"), 3);
  EXPECT_EQ(cpus_left(root, "5:cpuset:/job\n"), 0);
}

}  // namespace
}  // namespace foretoken
