// Every rank runs the same tests in the same order: over_mpi N, started N times by mpirun. With
// another word, `leave`, rank 0 ends by an exception while the others wait for it.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "common/base/result.h"
#include "tests/collective/contract.h"

namespace foretoken::test {
namespace {
std::unique_ptr<Collective> ranks;
}

std::vector<int> rank_counts() { return {0}; }  // however many there are
void for_ranks(int, const std::function<void(Collective&)>& body) { body(*ranks); }

TEST(CollectiveOverMpi, KnowsItsNumberWithoutMpi) { EXPECT_EQ(started_rank(), ranks->rank()); }

// What mpirun does with the others is not looked at: only that rank 0 does not wait for them.
int leave_by_exception(int n_ranks) {
  struct Left {};
  try {
    const auto all = make_mpi_collective(n_ranks);
    if (all->rank() == 0) throw Left{};
    all->set_patience(std::chrono::seconds(20));
    all->barrier();
  } catch (const Left&) {
    std::puts("rank 0 has left");
  } catch (const FatalError& error) {
    std::puts(error.what());
  }
  return 1;
}

}  // namespace foretoken::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int n_ranks = argc > 1 ? std::atoi(argv[1]) : 1;
  if (argc > 2 && std::string_view(argv[2]) == "leave")
    return foretoken::test::leave_by_exception(n_ranks);
  foretoken::test::ranks = foretoken::make_mpi_collective(n_ranks);
  const int failed = RUN_ALL_TESTS();
  foretoken::test::ranks.reset();
  return failed;
}
