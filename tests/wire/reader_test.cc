#include "common/wire/msgpack_reader.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "common/wire/msgpack_writer.h"

#define MSGPACK_NO_BOOST
#include <msgpack.hpp>

namespace foretoken::wire {
namespace {

TEST(MsgpackReader, ReadsEveryIntegerFormAsAnotherPackerWritesIt) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    const auto bits = random() >> (random() % 64);
    const auto value = static_cast<std::int64_t>(random() % 2 == 0 ? bits : ~bits);
    msgpack::sbuffer buffer;
    msgpack::pack(buffer, value);
    MsgpackReader in({buffer.data(), buffer.size()});
    std::int64_t got = 0;
    ASSERT_TRUE(in.sint(got, std::numeric_limits<std::int64_t>::min(),
                        std::numeric_limits<std::int64_t>::max()))
        << value;
    EXPECT_EQ(got, value);
    EXPECT_TRUE(in.at_end());
  }
}

// Forms a packer would not choose are legal msgpack.
TEST(MsgpackReader, ReadsIntegersInLongerFormsThanNeeded) {
  struct Case {
    std::string_view bytes;
    std::int64_t value;
  };
  using namespace std::string_view_literals;
  for (const auto& c :
       {Case{"\xd3\xff\xff\xff\xff\xff\xff\xff\xff"sv, -1}, Case{"\xd0\x80"sv, -128},
        Case{"\xd1\x80\x00"sv, -32768}, Case{"\xd2\x80\x00\x00\x00"sv, -2147483648LL},
        Case{"\xd3\x00\x00\x00\x00\x00\x00\x00\x05"sv, 5},
        Case{"\xcf\x00\x00\x00\x00\x00\x00\x00\x05"sv, 5}, Case{"\xd0\x05"sv, 5},
        Case{"\xd3\x80\x00\x00\x00\x00\x00\x00\x00"sv, std::numeric_limits<std::int64_t>::min()}}) {
    MsgpackReader in(c.bytes);
    std::int64_t got = 0;
    EXPECT_TRUE(in.sint(got, std::numeric_limits<std::int64_t>::min(),
                        std::numeric_limits<std::int64_t>::max()))
        << c.value;
    EXPECT_EQ(got, c.value);
  }
}

TEST(MsgpackReader, RefusesIntegersOutOfRange) {
  using namespace std::string_view_literals;
  std::uint64_t u = 0;
  std::int64_t s = 0;
  EXPECT_FALSE(MsgpackReader("\xff"sv).uint(u, 10));
  EXPECT_FALSE(MsgpackReader("\x0b"sv).uint(u, 10));
  EXPECT_TRUE(MsgpackReader("\x0a"sv).uint(u, 10));
  EXPECT_FALSE(MsgpackReader("\xcf\xff\xff\xff\xff\xff\xff\xff\xff"sv)
                   .sint(s, std::numeric_limits<std::int64_t>::min(),
                         std::numeric_limits<std::int64_t>::max()));
}

TEST(MsgpackReader, FailureSticks) {
  using namespace std::string_view_literals;
  MsgpackReader in("\x01\xc0"sv);
  bool b = false;
  EXPECT_FALSE(in.boolean(b));
  const std::string first = in.error();
  EXPECT_FALSE(in.nil());
  std::uint64_t u = 0;
  EXPECT_FALSE(in.uint(u, 10));
  EXPECT_EQ(in.error(), first);
}

TEST(MsgpackReader, CountsDepth) {
  Bytes ok(kMaxDepth, '\x91');
  ok += '\x01';
  EXPECT_TRUE(MsgpackReader(ok).skip());
  EXPECT_FALSE(MsgpackReader('\x91' + ok).skip());
  // Siblings are not deeper than one another.
  Bytes wide;
  MsgpackWriter out(wide);
  out.array(100);
  for (int i = 0; i < 100; ++i) out.array(0);
  EXPECT_TRUE(MsgpackReader(wide).skip());
}

TEST(Utf8, AgreesWithTheDefinition) {
  // Every code point, encoded by hand, and what lies between.
  for (std::uint32_t code = 0; code <= 0x110010; ++code) {
    std::string text;
    if (code < 0x80)
      text = {static_cast<char>(code)};
    else if (code < 0x800)
      text = {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
    else if (code < 0x10000)
      text = {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 63)),
              static_cast<char>(0x80 | (code & 63))};
    else
      text = {static_cast<char>(0xf0 | code >> 18), static_cast<char>(0x80 | (code >> 12 & 63)),
              static_cast<char>(0x80 | (code >> 6 & 63)), static_cast<char>(0x80 | (code & 63))};
    const bool legal = code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff);
    ASSERT_EQ(is_utf8(text), legal) << std::hex << code;
    if (text.size() > 1) {
      ASSERT_FALSE(is_utf8(text.substr(0, text.size() - 1))) << std::hex << code;
    }
  }
  for (const char* bad : {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80",
                          "\xf0\x80\x80\x80", "\xf8\x88\x80\x80\x80", "a\xffz"})
    EXPECT_FALSE(is_utf8(bad));
}

}  // namespace
}  // namespace foretoken::wire
