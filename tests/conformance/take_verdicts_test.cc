#include <algorithm>
#include <limits>

#include "tests/conformance/op_test.h"

namespace foretoken::test {
namespace {

constexpr std::int32_t kIds = 50;
constexpr std::int32_t kLeast = std::numeric_limits<std::int32_t>::min();
constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();

// Rows as a draft lays them out before it knows the verdicts on them.
struct Rows {
  std::vector<BoardEntry> board;
  std::vector<std::int32_t> entries, n_drafted, row_begin = {0};
  std::vector<std::uint64_t> tags;
  std::vector<std::int32_t> positions, slots, tokens, logit_rows;
  std::vector<RowRule> rules, rules_ahead;
  std::vector<Verdict> taken;
  std::int32_t n_ahead = 0;
  std::vector<std::int32_t> next_tokens, next_positions, next_slots, n_left;

  std::size_t size() const { return entries.size(); }
  TakeVerdictsArgs args() {
    TakeVerdictsArgs args{.board = board.data(),
                          .n_entries = static_cast<std::int32_t>(board.size()),
                          .n_sequences = static_cast<std::int32_t>(size()),
                          .entries = entries.data(),
                          .tags = tags.data(),
                          .n_drafted = n_drafted.data(),
                          .n_ids = kIds,
                          .row_begin = row_begin.data(),
                          .positions = positions.data(),
                          .slots = slots.data(),
                          .tokens = tokens.data(),
                          .logit_rows = logit_rows.data(),
                          .rules = rules.data(),
                          .taken = taken.data()};
    if (n_ahead == 0) return args;
    args.n_ahead = n_ahead;
    args.rules_ahead = rules_ahead.data();
    args.next_tokens = next_tokens.data();
    args.next_positions = next_positions.data();
    args.next_slots = next_slots.data();
    args.n_left = n_left.data();
    return args;
  }
  Rows only(std::size_t s) const;
};

RowRule rule_at(std::uint32_t position) {
  RowRule rule;
  rule.temperature = 0.5f;
  rule.seed = 1234567890123456789u;
  rule.position = position;
  rule.adjust_begin = 3;
  rule.adjust_end = 4;
  return rule;
}

std::int32_t below(std::mt19937& rng, std::int32_t n) {
  return static_cast<std::int32_t>(rng() % static_cast<std::uint32_t>(n));
}

// What may stand on a board: verdicts, and everything that is none.
BoardEntry any_entry(std::mt19937& rng, std::uint64_t tag, std::int32_t n_drafted) {
  BoardEntry entry{tag, below(rng, n_drafted + 1), below(rng, kIds)};
  switch (rng() % 12) {
    case 0:
      entry.tag += 1;
      break;
    case 1:
      entry.tag ^= std::uint64_t{1} << 63;
      break;
    case 2:
      entry = {};
      break;
    case 3:
      entry.n_accepted = n_drafted + 1;
      break;
    case 4:
      entry.n_accepted = -1;
      break;
    case 5:
      entry.n_accepted = rng() % 2 == 0 ? kLeast : kMost;
      break;
    case 6:
      entry.next_token = -1;
      break;
    case 7:
      entry.next_token = kIds;
      break;
    case 8:
      entry.next_token = rng() % 2 == 0 ? kLeast : kMost;
      break;
    default:
      break;
  }
  return entry;
}

Rows random_rows(std::mt19937& rng, std::int32_t n_sequences, std::int32_t n_ahead) {
  Rows rows;
  rows.n_ahead = n_ahead;
  const std::int32_t n_entries = n_sequences + 7;
  rows.board.resize(static_cast<std::size_t>(n_entries), {99, 1, 1});
  std::vector<std::int32_t> order(static_cast<std::size_t>(n_entries));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), rng);
  rows.entries.assign(order.begin(), order.begin() + n_sequences);
  for (std::size_t s = 0; s < rows.size(); ++s) {
    const std::int32_t n_drafted = rng() % 4 == 0 ? 0 : below(rng, 20);
    const std::int32_t n_rows = n_drafted + 1 + below(rng, 3);
    const std::int32_t begin = rows.row_begin.back();
    rows.n_drafted.push_back(n_drafted);
    rows.tags.push_back(std::uint64_t{rng()} << 32 | (rng() | 1));
    rows.board[static_cast<std::size_t>(rows.entries[s])] = any_entry(rng, rows.tags[s], n_drafted);
    for (std::int32_t r = 0; r < n_rows; ++r) {
      rows.tokens.push_back(below(rng, kIds));
      rows.positions.push_back(below(rng, 1000));
      rows.slots.push_back(below(rng, 100000));
    }
    rows.row_begin.push_back(begin + n_rows);
    rows.logit_rows.push_back(begin + below(rng, n_rows));
    rows.rules.push_back(rule_at(static_cast<std::uint32_t>(rng() % 1000)));
    rows.taken.push_back({-77, -77});
  }
  if (n_ahead == 0) return rows;
  for (std::int32_t i = 0; i < n_ahead * n_sequences; ++i)
    rows.rules_ahead.push_back(rule_at(static_cast<std::uint32_t>(rng() % 1000)));
  for (std::int32_t s = 0; s < n_sequences; ++s) {
    rows.next_tokens.push_back(below(rng, kIds));
    rows.next_positions.push_back(below(rng, 1000));
    rows.next_slots.push_back(below(rng, 100000));
    rows.n_left.push_back(below(rng, 5));
  }
  return rows;
}

