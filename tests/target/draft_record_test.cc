#include "services/target/draft_record.h"

#include <gtest/gtest.h>

namespace foretoken {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

const TimePoint kRecordStart = TimePoint{} + seconds(100);

TEST(DraftRecord, ADraftOfWhichNothingIsAcceptedIsSetAsideWithTheFigures) {
  DraftRecord record;
  for (int i = 0; i < 249; ++i) {
    record.verified(4, 0);
    EXPECT_FALSE(record.judge(kRecordStart)) << "too few to say";
  }
  record.verified(4, 4);
  EXPECT_TRUE(record.judge(kRecordStart));
  EXPECT_EQ("4 of 1000 proposals accepted", record.reason());
  EXPECT_TRUE(record.is_aside(kRecordStart + seconds(29)));
  EXPECT_EQ(seconds(20), record.pause_left(kRecordStart + seconds(10)));
  EXPECT_FALSE(record.is_aside(kRecordStart + seconds(30)));
  EXPECT_EQ(Duration{0}, record.pause_left(kRecordStart + seconds(40)));
}

TEST(DraftRecord, AWeakDraftIsTheLengthControllersBusiness) {
  DraftRecord record;
  for (int i = 0; i < 10000; ++i) {
    record.verified(100, 1);
    EXPECT_FALSE(record.judge(kRecordStart));
  }
}

TEST(DraftRecord, WhatItWasWorthLongAgoDoesNotCoverIt) {
  DraftRecord record;
  record.verified(1000, 900);
  EXPECT_FALSE(record.judge(kRecordStart));
  record.verified(1000, 2);
  EXPECT_TRUE(record.judge(kRecordStart));
}

TEST(DraftRecord, MalformedRecordsSetItAsideAtOnce) {
  DraftRecord record;
  record.verified(50, 50);
  for (int i = 0; i < 31; ++i) record.malformed();
  EXPECT_FALSE(record.judge(kRecordStart));
  record.malformed();
  EXPECT_TRUE(record.judge(kRecordStart));
  EXPECT_EQ("32 malformed records", record.reason());
  EXPECT_FALSE(record.judge(kRecordStart)) << "once, and not again and again";
}

TEST(DraftRecord, ItIsTriedAgainLaterAndLaterAndForgivenWhenItIsWorthSomething) {
  DraftRecord record;
  TimePoint now = kRecordStart;
  record.verified(1000, 0);
  EXPECT_TRUE(record.judge(now));
  for (const auto pause : {seconds(30), seconds(60), seconds(120), seconds(240), seconds(300)}) {
    EXPECT_EQ(pause, record.pause_left(now));
    now += pause;
    record.verified(249, 0);
    EXPECT_FALSE(record.judge(now));
    record.verified(1, 0);
    EXPECT_TRUE(record.judge(now)) << "fewer are enough while it is tried";
  }
  now += minutes(5);
  record.verified(250, 100);
  EXPECT_FALSE(record.judge(now));
  record.verified(1000, 0);
  EXPECT_TRUE(record.judge(now));
  EXPECT_EQ(seconds(30), record.pause_left(now));
}

}  // namespace
}  // namespace foretoken
