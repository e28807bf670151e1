// What the tests of all ops share: a suite that runs once per instruction set and device (SKIPPED
// where the machine lacks it), random weights in any dtype, device copies of host vectors, and the
// check that a row is its own.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "kernels/cpu/isa.h"
#include "kernels/include/backend.h"
#include "kernels/include/numerics.h"
#include "kernels/ref/ref.h"
#include "tests/conformance/cases.h"
#include "tests/support/close.h"
#if defined(FORETOKEN_EMU)
#include "kernels/cuda/emulated.h"
#endif

namespace foretoken::test {

inline constexpr std::uint32_t kSeed = 20240917;

// What a suite runs on: an instruction set of the CPU, an emulated CUDA device, or a real one.
struct Device {
  const char* name;
  enum Kind { kCpu, kEmulated, kCuda } kind;
  CpuIsa isa = CpuIsa::kAuto;
  CudaPath path = CudaPath::kAuto;
};

inline const Device kCpuDevices[] = {
    {"scalar", Device::kCpu, CpuIsa::kScalar}, {"avx2", Device::kCpu, CpuIsa::kAvx2},
    {"avx512", Device::kCpu, CpuIsa::kAvx512}, {"avx512_bf16", Device::kCpu, CpuIsa::kAvx512Bf16},
    {"amx", Device::kCpu, CpuIsa::kAmx},
};
inline const Device kCudaDevices[] = {
    {"simple", Device::kCuda, CpuIsa::kAuto, CudaPath::kSimple},
    {"ring", Device::kCuda, CpuIsa::kAuto, CudaPath::kRing},
    {"ring_overlap", Device::kCuda, CpuIsa::kAuto, CudaPath::kRingOverlap},
};
#if defined(FORETOKEN_EMU)
inline const Device kEmulatedDevices[] = {
    {"simple", Device::kEmulated, CpuIsa::kAuto, CudaPath::kSimple},
    // The ring's kernels, and watched: a thread that touches too much before its wait ends the
    // program.
    {"ring_overlap", Device::kEmulated, CpuIsa::kAuto, CudaPath::kRingOverlap},
};
#endif

inline void PrintTo(const Device& device, std::ostream* to) { *to << device.name; }

// A weight matrix's dtype; of int4, the weights that share a scale and what codes stand for, too.
struct WeightType {
  WeightType(DType dtype_in, std::int64_t group_in = 0, Int4Kind kind_in = Int4Kind::kOffset)
      : dtype(dtype_in), group(group_in), kind(kind_in) {}
  DType dtype;
  std::int64_t group;
  Int4Kind kind;
};

inline std::string name_of(const WeightType& type) {
  return dtype_name(type.dtype) + (type.group == 0 ? "" : "/" + std::to_string(type.group)) +
         (type.kind == Int4Kind::kOffset       ? ""
          : type.kind == Int4Kind::kZeroPoints ? " with zero points"
          : type.kind == Int4Kind::kE2m1       ? " of E2M1"
                                               : " of non-uniform values");
}

inline std::vector<WeightType> types_on_cpu() {
  std::vector<WeightType> types(cases::weight_dtypes().begin(), cases::weight_dtypes().end());
  for (const Int4Kind kind :
       {Int4Kind::kOffset, Int4Kind::kZeroPoints, Int4Kind::kE2m1, Int4Kind::kNonUniform})
    for (const std::int64_t group : kInt4Groups) types.emplace_back(DType::kI4, group, kind);
  return types;
}

// Why a device is not here; empty if it is. Asked once: opening a GPU takes a while.
inline const std::string& cuda_absence(CudaPath path) {
  static std::map<CudaPath, std::string> known;
  const auto [at, is_new] = known.try_emplace(path);
  if (is_new) try {
      make_backend({.device = "cuda", .cuda_path = path});
    } catch (const FatalError& error) {
      at->second = error.what();
    }
  return at->second;
}

class OpTest : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    const Device& device = GetParam();
    if (device.kind == Device::kCpu && !cpu::machine_has(device.isa))
      GTEST_SKIP() << "this machine's processor lacks " << device.name;
    if (device.kind == Device::kCuda && !cuda_absence(device.path).empty())
      GTEST_SKIP() << cuda_absence(device.path);
    RecordProperty("seed", static_cast<int>(kSeed));
    for (int n_threads = 1; n_threads <= 3; ++n_threads) backends_.push_back(make(n_threads));
  }
  static std::unique_ptr<Backend> make(int n_threads) {
    const Device& device = GetParam();
#if defined(FORETOKEN_EMU)
    if (device.kind == Device::kEmulated) return emu::make_backend(9, device.path);
#endif
    return make_backend({.device = device.kind == Device::kCpu ? "cpu" : "cuda",
                         .n_threads = n_threads,
                         .pin = false,
                         .isa = device.isa,
                         .cuda_path = device.path});
  }
  // With 1, 2 or 3 threads; on other devices three of a kind.
  Backend& backend(int n_threads = 2) const {
    return *backends_[static_cast<std::size_t>(n_threads - 1)];
  }
  static bool on_cpu() { return GetParam().kind == Device::kCpu; }
  static std::vector<DType> weight_dtypes() {
    std::vector<DType> dtypes(cases::weight_dtypes().begin(), cases::weight_dtypes().end());
    if (!on_cpu()) dtypes.push_back(DType::kF8E4M3);
    return dtypes;
  }
  // Those that are multiplied.
  static std::vector<WeightType> weight_types() {
    if (on_cpu()) return types_on_cpu();
    std::vector<WeightType> types;
    for (const DType dtype : weight_dtypes()) types.emplace_back(dtype);
    return types;
  }
  static ref::InputRounding rounding(const WeightType& type) {
    const DType dtype = type.dtype;
    if (!on_cpu())
      return dtype == DType::kF32    ? ref::InputRounding::kNone
             : dtype == DType::kBf16 ? ref::InputRounding::kBf16
                                     : ref::InputRounding::kF16;
    if (type.group == 32) return ref::InputRounding::kI8By32;
    if (dtype == DType::kI8 || dtype == DType::kI4) return ref::InputRounding::kI8;
    if (dtype == DType::kBf16 && GetParam().isa >= CpuIsa::kAvx512Bf16)
      return ref::InputRounding::kBf16;
    return ref::InputRounding::kNone;
  }
  std::mt19937 rng{kSeed};

 private:
  std::vector<std::unique_ptr<Backend>> backends_;
};