template <class T>
std::vector<T> part(const std::vector<T>& all, std::int32_t begin, std::int32_t end) {
  return {all.begin() + begin, all.begin() + end};
}

Rows Rows::only(std::size_t s) const {
  Rows one;
  const std::int32_t begin = row_begin[s], end = row_begin[s + 1];
  one.board = board;
  one.entries = {entries[s]};
  one.n_drafted = {n_drafted[s]};
  one.tags = {tags[s]};
  one.row_begin = {0, end - begin};
  one.positions = part(positions, begin, end);
  one.slots = part(slots, begin, end);
  one.tokens = part(tokens, begin, end);
  one.logit_rows = {logit_rows[s] - begin};
  one.rules = {rules[s]};
  one.taken = {taken[s]};
  one.n_ahead = n_ahead;
  for (std::size_t k = 0; k < static_cast<std::size_t>(n_ahead); ++k)
    one.rules_ahead.push_back(rules_ahead[k * size() + s]);
  if (n_ahead == 0) return one;
  one.next_tokens = {next_tokens[s]};
  one.next_positions = {next_positions[s]};
  one.next_slots = {next_slots[s]};
  one.n_left = {n_left[s]};
  return one;
}

Rows by_backend(Backend& backend, Rows in) {
  const OnDevice<BoardEntry> board(backend, in.board);
  const OnDevice<std::uint64_t> tags(backend, in.tags);
  const OnDevice<std::int32_t> entries(backend, in.entries), n_drafted(backend, in.n_drafted),
      row_begin(backend, in.row_begin), positions(backend, in.positions), slots(backend, in.slots),
      tokens(backend, in.tokens), logit_rows(backend, in.logit_rows),
      next_tokens(backend, in.next_tokens), next_positions(backend, in.next_positions),
      next_slots(backend, in.next_slots), n_left(backend, in.n_left);
  const OnDevice<RowRule> rules(backend, in.rules), rules_ahead(backend, in.rules_ahead);
  const OnDevice<Verdict> taken(backend, in.taken);
  TakeVerdictsArgs args = in.args();
  args.board = board.get();
  args.entries = entries.get();
  args.tags = tags.get();
  args.n_drafted = n_drafted.get();
  args.row_begin = row_begin.get();
  args.positions = positions.get();
  args.slots = slots.get();
  args.tokens = tokens.get();
  args.logit_rows = logit_rows.get();
  args.rules = rules.get();
  args.taken = taken.get();
  args.rules_ahead = rules_ahead.get();
  args.next_tokens = next_tokens.get();
  args.next_positions = next_positions.get();
  args.next_slots = next_slots.get();
  args.n_left = n_left.get();
  backend.take_verdicts(args);
  in.board = board.host();
  in.tokens = tokens.host();
  in.logit_rows = logit_rows.host();
  in.rules = rules.host();
  in.taken = taken.host();
  in.rules_ahead = rules_ahead.host();
  in.next_tokens = next_tokens.host();
  in.next_positions = next_positions.host();
  in.next_slots = next_slots.host();
  in.n_left = n_left.host();
  return in;
}

void expect_same(const std::vector<RowRule>& got, const std::vector<RowRule>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].position, want[i].position) << i;
    EXPECT_EQ(got[i].seed, want[i].seed) << i;
    EXPECT_EQ(got[i].temperature, want[i].temperature) << i;
    EXPECT_EQ(got[i].adjust_begin, want[i].adjust_begin) << i;
    EXPECT_EQ(got[i].adjust_end, want[i].adjust_end) << i;
    EXPECT_EQ(got[i].n_top_logprobs, want[i].n_top_logprobs) << i;
  }
}

