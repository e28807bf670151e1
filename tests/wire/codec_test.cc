#include "common/wire/codec.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/message_text/describe.h"
#include "tests/wire/fill.h"
#include "tests/wire/frames.h"

#define MSGPACK_NO_BOOST
#include <msgpack.hpp>

namespace foretoken::wire {
namespace {

using ::testing::HasSubstr;

Header test_header() {
  Speaker speaker({7}, {9});
  return speaker.next({1, 2});
}

Bytes body_of(const Message& message) { return encode(test_header(), message).at(1); }

Result<Message> read_body(MessageType type, const Bytes& body) {
  auto incoming = decode(frames_of(type, body));
  if (!incoming.ok()) return std::move(incoming).error();
  return std::move(incoming->message);
}

TEST(Codec, RoundTripsEveryMessage) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    for (const Message& message : random_messages(seed)) {
      const auto decoded = decode(encode(test_header(), message));
      ASSERT_TRUE(decoded.ok()) << "seed " << seed << " " << decoded.error().message;
      EXPECT_EQ(decoded->message, message) << "seed " << seed << " " << print(message);
      EXPECT_EQ(decoded->header.request, (RequestId{1, 2}));
      EXPECT_EQ(decoded->header.sender, WorkerId{7});
      EXPECT_EQ(decoded->header.sequence, 1u);
    }
  }
}

// msgpack-cxx's own reader is the oracle: what we pack is one array with as many elements as the
// listing has fields.
TEST(Codec, PacksWhatAnotherReaderUnderstands) {
  for (const Message& message : random_messages(5)) {
    const Bytes body = body_of(message);
    std::size_t offset = 0;
    const auto handle = msgpack::unpack(body.data(), body.size(), offset);
    EXPECT_EQ(offset, body.size());
    ASSERT_EQ(handle.get().type, msgpack::type::ARRAY);
    const std::size_t fields = std::visit(
        [](const auto& m) { return count_fields<std::decay_t<decltype(m)>>().all; }, message);
    EXPECT_EQ(handle.get().via.array.size, fields) << name_of(message);
  }
}

TEST(Codec, HasOneNumberPerMessage) {
  std::set<MessageType> numbers;
  std::set<std::string_view> names;
  each_message([&](const auto& message) {
    numbers.insert(message.kType);
    names.insert(message.kName);
  });
  EXPECT_EQ(numbers.size(), std::variant_size_v<Message>);
  EXPECT_EQ(names.size(), std::variant_size_v<Message>);
  for (const MessageType retired : kRetiredTypes) {
    EXPECT_FALSE(numbers.contains(retired)) << static_cast<int>(retired) << " had another meaning";
    EXPECT_FALSE(read_body(retired, "\x90").ok());
  }
}

Bytes packed(const std::function<void(MsgpackWriter&)>& write) {
  Bytes bytes;
  MsgpackWriter out(bytes);
  write(out);
  return bytes;
}

TEST(Codec, AcceptsFieldsOfANewerMinorVersion) {
  const Bytes longer = packed([](MsgpackWriter& out) {
    out.array(5);
    out.uint(5);
    out.boolean(false);
    out.boolean(true);
    out.str("a field of version 1.9");
    out.array(1);
    out.map(0);
  });
  const auto read = read_body(MessageType::kHeartbeatReply, longer);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(std::get<HeartbeatReply>(*read), (HeartbeatReply{5, false, true}));
}

TEST(Codec, RefusesABodyShorterThanVersionOneZero) {
  const auto read = read_body(MessageType::kHeartbeatReply, packed([](MsgpackWriter& out) {
                                out.array(1);
                                out.uint(5);
                              }));
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr("has 1 fields; version 1.0 has 2"));
}

TEST(Codec, RefusesLeftovers) {
  Bytes body = body_of(Goodbye{"x"});
  body.push_back('\xc0');
  EXPECT_THAT(read_body(MessageType::kGoodbye, body).error().message,
              HasSubstr("followed by 1 bytes"));
}

TEST(Codec, NamesTheFieldThatIsWrong) {
  Propose propose;
  propose.records.push_back({.tail = {1, 2}});
  propose.records[0].tail[1] = -5;
  const auto read = read_body(MessageType::kPropose, body_of(propose));
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().message, "Propose.records.tail has token id -5");
  EXPECT_EQ(read.error().code, ErrorCode::kMalformed);
}

TEST(Codec, RefusesAnEnumeratorOffTheList) {
  Bytes body = body_of(StreamClose{CloseReason::kFinished});
  body.back() = 6;
  EXPECT_THAT(read_body(MessageType::kStreamClose, body).error().message, HasSubstr("from 0 to 5"));
}

