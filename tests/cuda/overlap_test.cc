// The emulator's watch over launches that overlap: a kernel that touches before its wait what
// kernels write, or writes anything, or never waits, ends the program. Small kernels made for it,
// right and wrong; that the real ones keep to it, whole steps and chains show by not ending so.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "kernels/emu/memory.h"
#include "kernels/emu/runtime_emu.h"

namespace foretoken::cuda {
namespace {

constexpr unsigned kBlocks = 11;
constexpr int kThreads = 64;
constexpr std::size_t kFloats = kBlocks * kThreads;

int place() { return static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x); }

void right(const float* in, float* out) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  out[place()] = in[place()] + 1;
}
void let_go_first(const float* in, float* out) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  out[place()] = in[place()] + 1;
}
void read_early(const float* in, float* out) {
  const float x = in[place()];
  wait_for_earlier_kernels();
  out[place()] = x + 1;
}
void write_early(const float* in, float* out) {
  out[place()] = 1;
  wait_for_earlier_kernels();
  out[place()] = in[place()] + 1;
}
void write_early_what_was_read(float* in) {
  in[place()] += 1;
  wait_for_earlier_kernels();
}
void wait_for_none() { let_next_kernel_start(); }
void wait_but_for_one_thread(const float* in, float* out) {
  if (threadIdx.x != 37) wait_for_earlier_kernels();
  out[place()] = in[place()] + 1;
}
void wait_but_for_the_last_block(const float* in, float* out) {
  if (blockIdx.x + 1 != gridDim.x) wait_for_earlier_kernels();
  out[place()] = in[place()] + 1;
}
// What one thread has waited for, a barrier tells the others.
void wait_by_one_thread(const float* in, float* out) {
  if (threadIdx.x == 0) wait_for_earlier_kernels();
  sync_block();
  out[place()] = in[place()] + 1;
}

class Overlap : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!emu::can_watch()) GTEST_SKIP() << "under AddressSanitizer memory is not watched";
    std::vector<float> numbers(kFloats);
    std::iota(numbers.begin(), numbers.end(), 0.0f);
    for (float*& buffer : buffers_) {
      buffer = static_cast<float*>(runtime_->allocate(kFloats * sizeof(float)));
      runtime_->upload(buffer, numbers.data(), kFloats * sizeof(float));
    }
  }
  void TearDown() override {
    for (float* buffer : buffers_)
      if (buffer != nullptr) runtime_->free(buffer);
  }
  template <class... Parameters, class... Arguments>
  void start(const char* name, void (*kernel)(Parameters...), Arguments... arguments) {
    launch(Launch{.runtime = *runtime_, .x = kBlocks, .n_threads = kThreads, .overlap = overlap_},
           name, kernel, arguments...);
  }
  // How much was added to the numbers 0, 1, 2, ...; -1: not the same to all.
  float added_to(const float* buffer) {
    std::vector<float> got(kFloats);
    runtime_->download(got.data(), buffer, kFloats * sizeof(float));
    for (std::size_t i = 0; i < kFloats; ++i)
      if (got[i] - static_cast<float>(i) != got[0]) return -1;
    return got[0];
  }
  float* a() { return buffers_[0]; }
  float* b() { return buffers_[1]; }
  float* c() { return buffers_[2]; }

  std::unique_ptr<Runtime> runtime_ = emu::make_runtime(9, true);
  bool overlap_ = true;
  float* buffers_[3] = {};
};
using OverlapDeathTest = Overlap;

TEST_F(Overlap, WhoHasWaitedMayTouchEverything) {
  start("right", right, a(), b());
  start("right", right, b(), c());
  start("wait_by_one_thread", wait_by_one_thread, c(), b());
  start("let_go_first", let_go_first, b(), b());
  EXPECT_EQ(added_to(b()), 4);
}

TEST_F(Overlap, WhatNoKernelWritesMayBeReadEarly) {
  for (int i = 0; i < 3; ++i) start("read_early", read_early, a(), b());
  EXPECT_EQ(added_to(b()), 1);
  start("right", right, b(), c());
  EXPECT_EQ(added_to(c()), 2);
}

TEST_F(Overlap, TheHostMayWriteWhatWasReadEarly) {
  start("read_early", read_early, a(), b());
  const std::vector<float> zeros(kFloats);
  runtime_->upload(a(), zeros.data(), kFloats * sizeof(float));
  runtime_->copy(c(), a(), kFloats * sizeof(float));
  start("read_early", read_early, a(), b());
  std::vector<float> got(kFloats);
  runtime_->download(got.data(), b(), kFloats * sizeof(float));
  EXPECT_EQ(got, std::vector<float>(kFloats, 1));
}

TEST_F(OverlapDeathTest, WhatAKernelWroteMayNotBeReadEarly) {
  start("right", right, a(), b());
  EXPECT_DEATH(start("read_early", read_early, b(), c()),
               "read_early: touches byte .* of an allocation of 2816 bytes that kernels write, "
               "before it has waited");
  start("right", right, a(), c());  // nor when others came between: these may have let it start
  start("right", right, c(), c());
  EXPECT_DEATH(start("read_early", read_early, b(), c()), "read_early: touches");
}

TEST_F(OverlapDeathTest, NorWhatAKernelWroteThatDidNotOverlap) {
  overlap_ = false;
  start("right", right, a(), b());
  overlap_ = true;
  EXPECT_DEATH(start("read_early", read_early, b(), c()), "read_early: touches");
}

TEST_F(OverlapDeathTest, NorWhenItIsReplayed) {
  const auto graph = runtime_->capture([&] {
    start("right", right, a(), b());
    start("read_early", read_early, b(), c());
  });
  EXPECT_DEATH(runtime_->replay(*graph), "read_early: touches");
}

TEST_F(OverlapDeathTest, WhatWasReadEarlyMayNotBeWrittenLater) {
  start("read_early", read_early, a(), b());
  EXPECT_DEATH(start("right", right, c(), a()),
               "right: writes byte .* that a kernel has read before it waited");
}

TEST_F(OverlapDeathTest, NothingMayBeWrittenEarly) {
  EXPECT_DEATH(start("write_early", write_early, a(), b()),
               "write_early: writes byte .* before it has waited");
  EXPECT_DEATH(start("write_early", write_early_what_was_read, a()),
               "write_early: writes byte .* before it has waited");
}

TEST_F(OverlapDeathTest, SomeThreadHasToWait) {
  EXPECT_DEATH(start("wait_for_none", wait_for_none), "no thread waits for earlier kernels");
}

TEST_F(OverlapDeathTest, WaitingIsNotDoneForOthers) {
  start("right", right, a(), b());
  EXPECT_DEATH(start("one_thread", wait_but_for_one_thread, b(), c()), "one_thread: touches");
  EXPECT_DEATH(start("last_block", wait_but_for_the_last_block, b(), c()), "last_block: touches");
}

TEST_F(Overlap, WithoutItAllIsAllowed) {
  overlap_ = false;
  start("right", right, a(), b());
  start("read_early", read_early, b(), c());
  start("write_early", write_early, c(), b());
  start("wait_for_none", wait_for_none);
  EXPECT_EQ(added_to(b()), 3);
}

}  // namespace
}  // namespace foretoken::cuda
