#include "common/transport/shared_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace foretoken {
namespace {

constexpr std::uint64_t kSeed = 20261121;

// The memory of both sides, as two processes would map it.
struct Sides {
  explicit Sides(std::size_t bytes = 4096, std::size_t most_unread = 1000)
      : capacity(bytes),
        ring(bytes),
        writer(ring.data(), bytes, writer_head, reader_head, most_unread),
        reader(ring.data(), bytes, reader_head, writer_head) {}
  std::size_t capacity;
  RingHead writer_head;
  RingHead reader_head;
  std::vector<std::byte> ring;
  RingWriter writer;
  RingReader reader;
};

Frames random_frames(std::mt19937_64& random, std::size_t most) {
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  Frames frames(1 + below(kMaxParts));
  for (Bytes& part : frames) {
    part.resize(below(1 + most / frames.size()));
    for (char& c : part) c = static_cast<char>(below(256));
  }
  return frames;
}

TEST(SharedRing, GivesBackWhatWasWrittenInOrderAcrossEveryWrap) {
  std::mt19937_64 random(kSeed);
  for (const std::size_t capacity : {4096u, 8192u, 65536u}) {
    Sides sides(capacity);
    std::deque<Frames> under_way;
    std::uint64_t n_bytes = 0;
    std::size_t n_full = 0;
    Frames got;
    for (int turn = 0; turn < 20000; ++turn) {
      if (random() % 2 == 0) {
        Frames frames = random_frames(random, random() % 8 == 0 ? capacity / 3 : 200);
        const auto outcome = sides.writer.write(frames);
        ASSERT_NE(outcome, RingWriter::Outcome::kTorn);
        if (outcome == RingWriter::Outcome::kWritten) {
          for (const Bytes& part : frames) n_bytes += part.size();
          under_way.push_back(std::move(frames));
        } else {
          ++n_full;
        }
      } else {
        const auto outcome = sides.reader.read(got);
        ASSERT_EQ(outcome,
                  under_way.empty() ? RingReader::Outcome::kNothing : RingReader::Outcome::kMessage)
            << sides.reader.why_torn();
        if (under_way.empty()) continue;
        ASSERT_EQ(got, under_way.front());
        under_way.pop_front();
      }
    }
    EXPECT_GT(n_bytes, 10 * capacity) << "it wrapped";
    EXPECT_GT(n_full, 0u);
  }
}

TEST(SharedRing, TakesRecordsUpToHalfOfItAndNoLarger) {
  Sides sides(4096);
  const std::size_t fits = largest_record(4096) - kRecordHeadBytes - 8;
  Frames got;
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(sides.writer.write({Bytes(fits, 'x')}), RingWriter::Outcome::kWritten);
    ASSERT_EQ(sides.writer.write({Bytes(fits, 'y')}), RingWriter::Outcome::kWritten);
    EXPECT_EQ(sides.writer.write({""}), RingWriter::Outcome::kFull);
    ASSERT_EQ(sides.reader.read(got), RingReader::Outcome::kMessage);
    EXPECT_EQ(got, Frames{Bytes(fits, 'x')});
    ASSERT_EQ(sides.reader.read(got), RingReader::Outcome::kMessage);
    EXPECT_EQ(got, Frames{Bytes(fits, 'y')});
  }
  EXPECT_EQ(sides.writer.write({Bytes(fits + 1, 'x')}), RingWriter::Outcome::kTooLarge);
  EXPECT_EQ(sides.writer.write({Bytes(1 << 20, 'x')}), RingWriter::Outcome::kTooLarge);
  EXPECT_EQ(sides.writer.write(Frames(kMaxParts)), RingWriter::Outcome::kWritten);
}