TEST(Codec, RefusesNumbersThatAreNotFinite) {
  Open open;
  open.params.temperature = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(read_body(MessageType::kOpen, body_of(open)).error().message,
              HasSubstr("Open.params.temperature"));
  open.params.temperature = 1;
  open.params.logit_bias = {{3, std::numeric_limits<float>::infinity()}};
  EXPECT_THAT(read_body(MessageType::kOpen, body_of(open)).error().message,
              HasSubstr("Open.params.logit_bias"));
  Tokens tokens{.position = 1,
                .ids = {1},
                .accepted = {},
                .logprobs = {{-1.0f, {2}, {-std::numeric_limits<float>::infinity()}}}};
  EXPECT_FALSE(read_body(MessageType::kTokens, body_of(tokens)).ok());
}

TEST(Codec, MapsErrorCodesOfNewerPeersToInternal) {
  Bytes body = packed([](MsgpackWriter& out) {
    out.array(4);
    out.uint(999);
    out.str("new");
    out.str("");
    out.uint(0);
  });
  EXPECT_EQ(std::get<Failed>(*read_body(MessageType::kFailed, body)).code, ErrorCode::kInternal);
}

// Whatever is sent can be read: what the reader would refuse is refused before it leaves.
TEST(Codec, RefusesToSendWhatNobodyWouldRead) {
  const std::string most(kMaxStringBytes, 'x');
  EXPECT_TRUE(decode(*try_encode(test_header(), Text{.text = most})).ok());
  const auto text = try_encode(test_header(), Text{.text = most + "x"});
  ASSERT_FALSE(text.ok());
  EXPECT_NE(text.error().message.find("Text has a string of 1048577; the limit is 1048576"),
            std::string::npos)
      << text.error().message;
  EXPECT_FALSE(try_encode(test_header(), Encode{.bad_words = {most + "x"}}).ok());

  EXPECT_TRUE(
      decode(*try_encode(test_header(), Hello{.aliases = std::vector<std::string>(kMaxArray)}))
          .ok());
  EXPECT_FALSE(
      try_encode(test_header(), Hello{.aliases = std::vector<std::string>(kMaxArray + 1)}).ok());

  const std::vector<TokenId> many(kMaxInternalPartBytes / sizeof(TokenId));
  const auto ids = try_encode(test_header(), Encoded{.tokens = many});
  ASSERT_FALSE(ids.ok());
  EXPECT_NE(ids.error().message.find("the limit is 4194304"), std::string::npos);
}

TEST(Codec, RefusesUnknownTypesAndOddParts) {
  EXPECT_THAT(read_body(static_cast<MessageType>(999), "\x90").error().message,
              HasSubstr("message type 999"));
  EXPECT_FALSE(decode({}).ok());
  EXPECT_FALSE(decode({"x"}).ok());
  EXPECT_FALSE(decode(Frames(9, "x")).ok());
  Frames frames = encode(test_header(), Goodbye{"x"});
  frames[1] += "y";
  EXPECT_THAT(decode(frames).error().message, HasSubstr("the header says"));
}

TEST(Codec, PassesOverBlobsOfANewerMinorVersion) {
  Frames frames = encode(test_header(), Goodbye{"x"});
  frames.push_back("blob");
  const auto read = decode(frames);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->message, Message(Goodbye{"x"}));
}

TEST(Envelope, RefusesWhatIsNotOurs) {
  const Bytes good = pack_header(test_header());
  EXPECT_TRUE(read_header(good).ok());
  EXPECT_FALSE(read_header(good.substr(1)).ok());
  EXPECT_FALSE(read_header(good + "x").ok());
  Bytes bad = good;
  bad[0] = 'X';
  EXPECT_EQ(read_header(bad).error().code, ErrorCode::kMalformed);
  bad = good;
  bad[4] = 2;
  EXPECT_EQ(read_header(bad).error().code, ErrorCode::kIncompatible);
  bad = good;
  bad[5] = 77;  // a newer minor version is fine
  EXPECT_TRUE(read_header(bad).ok());
  bad = good;
  bad[15] = 0x7f;
  EXPECT_THAT(read_header(bad).error().message, HasSubstr("the limit is 4194304"));
}

TEST(Speaker, NumbersItsFrames) {
  Speaker speaker({1}, {2});
  EXPECT_EQ(speaker.next({}).sequence, 1u);
  EXPECT_EQ(speaker.next({}).sequence, 2u);
}

TEST(Print, ShowsFieldsAndHidesLongTexts) {
  EXPECT_EQ(print(HeartbeatReply{5, true}), "HeartbeatReply{echo_us=5 known=true needed=false}");
  EXPECT_THAT(print(Encode{.text = std::string(500, 'p')}), HasSubstr("text=<500 bytes>"));
  EXPECT_THAT(print(Tokens{.position = 3, .ids = std::vector<TokenId>(20, 7)}),
              HasSubstr("20 in all"));
  EXPECT_EQ(name_of(MessageType::kNeed), "Need");
  EXPECT_EQ(name_of(static_cast<MessageType>(999)), "unknown");
}

}  // namespace
}  // namespace foretoken::wire
