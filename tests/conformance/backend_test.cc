// What is not an op: making a backend, its memory, recordings, and its team of threads.
#include "kernels/include/backend.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <random>
#include <sstream>
#include <system_error>
#include <vector>

#include "common/base/result.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/parallel.h"
#include "kernels/include/device_identity.h"
#include "kernels/include/layout.h"
#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

TEST(MakeBackend, RefusesDevicesThatAreNotThereWithASentence) {
  setenv("FORETOKEN_CUDA_LIBRARY", "/nowhere/libforetoken_cuda.so", 1);
  for (const char* device : {"cuda", "cuda:1"}) {
    try {
      make_backend({.device = device});
      FAIL() << device;
    } catch (const FatalError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
      EXPECT_NE(std::string(error.what()).find("not built or not installed"), std::string::npos);
    }
  }
  unsetenv("FORETOKEN_CUDA_LIBRARY");
  EXPECT_THROW(make_backend({.device = "abacus"}), FatalError);
  EXPECT_THROW(make_backend({.n_threads = -1}), FatalError);
}

TEST(MakeBackend, TheCpuRefusesFloat8WithASentence) {
  const std::uint8_t codes[4] = {};
  const float scales[2] = {1, 1};
  const LinearSource source{DType::kF8E4M3, codes, 2, 2, scales, nullptr};
  try {
    make_backend({.n_threads = 1})->pack({&source, 1});
    FAIL();
  } catch (const FatalError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupportedModel);
    EXPECT_NE(std::string(error.what()).find("float8_e4m3"), std::string::npos);
  }
}

TEST(MakeBackend, NamesItsNumericsAndItself) {
  const auto backend = make_backend({.n_threads = 3, .isa = CpuIsa::kScalar});
  EXPECT_EQ(backend->numerics(), "cpu/scalar/3");
  EXPECT_EQ(backend->description(), "cpu, 3 threads, scalar");
  EXPECT_GT(backend->free_bytes(), std::size_t{1} << 20);
  EXPECT_EQ(device_identity("cpu"), "");  // ranks may share it
}

TEST(Memory, IsZeroAlignedAndRefusedWithItsSize) {
  const auto backend = make_backend({.n_threads = 1});
  for (const std::size_t size : {std::size_t{1}, std::size_t{100}, std::size_t{5} << 20}) {
    const Buffer buffer = backend->allocate(size);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(buffer.as<std::byte>()) % 64, 0u);
    std::vector<std::byte> host(size, std::byte{1});
    backend->download(host.data(), buffer.as<std::byte>(), size);
    EXPECT_EQ(host, std::vector<std::byte>(size));
  }
  EXPECT_FALSE(backend->allocate(0));
  try {
    backend->allocate(std::size_t{1} << 60);
    FAIL();
  } catch (const FatalError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_NE(std::string(error.what()).find("1152921504606846976"), std::string::npos);
  }
}

std::size_t available(const char* meminfo) {
  std::istringstream in(meminfo);
  return cpu::available_memory(in);
}

TEST(Memory, WhatIsAvailableIsReadOrSummedUp) {
  EXPECT_EQ(available("MemTotal:  900 kB\nMemFree:  100 kB\nMemAvailable:  700 kB\nCached: 9 kB\n"),
            700u * 1024);
  EXPECT_EQ(available("MemTotal: 900 kB\nMemFree: 100 kB\nBuffers: 20 kB\nCached: 300 kB\n"),
            420u * 1024);
  EXPECT_EQ(available(""), 0u);
  EXPECT_EQ(available("MemFree: much\n"), 0u);
}

TEST(Memory, TheTightestControlGroupCountsAndItsFileCacheDoesNot) {
  const test::TempFolder root;
  std::filesystem::create_directories(root / "slice/job");
  std::filesystem::create_directories(root / "memory/old");
  const auto left = [&](const char* groups) {
    std::istringstream in(groups);
    return cpu::left_in_groups(in, root.path().string());
  };
  constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(left("0::/slice/job\n"), kNoLimit);
  root.write("slice/job/memory.max", "max\n");
  root.write("slice/job/memory.current", "700\n");
  EXPECT_EQ(left("0::/slice/job\n"), kNoLimit);
  root.write("slice/memory.max", "1000\n");
  root.write("slice/memory.current", "800\n");
  EXPECT_EQ(left("0::/slice/job\n"), 200u);
  root.write("slice/memory.stat",
             "anon 500\nfile 300\nshmem 10\ninactive_file 250\nactive_file 40\n");
  EXPECT_EQ(left("0::/slice/job\n"), 490u) << "pages that were used twice, too";
  root.write("memory.max", "100\n");
  root.write("memory.current", "400\n");
  EXPECT_EQ(left("0::/slice/job\n"), 0u) << "over its limit";
  root.write("memory/old/memory.limit_in_bytes", "5000\n");
  root.write("memory/old/memory.usage_in_bytes", "3000\n");
  root.write("memory/old/memory.stat",
             "inactive_file 7\nactive_file 9\ntotal_inactive_file 600\ntotal_active_file 400\n");
  EXPECT_EQ(left("5:cpu:/\n4:memory:/old\nnonsense\n3:\n"), 3000u);
}