TEST(SharedRing, KeepsNoMoreUnreadThanItMay) {
  Sides sides(65536, 3);
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(sides.writer.write({std::to_string(i)}), RingWriter::Outcome::kWritten);
  EXPECT_EQ(sides.writer.write({"3"}), RingWriter::Outcome::kFull);
  Frames got;
  ASSERT_EQ(sides.reader.read(got), RingReader::Outcome::kMessage);
  EXPECT_EQ(sides.writer.write({"3"}), RingWriter::Outcome::kWritten);
  EXPECT_EQ(sides.writer.write({"4"}), RingWriter::Outcome::kFull);
  for (const char* text : {"1", "2", "3"}) {
    ASSERT_EQ(sides.reader.read(got), RingReader::Outcome::kMessage);
    EXPECT_EQ(got, Frames{text});
  }
  EXPECT_EQ(sides.reader.read(got), RingReader::Outcome::kNothing);
}

TEST(SharedRing, WakesASleeperOnceForEachSleep) {
  Sides sides;
  ASSERT_EQ(sides.writer.write({"a"}), RingWriter::Outcome::kWritten);
  EXPECT_FALSE(sides.writer.must_wake()) << "nobody sleeps";
  sides.reader_head.sleep = 7;
  EXPECT_TRUE(sides.writer.must_wake());
  EXPECT_FALSE(sides.writer.must_wake()) << "the bell has rung";
  sides.reader_head.sleep = 8;
  EXPECT_FALSE(sides.writer.must_wake());
  sides.reader_head.sleep = 9;
  EXPECT_TRUE(sides.writer.must_wake());
}

TEST(SharedRing, CarriesMessagesBetweenThreads) {
  constexpr int kMessages = 20000;
  Sides sides(8192);
  std::thread writer([&] {
    for (int i = 0; i < kMessages;) {
      const Frames frames{std::to_string(i), Bytes(static_cast<std::size_t>(i % 300), 'z')};
      if (sides.writer.write(frames) == RingWriter::Outcome::kWritten)
        ++i;
      else
        std::this_thread::yield();
    }
  });
  Frames got;
  for (int i = 0; i < kMessages;) {
    const auto outcome = sides.reader.read(got);
    if (outcome == RingReader::Outcome::kNothing) {
      std::this_thread::yield();
      continue;
    }
    EXPECT_EQ(outcome, RingReader::Outcome::kMessage);
    EXPECT_EQ(got.at(0), std::to_string(i));
    EXPECT_EQ(got.at(1).size(), static_cast<std::size_t>(i % 300));
    ++i;
    if (outcome != RingReader::Outcome::kMessage) break;
  }
  writer.join();
}

// ---- the other side lies

void put_words(Sides& sides, std::size_t at, const std::vector<std::uint32_t>& words) {
  std::memcpy(sides.ring.data() + at, words.data(), 4 * words.size());
}

struct Lie {
  const char* name;
  std::uint64_t produced;
  std::vector<std::uint32_t> words;  // length, number, parts, sizes
};

TEST(SharedRing, RefusesEveryRecordThatCannotBe) {
  const std::vector<Lie> lies = {
      {"more than the ring", 4097, {12, 0, 1, 4}},
      {"backwards", ~std::uint64_t{0}, {12, 0, 1, 4}},
      {"less than a record", 8, {12, 0, 1, 4}},
      {"no length", 64, {0, 0, 1, 0}},
      {"a length of all ones", 64, {0xFFFFFFFF, 0, 1, 0}},
      {"longer than half the ring", 4096, {2048 - 7, 0, 1, 2048 - 15}},
      {"longer than what was written", 64, {64, 0, 1, 56}},
      {"another number", 64, {12, 1, 1, 4}},
      {"no parts", 64, {8, 0, 0, 0}},
      {"nine parts", 128, {80, 0, 9, 0}},
      {"2^32 - 1 parts", 64, {8, 0, 0xFFFFFFFF, 0}},
      {"sizes that do not fit in the record", 64, {8, 0, 3, 0}},
      {"a part longer than its record", 64, {12, 0, 1, 5}},
      {"a part shorter than its record", 64, {12, 0, 1, 3}},
      {"sizes that add up modulo 2^32", 64, {24, 0, 2, 0xFFFFFFFF, 13}},
  };
  for (const Lie& lie : lies) {
    Sides sides;
    put_words(sides, 0, lie.words);
    sides.writer_head.produced = lie.produced;
    Frames got;
    EXPECT_EQ(sides.reader.read(got), RingReader::Outcome::kTorn) << lie.name;
    EXPECT_STRNE(sides.reader.why_torn(), "") << lie.name;
  }
  Sides honest;
  put_words(honest, 0, {12, 0, 1, 4});
  honest.writer_head.produced = 24;
  Frames got;
  EXPECT_EQ(honest.reader.read(got), RingReader::Outcome::kMessage) << "the lies differ from this";
}

