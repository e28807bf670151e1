// Every rank runs the same tests in the same order: over_mpi N, started N times by mpirun.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/collective/contract.h"

namespace foretoken::test {
namespace {
std::unique_ptr<Collective> ranks;
}

std::vector<int> rank_counts() { return {0}; }  // however many there are
void for_ranks(int, const std::function<void(Collective&)>& body) { body(*ranks); }

TEST(CollectiveOverMpi, KnowsItsNumberWithoutMpi) { EXPECT_EQ(started_rank(), ranks->rank()); }

}  // namespace foretoken::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  foretoken::test::ranks = foretoken::make_mpi_collective(argc > 1 ? std::atoi(argv[1]) : 1);
  const int failed = RUN_ALL_TESTS();
  foretoken::test::ranks.reset();
  return failed;
}
