#include "tests/conformance/op_test.h"

namespace foretoken::test {
namespace {

// A head of some ids of a vocabulary, ascending.
std::vector<std::int32_t> some_ids(std::mt19937& rng, std::int32_t n, std::int32_t vocab) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(vocab));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), rng);
  ids.resize(static_cast<std::size_t>(n));
  std::ranges::sort(ids);
  return ids;
}

class Spread : public OpTest {
 protected:
  static std::vector<float> run(Backend& backend,
                                const std::vector<float>& logits,
                                const std::vector<std::int32_t>& ids,
                                std::int32_t vocab) {
    const std::size_t n_rows = logits.size() / ids.size();
    const OnDevice<float> from(backend, logits);
    const OnDevice<std::int32_t> named(backend, ids);
    const OnDevice<float> out(backend,
                              std::vector<float>(n_rows * static_cast<std::size_t>(vocab), 7.0f));
    backend.spread({.logits = from.get(),
                    .n_rows = static_cast<std::int32_t>(n_rows),
                    .n_columns = static_cast<std::int32_t>(ids.size()),
                    .ids = named.get(),
                    .vocab = vocab,
                    .out = out.get()});
    return out.host();
  }
};

TEST_P(Spread, MatchesReferenceOnEveryCase) {
  for (const cases::Vocabulary& c : cases::vocabularies())
    for (const std::int32_t n : {1, (c.n_columns + 1) / 2, c.n_columns}) {
      SCOPED_TRACE(testing::Message() << c.n_rows << " rows, " << n << " of " << c.n_columns);
      const auto ids = some_ids(rng, n, c.n_columns);
      const auto logits = random_floats(rng, std::int64_t{c.n_rows} * n);
      std::vector<float> want(static_cast<std::size_t>(c.n_rows) *
                              static_cast<std::size_t>(c.n_columns));
      ref::spread({.logits = logits.data(),
                   .n_rows = c.n_rows,
                   .n_columns = n,
                   .ids = ids.data(),
                   .vocab = c.n_columns,
                   .out = want.data()});
      ASSERT_TRUE(same_bits(run(backend(), logits, ids, c.n_columns), want));
    }
}

TEST_P(Spread, LeavesOutEveryIdTheHeadHasNot) {
  const auto row = run(backend(), {1.5f, -2.0f}, {1, 3}, 5);
  const float least = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(row, (std::vector<float>{least, 1.5f, least, -2.0f, least}));
}

TEST_P(Spread, TheEmptyBatchWritesNothing) {
  const Untouched out(backend(), 5);
  backend().spread({.out = out.get()});
  EXPECT_TRUE(out.intact());
}

TEST_P(Spread, RowDoesNotDependOnItsNeighbours) {
  const auto ids = some_ids(rng, 40, 100);
  const auto logits = random_floats(rng, 33 * 40);
  const RowRunner runner = [&](Backend& b, const std::vector<std::int32_t>& rows) {
    std::vector<float> some;
    for (const std::int32_t row : rows)
      some.insert(some.end(), logits.begin() + row * 40, logits.begin() + (row + 1) * 40);
    return split_rows(run(b, some, ids, 100), rows.size());
  };
  expect_rows_independent(
      runner, 33, [&](int t) -> Backend& { return backend(t); }, rng);
}

using SpreadDeathTest = Spread;

TEST_P(SpreadDeathTest, RejectsWhatTheContractForbids) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(run(backend(), {1, 2, 3}, {0, 1, 2}, 2), "n_columns <= args.vocab");
  EXPECT_DEATH(run(backend(), {1, 2}, {1, 1}, 3), "ascending");
  EXPECT_DEATH(run(backend(), {1, 2}, {1, 3}, 3), "below vocab");
}

FORETOKEN_EVERY_DEVICE(Spread);
FORETOKEN_EVERY_ISA(SpreadDeathTest);

}  // namespace
}  // namespace foretoken::test
