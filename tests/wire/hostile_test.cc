// Bytes from an attacker, or from a broken wire: refused, cheaply, without a crash.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "common/wire/client_codec.h"
#include "common/wire/codec.h"
#include "tests/wire/fill.h"
#include "tests/wire/frames.h"

namespace {
std::atomic<std::size_t> allocated{0};  // bytes asked for since the last reset
}

// Counting only: what is refused must not have cost memory. g++ sees free() behind delete, inlined,
// and not the malloc().
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(std::size_t size) {
  allocated += size;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace foretoken::wire {
namespace {

Bytes deep(std::size_t levels) { return Bytes(levels, '\x91'); }

const std::vector<Bytes>& attacks() {
  static const std::vector<Bytes> all{
      Bytes("\xdf\x08\x00\x00\x00", 5),          // a map of 2^27
      Bytes("\xdd\xff\xff\xff\xff", 5),          // an array of 2^32 - 1
      Bytes("\x92\xdb\xff\xff\xff\xff", 6),      // a string of 4 GiB
      Bytes("\x92\xc6\xff\xff\xff\xff", 6),      // binary data of 4 GiB
      Bytes("\x91\xc9\xff\xff\xff\xff\x01", 7),  // an ext of 4 GiB
      deep(4'000'000),                           // nearly as many levels as a part may have bytes
      Bytes("\xdc\xff\xff", 3) + Bytes(70000, '\xdd'),      // arrays of arrays without end
      Bytes("\x91\xdc\xff\xff", 4) + Bytes(65535, '\xdc'),  //
      Bytes("\xc1", 1),                                     // the byte msgpack never uses
      Bytes(),                                              //
      Bytes("\x91", 1),                                     //
  };
  return all;
}

TEST(Hostile, AttacksAreRefusedByEveryMessageWithoutCostingMemory) {
  each_message([](const auto& message) {
    for (const Bytes& attack : attacks()) {
      const Frames frames = frames_of(message.kType, attack);
      allocated = 0;
      EXPECT_FALSE(decode(frames).ok()) << message.kName;
      EXPECT_LE(allocated, 2048u) << message.kName;  // the sentence that says what was wrong
    }
  });
}

TEST(Hostile, AttacksAreRefusedAsClientRequestsWithoutCostingMemory) {
  (void)read_client_request("");  // the table of keys is made once
  for (const Bytes& attack : attacks()) {
    allocated = 0;
    EXPECT_FALSE(read_client_request(attack).request.ok());
    EXPECT_FALSE(read_client_answer(attack).ok());
    EXPECT_LE(allocated, 4096u);
  }
}

// One change of the kind that links, bugs and attackers make.
Bytes mutate(Bytes bytes, RandomFiller& random) {
  if (bytes.empty()) return bytes;
  const std::size_t at = random.below(bytes.size());
  switch (random.below(7)) {
    case 0:
      bytes[at] = static_cast<char>(random.below(256));
      break;
    case 1:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
      break;
    case 2:
      bytes.resize(at);
      break;
    case 3:
      bytes.insert(at, 1 + random.below(8), static_cast<char>(random.below(256)));
      break;
    case 4:
      bytes.erase(at, 1 + random.below(8));
      break;
    case 5: {  // a marker with a length behind it
      static constexpr char kMarkers[] =
          "\xc4\xc5\xc6\xc7\xc8\xc9\xca\xcb\xd4\xd8\xd9\xda\xdb\xdc\xdd\xde\xdf\x8f\x9f\xbf";
      bytes[at] = kMarkers[random.below(sizeof kMarkers - 1)];
      break;
    }
    default:
      bytes.insert(at, bytes.substr(random.below(bytes.size()), random.below(64)));
      break;
  }
  return bytes;
}

std::size_t rounds() {
  const char* wanted = std::getenv("FORETOKEN_FUZZ_FRAMES");
  return wanted == nullptr ? 20000 : std::strtoull(wanted, nullptr, 10);
}

TEST(Hostile, MutatedFramesGiveAMessageOrAnErrorAndCostLittle) {
  RandomFiller random(2024);
  std::vector<Message> seeds;
  for (std::uint64_t seed = 100; seed < 110; ++seed)
    for (auto& message : random_messages(seed)) seeds.push_back(std::move(message));
  std::size_t good = 0;
  for (std::size_t i = 0; i < rounds(); ++i) {
    Frames frames = encode(Speaker({1}, {2}).next({3, 4}), seeds[random.below(seeds.size())]);
    const std::size_t which = random.below(8) == 0 ? 0 : 1;
    for (std::size_t k = 1 + random.below(3); k > 0; --k)
      frames[which] = mutate(std::move(frames[which]), random);
    if (which == 1) {  // keep the header honest about the size, so that the body is what is tested
      Header header = *read_header(frames[0]);
      header.body_bytes = static_cast<std::uint32_t>(frames[1].size());
      frames[0] = pack_header(header);
    }
    allocated = 0;
    const auto incoming = decode(frames);
    // Records and strings take more room in memory than on the wire; what matters is that it is a
    // small multiple.
    EXPECT_LE(allocated, 64 * (frames[0].size() + frames[1].size()) + 65536) << "frame " << i;
    if (!incoming.ok()) continue;
    ++good;
    const auto again = decode(encode(incoming->header, incoming->message));
    ASSERT_TRUE(again.ok()) << "frame " << i << " " << again.error().message;
    EXPECT_EQ(again->message, incoming->message) << "frame " << i;
  }
  EXPECT_GT(good, rounds() / 100);  // mutations that never decode would test little
}

TEST(Hostile, MutatedClientRequestsGiveARequestOrAnError) {
  RandomFiller random(7);
  ClientRequest request;
  request.prompt = "Once upon a time";
  request.stop = {"a", "bb"};
  request.bad_words = {"x"};
  request.params.logit_bias = {{5, 1.0f}, {6, -2.0f}};
  request.params.stop_token_ids = {1, 2, 3};
  request.request_id = RequestId{1, 2};
  request.given.insert("seed");
  request.stream = true;
  const Bytes text = write_client_request(request);
  request.prompt_kind = PromptKind::kMessages;
  request.messages = {{"user", "hi"}, {"assistant", "ho"}};
  const Bytes chat = write_client_request(request);
  ASSERT_TRUE(read_client_request(text).request.ok());
  ASSERT_TRUE(read_client_request(chat).request.ok());
  const Bytes answer = write_client_answer(
      ClientReply{.id = "x", .text = "t", .token_ids = {1, 2}, .stop_reason = TokenId{5}});
  for (std::size_t i = 0; i < rounds(); ++i) {
    Bytes bytes = i % 2 == 0 ? text : chat;
    for (std::size_t k = 1 + random.below(3); k > 0; --k) bytes = mutate(std::move(bytes), random);
    allocated = 0;
    const auto outcome = read_client_request(bytes);
    EXPECT_LE(allocated, 64 * bytes.size() + 65536) << "request " << i;
    if (outcome.request.ok()) {
      EXPECT_TRUE(is_utf8(outcome.request->prompt));
    } else {
      EXPECT_TRUE(is_utf8(outcome.request.error().message)) << "request " << i;
    }
    (void)read_client_answer(mutate(answer, random));
  }
}

}  // namespace
}  // namespace foretoken::wire