TEST(Memory, KvOffsetsFollowTheGeometry) {
  const KvGeometry g{DType::kBf16, 3, 2, 8, 16};
  EXPECT_EQ(g.block_bytes(), 3u * 2 * 2 * 16 * 8 * 2);
  EXPECT_EQ(kv_offset(g, 0, 0, 0, KvHalf::kKeys, 0), 0u);
  EXPECT_EQ(kv_offset(g, 0, 1, 0, KvHalf::kKeys, 0), 16u);
  EXPECT_EQ(kv_offset(g, 0, 0, 0, KvHalf::kKeys, 1), 256u);
  EXPECT_EQ(kv_offset(g, 0, 0, 0, KvHalf::kValues, 0), 512u);
  EXPECT_EQ(kv_offset(g, 0, 0, 2, KvHalf::kKeys, 0), 2048u);
  EXPECT_EQ(kv_offset(g, 5, 15, 2, KvHalf::kValues, 1),
            5 * g.block_bytes() + 2048 + 512 + 256 + 15 * 16);
  EXPECT_EQ(kv_offset_of_slot(g, kv_slot(5, 15, g), 2, KvHalf::kValues, 1),
            kv_offset(g, 5, 15, 2, KvHalf::kValues, 1));
}

// A matrix of which each row is made when it is asked for.
class Rows final : public RowReader {
 public:
  Rows(const std::byte* data, std::int64_t row_bytes, const float* scales)
      : data_(data), row_bytes_(row_bytes), scales_(scales) {}
  void read(std::int64_t first, std::int64_t n, std::byte* to, float* scales) const override {
    std::memcpy(to, data_ + first * row_bytes_, static_cast<std::size_t>(n * row_bytes_));
    for (std::int64_t r = 0; r < n; ++r) scales[r] = scales_ == nullptr ? 1.0f : scales_[first + r];
  }

 private:
  const std::byte* data_;
  std::int64_t row_bytes_;
  const float* scales_;
};

std::vector<std::byte> host_copy(Backend& backend, const Buffer& buffer) {
  std::vector<std::byte> bytes(buffer.size_bytes());
  if (!bytes.empty()) backend.download(bytes.data(), buffer.as<std::byte>(), bytes.size());
  return bytes;
}

TEST(Pack, RowsThatAreReadBecomeWhatRowsInMemoryDo) {
  const auto backend = make_backend({.n_threads = 2});
  constexpr std::int64_t kOut = 70, kIn = 139;  // no multiple of a panel, a step or a line
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16, DType::kI8}) {
    SCOPED_TRACE(dtype_name(dtype));
    const auto row_bytes = static_cast<std::int64_t>(size_bytes(dtype)) * kIn;
    std::vector<std::byte> data(static_cast<std::size_t>(kOut * row_bytes));
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 37 % 251);
    std::vector<float> scales(kOut);
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = 0.5f + static_cast<float>(i);
    LinearSource there{.dtype = dtype, .data = data.data(), .n_out = kOut, .n_in = kIn};
    if (is_quantised(dtype)) there.scales = scales.data();
    const Rows rows(data.data(), row_bytes, there.scales);
    LinearSource read = there;
    read.data = nullptr;
    read.scales = nullptr;
    read.rows = &rows;
    for (const Stacking stacking : {Stacking::kRows, Stacking::kGateUp}) {
      const Linear from_memory = backend->pack(std::array{there, there}, stacking);
      const Linear from_rows = backend->pack(std::array{read, there}, stacking);
      EXPECT_EQ(host_copy(*backend, from_rows.weights), host_copy(*backend, from_memory.weights));
      EXPECT_EQ(host_copy(*backend, from_rows.scales), host_copy(*backend, from_memory.scales));
    }
  }
}

TEST(Recording, ReplaysWithTheMemoryOfThatMoment) {
  const auto backend = make_backend({.n_threads = 2});
  const float weights[] = {1, 2, 3, 4, 5, 6};  // [3, 2]
  const LinearSource source{DType::kF32, weights, 3, 2, nullptr, nullptr};
  const Linear packed = backend->pack({&source, 1});
  const Buffer token = backend->allocate(4), hidden = backend->allocate(8),
               sum = backend->allocate(12), kept = backend->allocate(12);
  const auto recording = backend->record([&] {
    backend->embed({.table = &packed,
                    .tokens = token.as<std::int32_t>(),
                    .n_rows = 1,
                    .hidden = hidden.as<float>()});
    backend->matmul_residual(
        {.x = hidden.as<float>(), .n_rows = 1, .weight = &packed, .residual = sum.as<float>()});
    backend->copy(kept.as<float>(), sum.as<float>(), 12);
  });
  float got[3] = {9, 9, 9};
  backend->download(got, sum.as<float>(), 12);
  EXPECT_EQ(got[0], 0) << "recording does nothing yet";
  std::int32_t id = 1;
  backend->upload(token.as<std::int32_t>(), &id, 4);
  backend->replay(*recording);
  backend->download(got, kept.as<float>(), 12);
  EXPECT_EQ(std::vector<float>(got, got + 3), (std::vector<float>{11, 25, 39}));  // row {3, 4}
  id = 0;
  backend->upload(token.as<std::int32_t>(), &id, 4);
  backend->replay(*recording);
  backend->download(got, kept.as<float>(), 12);
  EXPECT_EQ(std::vector<float>(got, got + 3), (std::vector<float>{16, 36, 56}));  // plus row {1, 2}
}

