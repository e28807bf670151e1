#include "tests/conformance/op_test.h"

namespace foretoken::test {
namespace {

// Sequences of some rows each; proposals that stand for a while.
struct Rows {
  std::vector<Choice> choices;
  std::vector<std::int32_t> tokens, row_begin = {0};

  void add(std::mt19937& rng, std::int32_t n, std::int32_t n_agreeing) {
    const std::size_t begin = tokens.size();
    for (std::int32_t i = 0; i < n; ++i) {
      tokens.push_back(static_cast<std::int32_t>(rng() % 50));
      Choice choice;
      choice.token = static_cast<std::int32_t>(rng() % 50);
      choice.score = 0.5;
      choices.push_back(choice);
    }
    for (std::int32_t i = 0; i < n - 1; ++i) {
      const std::size_t row = begin + static_cast<std::size_t>(i);
      if (i < n_agreeing)
        tokens[row + 1] = choices[row].token;
      else if (i == n_agreeing && tokens[row + 1] == choices[row].token)
        tokens[row + 1] = 60;
    }
    row_begin.push_back(static_cast<std::int32_t>(tokens.size()));
  }
  AcceptArgs args(const Choice* c, const std::int32_t* t, const std::int32_t* b, Verdict* v) const {
    return {.choices = c,
            .tokens = t,
            .n_rows = static_cast<std::int32_t>(tokens.size()),
            .n_sequences = static_cast<std::int32_t>(row_begin.size()) - 1,
            .row_begin = b,
            .verdicts = v};
  }
};

std::vector<Verdict> by_backend(Backend& backend, const Rows& rows) {
  const OnDevice<Choice> choices(backend, rows.choices);
  const OnDevice<std::int32_t> tokens(backend, rows.tokens), begin(backend, rows.row_begin);
  const OnDevice<Verdict> verdicts(backend, std::vector<Verdict>(rows.row_begin.size() - 1));
  backend.accept(rows.args(choices.get(), tokens.get(), begin.get(), verdicts.get()));
  return verdicts.host();
}

std::vector<Verdict> by_reference(const Rows& rows) {
  std::vector<Verdict> verdicts(rows.row_begin.size() - 1);
  ref::accept(
      rows.args(rows.choices.data(), rows.tokens.data(), rows.row_begin.data(), verdicts.data()));
  return verdicts;
}

void expect_same(const std::vector<Verdict>& got, const std::vector<Verdict>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t s = 0; s < got.size(); ++s) {
    EXPECT_EQ(got[s].n_accepted, want[s].n_accepted) << "sequence " << s;
    EXPECT_EQ(got[s].next_token, want[s].next_token) << "sequence " << s;
  }
}

class Accept : public OpTest {};

TEST_P(Accept, MatchesReferenceOnEveryCase) {
  for (const std::int32_t n_sequences : {1, 2, 3, 4, 5, 31, 32, 33, 129}) {
    Rows rows;
    for (std::int32_t s = 0; s < n_sequences; ++s) {
      const std::int32_t lengths[] = {1, 2, 5, 11, 31, 32, 33, 34, 65, 97};
      const std::int32_t n = lengths[rng() % 10];
      rows.add(rng, n, static_cast<std::int32_t>(rng() % static_cast<unsigned>(n + 1)));
    }
    expect_same(by_backend(backend(), rows), by_reference(rows));
  }
}

// Read off the rule, not off an implementation.
TEST_P(Accept, CutsAtTheFirstTokenTheTargetDidNotChoose) {
  const auto choice = [](std::int32_t token) {
    Choice c;
    c.token = token;
    return c;
  };
  Rows rows;
  rows.choices = {choice(7), choice(8), choice(9),  choice(4), choice(5),
                  choice(6), choice(3), choice(-1), choice(2)};
  rows.tokens = {1, 7, 8, /**/ 1, 9, 6, /**/ 1, /**/ 1, -1};
  rows.row_begin = {0, 3, 6, 7, 9};
  const std::vector<Verdict> got = by_backend(backend(), rows);
  expect_same(got, {{2, 9}, {0, 4}, {0, 3}, {0, -1}});
}

TEST_P(Accept, AcceptsTheEmptyBatch) {
  Buffer verdicts = backend().allocate(sizeof(Verdict));
  const Verdict before{.n_accepted = 7, .next_token = 9};
  backend().upload(verdicts.as<Verdict>(), &before, sizeof before);
  backend().accept({.verdicts = verdicts.as<Verdict>()});
  Verdict after;
  backend().download(&after, verdicts.as<Verdict>(), sizeof after);
  EXPECT_EQ(after.n_accepted, 7);
  EXPECT_EQ(after.next_token, 9);
}

TEST_P(Accept, GivesTheSameBitsTwice) {
  Rows rows;
  for (int s = 0; s < 40; ++s) rows.add(rng, 11, s % 11);
  expect_same(by_backend(backend(1), rows), by_backend(backend(3), rows));
}

TEST_P(Accept, RowDoesNotDependOnItsNeighbours) {
  std::vector<Rows> alone(20);
  std::mt19937 other = rng;
  Rows together;
  for (int s = 0; s < 20; ++s) {
    alone[static_cast<std::size_t>(s)].add(rng, 1 + s, s / 2);
    together.add(other, 1 + s, s / 2);
  }
  const std::vector<Verdict> all = by_backend(backend(), together);
  for (std::size_t s = 0; s < 20; ++s) expect_same({all[s]}, by_backend(backend(), alone[s]));
}

// The contract is checked before a device is asked; what lies in memory, where it can be read.
using AcceptDeathTest = Accept;

TEST_P(AcceptDeathTest, RejectsWhatTheContractForbids) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Rows rows;
  rows.add(rng, 3, 1);
  rows.add(rng, 2, 1);
  std::vector<Verdict> verdicts(2);
  const auto args = [&] {
    return rows.args(rows.choices.data(), rows.tokens.data(), rows.row_begin.data(),
                     verdicts.data());
  };
  backend().accept(args());
  AcceptArgs bad = args();
  bad.n_rows = -1;
  EXPECT_DEATH(backend().accept(bad), "n_rows >= 0");
  bad = args();
  bad.n_sequences = 6;
  EXPECT_DEATH(backend().accept(bad), "n_sequences");
  bad = args();
  bad.verdicts = nullptr;
  EXPECT_DEATH(backend().accept(bad), "verdicts");
  rows.row_begin[1] = 0;
  EXPECT_DEATH(backend().accept(args()), "without rows");
}

FORETOKEN_EVERY_DEVICE(Accept);
FORETOKEN_EVERY_ISA(AcceptDeathTest);

}  // namespace
}  // namespace foretoken::test
