#include "tests/conformance/op_test.h"

namespace foretoken::test {
namespace {

class Embed : public OpTest {
 protected:
  static std::vector<float> run(Backend& backend,
                                const Linear& table,
                                const std::vector<std::int32_t>& tokens,
                                float scale) {
    const OnDevice<std::int32_t> ids(backend, tokens);
    const OnDevice<float> hidden(
        backend, std::vector<float>(tokens.size() * static_cast<std::size_t>(table.n_in)));
    backend.embed({.table = &table,
                   .tokens = ids.get(),
                   .n_rows = static_cast<std::int32_t>(tokens.size()),
                   .scale = scale,
                   .hidden = hidden.get()});
    return hidden.host();
  }
};

TEST_P(Embed, MatchesReferenceOnEveryCase) {
  for (const DType dtype : weight_dtypes())
    for (const cases::Product& c : cases::products()) {
      SCOPED_TRACE(testing::Message()
                   << dtype_name(dtype) << " " << c.n_rows << "x" << c.n_out << "x" << c.n_in);
      const Weights weights(rng, dtype, c.n_out, c.n_in);
      const LinearSource source = weights.source();
      std::vector<std::int32_t> tokens;
      for (std::int32_t r = 0; r < c.n_rows; ++r)
        tokens.push_back(static_cast<std::int32_t>(rng() % static_cast<unsigned>(c.n_out)));
      const float scale = c.n_in % 2 == 0 ? 1.0f : 11.3137f;
      const auto want = ref::embed({.tokens = tokens.data(), .n_rows = c.n_rows, .scale = scale},
                                   ref::Matrix({&source, 1}));
      ASSERT_TRUE(close(run(backend(), backend().pack({&source, 1}), tokens, scale), want));
    }
}

TEST_P(Embed, TheEmptyBatchWritesNothing) {
  const Weights weights(rng, DType::kF32, 4, 33);
  const LinearSource source = weights.source();
  const Linear table = backend().pack({&source, 1});
  const OnDevice<std::int32_t> tokens(backend(), {1});
  const Untouched hidden(backend(), 33);
  backend().embed({});
  backend().embed({.table = &table, .tokens = tokens.get(), .n_rows = 0, .hidden = hidden.get()});
  EXPECT_TRUE(hidden.intact());
}

TEST_P(Embed, GivesTheSameBitsTwice) {
  const Weights weights(rng, DType::kBf16, 100, 65);
  const LinearSource source = weights.source();
  const Linear table = backend(3).pack({&source, 1});
  EXPECT_TRUE(same_bits(run(backend(3), table, {99, 0, 63, 64, 64}, 2),
                        run(backend(3), table, {99, 0, 63, 64, 64}, 2)));
}

TEST_P(Embed, RowDoesNotDependOnItsNeighbours) {
  for (const DType dtype : weight_dtypes()) {
    const Weights weights(rng, dtype, 64, 131);
    const LinearSource source = weights.source();
    std::vector<Linear> packed;
    for (int t = 1; t <= 3; ++t) packed.push_back(backend(t).pack({&source, 1}));
    const RowRunner runner = [&](Backend& b, const std::vector<std::int32_t>& rows) {
      const std::size_t t = &b == &backend(1) ? 0 : &b == &backend(2) ? 1 : 2;
      return split_rows(run(b, packed[t], rows, 1), rows.size());
    };
    expect_rows_independent(
        runner, 64, [&](int t) -> Backend& { return backend(t); }, rng);
  }
}

// The contract is checked before a device is asked; what lies in memory, where it can be read.
using EmbedDeathTest = Embed;

TEST_P(EmbedDeathTest, RejectsWhatTheContractForbids) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Weights weights(rng, DType::kF32, 4, 4);
  const LinearSource source = weights.source();
  const Linear table = backend().pack({&source, 1});
  const std::int32_t beyond = 4, below = -1;
  float hidden[4];
  EXPECT_DEATH(backend().embed({.table = &table, .tokens = &beyond, .n_rows = 1, .hidden = hidden}),
               "outside the table");
  EXPECT_DEATH(backend().embed({.table = &table, .tokens = &below, .n_rows = 1, .hidden = hidden}),
               "outside the table");
  EXPECT_DEATH(backend().embed({.tokens = &below, .n_rows = 1, .hidden = hidden}), "linear");
  EXPECT_DEATH(backend().embed({.table = &table, .n_rows = 1, .hidden = hidden}), "tokens");
}

FORETOKEN_EVERY_DEVICE(Embed);
FORETOKEN_EVERY_ISA(EmbedDeathTest);

}  // namespace
}  // namespace foretoken::test
