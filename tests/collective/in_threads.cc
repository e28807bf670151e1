// Ranks as threads, and one process alone; and what only threads can show: a rank that stays away.
#include <gtest/gtest.h>

#include <thread>

#include "common/base/result.h"
#include "tests/collective/contract.h"

namespace foretoken::test {

std::vector<int> rank_counts() { return {1, 2, 3, 4}; }

void for_ranks(int n_ranks, const std::function<void(Collective&)>& body) {
  if (n_ranks == 1) {
    const auto self = make_self_collective();
    return body(*self);
  }
  auto ranks = make_thread_collectives(n_ranks);
  std::vector<std::thread> threads;
  for (auto& rank : ranks) threads.emplace_back([&] { body(*rank); });
  for (std::thread& thread : threads) thread.join();
}

TEST(CollectiveInThreads, ARankThatStaysAwayIsAnErrorAfterThePatience) {
  auto ranks = make_thread_collectives(2);
  ranks[0]->set_patience(std::chrono::milliseconds(20));
  EXPECT_THROW(ranks[0]->barrier(), FatalError);
}

}  // namespace foretoken::test
