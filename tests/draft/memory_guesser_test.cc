#include "services/draft/memory_guesser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/base/log.h"
#include "common/spec/prefix_hash.h"
#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

using std::chrono::seconds;
using Tokens = std::vector<TokenId>;

constexpr TokenId kIds = 1000;
constexpr std::uint32_t kBudget = 4;

// A target that sends its sequences to a memory; each has a number of its own.
class MemoryGuesserTest : public testing::Test {
 protected:
  static MemoryGuesserOptions options(MemorySharing sharing = MemorySharing::kTenant) {
    return {.memories = {.n_places = 1 << 16, .tenant_share = 0.5},
            .sharing = sharing,
            .n_ids = kIds,
            .max_sequences = 8,
            .first_document = 100,
            .clock = [] { return TimePoint{}; }};
  }
  static wire::Attach attach(std::uint64_t seq, const Tokens& tokens, std::uint64_t salt = 0) {
    wire::Attach attach{.seq = SeqId{seq},
                        .lease = Lease{1},
                        .n_prompt = 1,
                        .tokens = tokens,
                        .budget = kBudget,
                        .tenant_salt = salt,
                        .root = 77};
    attach.prefix = prefix_hash_extend(attach.root, tokens);
    return attach;
  }
  static wire::ProposeRecord propose(std::uint64_t seq,
                                     const Tokens& all,
                                     std::size_t n_before,
                                     std::uint32_t epoch) {
    return {.seq = SeqId{seq},
            .lease = Lease{1},
            .epoch = Epoch{epoch},
            .from = static_cast<Position>(n_before),
            .tail = Tokens(all.begin() + static_cast<std::ptrdiff_t>(n_before), all.end()),
            .prefix = prefix_hash_extend(77, all),
            .budget = kBudget};
  }
  // All that it answers until it has nothing to do.
  static std::vector<wire::ProposalRecord> answers(MemoryGuesser& memory) {
    std::vector<wire::ProposalRecord> records;
    for (int i = 0; i < 1000 && memory.has_work(); ++i)
      for (const ReadyProposal& ready : memory.step(kNow).proposals)
        records.push_back(ready.record);
    EXPECT_FALSE(memory.has_work());
    return records;
  }
  static void write(MemoryGuesser& memory, std::uint64_t seq, const Tokens& text, TenantSalt salt) {
    memory.attach(kTarget, attach(seq, text, salt), kNow);
    answers(memory);
    memory.detach(kTarget, {.seq = SeqId{seq}, .lease = Lease{1}});
  }
  static Tokens guesses_after(MemoryGuesser& memory, const Tokens& text, TenantSalt salt) {
    memory.attach(kTarget, attach(999, text, salt), kNow);
    const auto records = answers(memory);
    memory.detach(kTarget, {.seq = SeqId{999}, .lease = Lease{1}});
    EXPECT_EQ(records.size(), 1u);
    return records.empty() ? Tokens{} : records[0].tokens;
  }
  static Tokens long_prompt() {
    Tokens prompt(20'000);
    for (std::size_t i = 0; i < prompt.size(); ++i)
      prompt[i] = static_cast<TokenId>((i * i + i / 7) % kIds);
    return prompt;
  }
  static void expect_found_to_the_end(MemoryGuesser& memory, const Tokens& text) {
    const Tokens query(text.end() - 40, text.end() - 20);
    EXPECT_EQ(guesses_after(memory, query, 0), Tokens(text.end() - 20, text.end() - 16));
  }

  static constexpr TargetKey kTarget{WorkerId{1}, Incarnation{1}};
  static constexpr TimePoint kNow = TimePoint{} + seconds(100);
};

TEST_F(MemoryGuesserTest, AnswersWithWhatFollowedInAnotherSequence) {
  MemoryGuesser memory(options());
  write(memory, 1, {1, 2, 3, 4, 5, 6}, 0);
  memory.attach(kTarget, attach(2, {9, 1, 2}), kNow);
  const auto first = answers(memory);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].seq, SeqId{2});
  EXPECT_EQ(first[0].base, 3u);
  EXPECT_EQ(first[0].prefix, prefix_hash_extend(77, Tokens{9, 1, 2}));
  EXPECT_EQ(first[0].tokens, (Tokens{3, 4, 5, 6}));
  EXPECT_TRUE(first[0].parents.empty());
  EXPECT_EQ(first[0].confidence.size(), 4u);
  memory.follow(kTarget, propose(2, {9, 1, 2, 3, 4}, 3, 1), kNow);
  const auto second = answers(memory);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].epoch, Epoch{1});
  EXPECT_EQ(second[0].base, 5u);
  EXPECT_EQ(second[0].tokens, (Tokens{5, 6}));
}

