// What the tests of all ops share: a suite that runs once per instruction set (SKIPPED where the
// machine lacks it), random weights in any dtype, device copies of host vectors, and the check that
// a row is its own.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/cases.h"
#include "kernels/cpu/isa.h"
#include "kernels/include/backend.h"
#include "kernels/include/numerics.h"
#include "kernels/ref/ref.h"
#include "tests/support/close.h"

namespace foretoken::test {

inline constexpr std::uint32_t kSeed = 20240917;

inline std::string isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kScalar:
      return "scalar";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAvx512Bf16:
      return "avx512_bf16";
    default:
      return "amx";
  }
}

class OpTest : public ::testing::TestWithParam<CpuIsa> {
 protected:
  void SetUp() override {
    if (!cpu::machine_has(GetParam()))
      GTEST_SKIP() << "this machine's processor lacks " << isa_name(GetParam());
    RecordProperty("seed", static_cast<int>(kSeed));
    for (int n_threads = 1; n_threads <= 3; ++n_threads) backends_.push_back(make(n_threads));
  }
  std::unique_ptr<Backend> make(int n_threads) const {
    return make_backend({.device = "cpu", .n_threads = n_threads, .pin = false, .isa = GetParam()});
  }
  // With 1, 2 or 3 threads.
  Backend& backend(int n_threads = 2) const {
    return *backends_[static_cast<std::size_t>(n_threads - 1)];
  }
  ref::InputRounding rounding(DType dtype) const {
    if (dtype == DType::kI8) return ref::InputRounding::kI8;
    if (dtype == DType::kBf16 && GetParam() >= CpuIsa::kAvx512Bf16)
      return ref::InputRounding::kBf16;
    return ref::InputRounding::kNone;
  }
  std::mt19937 rng{kSeed};

 private:
  std::vector<std::unique_ptr<Backend>> backends_;
};

#define FORETOKEN_EVERY_ISA(suite)                                                            \
  INSTANTIATE_TEST_SUITE_P(Cpu, suite,                                                        \
                           ::testing::Values(CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512, \
                                             CpuIsa::kAvx512Bf16, CpuIsa::kAmx),              \
                           [](const auto& instance) { return isa_name(instance.param); })

inline std::vector<float> random_floats(std::mt19937& rng, std::int64_t n, float scale = 1) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> x(static_cast<std::size_t>(n));
  for (float& a : x) a = normal(rng);
  return x;
}

// A host vector on the device and back.
template <class T>
class OnDevice {
 public:
  OnDevice(Backend& backend, const std::vector<T>& host)
      : backend_(backend), n_(host.size()), buffer_(backend.allocate(n_ * sizeof(T))) {
    backend.upload(buffer_.template as<T>(), host.data(), n_ * sizeof(T));
  }
  T* get() const { return buffer_.template as<T>(); }
  std::vector<T> host() const {
    std::vector<T> x(n_);
    backend_.download(x.data(), get(), n_ * sizeof(T));
    return x;
  }

 private:
  Backend& backend_;
  std::size_t n_;
  Buffer buffer_;
};

// An output of values no op computes, for a call that must leave it alone.
class Untouched {
 public:
  Untouched(Backend& backend, std::int64_t n)
      : marks_(static_cast<std::size_t>(n), -12345.0f), device_(backend, marks_) {}
  float* get() const { return device_.get(); }
  bool intact() const { return device_.host() == marks_; }

 private:
  std::vector<float> marks_;
  OnDevice<float> device_;
};

// A random matrix as a checkpoint would hold it. Starts one element off alignment, as a file may.
struct Weights {
  Weights(std::mt19937& rng,
          DType dtype_in,
          std::int64_t n_out_in,
          std::int64_t n_in_in,
          bool with_bias = false)
      : dtype(dtype_in), n_out(n_out_in), n_in(n_in_in) {
    const auto n = static_cast<std::size_t>(n_out * n_in);
    raw.resize(n * size_bytes(dtype) + 1);
    std::normal_distribution<float> normal(0, 1);
    std::uniform_int_distribution<int> byte(-128, 127);
    for (std::size_t i = 0; i < n; ++i) {
      std::byte* at = raw.data() + 1 + i * size_bytes(dtype);
      const float x = normal(rng);
      const std::uint16_t half = dtype == DType::kBf16 ? f32_to_bf16(x) : f32_to_f16(x);
      if (dtype == DType::kF32) std::memcpy(at, &x, sizeof x);
      if (dtype == DType::kBf16 || dtype == DType::kF16) std::memcpy(at, &half, sizeof half);
      if (dtype == DType::kI8) *at = static_cast<std::byte>(byte(rng));
    }
    if (dtype == DType::kI8) {
      std::uniform_real_distribution<float> scale(0.005f, 0.02f);
      for (std::int64_t i = 0; i < n_out; ++i) scales.push_back(scale(rng));
    }
    if (with_bias) bias = random_floats(rng, n_out);
  }
  LinearSource source() const {
    return {dtype,
            raw.data() + 1,
            n_out,
            n_in,
            scales.empty() ? nullptr : scales.data(),
            bias.empty() ? nullptr : bias.data()};
  }
  DType dtype;
  std::int64_t n_out, n_in;
  std::vector<std::byte> raw;
  std::vector<float> scales, bias;
};

// Runs some of a prepared set of rows in the given order and returns their results, one vector per
// row.
using RowRunner =
    std::function<std::vector<std::vector<float>>(Backend&, const std::vector<std::int32_t>& rows)>;

// Rows together, in any company, order and number, on any number of threads, must give the bits of
// a row alone.
inline void expect_rows_independent(const RowRunner& run,
                                    std::int32_t n_rows,
                                    const std::function<Backend&(int)>& backend,
                                    std::mt19937& rng) {
  std::vector<std::vector<float>> alone;
  for (std::int32_t r = 0; r < n_rows; ++r) alone.push_back(run(backend(1), {r}).front());
  std::vector<std::int32_t> order(static_cast<std::size_t>(n_rows));
  std::iota(order.begin(), order.end(), 0);
  for (std::int32_t n = 1; n <= n_rows; n = n < 17 ? n + 1 : n < n_rows ? n_rows : n + 1) {
    const int n_threads = 1 + n % 3;
    std::shuffle(order.begin(), order.end(), rng);
    const std::vector<std::int32_t> some(order.begin(), order.begin() + n);
    const auto together = run(backend(n_threads), some);
    for (std::size_t i = 0; i < some.size(); ++i)
      ASSERT_TRUE(same_bits(together[i], alone[static_cast<std::size_t>(some[i])]))
          << "row " << some[i] << " among " << n << " rows on " << n_threads << " threads";
  }
}

// Rows of a flat [n_rows, width] result.
inline std::vector<std::vector<float>> split_rows(const std::vector<float>& flat,
                                                  std::size_t n_rows) {
  const std::size_t width = flat.size() / n_rows;
  std::vector<std::vector<float>> rows;
  for (std::size_t r = 0; r < n_rows; ++r)
    rows.emplace_back(flat.begin() + static_cast<std::ptrdiff_t>(r * width),
                      flat.begin() + static_cast<std::ptrdiff_t>((r + 1) * width));
  return rows;
}

// The named rows of a flat [*, width] input.
template <class T>
std::vector<T> pick_rows(const std::vector<T>& flat,
                         std::size_t width,
                         const std::vector<std::int32_t>& rows) {
  std::vector<T> picked;
  for (const std::int32_t r : rows) {
    const auto begin =
        flat.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(r) * width);
    picked.insert(picked.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
  }
  return picked;
}

}  // namespace foretoken::test
