// Boards: made, opened by their cards here and in another process, and refused with a sentence
// whatever else comes as a card.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <thread>

#include "common/base/fd.h"
#include "kernels/board_card.h"
#include "tests/conformance/op_test.h"

namespace foretoken::test {
namespace {

constexpr std::int32_t kDrafted = 9;

std::vector<std::byte> bytes_of(std::span<const std::byte> card) {
  return {card.begin(), card.end()};
}

// What is left to say of one post and one look: the board's entry, and the verdict taken there.
struct Desk {
  explicit Desk(Backend& b)
      : backend(b),
        verdict(b, {{}}),
        which(b, {0}),
        entry(b, {0}),
        tag(b, {0}),
        n_drafted(b, {kDrafted}),
        row_begin(b, {0, kDrafted + 1}),
        tokens(b, std::vector<std::int32_t>(kDrafted + 1)),
        logit_rows(b, {0}),
        rules(b, {{}}),
        taken(b, {{}}) {}

  void post(VerdictBoard& board, std::int32_t at, std::uint64_t under, Verdict what) {
    set(at, under);
    backend.upload(verdict.get(), &what, sizeof what);
    backend.post_verdicts({.verdicts = verdict.get(),
                           .n = 1,
                           .which = which.get(),
                           .entries = entry.get(),
                           .tags = tag.get(),
                           .board = board.entries(),
                           .n_entries = board.n_entries()});
  }
  Verdict take(BoardView& view, std::int32_t at, std::uint64_t under) {
    set(at, under);
    view.wait();
    backend.take_verdicts({.board = view.entries(),
                           .n_entries = view.n_entries(),
                           .n_sequences = 1,
                           .entries = entry.get(),
                           .tags = tag.get(),
                           .n_drafted = n_drafted.get(),
                           .n_ids = 1000,
                           .row_begin = row_begin.get(),
                           .tokens = tokens.get(),
                           .logit_rows = logit_rows.get(),
                           .rules = rules.get(),
                           .taken = taken.get()});
    EXPECT_TRUE(view.settled(std::chrono::seconds(20)));
    return taken.host()[0];
  }

  Backend& backend;
  OnDevice<Verdict> verdict;
  OnDevice<std::int32_t> which, entry;
  OnDevice<std::uint64_t> tag;
  OnDevice<std::int32_t> n_drafted, row_begin, tokens, logit_rows;
  OnDevice<RowRule> rules;
  OnDevice<Verdict> taken;