void expect_same(const Rows& got, const Rows& want) {
  EXPECT_EQ(
      std::memcmp(got.board.data(), want.board.data(), want.board.size() * sizeof(BoardEntry)), 0);
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.logit_rows, want.logit_rows);
  expect_same(got.rules, want.rules);
  expect_same(got.rules_ahead, want.rules_ahead);
  for (std::size_t s = 0; s < want.size(); ++s) {
    EXPECT_EQ(got.taken[s].n_accepted, want.taken[s].n_accepted) << s;
    EXPECT_EQ(got.taken[s].next_token, want.taken[s].next_token) << s;
  }
  EXPECT_EQ(got.next_tokens, want.next_tokens);
  EXPECT_EQ(got.next_positions, want.next_positions);
  EXPECT_EQ(got.next_slots, want.next_slots);
  EXPECT_EQ(got.n_left, want.n_left);
}

class TakeVerdicts : public OpTest {};

TEST_P(TakeVerdicts, MatchesReferenceOnEveryCase) {
  for (const std::int32_t n_sequences : {1, 2, 31, 127, 128, 129, 300})
    for (const std::int32_t n_ahead : {0, 1, 5}) {
      const Rows in = random_rows(rng, n_sequences, n_ahead);
      Rows want = in;
      ref::take_verdicts(want.args());
      expect_same(by_backend(backend(), in), want);
    }
}

// One sequence: a row that was known, three drafted ones, and one more.
Rows example() {
  Rows rows;
  rows.board = {{5, 0, 0}, {42, 0, 30}};
  rows.entries = {1};
  rows.tags = {42};
  rows.n_drafted = {3};
  rows.row_begin = {0, 5};
  rows.positions = {7, 8, 9, 10, 11};
  rows.slots = {107, 208, 209, 210, 311};
  rows.tokens = {20, 21, 22, 23, 24};
  rows.logit_rows = {4};
  rows.rules = {rule_at(9)};
  rows.taken = {{-77, -77}};
  rows.n_ahead = 2;
  rows.rules_ahead = {rule_at(10), rule_at(11)};
  rows.next_tokens = {1};
  rows.next_positions = {2};
  rows.next_slots = {3};
  rows.n_left = {2};
  return rows;
}

// Read off the rule, not off an implementation.
TEST_P(TakeVerdicts, ARowBecomesTheOneAfterWhatStands) {
  for (std::int32_t n = 0; n <= 3; ++n) {
    Rows in = example();
    in.board[1].n_accepted = n;
    const auto row = static_cast<std::size_t>(1 + n);
    const auto further = static_cast<std::uint32_t>(n);
    Rows want = in;
    want.tokens[row] = 30;
    want.logit_rows = {1 + n};
    want.rules = {rule_at(9 + further)};
    want.rules_ahead = {rule_at(10 + further), rule_at(11 + further)};
    want.taken = {{n, 30}};
    want.next_tokens = {30};
    want.next_positions = {8 + n};
    want.next_slots = {std::vector<std::int32_t>{208, 209, 210, 311}[static_cast<std::size_t>(n)]};
    expect_same(by_backend(backend(), in), want);
  }
}

TEST_P(TakeVerdicts, WhatCannotBeAVerdictIsNotBelieved) {
  const std::vector<BoardEntry> wrong = {
      {41, 1, 30},     {0, 1, 30},    {42 + (std::uint64_t{1} << 32), 1, 30},
      {42, 4, 30},     {42, -1, 30},  {42, kLeast, 30},
      {42, kMost, 30}, {42, 1, -1},   {42, 1, kIds},
      {42, 1, kLeast}, {42, 1, kMost}};
  for (const BoardEntry& entry : wrong) {
    Rows in = example();
    in.board[1] = entry;
    Rows want = in;
    want.taken = {{-1, -1}};
    want.n_left = {0};
    expect_same(by_backend(backend(), in), want);
  }
}

TEST_P(TakeVerdicts, BelievesTheOutermostThatCanBe) {
  Rows in = example();
  in.board[1] = {42, 3, kIds - 1};
  EXPECT_EQ(by_backend(backend(), in).taken[0].n_accepted, 3);
  in.board[1] = {42, 0, 0};
  EXPECT_EQ(by_backend(backend(), in).taken[0].next_token, 0);
}

// A board that nobody wrote has no tag, so nobody finds his there.
TEST_P(TakeVerdicts, AnEmptyEntryIsNoVerdictUnderAnyTag) {
  Rows in = example();
  in.tags = {0};
  in.board[1] = {0, 1, 30};
  EXPECT_EQ(by_backend(backend(), in).taken[0].n_accepted, -1);
}

