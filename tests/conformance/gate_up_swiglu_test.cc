#include "tests/conformance/op_test.h"

namespace foretoken::test {
namespace {

constexpr float kEps = 1e-5f;

class GateUpSwiglu : public OpTest {
 protected:
  static std::vector<float> run(Backend& backend,
                                const Linear& gate_up,
                                const std::vector<float>& hidden,
                                const std::vector<float>& norm) {
    const auto n_rows = hidden.size() / norm.size();
    const OnDevice<float> x(backend, hidden), scale(backend, norm);
    const OnDevice<float> out(
        backend, std::vector<float>(n_rows * static_cast<std::size_t>(gate_up.n_out / 2), -7.0f));
    backend.gate_up_swiglu({.hidden = x.get(),
                            .n_rows = static_cast<std::int32_t>(n_rows),
                            .norm = scale.get(),
                            .norm_eps = kEps,
                            .gate_up = &gate_up,
                            .out = out.get()});
    return out.host();
  }
};

TEST_P(GateUpSwiglu, MatchesReferenceOnEveryCase) {
  for (const WeightType& type : weight_types())
    for (const cases::Product& c : cases::products()) {
      SCOPED_TRACE(testing::Message()
                   << name_of(type) << " " << c.n_rows << "x" << c.n_out << "x" << c.n_in);
      const Weights gate(rng, type, c.n_out, c.n_in, c.n_in % 2 == 1),
          up(rng, type, c.n_out, c.n_in);
      const LinearSource sources[] = {gate.source(), up.source()};
      const std::vector<float> hidden = random_floats(rng, std::int64_t{c.n_rows} * c.n_in, 3);
      const std::vector<float> norm = random_floats(rng, c.n_in, 0.3f);
      const auto want = ref::gate_up_swiglu(
          {.hidden = hidden.data(), .n_rows = c.n_rows, .norm = norm.data(), .norm_eps = kEps},
          ref::Matrix(sources), rounding(type));
      ASSERT_TRUE(
          close(run(backend(), backend().pack(sources, Stacking::kGateUp), hidden, norm), want));
    }
}

TEST_P(GateUpSwiglu, TheEmptyBatchWritesNothing) {
  const Weights gate(rng, DType::kF32, 5, 33), up(rng, DType::kF32, 5, 33);
  const LinearSource sources[] = {gate.source(), up.source()};
  const Linear packed = backend().pack(sources, Stacking::kGateUp);
  const OnDevice<float> input(backend(), random_floats(rng, 33));
  const Untouched out(backend(), 5);
  backend().gate_up_swiglu({});
  backend().gate_up_swiglu({.hidden = input.get(),
                            .n_rows = 0,
                            .norm = input.get(),
                            .norm_eps = kEps,
                            .gate_up = &packed,
                            .out = out.get()});
  EXPECT_TRUE(out.intact());
}

// silu(x) is x far to the right and nothing far to the left, without overflow on the way.
TEST_P(GateUpSwiglu, StaysFiniteFarOut) {
  const float gate[] = {1e4f, -1e4f, 50.0f, -50.0f}, up[] = {1, 1, 1, 1};
  const LinearSource sources[] = {{DType::kF32, gate, 4, 1, nullptr, nullptr},
                                  {DType::kF32, up, 4, 1, nullptr, nullptr}};
  const std::vector<float> hidden(1, 2.0f), norm(1, 1.0f);
  const std::vector<float> out =
      run(backend(), backend().pack(sources, Stacking::kGateUp), hidden, norm);
  const float one = 2.0f / std::sqrt(4.0f + kEps);  // the normalised input
  EXPECT_NEAR(out[0], 1e4f * one * one, 0.01f);
  EXPECT_NEAR(out[1], 0.0f, 1e-30f);
  EXPECT_NEAR(out[2], 50.0f * one * one, 1e-4f);
  EXPECT_NEAR(out[3], 0.0f, 1e-19f);
}

TEST_P(GateUpSwiglu, GivesTheSameBitsTwice) {
  const Weights gate(rng, DType::kBf16, 150, 300), up(rng, DType::kBf16, 150, 300);
  const LinearSource sources[] = {gate.source(), up.source()};
  const std::vector<float> hidden = random_floats(rng, 9 * 300), norm = random_floats(rng, 300);
  const auto once = run(backend(1), backend(1).pack(sources, Stacking::kGateUp), hidden, norm);
  for (int i = 0; i < 5; ++i)
    EXPECT_TRUE(same_bits(
        run(backend(3), backend(3).pack(sources, Stacking::kGateUp), hidden, norm), once));
}

// Of many rows two threads share the panels of a gate.
TEST_P(GateUpSwiglu, ThreadsShareAPanelWithoutATrace) {
  for (const WeightType& type : weight_types()) {
    SCOPED_TRACE(name_of(type));
    const std::int32_t n_rows = 131, n_in = 290;
    const Weights gate(rng, type, 200, n_in), up(rng, type, 200, n_in);
    const LinearSource sources[] = {gate.source(), up.source()};
    const std::vector<float> hidden = random_floats(rng, n_rows * n_in),
                             norm = random_floats(rng, n_in);
    const auto alone = run(backend(1), backend(1).pack(sources, Stacking::kGateUp), hidden, norm);
    for (const int t : {2, 3})
      EXPECT_TRUE(same_bits(
          run(backend(t), backend(t).pack(sources, Stacking::kGateUp), hidden, norm), alone));
  }
}

TEST_P(GateUpSwiglu, RowDoesNotDependOnItsNeighbours) {
  for (const WeightType& type : weight_types()) {
    const std::int32_t n_rows = 64, n_in = 290;
    const Weights gate(rng, type, 90, n_in), up(rng, type, 90, n_in);
    const LinearSource sources[] = {gate.source(), up.source()};
    const std::vector<float> hidden = random_floats(rng, n_rows * n_in),
                             norm = random_floats(rng, n_in);
    std::vector<Linear> packed;
    for (int t = 1; t <= 3; ++t) packed.push_back(backend(t).pack(sources, Stacking::kGateUp));
    const RowRunner runner = [&](Backend& b, const std::vector<std::int32_t>& rows) {
      const std::size_t t = &b == &backend(1) ? 0 : &b == &backend(2) ? 1 : 2;
      return split_rows(run(b, packed[t], pick_rows(hidden, n_in, rows), norm), rows.size());
    };
    expect_rows_independent(
        runner, n_rows, [&](int t) -> Backend& { return backend(t); }, rng);
  }
}

// The contract is checked before a device is asked; what lies in memory, where it can be read.
using GateUpSwigluDeathTest = GateUpSwiglu;

TEST_P(GateUpSwigluDeathTest, RejectsWhatTheContractForbids) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Weights gate(rng, DType::kF32, 4, 4), up(rng, DType::kF32, 5, 4);
  const LinearSource unequal[] = {gate.source(), up.source()}, single[] = {gate.source()};
  EXPECT_DEATH(backend().pack(unequal, Stacking::kGateUp), "n_out");
  EXPECT_DEATH(backend().pack(single, Stacking::kGateUp), "gate and up");
  const Linear rows = backend().pack(single);
  float x[4] = {};
  EXPECT_DEATH(
      backend().gate_up_swiglu({.hidden = x, .n_rows = 1, .norm = x, .gate_up = &rows, .out = x}),
      "another op");
  const LinearSource two[] = {gate.source(), gate.source()};
  const Linear packed = backend().pack(two, Stacking::kGateUp);
  EXPECT_DEATH(backend().gate_up_swiglu({.hidden = x, .n_rows = 1, .gate_up = &packed, .out = x}),
               "norm");
  EXPECT_DEATH(
      backend().gate_up_swiglu(
          {.hidden = x, .n_rows = 1, .norm = x, .norm_eps = -1, .gate_up = &packed, .out = x}),
      "norm_eps");
}

FORETOKEN_EVERY_DEVICE(GateUpSwiglu);
FORETOKEN_EMULATED_RING(GateUpSwiglu);
FORETOKEN_EVERY_ISA(GateUpSwigluDeathTest);

}  // namespace
}  // namespace foretoken::test