TEST_F(MemoryGuesserTest, AddsRunnersUpAsATree) {
  MemoryGuesser memory(options());
  for (const TokenId next : {3, 3, 4}) write(memory, 1, {1, 2, next, 7}, 0);
  memory.attach(kTarget, attach(2, {1, 2}), kNow);
  const auto records = answers(memory);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].tokens, (Tokens{3, 7, 4, 7}));
  EXPECT_EQ(records[0].parents, (std::vector<std::uint16_t>{65535, 0, 65535, 2}));
  EXPECT_GT(records[0].confidence[0], records[0].confidence[2]);
}

TEST_F(MemoryGuesserTest, GuessesNoMoreThanItsBudget) {
  MemoryGuesser memory(options());
  for (const TokenId next : {3, 3, 4}) write(memory, 1, {1, 2, next, 7, 8}, 0);
  auto asked = attach(2, {1, 2});
  asked.budget = 1;
  memory.attach(kTarget, asked, kNow);
  const auto records = answers(memory);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].tokens, (Tokens{3, 4})) << "a chain of one token and a runner-up of one";
  auto more = propose(2, {1, 2, 3}, 2, 1);
  more.budget = 2;
  memory.follow(kTarget, more, kNow);
  const auto second = answers(memory);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].tokens, (Tokens{7, 8}));
  memory.follow(kTarget, propose(2, {1, 2, 3, 7}, 3, 2), kNow);
  auto none = propose(2, {1, 2, 3, 7, 8}, 4, 3);
  none.budget = 0;
  memory.follow(kTarget, none, kNow);
  EXPECT_TRUE(answers(memory).empty()) << "it is no longer asked for";
}

TEST_F(MemoryGuesserTest, SaysNothingAtOnceWhereItFindsNothing) {
  MemoryGuesser memory(options());
  EXPECT_EQ(guesses_after(memory, {5, 6, 7}, 0), Tokens{});
  auto silent = attach(3, {5, 6, 7});
  silent.budget = 0;
  memory.attach(kTarget, silent, kNow);
  EXPECT_TRUE(answers(memory).empty()) << "nothing was asked";
}

TEST_F(MemoryGuesserTest, KeepsTenantsApart) {
  MemoryGuesser memory(options());
  write(memory, 1, {1, 2, 3, 4}, 11);
  EXPECT_EQ(guesses_after(memory, {1, 2}, 13), Tokens{});
  EXPECT_EQ(guesses_after(memory, {1, 2}, 0), Tokens{});
  EXPECT_EQ(guesses_after(memory, {1, 2}, 11), (Tokens{3, 4}));
}

TEST_F(MemoryGuesserTest, NeverWritesASequenceToTheTenantItHadBefore) {
  MemoryGuesser memory(options());
  memory.attach(kTarget, attach(1, {1, 2}, 11), kNow);
  memory.attach(kTarget, attach(1, {1, 2, 3, 4}, 13), kNow);
  answers(memory);
  EXPECT_EQ(guesses_after(memory, {1, 2}, 11), Tokens{});
  EXPECT_EQ(guesses_after(memory, {1, 2}, 13), (Tokens{3, 4}));
}