TEST_P(TakeVerdicts, WithoutAChainNothingOfOneIsTouched) {
  Rows in = example();
  in.board[1].n_accepted = 2;
  in.n_ahead = 0;
  Rows want = in;
  want.tokens[3] = 30;
  want.logit_rows = {3};
  want.rules = {rule_at(11)};
  want.taken = {{2, 30}};
  expect_same(by_backend(backend(), in), want);
  in.board[1].tag = 1;
  want = in;
  want.taken = {{-1, -1}};
  expect_same(by_backend(backend(), in), want);
}

TEST_P(TakeVerdicts, AnEmptyBatchTakesNothing) {
  const OnDevice<BoardEntry> board(backend(), {{42, 0, 30}});
  const OnDevice<std::int32_t> tokens(backend(), {9}), logit_rows(backend(), {0});
  const OnDevice<Verdict> taken(backend(), {{5, 5}});
  backend().take_verdicts({.board = board.get(),
                           .n_entries = 1,
                           .tokens = tokens.get(),
                           .logit_rows = logit_rows.get(),
                           .taken = taken.get()});
  backend().take_verdicts({});  // nor is there need of a board
  EXPECT_EQ(tokens.host()[0], 9);
  EXPECT_EQ(taken.host()[0].n_accepted, 5);
}

TEST_P(TakeVerdicts, GivesTheSameBitsTwice) {
  const Rows in = random_rows(rng, 40, 3);
  expect_same(by_backend(backend(1), in), by_backend(backend(3), in));
}

TEST_P(TakeVerdicts, RowDoesNotDependOnItsNeighbours) {
  const Rows in = random_rows(rng, 40, 3);
  const Rows together = by_backend(backend(), in);
  for (std::size_t s = 0; s < in.size(); ++s)
    expect_same(by_backend(backend(), in.only(s)), together.only(s));
}

// After it a chain goes on as advance has it, and rests where nothing was taken.
TEST_P(TakeVerdicts, AdvanceGoesOnFromTheRowThatWasTaken) {
  for (const bool is_there : {true, false}) {
    Rows in = example();
    in.board[1] = {is_there ? 42u : 41u, 1, 30};
    const Rows out = by_backend(backend(), in);
    Choice choice;
    choice.token = 33;
    const OnDevice<Choice> choices(backend(), {choice});
    const OnDevice<std::int32_t> end_begin(backend(), {0, 0}), tables(backend(), {10, 11, 12}),
        tokens(backend(), out.next_tokens), positions(backend(), out.next_positions),
        slots(backend(), out.next_slots), n_left(backend(), out.n_left);
    backend().advance({.choices = choices.get(),
                       .n_sequences = 1,
                       .end_begin = end_begin.get(),
                       .block_tables = tables.get(),
                       .max_blocks = 3,
                       .block_tokens = 5,
                       .tokens = tokens.get(),
                       .positions = positions.get(),
                       .slots = slots.get(),
                       .n_left = n_left.get()});
    EXPECT_EQ(positions.host()[0], is_there ? 10 : 2);  // the row taken is at 9
    EXPECT_EQ(tokens.host()[0], is_there ? 33 : 1);
    EXPECT_EQ(slots.host()[0], is_there ? 12 * 5 : 3);
    EXPECT_EQ(n_left.host()[0], is_there ? 1 : 0);
  }
}

using TakeVerdictsDeathTest = TakeVerdicts;

TEST_P(TakeVerdictsDeathTest, RejectsWhatTheContractForbids) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Rows rows = example();
  backend().take_verdicts(rows.args());
  TakeVerdictsArgs bad = rows.args();
  bad.n_sequences = -1;
  EXPECT_DEATH(backend().take_verdicts(bad), "n_sequences >= 0");
  bad = rows.args();
  bad.n_ids = 0;
  EXPECT_DEATH(backend().take_verdicts(bad), "n_ids > 0");
  bad = rows.args();
  bad.taken = nullptr;
  EXPECT_DEATH(backend().take_verdicts(bad), "taken");
  bad = rows.args();
  bad.rules_ahead = nullptr;
  EXPECT_DEATH(backend().take_verdicts(bad), "rules_ahead");
  rows.entries = {2};
  EXPECT_DEATH(backend().take_verdicts(rows.args()), "entry outside the board");
  rows = example();
  rows.n_drafted = {5};
  EXPECT_DEATH(backend().take_verdicts(rows.args()), "a row more than it has drafted");
  rows.n_drafted = {-1};
  EXPECT_DEATH(backend().take_verdicts(rows.args()), "a row more than it has drafted");
}

FORETOKEN_EVERY_DEVICE(TakeVerdicts);
FORETOKEN_EMULATED_RING(TakeVerdicts);
FORETOKEN_EVERY_ISA(TakeVerdictsDeathTest);

}  // namespace
}  // namespace foretoken::test
