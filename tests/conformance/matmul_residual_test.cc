#include <algorithm>

#include "tests/conformance/op_test.h"

namespace foretoken::test {
namespace {

class MatmulResidual : public OpTest {
 protected:
  static std::vector<float> run(Backend& backend,
                                const Linear& weight,
                                const std::vector<float>& x,
                                const std::vector<float>& before,
                                bool partial) {
    const OnDevice<float> x_device(backend, x), residual(backend, before), out(backend, before);
    const auto n_rows =
        static_cast<std::int32_t>(before.size() / static_cast<std::size_t>(weight.n_out));
    backend.matmul_residual({.x = x_device.get(),
                             .n_rows = n_rows,
                             .weight = &weight,
                             .residual = residual.get(),
                             .partial = partial ? out.get() : nullptr});
    if (!partial) return residual.host();
    EXPECT_TRUE(same_bits(residual.host(), before)) << "partial must leave the residual alone";
    return out.host();
  }
};

TEST_P(MatmulResidual, MatchesReferenceOnEveryCase) {
  for (const WeightType& type : weight_types())
    for (const cases::Product& c : cases::products()) {
      SCOPED_TRACE(testing::Message()
                   << name_of(type) << " " << c.n_rows << "x" << c.n_out << "x" << c.n_in);
      const bool with_bias = c.n_in % 2 == 1, partial = c.n_rows % 3 == 0;
      const Weights weights(rng, type, c.n_out, c.n_in, with_bias);
      const LinearSource source = weights.source();
      const std::vector<float> x = random_floats(rng, std::int64_t{c.n_rows} * c.n_in);
      const std::vector<float> before = random_floats(rng, std::int64_t{c.n_rows} * c.n_out);
      const Linear packed = backend().pack({&source, 1});
      float unused = 0;
      const auto want = ref::matmul_residual(
          {.x = x.data(), .n_rows = c.n_rows, .partial = partial ? &unused : nullptr},
          ref::Matrix({&source, 1}), before.data(), rounding(type));
      ASSERT_TRUE(close(run(backend(), packed, x, before, partial), want));
    }
}

// Of one code a row, beside inputs that are all as large as they can be: what sums of 16 bits must
// hold.
TEST_P(MatmulResidual, Int4SumsOfTheLargestProductsDoNotWrap) {
  const std::int32_t n_out = 16, n_in = 256;
  for (const WeightType& type : weight_types()) {
    if (type.dtype != DType::kI4) continue;
    Weights weights(rng, type, n_out, n_in);
    for (std::int64_t row = 0; row < n_out; ++row)
      std::memset(weights.raw.data() + 1 + row * row_bytes(DType::kI4, n_in, type.group, type.kind),
                  static_cast<int>(row | row << 4),
                  static_cast<std::size_t>(int4_code_bytes(n_in, type.group)));
    const LinearSource source = weights.source();
    const Linear packed = backend().pack({&source, 1});
    for (const float input : {1.0f, -1.0f})
      for (const std::int32_t n_rows : {1, 6}) {
        SCOPED_TRACE(testing::Message() << name_of(type) << " " << input << " " << n_rows);
        const std::vector<float> x(static_cast<std::size_t>(n_rows * n_in), input),
            before(static_cast<std::size_t>(n_rows * n_out));
        const auto want =
            ref::matmul_residual({.x = x.data(), .n_rows = n_rows}, ref::Matrix({&source, 1}),
                                 before.data(), rounding(type));
        ASSERT_TRUE(close(run(backend(), packed, x, before, false), want));
      }
  }
}

// Rows of the least and the largest weights, and of both by turns, beside inputs of both signs by
// turns: what a number of 16 bits that stands for two weights, or for two inputs, must hold.
TEST_P(MatmulResidual, Int8PairsOfTheLargestNumbersDoNotWrap) {
  const std::int32_t n_out = 16, n_in = 256;
  const WeightType type{DType::kI8};
  Weights weights(rng, type, n_out, n_in);
  for (std::int64_t row = 0; row < n_out; ++row)
    for (std::int64_t k = 0; k < n_in; ++k)
      weights.raw[static_cast<std::size_t>(1 + row * n_in + k)] =
          static_cast<std::byte>(((k % 2 == 0 ? row : row / 2) % 2 == 0) ? -128 : 127);
  const LinearSource source = weights.source();
  const Linear packed = backend().pack({&source, 1});
  for (const float even : {1.0f, -1.0f})
    for (const float odd : {1.0f, -1.0f})
      for (const std::int32_t n_rows : {1, 6}) {
        SCOPED_TRACE(testing::Message() << even << " " << odd << " " << n_rows);
        std::vector<float> x(static_cast<std::size_t>(n_rows * n_in), odd);
        for (std::size_t i = 0; i < x.size(); i += 2) x[i] = even;
        const std::vector<float> before(static_cast<std::size_t>(n_rows * n_out));
        const auto want =
            ref::matmul_residual({.x = x.data(), .n_rows = n_rows}, ref::Matrix({&source, 1}),
                                 before.data(), rounding(type));
        ASSERT_TRUE(close(run(backend(), packed, x, before, false), want));
      }
}

TEST_P(MatmulResidual, TheEmptyBatchWritesNothing) {
  const Weights weights(rng, DType::kF32, 70, 33);
  const LinearSource source = weights.source();
  const Linear packed = backend().pack({&source, 1});
  const OnDevice<float> x(backend(), random_floats(rng, 33));
  const Untouched residual(backend(), 70), partial(backend(), 70);
  backend().matmul_residual({});
  for (float* const to : {static_cast<float*>(nullptr), partial.get()})
    backend().matmul_residual(
        {.x = x.get(), .n_rows = 0, .weight = &packed, .residual = residual.get(), .partial = to});
  EXPECT_TRUE(residual.intact());
  EXPECT_TRUE(partial.intact());
}

TEST_P(MatmulResidual, StacksMatricesOneBelowTheOther) {
  for (const WeightType& type : weight_types()) {
    const Weights a(rng, type, 70, 45, true), b(rng, type, 3, 45), c(rng, type, 61, 45, true);
    const LinearSource sources[] = {a.source(), b.source(), c.source()};
    const std::vector<float> x = random_floats(rng, 2 * 45), before = random_floats(rng, 2 * 134);
    const auto want = ref::matmul_residual({.x = x.data(), .n_rows = 2}, ref::Matrix(sources),
                                           before.data(), rounding(type));
    EXPECT_TRUE(close(run(backend(), backend().pack(sources), x, before, false), want));
  }
}

TEST_P(MatmulResidual, GivesTheSameBitsTwice) {
  for (const WeightType& type : weight_types()) {
    const Weights weights(rng, type, 321, 700);
    const LinearSource source = weights.source();
    const std::vector<float> x = random_floats(rng, 20 * 700),
                             before = random_floats(rng, 20 * 321);
    const std::vector<float> once =
        run(backend(1), backend(1).pack({&source, 1}), x, before, false);
    for (int i = 0; i < 5; ++i)
      EXPECT_TRUE(
          same_bits(run(backend(3), backend(3).pack({&source, 1}), x, before, false), once));
  }
}

TEST_P(MatmulResidual, RowDoesNotDependOnItsNeighbours) {
  for (const WeightType& type : weight_types()) {
    SCOPED_TRACE(name_of(type));
    // Five panels: one row takes pairs and one that is left over, on one thread and on two.
    const std::int32_t n_rows = 64, n_in = 530, n_out = 300;
    const Weights weights(rng, type, n_out, n_in);
    const LinearSource source = weights.source();
    const std::vector<float> x = random_floats(rng, n_rows * n_in),
                             before = random_floats(rng, n_rows * n_out);
    std::vector<Linear> packed;
    for (int t = 1; t <= 3; ++t) packed.push_back(backend(t).pack({&source, 1}));
    const RowRunner runner = [&](Backend& b, const std::vector<std::int32_t>& rows) {
      const std::size_t t = &b == &backend(1) ? 0 : &b == &backend(2) ? 1 : 2;
      return split_rows(
          run(b, packed[t], pick_rows(x, n_in, rows), pick_rows(before, n_out, rows), false),
          rows.size());
    };
    expect_rows_independent(
        runner, n_rows, [&](int t) -> Backend& { return backend(t); }, rng);
  }
}

// A prompt longer than one block of rows (512) is cut; the cut must not show.
TEST_P(MatmulResidual, LongPromptsAreCutWithoutATrace) {
  const std::int32_t n_rows = 1100, n_in = 40, n_out = 70;
  const Weights weights(rng, DType::kBf16, n_out, n_in);
  const LinearSource source = weights.source();
  const Linear packed = backend().pack({&source, 1});
  const std::vector<float> x = random_floats(rng, n_rows * n_in),
                           before = random_floats(rng, n_rows * n_out);
  const auto together =
      split_rows(run(backend(), packed, x, before, false), static_cast<std::size_t>(n_rows));
  for (const std::int32_t r : {0, 511, 512, 1023, 1024, 1099})
    EXPECT_TRUE(same_bits(
        together[static_cast<std::size_t>(r)],
        run(backend(), packed, pick_rows(x, n_in, {r}), pick_rows(before, n_out, {r}), false)));
}

// Of many rows a panel is shared by threads: 4 panels of 131 rows on 3 threads are cut twice.
TEST_P(MatmulResidual, ThreadsShareAPanelWithoutATrace) {
  for (const WeightType& type : weight_types()) {
    SCOPED_TRACE(name_of(type));
    const std::int32_t n_rows = 131, n_in = 530, n_out = 200;
    const Weights weights(rng, type, n_out, n_in, true);
    const LinearSource source = weights.source();
    const std::vector<float> x = random_floats(rng, n_rows * n_in),
                             before = random_floats(rng, n_rows * n_out);
    const std::vector<float> alone =
        run(backend(1), backend(1).pack({&source, 1}), x, before, false);
    for (const int n_threads : {2, 3})
      EXPECT_TRUE(same_bits(
          run(backend(n_threads), backend(n_threads).pack({&source, 1}), x, before, false), alone));
  }
}

// An infinity or a NaN in a row must come out as NaN or infinity, never as a number.
TEST_P(MatmulResidual, BrokenRowsStayBrokenAndAlone) {
  for (const WeightType& type : weight_types()) {
    SCOPED_TRACE(name_of(type));
    const Weights weights(rng, type, 64, 64);
    const LinearSource source = weights.source();
    const Linear packed = backend().pack({&source, 1});
    std::vector<float> x = random_floats(rng, 3 * 64);
    const std::vector<float> before(3 * 64, 0.0f);
    const auto healthy = split_rows(run(backend(), packed, x, before, false), 3);
    x[64 + 5] = std::nanf("");
    const auto rows = split_rows(run(backend(), packed, x, before, false), 3);
    EXPECT_TRUE(same_bits(rows[0], healthy[0]));
    EXPECT_TRUE(same_bits(rows[2], healthy[2]));
    for (const float y : rows[1]) EXPECT_FALSE(std::isfinite(y));
  }
}

using MatmulResidualDeathTest = MatmulResidual;

TEST_P(MatmulResidualDeathTest, RejectsWhatTheContractForbids) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Weights weights(rng, DType::kF32, 4, 4), other(rng, DType::kF32, 4, 5),
      half(rng, DType::kBf16, 4, 4);
  const LinearSource source = weights.source();
  const Linear packed = backend().pack({&source, 1});
  float x[4] = {}, y[4] = {};
  EXPECT_DEATH(backend().matmul_residual({.x = x, .n_rows = -1, .weight = &packed, .residual = y}),
               "n_rows >= 0");
  EXPECT_DEATH(backend().matmul_residual({.n_rows = 1, .weight = &packed, .residual = y}),
               "args.x");
  EXPECT_DEATH(backend().matmul_residual({.x = x, .n_rows = 1, .weight = &packed}), "residual");
  EXPECT_DEATH(backend().matmul_residual({.x = x, .n_rows = 1, .residual = y}), "linear");
  const Linear never;
  EXPECT_DEATH(backend().matmul_residual({.x = x, .n_rows = 1, .weight = &never, .residual = y}),
               "never packed");
  const LinearSource pair[] = {weights.source(), weights.source()};
  const Linear gate_up = backend().pack(pair, Stacking::kGateUp);
  EXPECT_DEATH(backend().matmul_residual({.x = x, .n_rows = 1, .weight = &gate_up, .residual = y}),
               "another op");
  const LinearSource wrong[] = {weights.source(), other.source()};
  EXPECT_DEATH(backend().pack(wrong), "share their input");
  const LinearSource mixed[] = {weights.source(), half.source()};
  EXPECT_DEATH(backend().pack(mixed), "share their dtype");
  EXPECT_DEATH(backend().pack({}), "empty");
  LinearSource scaled = weights.source();
  scaled.scales = x;
  EXPECT_DEATH(backend().pack({&scaled, 1}), "scales go with");
}

FORETOKEN_EVERY_DEVICE(MatmulResidual);
FORETOKEN_EMULATED_RING(MatmulResidual);
FORETOKEN_EVERY_ISA(MatmulResidualDeathTest);

// AVX2 and AVX-512 share a numerics name, so they must share every bit.
TEST(Numerics, PathsOfOneNameAgreeInEveryBit) {
  if (!cpu::machine_has(CpuIsa::kAvx512)) GTEST_SKIP() << "this machine's processor lacks avx512";
  std::mt19937 rng(kSeed);
  const auto narrow = make_backend({.n_threads = 1, .isa = CpuIsa::kAvx2});
  const auto wide = make_backend({.n_threads = 1, .isa = CpuIsa::kAvx512});
  ASSERT_EQ(narrow->numerics(), wide->numerics());
  for (const WeightType& type : types_on_cpu()) {
    const Weights weights(rng, type, 200, 531, true);
    const LinearSource source = weights.source();
    const std::vector<float> x = random_floats(rng, 9 * 531);
    std::vector<float> a(9 * 200), b(9 * 200);
    const Linear packed_a = narrow->pack({&source, 1}), packed_b = wide->pack({&source, 1});
    narrow->matmul_residual(
        {.x = x.data(), .n_rows = 9, .weight = &packed_a, .residual = a.data()});
    wide->matmul_residual({.x = x.data(), .n_rows = 9, .weight = &packed_b, .residual = b.data()});
    EXPECT_TRUE(same_bits(a, b)) << name_of(type);
  }
}

// Sums of four bits are exact integers on every path, so those with VNNI, whose other products have
// numerics of their own, give the same bits too.
// Not the scalar path: it has no fma (ADR 28). A machine with AVX2 alone has nothing to compare
// with; one with AVX-512 runs it.
TEST(Numerics, FourBitsHaveTheSameBitsOnEveryVectorPath) {
  const auto n_paths = std::ranges::count_if(kCpuDevices, [](const Device& device) {
    return device.isa != CpuIsa::kScalar && cpu::machine_has(device.isa);
  });
  if (n_paths < 2) GTEST_SKIP() << "this machine has one vector path";
  std::mt19937 rng(kSeed);
  for (const WeightType& type : types_on_cpu()) {
    if (type.dtype != DType::kI4) continue;
    const Weights weights(rng, type, 200, 531);
    const LinearSource source = weights.source();
    const std::vector<float> x = random_floats(rng, 14 * 531);
    std::vector<float> first;
    for (const Device& device : kCpuDevices) {
      if (device.isa == CpuIsa::kScalar || !cpu::machine_has(device.isa)) continue;
      const auto backend = make_backend({.n_threads = 1, .isa = device.isa});
      const Linear packed = backend->pack({&source, 1});
      std::vector<float> out(14 * 200);
      backend->matmul_residual(
          {.x = x.data(), .n_rows = 14, .weight = &packed, .residual = out.data()});
      if (first.empty()) first = out;
      EXPECT_TRUE(same_bits(out, first)) << name_of(type) << " " << device.name;
    }
  }
}

}  // namespace
}  // namespace foretoken::test