 private:
  void set(std::int32_t at, std::uint64_t under) {
    backend.upload(entry.get(), &at, sizeof at);
    backend.upload(tag.get(), &under, sizeof under);
  }
};

class Boards : public OpTest {
 protected:
  std::unique_ptr<VerdictBoard> make_board(std::int32_t n_entries = 16) {
    std::string why;
    auto board = backend(1).make_board(n_entries, why);
    EXPECT_NE(board, nullptr) << why;
    return board;
  }
  std::unique_ptr<BoardView> open(std::span<const std::byte> card) {
    why_.clear();
    auto view = backend(3).open_board(card, why_);
    EXPECT_EQ(view == nullptr, !why_.empty()) << why_;
    return view;
  }
  bool says(const std::string& words) const { return why_.find(words) != std::string::npos; }
  static const char* device() { return on_cpu() ? "cpu" : "cuda"; }
  std::string why_;
};

TEST_P(Boards, WhatIsPostedIsTakenByAView) {
  const auto board = make_board();
  ASSERT_NE(board, nullptr);
  EXPECT_EQ(board->n_entries(), 16);
  EXPECT_LE(board->card().size(), VerdictBoard::kMostCard);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(board->entries()) % 16, 0u);
  const auto view = open(board->card());
  ASSERT_NE(view, nullptr);
  EXPECT_EQ(view->n_entries(), 16);
  Desk target(backend(1)), draft(backend(3));
  EXPECT_EQ(draft.take(*view, 15, 1).n_accepted, -1) << "nobody has posted yet";
  for (std::uint64_t tag = 1; tag < 20; ++tag) {
    const auto n = static_cast<std::int32_t>(tag % 10);
    target.post(*board, static_cast<std::int32_t>(tag % 16), tag, {n, 100 + n});
    board->mark();
    backend(1).synchronize();
    const Verdict got = draft.take(*view, static_cast<std::int32_t>(tag % 16), tag);
    EXPECT_EQ(got.n_accepted, n);
    EXPECT_EQ(got.next_token, 100 + n);
    EXPECT_EQ(draft.take(*view, static_cast<std::int32_t>(tag % 16), tag + 1).n_accepted, -1);
  }
}

TEST_P(Boards, StartsEmpty) {
  const auto board = make_board(VerdictBoard::kMostEntries);
  ASSERT_NE(board, nullptr);
  std::vector<BoardEntry> entries(VerdictBoard::kMostEntries);
  backend(1).download(entries.data(), board->entries(), entries.size() * sizeof entries[0]);
  for (const BoardEntry& entry : entries) {
    ASSERT_EQ(entry.tag, 0u);
    ASSERT_EQ(entry.next_token, -1);
  }
}

TEST_P(Boards, ManyViewsSeeOneBoardAndNoOther) {
  const auto one = make_board(4), other = make_board(4);
  const auto a = open(one->card()), b = open(one->card()), c = open(other->card());
  ASSERT_TRUE(a != nullptr && b != nullptr && c != nullptr);
  Desk target(backend(1)), draft(backend(3));
  target.post(*one, 2, 8, {3, 30});
  one->mark();
  backend(1).synchronize();
  EXPECT_EQ(draft.take(*a, 2, 8).next_token, 30);
  EXPECT_EQ(draft.take(*b, 2, 8).next_token, 30);
  EXPECT_EQ(draft.take(*c, 2, 8).next_token, -1);
}

TEST_P(Boards, AViewKeepsTheMemoryWhenTheBoardIsGone) {
  auto board = make_board();
  const auto card = bytes_of(board->card());
  const auto view = open(card);
  ASSERT_NE(view, nullptr);
  Desk target(backend(1)), draft(backend(3));
  target.post(*board, 0, 3, {1, 11});
  board->mark();
  backend(1).synchronize();
  board.reset();
  EXPECT_EQ(draft.take(*view, 0, 3).next_token, 11);
}

TEST_P(Boards, ABoardThatIsGoneIsNotOpened) {
  auto board = make_board();
  const auto card = bytes_of(board->card());
  board.reset();
  EXPECT_EQ(open(card), nullptr);
  EXPECT_TRUE(says("process " + std::to_string(::getpid())) || says("/proc/")) << why_;
}

TEST_P(Boards, OnlyCardsAreCards) {
  const auto board = make_board();
  const auto card = bytes_of(board->card());
  EXPECT_EQ(open({}), nullptr);
  EXPECT_TRUE(says("no board's card")) << why_;
  EXPECT_EQ(open(std::span(card).first(card.size() - 1)), nullptr);
  EXPECT_TRUE(says("it should have " + std::to_string(card.size()))) << why_;
  auto longer = card;
  longer.push_back({});
  EXPECT_EQ(open(longer), nullptr);
  auto other_kind = card;
  other_kind[5] = static_cast<std::byte>('x');
  EXPECT_EQ(open(other_kind), nullptr);
  EXPECT_TRUE(says("another kind of device")) << why_;
}

// Whatever the bytes: a sentence, or the very board. (A changed process id may name the same
// process once more, by one of its threads.)
TEST_P(Boards, AnyBytesMayComeAsACard) {
  const auto board = make_board();
  Desk target(backend(1)), draft(backend(3));
  target.post(*board, 0, 3, {1, 11});
  board->mark();
  backend(1).synchronize();
  const auto card = bytes_of(board->card());
  int n_opened = 0;
  for (int i = 0; i < 10000; ++i) {
    auto bytes = card;
    if (i % 4 == 0) {
      bytes.resize(rng() % 300);
      for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
      if (i % 8 == 0 && bytes.size() >= 16) std::copy_n(card.begin(), 16, bytes.begin());
    } else {
      for (auto n = 1 + rng() % 3; n > 0; --n) {
        std::byte& b = bytes[rng() % bytes.size()];
        b ^= static_cast<std::byte>(1 + rng() % 255);
      }
    }
    if (bytes == card) continue;
    const auto view = open(bytes);
    if (view == nullptr) continue;
    ++n_opened;
    EXPECT_EQ(draft.take(*view, 0, 3).next_token, 11);
  }
  EXPECT_LT(n_opened, 100);
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[std::to_integer<unsigned>(b) >> 4];
    text += kDigits[std::to_integer<unsigned>(b) & 15];
  }
  return text;
}

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

