#include <algorithm>

#include "tests/conformance/op_test.h"

namespace foretoken::test {
namespace {

constexpr std::int32_t kBlockTokens = 4;

// Sequences somewhere in their blocks, some at a block's last token, some at their table's end.
struct Sequences {
  std::int32_t max_blocks = 1;
  std::vector<Choice> choices;
  std::vector<std::int32_t> end_begin = {0}, end_tokens, tables, tokens, positions, slots, n_left;

  std::size_t size() const { return tokens.size(); }
  void add(std::mt19937& rng, std::int32_t n_left_in) {
    Choice choice;
    choice.token = static_cast<std::int32_t>(rng() % 40) - (rng() % 8 == 0 ? 40 : 0);
    if (choice.token < 0) choice.token = -1;
    choices.push_back(choice);
    for (std::uint32_t n = rng() % 4; n > 0; --n)
      end_tokens.push_back(static_cast<std::int32_t>(rng() % 20));
    end_begin.push_back(static_cast<std::int32_t>(end_tokens.size()));
    for (std::int32_t b = 0; b < max_blocks; ++b)
      tables.push_back(static_cast<std::int32_t>(rng() % 1000));
    const auto n = static_cast<std::uint32_t>(max_blocks * kBlockTokens);
    positions.push_back(static_cast<std::int32_t>(rng() % 4 == 0 ? n - 1 : rng() % n));
    tokens.push_back(static_cast<std::int32_t>(rng() % 40));
    slots.push_back(static_cast<std::int32_t>(rng() % 4000));
    n_left.push_back(n_left_in);
  }
  // Of one sequence alone.
  Sequences only(std::size_t s) const {
    Sequences one;
    one.max_blocks = max_blocks;
    const auto wide = static_cast<std::size_t>(max_blocks);
    one.choices = {choices[s]};
    one.end_tokens.assign(end_tokens.begin() + end_begin[s], end_tokens.begin() + end_begin[s + 1]);
    one.end_begin = {0, end_begin[s + 1] - end_begin[s]};
    one.tables.assign(tables.begin() + static_cast<std::ptrdiff_t>(s * wide),
                      tables.begin() + static_cast<std::ptrdiff_t>((s + 1) * wide));
    one.tokens = {tokens[s]};
    one.positions = {positions[s]};
    one.slots = {slots[s]};
    one.n_left = {n_left[s]};
    return one;
  }
  AdvanceArgs args() {
    return {.choices = choices.data(),
            .n_sequences = static_cast<std::int32_t>(size()),
            .end_begin = end_begin.data(),
            .end_tokens = end_tokens.data(),
            .block_tables = tables.data(),
            .max_blocks = max_blocks,
            .block_tokens = kBlockTokens,
            .tokens = tokens.data(),
            .positions = positions.data(),
            .slots = slots.data(),
            .n_left = n_left.data()};
  }
};

Sequences by_backend(Backend& backend, Sequences in, int times = 1) {
  const OnDevice<Choice> choices(backend, in.choices);
  const OnDevice<std::int32_t> end_begin(backend, in.end_begin), end_tokens(backend, in.end_tokens),
      tables(backend, in.tables), tokens(backend, in.tokens), positions(backend, in.positions),
      slots(backend, in.slots), n_left(backend, in.n_left);
  AdvanceArgs args = in.args();
  args.choices = choices.get();
  args.end_begin = end_begin.get();
  args.end_tokens = end_tokens.get();
  args.block_tables = tables.get();
  args.tokens = tokens.get();
  args.positions = positions.get();
  args.slots = slots.get();
  args.n_left = n_left.get();
  for (int i = 0; i < times; ++i) backend.advance(args);
  in.tokens = tokens.host();
  in.positions = positions.host();
  in.slots = slots.host();
  in.n_left = n_left.host();
  return in;
}

void expect_same(const Sequences& got, const Sequences& want) {
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.positions, want.positions);
  EXPECT_EQ(got.slots, want.slots);
  EXPECT_EQ(got.n_left, want.n_left);
}

class Advance : public OpTest {};

TEST_P(Advance, MatchesReferenceOnEveryCase) {
  for (const std::int32_t n_sequences : {1, 2, 31, 127, 128, 129, 300}) {
    for (const std::int32_t max_blocks : {1, 2, 7}) {
      Sequences in;
      in.max_blocks = max_blocks;
      for (std::int32_t s = 0; s < n_sequences; ++s)
        in.add(rng, static_cast<std::int32_t>(rng() % 4));
      for (const int times : {1, 3}) {
        Sequences want = in;
        for (int i = 0; i < times; ++i) ref::advance(want.args());
        expect_same(by_backend(backend(), in, times), want);
      }
    }
  }
}

// Read off the rule, not off an implementation: one that goes on, one over a block's edge, and five
// that rest, for five reasons.
TEST_P(Advance, GoesOnOrRestsForEachReason) {
  Sequences in;
  in.max_blocks = 2;
  for (const std::int32_t token : {9, 9, 9, 5, -1, 9, 9}) {
    Choice choice;
    choice.token = token;
    in.choices.push_back(choice);
  }
  in.end_tokens = {3, 5};
  in.end_begin = {0, 0, 0, 0, 2, 2, 2, 2};
  for (std::int32_t s = 0; s < 7; ++s) in.tables.insert(in.tables.end(), {10 + s, 20 + s});
  in.tokens = {1, 2, 3, 4, 5, 6, 7};
  in.positions = {1, 3, 1, 1, 1, 7, 2};
  in.slots = {41, 47, 49, 53, 57, 103, 66};
  in.n_left = {2, 1, 0, 6, 6, 6, 6};
  Sequences want = in;
  want.tokens = {9, 9, 3, 4, 5, 6, 9};
  want.positions = {2, 4, 1, 1, 1, 7, 3};
  want.slots = {42, 84, 49, 53, 57, 103, 67};
  want.n_left = {1, 0, 0, 0, 0, 0, 5};
  expect_same(by_backend(backend(), in), want);
}

TEST_P(Advance, AcceptsTheEmptyBatchAndNoEndTokens) {
  backend().advance({});
  Sequences in;
  in.add(rng, 1);
  in.choices[0].token = 7;
  in.positions[0] = 0;
  in.end_tokens.clear();
  in.end_begin = {0, 0};
  EXPECT_EQ(by_backend(backend(), in).tokens[0], 7);
}

TEST_P(Advance, GivesTheSameBitsTwice) {
  Sequences in;
  in.max_blocks = 3;
  for (int s = 0; s < 40; ++s) in.add(rng, s % 3);
  expect_same(by_backend(backend(1), in), by_backend(backend(3), in));
}

TEST_P(Advance, RowDoesNotDependOnItsNeighbours) {
  Sequences in;
  in.max_blocks = 3;
  for (int s = 0; s < 40; ++s) in.add(rng, s % 3);
  const Sequences together = by_backend(backend(), in, 2);
  for (std::size_t s = 0; s < in.size(); ++s)
    expect_same(by_backend(backend(), in.only(s), 2), together.only(s));
}

// The contract is checked before a device is asked; what lies in memory, where it can be read.
using AdvanceDeathTest = Advance;

TEST_P(AdvanceDeathTest, RejectsWhatTheContractForbids) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Sequences in;
  for (int s = 0; s < 3; ++s) in.add(rng, 1);
  backend().advance(in.args());
  AdvanceArgs bad = in.args();
  bad.n_sequences = -1;
  EXPECT_DEATH(backend().advance(bad), "n_sequences >= 0");
  bad = in.args();
  bad.block_tokens = 0;
  EXPECT_DEATH(backend().advance(bad), "block_tokens > 0");
  bad = in.args();
  bad.n_left = nullptr;
  EXPECT_DEATH(backend().advance(bad), "n_left");
  in.end_begin = {0, 2, 1, 2};
  EXPECT_DEATH(backend().advance(in.args()), "overlap");
}

FORETOKEN_EVERY_DEVICE(Advance);
FORETOKEN_EVERY_ISA(AdvanceDeathTest);

}  // namespace
}  // namespace foretoken::test
