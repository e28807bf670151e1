#include "common/transport/message_meter.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace foretoken {
namespace {

constexpr std::size_t kLimit = 10'000;
constexpr char kMore = 1, kLong = 2, kCommand = 4;

std::string number(std::size_t n) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(n >> shift & 0xff);
  return bytes;
}

// rfc.zeromq.org/spec/15, 23 and 37.
std::string signature() { return "\xff" + std::string(8, '\0') + "\x7f"; }
std::string greeting_3() { return signature() + "\x03\x01" + std::string(52, '\x03'); }
std::string greeting_2() { return signature() + "\x01\x05"; }
std::string frame(char flags, std::size_t n) {
  const std::string body(n, '\x01');
  if (n > 255) return std::string(1, static_cast<char>(flags | kLong)) + number(n) + body;
  return std::string(1, flags) + static_cast<char>(n) + body;
}
// rfc.zeromq.org/spec/13.
std::string frame_1(char flags, std::size_t n) {
  const std::string length =
      n + 1 < 255 ? std::string(1, static_cast<char>(n + 1)) : "\xff" + number(n + 1);
  return length + flags + std::string(n, '\x01');
}

// A byte at a time gives the same.
bool fits(const std::string& bytes) {
  MessageMeter whole(kLimit), by_bytes(kLimit);
  const bool fits = whole.fits(bytes);
  bool all = true;
  for (const char& byte : bytes) all = by_bytes.fits(std::string_view(&byte, 1));
  EXPECT_EQ(all, fits);
  return fits;
}

TEST(MessageMeter, AddsThePartsOfAMessageUpToItsLast) {
  const std::string half = frame(kMore, 4900);
  EXPECT_TRUE(fits(greeting_3() + half + half + frame(0, 50'000)));
  EXPECT_FALSE(fits(greeting_3() + half + half + half));
  EXPECT_TRUE(fits(greeting_3() + half + half + frame(0, 0) + half + half));
  EXPECT_FALSE(fits(greeting_3() + frame(kMore, kLimit + 1)));
}

TEST(MessageMeter, CountsEveryPartHoweverSmall) {
  std::string parts = greeting_3();
  for (int i = 0; i < 150; ++i) parts += frame(kMore, 0);
  EXPECT_TRUE(fits(parts));
  for (int i = 0; i < 10; ++i) parts += frame(kMore, 0);
  EXPECT_FALSE(fits(parts));
}

TEST(MessageMeter, AnyNumberOfWholeMessagesAndHeartbeatsFits) {
  std::string many = greeting_3();
  for (int i = 0; i < 1000; ++i) many += frame(kMore, 0) + frame(0, 300) + frame(kCommand, 7);
  EXPECT_TRUE(fits(many));
}

TEST(MessageMeter, AHeartbeatBetweenPartsEndsNoMessage) {
  std::string parts = greeting_3();
  for (int i = 0; i < 3; ++i) parts += frame(kMore, 4900) + frame(kCommand, 7);
  EXPECT_FALSE(fits(parts));
}

// SUBSCRIBE with more to come, which libzmq keeps as a part.
TEST(MessageMeter, ACommandWithMoreToComeIsAPart) {
  std::string parts = greeting_3();
  for (int i = 0; i < 50; ++i) parts += frame(static_cast<char>(kCommand | kMore), 200);
  EXPECT_FALSE(fits(parts));
}

TEST(MessageMeter, AnnouncedLengthsDoNotOverflow) {
  const std::string largest(8, '\xff');
  EXPECT_FALSE(fits(greeting_3() + frame(kMore, 1) + static_cast<char>(kMore | kLong) + largest));
  EXPECT_FALSE(fits(frame_1(0, 0) + "\xff" + largest + static_cast<char>(kMore)));
}

TEST(MessageMeter, ReadsFramesOfOlderVersions) {
  const std::string half = frame(kMore, 4900), half_1 = frame_1(kMore, 4900);
  EXPECT_TRUE(fits(greeting_2() + frame(0, 0) + half + half + frame(0, 50'000) + half));
  EXPECT_FALSE(fits(greeting_2() + frame(0, 0) + half + half + half));
  const std::string routing_ids[] = {signature() + std::string("\0\5", 2), frame_1(0, 0),
                                     frame_1(0, 255)};
  for (const std::string& begin : routing_ids) {
    EXPECT_TRUE(fits(begin + half_1 + half_1 + frame_1(0, 20) + half_1)) << begin;
    EXPECT_FALSE(fits(begin + half_1 + half_1 + half_1)) << begin;
  }
}

}  // namespace
}  // namespace foretoken