// The first line that the other process says.
std::string other_process(const std::string& arguments) {
  const std::string command = std::string(FORETOKEN_BOARD_READER) + " " + arguments;
  std::FILE* out = ::popen(command.c_str(), "r");
  if (out == nullptr) return "";
  std::array<char, 1024> line{};
  const bool has_spoken = std::fgets(line.data(), line.size(), out) != nullptr;
  ::pclose(out);
  std::string text = has_spoken ? line.data() : "";
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class BoardsBetweenProcesses : public Boards {};

TEST_P(BoardsBetweenProcesses, AnotherProcessTakesWhatIsPostedHere) {
  const auto board = make_board();
  Desk target(backend(1));
  target.post(*board, 5, 12345678901234567890u, {7, 999});
  board->mark();
  const std::string before = std::string(device()) + " " + hex(board->card()) + " 5 ";
  EXPECT_EQ(other_process(before + "12345678901234567890"), "7 999");
  EXPECT_EQ(other_process(before + "12345678901234567889"), "-1 -1");
}

TEST_P(BoardsBetweenProcesses, ABoardOfAProcessThatHasEndedIsNotOpened) {
  const auto card = from_hex(other_process(std::string(device()) + " make"));
  ASSERT_FALSE(card.empty());
  EXPECT_EQ(open(card), nullptr);
  EXPECT_TRUE(says("process ")) << why_;
}

// A card is not believed: what it points to is looked at, and nothing else is opened or mapped.
// Its layout: 32 bytes of kind and nonce, process, descriptor, number of entries.
class BoardsOfTheCpu : public Boards {
 protected:
  std::unique_ptr<BoardView> open_at(int fd) {
    auto card = bytes_of(board_->card());
    std::memcpy(card.data() + 36, &fd, sizeof fd);
    return open(card);
  }
  static Fd memory(std::size_t n_bytes, int seals, std::span<const std::byte> content = {}) {
    Fd file(::memfd_create("foretoken-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(n_bytes)), 0);
    EXPECT_EQ(::pwrite(file.get(), content.data(), content.size(), 0),
              static_cast<ssize_t>(content.size()));
    EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
    return file;
  }
  // The board's file for reading and writing: a memfd's own process always may.
  Fd open_by_card() const {
    int fd = 0;
    std::memcpy(&fd, board_->card().data() + 36, sizeof fd);
    const std::string place = "/proc/self/fd/" + std::to_string(fd);
    return Fd(::open(place.c_str(), O_RDWR | O_CLOEXEC));
  }

  std::unique_ptr<VerdictBoard> board_;
};

TEST_P(BoardsOfTheCpu, OtherFilesOfTheProcessAreRefused) {
  board_ = make_board();
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const Fd reading(pipe_ends[0]), writing(pipe_ends[1]), folder(::open("/tmp", O_RDONLY)),
      null(::open("/dev/null", O_RDWR)), file(::open(FORETOKEN_SOURCE_DIR "/README.md", O_RDONLY));
  for (const Fd* fd : {&reading, &writing, &folder, &null}) {
    EXPECT_EQ(open_at(fd->get()), nullptr);
    EXPECT_TRUE(says("is not memory of the kind")) << why_;  // and was never opened
  }
  EXPECT_EQ(open_at(file.get()), nullptr);
  EXPECT_TRUE(says("is not memory of the kind") || says("lacks the seal"))  // a checkout on tmpfs
      << why_;
  EXPECT_EQ(open_at(100000), nullptr);
  EXPECT_TRUE(says("out of reach")) << why_;
}

TEST_P(BoardsOfTheCpu, MemoryThatIsNotTheBoardsIsRefused) {
  board_ = make_board();
  const std::size_t n_bytes = board_bytes(16);
  const auto* head = reinterpret_cast<const std::byte*>(board_->entries()) - sizeof(BoardHead);
  const std::span<const std::byte> copy(head, sizeof(BoardHead));
  const Fd unsealed = memory(n_bytes, 0, copy), growing = memory(n_bytes, F_SEAL_GROW, copy);
  EXPECT_EQ(open_at(unsealed.get()), nullptr);
  EXPECT_TRUE(says("lacks the seal")) << why_;
  EXPECT_EQ(open_at(growing.get()), nullptr);
  EXPECT_TRUE(says("lacks the seal")) << why_;
  const Fd small = memory(n_bytes - 1, F_SEAL_SHRINK, copy),
           large = memory(n_bytes + 4096, F_SEAL_SHRINK, copy);
  for (const Fd* fd : {&small, &large}) {
    EXPECT_EQ(open_at(fd->get()), nullptr);
    EXPECT_TRUE(says("another size")) << why_;
  }
  const Fd empty = memory(n_bytes, F_SEAL_SHRINK);
  EXPECT_EQ(open_at(empty.get()), nullptr);
  EXPECT_TRUE(says("other memory in the board's place")) << why_;
  const Fd alike = memory(n_bytes, F_SEAL_SHRINK, copy);  // to the letter: that is the board
  EXPECT_NE(open_at(alike.get()), nullptr) << why_;
}

TEST_P(BoardsOfTheCpu, WhoHasACardCannotCutTheBoardShort) {
  board_ = make_board();
  const Fd file = open_by_card();
  ASSERT_TRUE(file);
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  EXPECT_NE(seals & F_SEAL_SHRINK, 0);
  EXPECT_NE(seals & F_SEAL_SEAL, 0);
  EXPECT_NE(::ftruncate(file.get(), 0), 0);
}

TEST_P(BoardsOfTheCpu, WhoHasACardCannotWriteOnTheBoard) {
  board_ = make_board();
  const Fd writable = open_by_card();
  ASSERT_TRUE(writable);
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
  // A card's holder could write then, and only spoil its own target's guesses (decision 10).
  if ((::fcntl(writable.get(), F_GET_SEALS) & F_SEAL_FUTURE_WRITE) == 0)
    GTEST_SKIP() << "Linux before 5.1 lacks the seal against later writers";
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, writable.get(), 0),
            MAP_FAILED);
  EXPECT_LT(::pwrite(writable.get(), "x", 1, 0), 0);
}

// A reader meets a writer in the middle of an entry: it takes what belongs to the tag, or nothing.
// Both go over the same entries again and again; the reader looks for what is being written.
TEST_P(BoardsOfTheCpu, WhatIsTakenBelongsToItsTagWhileOthersAreWritten) {
  constexpr std::int32_t kEntries = 64;
  constexpr std::uint64_t kPosts = 100000;
  board_ = make_board(kEntries);
  const auto view = open(board_->card());
  ASSERT_NE(view, nullptr);
  const auto verdict_of = [](std::uint64_t tag) {
    return Verdict{static_cast<std::int32_t>(tag % 7), static_cast<std::int32_t>(tag % 997)};
  };
  std::vector<std::int32_t> entries(kEntries), row_begin(kEntries + 1), zeros(kEntries),
      n_drafted(kEntries, 6), tokens(7 * kEntries);
  std::iota(entries.begin(), entries.end(), 0);
  for (std::size_t s = 0; s <= kEntries; ++s) row_begin[s] = static_cast<std::int32_t>(7 * s);
  std::atomic<std::uint64_t> under_way{0};
  std::thread writer([&] {
    for (std::uint64_t tag = 1; tag <= kPosts; ++tag) {
      const Verdict verdict = verdict_of(tag);
      const std::vector<std::uint64_t> tags(kEntries, tag);
      under_way.store(tag, std::memory_order_relaxed);
      backend(1).post_verdicts({.verdicts = &verdict,
                                .n = kEntries,
                                .which = zeros.data(),
                                .entries = entries.data(),
                                .tags = tags.data(),
                                .board = board_->entries(),
                                .n_entries = kEntries});
    }
  });
  std::vector<std::int32_t> logit_rows(kEntries);
  std::vector<RowRule> rules(kEntries);
  std::vector<Verdict> taken(kEntries);
  std::int64_t n_taken = 0, n_wrong = 0;
  for (std::uint64_t turn = 0, seen = 0; seen < kPosts; ++turn) {
    seen = under_way.load(std::memory_order_relaxed);
    const std::uint64_t expected = seen - (seen > 1 && turn % 2 == 0 ? 1 : 0);
    const std::vector<std::uint64_t> tags(kEntries, expected);
    backend(3).take_verdicts({.board = view->entries(),
                              .n_entries = kEntries,
                              .n_sequences = kEntries,
                              .entries = entries.data(),
                              .tags = tags.data(),
                              .n_drafted = n_drafted.data(),
                              .n_ids = 997,
                              .row_begin = row_begin.data(),
                              .tokens = tokens.data(),
                              .logit_rows = logit_rows.data(),
                              .rules = rules.data(),
                              .taken = taken.data()});
    const Verdict want = verdict_of(expected);
    for (const Verdict& got : taken) {
      if (got.n_accepted < 0) continue;
      ++n_taken;
      if (got.n_accepted != want.n_accepted || got.next_token != want.next_token) ++n_wrong;
    }
  }
  writer.join();
  EXPECT_GT(n_taken, 0);
  EXPECT_EQ(n_wrong, 0) << "of " << n_taken;
}

// What one may not do with boards.
using BoardsDeathTest = Boards;

TEST_P(BoardsDeathTest, TheirSizeHasLimits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::string why;
  EXPECT_DEATH(backend(1).make_board(0, why), "n_entries > 0");
  EXPECT_DEATH(backend(1).make_board(VerdictBoard::kMostEntries + 1, why), "kMostEntries");
}

const Device kScalar = kCpuDevices[0];
INSTANTIATE_TEST_SUITE_P(Cpu, Boards, ::testing::Values(kScalar), device_name);
INSTANTIATE_TEST_SUITE_P(Cpu, BoardsBetweenProcesses, ::testing::Values(kScalar), device_name);
INSTANTIATE_TEST_SUITE_P(Cpu, BoardsOfTheCpu, ::testing::Values(kScalar), device_name);
INSTANTIATE_TEST_SUITE_P(Cpu, BoardsDeathTest, ::testing::Values(kScalar), device_name);
FORETOKEN_EMULATED_DEVICE(Boards);
FORETOKEN_EMULATED_RING(Boards);
INSTANTIATE_TEST_SUITE_P(Cuda, Boards, ::testing::ValuesIn(kCudaDevices), device_name);
INSTANTIATE_TEST_SUITE_P(Cuda,
                         BoardsBetweenProcesses,
                         ::testing::Values(kCudaDevices[0]),
                         device_name);

#if defined(FORETOKEN_EMU)
using EmulatedBoardsDeathTest = Boards;

TEST_P(EmulatedBoardsDeathTest, MarksAndWaitsAreNotRecorded) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto board = make_board();
  const auto view = open(board->card());
  EXPECT_DEATH(backend(1).record([&] { board->mark(); }), "marks are not recorded");
  EXPECT_DEATH(backend(3).record([&] { view->wait(); }), "waits are not recorded");
}

