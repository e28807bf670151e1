#include "common/spec/stream_pace.h"

#include <gtest/gtest.h>

namespace foretoken {
namespace {

using std::chrono::milliseconds;

const TimePoint kStart = TimePoint{} + std::chrono::seconds(100);

TEST(StreamPace, KnowsTheFirstTokenAndThoseAfterIt) {
  StreamPace pace;
  EXPECT_FALSE(pace.is_known());
  pace.observe(Epoch{1}, kStart, 1, kStart + milliseconds(6));
  EXPECT_FALSE(pace.is_known()) << "one token has no pace";
  pace.observe(Epoch{1}, kStart, 2, kStart + milliseconds(8));
  pace.observe(Epoch{1}, kStart, 4, kStart + milliseconds(12));
  EXPECT_TRUE(pace.is_known());
  EXPECT_EQ(pace.first(), milliseconds(6));
  EXPECT_EQ(pace.per_token(), milliseconds(2));
  EXPECT_EQ(pace.latest(), kStart + milliseconds(12));
}

// Of a chain that went on most was made before the question came.
TEST(StreamPace, TokensThatWereThereAlreadyHaveNoTime) {
  StreamPace pace;
  pace.observe(Epoch{1}, kStart, 9, kStart + milliseconds(5));
  EXPECT_EQ(pace.first(), Duration::zero());
  pace.observe(Epoch{1}, kStart, 10, kStart + milliseconds(6));
  EXPECT_EQ(pace.per_token(), milliseconds(1));
  EXPECT_FALSE(pace.is_known());
}

TEST(StreamPace, ARecordThatSaysNothingNewChangesNoAverage) {
  StreamPace pace;
  pace.observe(Epoch{1}, kStart, 1, kStart + milliseconds(6));
  pace.observe(Epoch{1}, kStart, 2, kStart + milliseconds(8));
  pace.observe(Epoch{1}, kStart, 2, kStart + milliseconds(50));
  pace.observe(Epoch{1}, kStart, 1, kStart + milliseconds(60));
  EXPECT_EQ(pace.first(), milliseconds(6));
  EXPECT_EQ(pace.per_token(), milliseconds(2));
}

// 6 ms to the first token, 2 ms to each after it.
StreamPace known_pace() {
  StreamPace pace;
  pace.observe(Epoch{1}, kStart, 1, kStart + milliseconds(6));
  pace.observe(Epoch{1}, kStart, 2, kStart + milliseconds(8));
  return pace;
}

TEST(StreamPace, AChainBeginsAnewAfterARoundThatVerifiedAllOfIt) {
  StreamPace pace = known_pace();
  pace.asked(3, 0, kStart + milliseconds(20));
  EXPECT_EQ(pace.first_token(kStart + milliseconds(21)).in, milliseconds(5));
  EXPECT_EQ(pace.first_token(kStart + milliseconds(21)).n_unseen, 0u);
}

// A round without a guess leaves the chain that is under way, which may hold or not.
TEST(StreamPace, AChainThatIsUnderWayComesWhenItWouldHave) {
  StreamPace pace = known_pace();
  pace.asked(3, 0, kStart + milliseconds(20));
  pace.asked(0, 0, kStart + milliseconds(25));
  EXPECT_EQ(pace.first_token(kStart + milliseconds(25)).in, milliseconds(1));
  EXPECT_EQ(pace.first_token(kStart + milliseconds(25)).n_unseen, 1u);
  pace.asked(0, 4, kStart + milliseconds(26));
  EXPECT_EQ(pace.first_token(kStart + milliseconds(26)).n_unseen, 0u) << "its tokens are at hand";
}

TEST(StreamPace, AChainThatDoesNotComeHasBegunAnewWithTheLastQuestion) {
  StreamPace pace = known_pace();
  pace.asked(3, 0, kStart + milliseconds(20));
  pace.asked(0, 0, kStart + milliseconds(29));
  const StreamPace::First first = pace.first_token(kStart + milliseconds(31));
  EXPECT_EQ(first.in, milliseconds(4));
  EXPECT_EQ(first.n_unseen, 0u);
}

}  // namespace
}  // namespace foretoken
