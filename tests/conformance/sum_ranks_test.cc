// Sums over ranks on a device, with several ranks as blocks of one emulated launch: rank order,
// every rank the same bits, one turn after another without a rank overtaking what another still
// reads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cuda/nccl.h"
#include "kernels/emu/machine.h"
#include "kernels/emu/runtime_emu.h"
// after the emulator, whose names it takes
#include "kernels/cuda/sum_ranks.cuh"

namespace foretoken::cuda {
namespace {

// Numbers whose sum depends on the order of additions.
std::vector<float> numbers(std::mt19937& random, std::int64_t n) {
  std::uniform_real_distribution<float> mantissa(-1, 1);
  std::vector<float> x(static_cast<std::size_t>(n));
  for (float& one : x) one = std::ldexp(mantissa(random), static_cast<int>(random() % 24));
  return x;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Group {
  explicit Group(int n_ranks_in) : n_ranks(n_ranks_in) {
    for (int r = 0; r < n_ranks; ++r) {
      inboxes.emplace_back(static_cast<std::size_t>(inbox_bytes(n_ranks)) / sizeof(Packet));
      turns.push_back(0);
      n_done.push_back(0);
    }
    for (auto& inbox : inboxes) table.push_back(inbox.data());
  }
  SumRanksArgs args(int rank, const std::vector<float>& part, std::vector<float>& residual) {
    const auto r = static_cast<std::size_t>(rank);
    SumRanksArgs a{.part = part.data(),
                   .residual = residual.data(),
                   .n = static_cast<std::int64_t>(part.size()),
                   .rank = rank,
                   .n_ranks = n_ranks,
                   .inboxes = table.data(),
                   .turn = &turns[r],
                   .n_done = &n_done[r]};
    return a;
  }
  int n_ranks;
  std::vector<std::vector<Packet>> inboxes;
  std::vector<Packet*> table;
  std::vector<std::uint32_t> turns, n_done;
};

struct Work {
  std::vector<std::vector<float>> parts, residuals;  // by rank
  std::vector<float> want;
  Work(std::mt19937& random, int n_ranks, std::int64_t n) {
    want = numbers(random, n);
    for (int r = 0; r < n_ranks; ++r) {
      parts.push_back(numbers(random, n));
      residuals.push_back(want);
    }
    for (std::size_t i = 0; i < want.size(); ++i) {
      float sum = parts[0][i];
      for (std::size_t r = 1; r < parts.size(); ++r) sum += parts[r][i];
      want[i] += sum;
    }
  }
};

TEST(OneShotSum, IsTakenInRankOrderOnEveryRank) {
  std::mt19937 random(11);
  for (const int n_ranks : {2, 3, 4, 8}) {
    Group group(n_ranks);
    for (const std::int64_t n : {1, 2, 3, 4, 767, 768, 769, 3000}) {
      Work work(random, n_ranks, n);
      emu::set_schedule(random());
      const int n_blocks = n > 1000 ? 3 : 1;
      emu::run({{static_cast<unsigned>(n_blocks), 1, static_cast<unsigned>(n_ranks)},
                kSumThreads,
                0,
                n_ranks},
               [&] {
                 const int rank = emu::here.rank;
                 const auto r = static_cast<std::size_t>(rank);
                 sum_ranks_block(group.args(rank, work.parts[r], work.residuals[r]),
                                 static_cast<int>(emu::here.block.x), n_blocks);
               });
      for (const auto& got : work.residuals)
        ASSERT_TRUE(same_bits(got, work.want)) << n_ranks << " ranks, " << n;
    }
    for (const std::uint32_t turn : group.turns) EXPECT_EQ(turn, 8u);
  }
}

// All turns within one launch: a rank goes on to the next as soon as it can, while others still
// read.
TEST(OneShotSum, ARankThatIsAheadDoesNotOverwriteWhatAnotherReads) {
  std::mt19937 random(12);
  for (const int n_ranks : {2, 4}) {
    for (int round = 0; round < 20; ++round) {
      Group group(n_ranks);
      std::vector<Work> turns;
      for (int turn = 0; turn < 6; ++turn)
        turns.emplace_back(random, n_ranks, 1 + static_cast<std::int64_t>(random() % 1500));
      emu::set_schedule(random());
      emu::run({{1, 1, static_cast<unsigned>(n_ranks)}, kSumThreads, 0, n_ranks}, [&] {
        const int rank = emu::here.rank;
        const auto r = static_cast<std::size_t>(rank);
        for (Work& work : turns) {
          sum_ranks_block(group.args(rank, work.parts[r], work.residuals[r]), 0, 1);
          sync_block();
        }
      });
      for (const Work& work : turns)
        for (const auto& got : work.residuals)
          ASSERT_TRUE(same_bits(got, work.want)) << "round " << round;
    }
  }
}

TEST(GatheredSum, IsTakenInRankOrder) {
  std::mt19937 random(13);
  const auto runtime = emu::make_runtime(9);
  for (const int n_ranks : {2, 3, 4}) {
    for (const std::int64_t n : {1, 257, 5000}) {
      Work work(random, n_ranks, n);
      std::vector<float> gathered;
      for (const auto& part : work.parts) gathered.insert(gathered.end(), part.begin(), part.end());
      sum_gathered(Launch{.runtime = *runtime}, {.parts = gathered.data(),
                                                 .residual = work.residuals[0].data(),
                                                 .n = n,
                                                 .n_ranks = n_ranks});
      EXPECT_TRUE(same_bits(work.residuals[0], work.want));
    }
  }
}

// The one function that needs no device shows that the names are those of the library.
TEST(Nccl, IsOpenedByNameOrSaysWhyNot) {
  std::string why;
  const auto nccl = load_nccl(why);
  if (nccl == nullptr) {
    EXPECT_NE(why.find("libnccl.so.2"), std::string::npos) << why;
    GTEST_SKIP() << why;
  }
  EXPECT_EQ(nccl->description().rfind("NCCL 2.", 0), 0u) << nccl->description();
}

}  // namespace
}  // namespace foretoken::cuda