TEST(SharedRing, NeverBelievesThatMoreWasReadThanWritten) {
  for (const std::uint64_t consumed :
       {std::uint64_t{1}, std::uint64_t{100}, ~std::uint64_t{0} - 4096}) {
    Sides sides;
    sides.reader_head.consumed = consumed;
    EXPECT_EQ(sides.writer.write({"x"}), RingWriter::Outcome::kTorn) << consumed;
  }
  // A reader that claims to have read less only leaves less room.
  Sides sides;
  Frames got;
  for (int i = 0; i < 1000; ++i) {
    if (sides.writer.write({Bytes(100, 'x')}) == RingWriter::Outcome::kFull) {
      EXPECT_GT(i, 20);
      return;
    }
    ASSERT_EQ(sides.reader.read(got), RingReader::Outcome::kMessage);
    sides.reader_head.consumed = 0;
  }
  FAIL() << "it wrote over what is said to be unread";
}

TEST(SharedRing, KnowsItsOwnStateWhateverItsMemorySays) {
  Sides sides;
  Frames got;
  ASSERT_EQ(sides.writer.write({"a"}), RingWriter::Outcome::kWritten);
  ASSERT_EQ(sides.reader.read(got), RingReader::Outcome::kMessage);
  // As if the other side could write here: what each has told is not read back.
  sides.reader_head.consumed = 0;
  ASSERT_EQ(sides.writer.write({"b"}), RingWriter::Outcome::kWritten);
  ASSERT_EQ(sides.reader.read(got), RingReader::Outcome::kMessage);
  EXPECT_EQ(got, Frames{"b"});
}

// Random scribbling over bytes, indices and both: any outcome is fine that is one, and what is
// called a message has the shape of one.
TEST(SharedRing, SurvivesScribbling) {
  std::mt19937_64 random(kSeed + 1);
  std::size_t n_torn = 0, n_messages = 0;
  const char* more = std::getenv("FORETOKEN_FUZZ_FRAMES");
  const std::int64_t n_rounds =
      more == nullptr ? 2000 : std::max<std::int64_t>(2000, std::atoll(more));
  for (std::int64_t round = 0; round < n_rounds; ++round) {
    Sides sides(4096);
    Frames got;
    for (int i = 0; i < 20; ++i) (void)sides.writer.write(random_frames(random, 300));
    for (int i = 0; i < 5; ++i) (void)sides.reader.read(got);
    for (std::uint64_t n = random() % 64; n > 0; --n)
      sides.ring[random() % sides.ring.size()] = static_cast<std::byte>(random());
    if (random() % 2 == 0)
      sides.writer_head.produced += random() % 3 == 0 ? random() : random() % 512;
    for (int i = 0; i < 40; ++i) {
      const auto outcome = sides.reader.read(got);
      if (outcome == RingReader::Outcome::kTorn) {
        ++n_torn;
        break;
      }
      if (outcome == RingReader::Outcome::kNothing) break;
      ++n_messages;
      ASSERT_GE(got.size(), 1u);
      ASSERT_LE(got.size(), kMaxParts);
      std::size_t n_bytes = 0;
      for (const Bytes& part : got) n_bytes += part.size();
      ASSERT_LE(n_bytes, largest_record(4096));
    }
  }
  EXPECT_GT(n_torn, 500u);
  EXPECT_GT(n_messages, 500u);
}

}  // namespace
}  // namespace foretoken