inline std::string device_name(const ::testing::TestParamInfo<Device>& instance) {
  return instance.param.name;
}

// On every instruction set this machine has, SKIPPED where it lacks one.
#define FORETOKEN_EVERY_ISA(suite) \
  INSTANTIATE_TEST_SUITE_P(Cpu, suite, ::testing::ValuesIn(kCpuDevices), device_name)
#if defined(FORETOKEN_EMU)
#define FORETOKEN_EMULATED_DEVICE(suite) \
  INSTANTIATE_TEST_SUITE_P(Emulated, suite, ::testing::Values(kEmulatedDevices[0]), device_name)
#define FORETOKEN_EMULATED_RING(suite) \
  INSTANTIATE_TEST_SUITE_P(EmulatedRing, suite, ::testing::Values(kEmulatedDevices[1]), device_name)
#else
#define FORETOKEN_EMULATED_DEVICE(suite) static_assert(true)
#define FORETOKEN_EMULATED_RING(suite) static_assert(true)
#endif
// And on every CUDA path: SKIPPED with the reason where there is no device, never passed.
// Products take FORETOKEN_EMULATED_RING as well; the other ops are the same on every path.
#define FORETOKEN_EVERY_DEVICE(suite) \
  FORETOKEN_EVERY_ISA(suite);         \
  FORETOKEN_EMULATED_DEVICE(suite);   \
  INSTANTIATE_TEST_SUITE_P(Cuda, suite, ::testing::ValuesIn(kCudaDevices), device_name)

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
          const WeightType& type,
          std::int64_t n_out_in,
          std::int64_t n_in_in,
          bool with_bias = false)
      : dtype(type.dtype), group(type.group), kind(type.kind), n_out(n_out_in), n_in(n_in_in) {
    if (dtype == DType::kI4)
      fill_int4(rng);
    else
      fill(rng);
    if (is_quantised(dtype)) {
      std::uniform_real_distribution<float> scale(0.005f, 0.02f);
      for (std::int64_t i = 0; i < n_out; ++i) scales.push_back(scale(rng));
    }
    if (with_bias) bias = random_floats(rng, n_out);
  }
  LinearSource source() const {
    return {.dtype = dtype,
            .data = raw.data() + 1,
            .n_out = n_out,
            .n_in = n_in,
            .scales = scales.empty() ? nullptr : scales.data(),
            .bias = bias.empty() ? nullptr : bias.data(),
            .group = group,
            .kind = kind};
  }
  DType dtype;
  std::int64_t group;
  Int4Kind kind;
  std::int64_t n_out, n_in;
  std::vector<std::byte> raw;
  std::vector<float> scales, bias;

 private:
  // Every code and zero point, and scales of both signs, zero, subnormal and large.
  void fill_int4(std::mt19937& rng) {
    const std::int64_t bytes = row_bytes(dtype, n_in, group, kind),
                       codes = int4_code_bytes(n_in, group),
                       end_of_scales = codes + 2 * int4_groups_of(n_in, group);
    raw.resize(static_cast<std::size_t>(n_out * bytes) + 1);
    std::uniform_int_distribution<int> byte(0, 255), choice(0, 9);
    std::uniform_real_distribution<float> usual(-8, 8);
    for (std::int64_t row = 0; row < n_out; ++row) {
      std::byte* at = raw.data() + 1 + row * bytes;
      for (std::int64_t i = 0; i < codes; ++i) at[i] = static_cast<std::byte>(byte(rng));
      for (std::int64_t i = end_of_scales; i < bytes; ++i)
        at[i] = static_cast<std::byte>(byte(rng) % 16);
      for (std::int64_t i = codes; i < end_of_scales; i += 2) {
        const int which = choice(rng);
        const float scale = which == 0 ? 0.0f : which == 1 ? 3e-7f : usual(rng);
        const std::uint16_t half = f32_to_f16(scale);
        std::memcpy(at + i, &half, sizeof half);
      }
    }
  }
  void fill(std::mt19937& rng) {
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
      if (dtype == DType::kF8E4M3) {
        auto code = static_cast<std::uint8_t>(byte(rng));
        if (e4m3_is_nan(code)) code = static_cast<std::uint8_t>(code ^ 1u);
        *at = static_cast<std::byte>(code);
      }
    }
  }
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