FORETOKEN_EMULATED_DEVICE(EmulatedBoardsDeathTest);

TEST(BoardKinds, ADeviceDoesNotOpenTheBoardOfAnotherKind) {
  const auto cpu = make_backend({.n_threads = 1});
  const auto emulated = emu::make_backend(9, CudaPath::kSimple);
  std::string why;
  const auto of_cpu = cpu->make_board(4, why);
  const auto of_cuda = emulated->make_board(4, why);
  ASSERT_TRUE(of_cpu != nullptr && of_cuda != nullptr) << why;
  EXPECT_EQ(cpu->open_board(of_cuda->card(), why), nullptr);
  EXPECT_NE(why.find("another kind of device"), std::string::npos) << why;
  why.clear();
  EXPECT_EQ(emulated->open_board(of_cpu->card(), why), nullptr);
  EXPECT_NE(why.find("another kind of device"), std::string::npos) << why;
}

// The driver is never asked to open what was damaged on its way.
TEST(BoardKinds, ADamagedCardOfACudaBoardIsToldApart) {
  const auto emulated = emu::make_backend(9, CudaPath::kSimple);
  std::string why;
  const auto board = emulated->make_board(4, why);
  auto card = bytes_of(board->card());
  for (std::size_t at = 16; at < card.size(); ++at) {
    auto damaged = card;
    damaged[at] ^= std::byte{1};
    why.clear();
    EXPECT_EQ(emulated->open_board(damaged, why), nullptr) << at;
    EXPECT_FALSE(why.empty());
  }
}
#endif

}  // namespace
}  // namespace foretoken::test