TEST(Team, SharesCoverEverythingOnce) {
  for (const int n_members : {1, 2, 3, 7})
    for (const std::int64_t n : {0, 1, 5, 64, 1001}) {
      std::int64_t next = 0;
      for (int m = 0; m < n_members; ++m) {
        const cpu::Share share = cpu::share_of(n, m, n_members);
        EXPECT_EQ(share.begin, next);
        EXPECT_LE(share.end - share.begin, n / n_members + 1);
        next = share.end;
      }
      EXPECT_EQ(next, n);
    }
}

// Plain memory written before a barrier is read after it, thousands of times: a missing order would
// show, and the thread sanitizer would say so.
TEST(Team, BarriersOrderWhatMembersWrite) {
  for (const int n_threads : {1, 2, 3, 5}) {
    cpu::Team team(n_threads, false);
    std::vector<int> cells(static_cast<std::size_t>(n_threads), 0);
    std::vector<int> wrong(static_cast<std::size_t>(n_threads), 0);
    for (int round = 1; round <= 300; ++round) {
      team.run([&](int member) {
        const auto me = static_cast<std::size_t>(member);
        for (int phase = 0; phase < 4; ++phase) {
          cells[me] = 4 * round + phase;
          team.barrier();
          for (const int cell : cells) wrong[me] += cell != 4 * round + phase;
          team.barrier();
        }
      });
    }
    EXPECT_EQ(std::accumulate(wrong.begin(), wrong.end(), 0), 0);
  }
}

TEST(Team, MembersThatFellAsleepComeBack) {
  cpu::Team team(3, true);
  std::atomic<int> n_calls{0};
  for (int i = 0; i < 5; ++i) {
    // Long enough in between for the others to stop spinning: a sum the optimiser cannot drop.
    volatile double sum = 0;
    for (int k = 0; k < 2000000; ++k) sum = sum + k;
    team.run([&](int) { n_calls.fetch_add(1); });
  }
  EXPECT_EQ(n_calls.load(), 15);
}

TEST(Team, RunsOfChangingSizesHaveExactlyTheirMembers) {
  cpu::Team team(4, false);
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    if (random() % 3 == 0) team.set_size(1 + static_cast<int>(random() % 4));
    const int n = team.size();
    std::array<int, 4> calls{}, seen{};
    team.run([&](int member) {
      ++calls[static_cast<std::size_t>(member)];
      team.barrier();
      seen[static_cast<std::size_t>(member)] = std::accumulate(calls.begin(), calls.end(), 0);
    });
    for (int member = 0; member < 4; ++member) {
      ASSERT_EQ(calls[static_cast<std::size_t>(member)], member < n ? 1 : 0);
      ASSERT_EQ(seen[static_cast<std::size_t>(member)], member < n ? n : 0);
    }
  }
  EXPECT_EQ(team.capacity(), 4);
}

// From now on this process has room for about 16 more threads.
void limit_room_for_threads() {
  constexpr std::size_t kStackBytes = 1u << 20;
  pthread_attr_t small_stacks;
  pthread_attr_init(&small_stacks);
  pthread_attr_setstacksize(&small_stacks, kStackBytes);
  pthread_setattr_default_np(&small_stacks);
  rlim_t n_pages = 0;
  std::ifstream("/proc/self/statm") >> n_pages;
  const rlim_t most = n_pages * static_cast<rlim_t>(::getpagesize()) + 16 * kStackBytes;
  const rlimit limit{.rlim_cur = most, .rlim_max = most};
  setrlimit(RLIMIT_AS, &limit);
}

// The service says so and ends; with a thread that is not joined it would be aborted.
TEST(TeamDeathTest, AThreadThatCannotBeStartedIsAnError) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take more address space than any limit leaves";
#endif
  const auto start_too_many = [] {
    limit_room_for_threads();
    try {
      const cpu::Team team(64, false);
    } catch (const std::system_error& error) {
      std::_Exit(error.code() == std::errc::resource_unavailable_try_again ? 7 : 8);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(start_too_many(), testing::ExitedWithCode(7), "");
}

// One that never ran must end too (or the test hangs), and the next be none the worse.
TEST(Team, EndsWithoutHavingRun) {
  std::array<std::atomic<int>, 4> n_calls{};
  for (int i = 0; i < 20; ++i) {
    cpu::Team team(4, false);
    EXPECT_EQ(team.size(), 4);
    if (i % 2 == 1) team.run([&](int member) { n_calls[static_cast<std::size_t>(member)] += 1; });
  }
  for (const auto& n : n_calls) EXPECT_EQ(n.load(), 10);
}

}  // namespace
}  // namespace foretoken