TEST_F(MemoryGuesserTest, SharesAsTheOperatorSays) {
  MemoryGuesser all(options(MemorySharing::kAll));
  write(all, 1, {1, 2, 3, 4}, 11);
  EXPECT_EQ(guesses_after(all, {1, 2}, 13), (Tokens{3, 4}));
  MemoryGuesser off(options(MemorySharing::kOff));
  write(off, 1, {1, 2, 3, 4}, 11);
  EXPECT_EQ(guesses_after(off, {1, 2}, 11), Tokens{});
  EXPECT_EQ(guesses_after(off, {1, 2, 3, 1, 2}, 11), (Tokens{3, 1, 2})) << "its own text";
}

TEST_F(MemoryGuesserTest, LearnsTheLastRoundFromClose) {
  MemoryGuesser memory(options());
  memory.attach(kTarget, attach(1, {1, 2}), kNow);
  answers(memory);
  memory.detach(kTarget, {.seq = SeqId{1}, .lease = Lease{1}, .from = 1, .tail = {2, 3, 4}});
  EXPECT_EQ(guesses_after(memory, {1, 2}, 0), (Tokens{3, 4}));
  memory.attach(kTarget, attach(2, {8, 9}), kNow);
  memory.detach(kTarget, {.seq = SeqId{2}, .lease = Lease{1}, .from = 5, .tail = {3}});
  EXPECT_EQ(guesses_after(memory, {8, 9}, 0), Tokens{}) << "tokens before it are missing";
}

TEST_F(MemoryGuesserTest, NeedsWhatIsMissingAndTakesNothingThatDoesNotFit) {
  MemoryGuesser memory(options());
  const auto reason_of = [](const DraftOutcome& outcome) {
    const auto* need = std::get_if<wire::Need>(&outcome);
    return need == nullptr ? std::string("none") : std::string(wire::name_of(need->reason));
  };
  EXPECT_EQ(reason_of(memory.follow(kTarget, propose(1, {1, 2, 3}, 2, 1), kNow)), "unknown");
  memory.attach(kTarget, attach(1, {1, 2}), kNow);
  EXPECT_EQ(reason_of(memory.follow(kTarget, propose(1, {1, 2, 3, 4}, 3, 1), kNow)), "gap");
  EXPECT_EQ(reason_of(memory.follow(kTarget, propose(1, {1, 5, 3}, 2, 1), kNow)), "mismatch");
  auto foreign = propose(1, {1, 2, kIds}, 2, 1);
  EXPECT_EQ(reason_of(memory.follow(kTarget, foreign, kNow)), "mismatch");
  EXPECT_EQ(reason_of(memory.follow(kTarget, propose(1, {1, 2, 3}, 2, 2), kNow)), "none");
  EXPECT_TRUE(
      std::holds_alternative<Ignored>(memory.follow(kTarget, propose(1, {1, 2, 3, 4}, 3, 1), kNow)))
      << "an old record";
  auto wrong = attach(2, {1, 2});
  wrong.prefix += 1;
  EXPECT_EQ(reason_of(memory.attach(kTarget, wrong, kNow)), "mismatch");
}

TEST_F(MemoryGuesserTest, IsBusyWithAllItsSequencesAndFreesThoseOfSilentTargets) {
  MemoryGuesser memory(options());
  for (std::uint64_t seq = 1; seq <= 8; ++seq) memory.attach(kTarget, attach(seq, {1}), kNow);
  EXPECT_TRUE(
      std::holds_alternative<wire::DraftBusy>(memory.attach(kTarget, attach(9, {1}), kNow)));
  EXPECT_TRUE(
      std::holds_alternative<Applied>(memory.attach(kTarget, attach(9, {1}), kNow + seconds(11))));
  EXPECT_EQ(memory.snapshot().n_attached, 1u);
}

