#include "tests/conformance/op_test.h"

namespace foretoken::test {
namespace {

constexpr float kNormEps = 1e-6f;

class LmHead : public OpTest {
 protected:
  static std::vector<float> run(Backend& backend,
                                const Linear& head,
                                const std::vector<float>& hidden,
                                const std::vector<std::int32_t>& wanted,
                                const std::vector<float>& norm) {
    const OnDevice<float> x(backend, hidden), scale(backend, norm);
    const OnDevice<std::int32_t> rows(backend, wanted);
    const OnDevice<float> logits(
        backend, std::vector<float>(wanted.size() * static_cast<std::size_t>(head.n_out), -7.0f));
    backend.lm_head({.hidden = x.get(),
                     .rows = rows.get(),
                     .n_rows = static_cast<std::int32_t>(wanted.size()),
                     .norm = scale.get(),
                     .norm_eps = kNormEps,
                     .head = &head,
                     .logits = logits.get()});
    return logits.host();
  }
};

TEST_P(LmHead, MatchesReferenceOnEveryCase) {
  for (const WeightType& type : weight_types())
    for (const cases::Product& c : cases::products()) {
      SCOPED_TRACE(testing::Message()
                   << name_of(type) << " " << c.n_rows << "x" << c.n_out << "x" << c.n_in);
      const Weights head(rng, type, c.n_out, c.n_in);
      const LinearSource source = head.source();
      const std::vector<float> hidden = random_floats(rng, std::int64_t{c.n_rows} * c.n_in, 0.01f);
      const std::vector<float> norm = random_floats(rng, c.n_in);
      std::vector<std::int32_t> rows;
      for (std::int32_t r = c.n_rows - 1; r >= 0; r -= 2) rows.push_back(r);
      const auto want = ref::lm_head({.hidden = hidden.data(),
                                      .rows = rows.data(),
                                      .n_rows = static_cast<std::int32_t>(rows.size()),
                                      .norm = norm.data(),
                                      .norm_eps = kNormEps},
                                     ref::Matrix({&source, 1}), rounding(type));
      ASSERT_TRUE(close(run(backend(), backend().pack({&source, 1}), hidden, rows, norm), want));
    }
}

TEST_P(LmHead, TheEmptyBatchWritesNothing) {
  const Weights weights(rng, DType::kF32, 70, 33);
  const LinearSource source = weights.source();
  const Linear head = backend().pack({&source, 1});
  const OnDevice<float> input(backend(), random_floats(rng, 33));
  const OnDevice<std::int32_t> rows(backend(), {0});
  const Untouched logits(backend(), 70);
  backend().lm_head({});
  backend().lm_head({.hidden = input.get(),
                     .rows = rows.get(),
                     .n_rows = 0,
                     .norm = input.get(),
                     .norm_eps = kNormEps,
                     .head = &head,
                     .logits = logits.get()});
  EXPECT_TRUE(logits.intact());
}

TEST_P(LmHead, GivesTheSameBitsTwice) {
  const Weights head(rng, DType::kI8, 333, 190);
  const LinearSource source = head.source();
  const std::vector<float> hidden = random_floats(rng, 4 * 190), norm = random_floats(rng, 190);
  const auto once = run(backend(1), backend(1).pack({&source, 1}), hidden, {3, 1, 0}, norm);
  EXPECT_TRUE(
      same_bits(run(backend(3), backend(3).pack({&source, 1}), hidden, {3, 1, 0}, norm), once));
}

TEST_P(LmHead, RowDoesNotDependOnItsNeighbours) {
  for (const WeightType& type : weight_types()) {
    const std::int32_t n_rows = 64, n_in = 260;
    const Weights head(rng, type, 150, n_in);
    const LinearSource source = head.source();
    const std::vector<float> hidden = random_floats(rng, n_rows * n_in),
                             norm = random_floats(rng, n_in);
    std::vector<Linear> packed;
    for (int t = 1; t <= 3; ++t) packed.push_back(backend(t).pack({&source, 1}));
    const RowRunner runner = [&](Backend& b, const std::vector<std::int32_t>& rows) {
      const std::size_t t = &b == &backend(1) ? 0 : &b == &backend(2) ? 1 : 2;
      return split_rows(run(b, packed[t], hidden, rows, norm), rows.size());
    };
    expect_rows_independent(
        runner, n_rows, [&](int t) -> Backend& { return backend(t); }, rng);
  }
}

// The contract is checked before a device is asked; what lies in memory, where it can be read.
using LmHeadDeathTest = LmHead;

TEST_P(LmHeadDeathTest, RejectsWhatTheContractForbids) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Weights head(rng, DType::kF32, 4, 4);
  const LinearSource source = head.source();
  const Linear packed = backend().pack({&source, 1});
  float x[4] = {};
  const std::int32_t row = 0;
  EXPECT_DEATH(
      backend().lm_head({.hidden = x, .rows = &row, .n_rows = 1, .norm = x, .head = &packed}),
      "logits");
  EXPECT_DEATH(
      backend().lm_head({.hidden = x, .n_rows = 1, .norm = x, .head = &packed, .logits = x}),
      "rows");
  EXPECT_DEATH(backend().lm_head({.hidden = x, .rows = &row, .n_rows = 1, .norm = x, .logits = x}),
               "linear");
  EXPECT_DEATH(backend().lm_head({.n_rows = -3}), "n_rows >= 0");
}

FORETOKEN_EVERY_DEVICE(LmHead);
FORETOKEN_EMULATED_RING(LmHead);
FORETOKEN_EVERY_ISA(LmHeadDeathTest);

}  // namespace
}  // namespace foretoken::test