TEST_F(MemoryGuesserTest, FreesTheSequencesOfSilentTargetsOnly) {
  constexpr TargetKey kOther{WorkerId{2}, Incarnation{1}};
  MemoryGuesser memory(options());
  memory.attach(kTarget, attach(1, {1}), kNow);
  memory.attach(kTarget, attach(2, {1}), kNow);
  memory.attach(kOther, attach(1, {1}), kNow);
  memory.renew(kOther, kNow + seconds(9));
  memory.step(kNow + seconds(11));
  EXPECT_EQ(memory.snapshot().n_attached, 1u);
  EXPECT_EQ(memory.snapshot().n_expired, 2u);
  memory.step(kNow + seconds(19));
  EXPECT_EQ(memory.snapshot().n_attached, 0u);
}

TEST_F(MemoryGuesserTest, TakesAClosedSequenceInByParts) {
  MemoryGuesser memory(options());
  const Tokens prompt = long_prompt();
  memory.attach(kTarget, attach(1, prompt), kNow);
  memory.detach(kTarget, {.seq = SeqId{1}, .lease = Lease{1}});
  EXPECT_EQ(memory.snapshot().n_attached, 0u);
  for (int step = 0; step < 9; ++step) {
    EXPECT_TRUE(memory.step(kNow).proposals.empty());
    EXPECT_TRUE(memory.has_work()) << "2048 tokens a step";
  }
  memory.step(kNow);
  EXPECT_FALSE(memory.has_work());
  expect_found_to_the_end(memory, prompt);
}

TEST_F(MemoryGuesserTest, IsBusyWhileTooManyClosedTextsWait) {
  MemoryGuesser memory(options());
  const Tokens prompt(1000, 5);
  for (std::uint64_t seq = 1; seq <= 8; ++seq) {
    memory.attach(kTarget, attach(seq, prompt), kNow);
    memory.detach(kTarget, {.seq = SeqId{seq}, .lease = Lease{1}});
  }
  EXPECT_TRUE(
      std::holds_alternative<wire::DraftBusy>(memory.attach(kTarget, attach(9, {1}), kNow)));
  memory.step(kNow);
  EXPECT_TRUE(std::holds_alternative<Applied>(memory.attach(kTarget, attach(9, {1}), kNow)));
}

TEST_F(MemoryGuesserTest, TakesALongPromptInByParts) {
  MemoryGuesser memory(options());
  const Tokens prompt = long_prompt();
  memory.attach(kTarget, attach(1, prompt), kNow);
  EXPECT_EQ(memory.step(kNow).proposals.size(), 1u) << "the answer waits for no prompt";
  EXPECT_TRUE(memory.has_work());
  answers(memory);
  expect_found_to_the_end(memory, prompt);
}

TEST_F(MemoryGuesserTest, AnswersFromItsLogAfterAStart) {
  configure_log(LogLevel::kError, LogFormat::kText, "test");
  const test::TempFolder folder;
  const auto opened = [&] {
    auto log = LogFolder::open({.folder = folder.path(),
                                .vocabulary = 5,
                                .n_ids = kIds,
                                .max_tokens = 1 << 16,
                                .max_tenant_tokens = 1 << 15});
    EXPECT_TRUE(log.ok());
    return std::move(*log);
  };
  {
    MemoryGuesser memory(options());
    ASSERT_TRUE(memory.keep_in(opened()).ok());
    write(memory, 1, {1, 2, 3, 4}, 11);
    memory.attach(kTarget, attach(2, {5, 6, 7}, 13), kNow);  // still open at the end
    answers(memory);
  }
  {
    MemoryGuesser memory(options());
    const auto report = memory.keep_in(opened());
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->n_tokens, 7u);
    EXPECT_EQ(guesses_after(memory, {1, 2}, 11), (Tokens{3, 4}));
    EXPECT_EQ(guesses_after(memory, {5, 6}, 13), Tokens{7});
    EXPECT_EQ(guesses_after(memory, {5, 6}, 11), Tokens{});
  }
  MemoryGuesser all(options(MemorySharing::kAll));
  ASSERT_TRUE(all.keep_in(opened()).ok());
  EXPECT_EQ(guesses_after(all, {1, 2}, 0), Tokens{}) << "written while tenants were apart";
}

}  // namespace
}  // namespace foretoken
