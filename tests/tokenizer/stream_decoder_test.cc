// Text as it comes: equal to decoding at once, cut before stop strings, nothing leaked and nothing
// held too long.
#include "common/tokenizer/stream_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "common/base/utf8.h"
#include "tests/tokenizer/fixtures.h"

namespace foretoken {
namespace {

using testing::escaped;
using Ids = std::vector<TokenId>;

constexpr std::uint32_t kStreamSeed = 20261121;

// The first place where a stop string is complete, and the longest that is complete there. By
// definition, not by speed.
struct Expected {
  std::string text;
  std::optional<std::size_t> stop_index;
  std::size_t end = 0;  // bytes of the whole text up to the end of that stop string
};

Expected cut_at_stop(const std::string& text, const StreamOptions& options) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::optional<std::size_t> longest;
    for (std::size_t i = 0; i < options.stop.size(); ++i)
      if (std::string_view(text).substr(0, end).ends_with(options.stop[i]) &&
          (!longest || options.stop[i].size() > options.stop[*longest].size()))
        longest = i;
    if (!longest) continue;
    const std::size_t cut =
        options.include_stop == IncludeStop::kYes ? 0 : options.stop[*longest].size();
    return {text.substr(0, end - cut), longest, end};
  }
  return {text, std::nullopt};
}

// The fewest tokens that decode to the beginning of a text.
std::size_t fewest_tokens(const Tokenizer& tokenizer,
                          std::span<const TokenId> ids,
                          std::string_view beginning,
                          SkipSpecialTokens skip) {
  for (std::size_t n = 0; n < ids.size(); ++n)
    if (tokenizer.decode(ids.first(n), skip).starts_with(beginning)) return n;
  return ids.size();
}

bool is_byte_token(const Tokenizer& tokenizer, TokenId id) {
  return tokenizer.token_text(id).size() == 6 && tokenizer.token_text(id).starts_with("<0x");
}

// Of the row of byte tokens that the last of n tokens is in; tokens without text are passed over.
std::size_t end_of_row(const Tokenizer& tokenizer,
                       std::span<const TokenId> ids,
                       std::size_t n,
                       SkipSpecialTokens skip) {
  const auto goes_on = [&](TokenId id) {
    return is_byte_token(tokenizer, id) || !tokenizer.is_token(id) ||
           (skip == SkipSpecialTokens::kYes && tokenizer.is_skipped(id));
  };
  std::size_t end = n;
  for (; n < ids.size() && goes_on(ids[n]); ++n)
    if (is_byte_token(tokenizer, ids[n])) end = n + 1;
  return end;
}

// The longest end of `text` that some stop string begins with, and is longer than.
std::size_t open_suffix(std::string_view text, const std::vector<std::string>& stops) {
  std::size_t longest = 0;
  for (const std::string& stop : stops)
    for (std::size_t length = std::min(stop.size() - 1, text.size()); length > longest; --length)
      if (text.ends_with(std::string_view(stop).substr(0, length))) longest = length;
  return longest;
}

// Runs a stream token by token and checks every promise on the way.
void check_stream(const Tokenizer& tokenizer, const Ids& ids, const StreamOptions& options) {
  StreamOptions unstopped = options;
  unstopped.stop.clear();
  StreamDecoder with_stops(tokenizer, options);
  StreamDecoder plain(tokenizer, unstopped);
  const std::string whole = tokenizer.decode(ids, options.skip_special);
  const Expected expected = cut_at_stop(whole, options);
  std::string text, plain_text;
  std::optional<std::size_t> stop_index;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    plain_text += plain.push(ids[i]).text;
    const StreamDecoder::Piece piece = with_stops.push(ids[i]);
    text += piece.text;
    ASSERT_FALSE(utf8::first_invalid(piece.text)) << escaped(piece.text);
    ASSERT_TRUE(whole.starts_with(plain_text)) << escaped(plain_text) << " of " << escaped(whole);
    if (piece.stopped && !stop_index) {
      stop_index = piece.stop_index;
      const std::string_view until = std::string_view(whole).substr(0, expected.end);
      const std::size_t fewest = fewest_tokens(tokenizer, ids, until, options.skip_special);
      ASSERT_GE(piece.n_tokens, fewest) << escaped(whole);
      ASSERT_LE(piece.n_tokens, i + 1) << escaped(whole);
      const bool is_whole = until.find(utf8::kReplacement) == std::string_view::npos;
      if (is_whole && is_byte_token(tokenizer, ids[fewest - 1])) {
        ASSERT_EQ(piece.n_tokens, end_of_row(tokenizer, ids, fewest, options.skip_special))
            << escaped(whole);
      }
    }
    if (!piece.stopped) {
      ASSERT_EQ(plain_text.size() - text.size(), open_suffix(plain_text, options.stop))
          << "held back of " << escaped(plain_text);
    } else {
      ASSERT_TRUE(cut_at_stop(plain_text, options).stop_index)
          << "stopped too early in " << escaped(plain_text);
    }
  }
  plain_text += plain.finish().text;
  const StreamDecoder::Piece last = with_stops.finish();
  text += last.text;
  EXPECT_EQ(plain_text, whole);
  EXPECT_EQ(text, expected.text) << "of " << escaped(whole) << " stops "
                                 << ::testing::PrintToString(options.stop);
  EXPECT_EQ(last.stop_index, expected.stop_index);
  EXPECT_EQ(last.stopped, expected.stop_index.has_value());
}

std::vector<std::string> all_families() {
  auto names = testing::fixture_families();
  names.push_back("sentencepiece_bpe");
  names.push_back("sentencepiece_unigram");
  return names;
}

class StreamOfFamily : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { tokenizer_ = testing::load_fixture(GetParam()); }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(StreamOfFamily, EqualsDecodingAtOnce) {
  const auto& strings = testing::fixture_strings();
  for (std::size_t i = 0; i < strings.size() && !HasFailure(); i += 3) {
    const auto ids = tokenizer_->encode(strings[i], AddSpecialTokens::kYes);
    ASSERT_TRUE(ids.ok());
    check_stream(*tokenizer_, *ids,
                 {.skip_special = i % 2 == 0 ? SkipSpecialTokens::kNo : SkipSpecialTokens::kYes});
  }
}

TEST_P(StreamOfFamily, EqualsDecodingAtOnceForAnyIdsAndStops) {
  std::mt19937 random(kStreamSeed);
  const auto below = [&random](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  for (int round = 0; round < 700 && !HasFailure(); ++round) {
    Ids ids(below(20) + 1);
    // Low ids are bytes in most families: half of the rounds make broken characters.
    const std::size_t n_ids = round % 2 == 0 ? 300 : tokenizer_->vocab_size() + 2;
    for (TokenId& id : ids) id = static_cast<TokenId>(below(n_ids));
    StreamOptions options;
    options.include_stop = below(4) == 0 ? IncludeStop::kYes : IncludeStop::kNo;
    options.skip_special = below(2) == 0 ? SkipSpecialTokens::kYes : SkipSpecialTokens::kNo;
    const std::string whole = tokenizer_->decode(ids, options.skip_special);
    for (std::size_t n = below(4); n > 0; --n) {
      std::size_t begin = below(whole.size() + 1);
      while (begin > 0 && begin < whole.size() &&
             (static_cast<unsigned char>(whole[begin]) & 0xC0u) == 0x80u)
        --begin;
      std::size_t end = std::min(whole.size(), begin + below(9) + 1);
      while (end < whole.size() && (static_cast<unsigned char>(whole[end]) & 0xC0u) == 0x80u) ++end;
      std::string stop = whole.substr(begin, end - begin);
      if (below(3) == 0) stop += "x";  // a near miss
      if (!stop.empty()) options.stop.push_back(stop);
    }
    SCOPED_TRACE("seed " + std::to_string(kStreamSeed) + " round " + std::to_string(round));
    check_stream(*tokenizer_, ids, options);
  }
}

INSTANTIATE_TEST_SUITE_P(Families,
                         StreamOfFamily,
                         ::testing::ValuesIn(all_families()),
                         [](const auto& instance) { return instance.param; });

std::string continued(const Tokenizer& tokenizer, std::span<const TokenId> ids) {
  StreamDecoder decoder(tokenizer, {.before = TextBefore::kYes});
  std::string text;
  for (const TokenId id : ids) text += decoder.push(id).text;
  return text + decoder.finish().text;
}

using ContinuedStreamOfFamily = StreamOfFamily;

// What the reference makes of both together is golden_test's and sentencepiece_test's.
TEST_P(ContinuedStreamOfFamily, IsWhatItsTokensAddToTheTextBefore) {
  std::size_t n_checked = 0;
  const auto& strings = testing::fixture_strings();
  for (std::size_t i = 0; i < strings.size() && !HasFailure(); i += 3) {
    const Ids ids = value_or_throw(tokenizer_->encode(strings[i], AddSpecialTokens::kYes));
    const std::string whole = tokenizer_->decode(ids, SkipSpecialTokens::kYes);
    for (std::size_t n = 1; n < ids.size(); n = 2 * n + 1) {
      const std::span prompt = std::span(ids).first(n);
      const std::string before = tokenizer_->decode(prompt, SkipSpecialTokens::kYes);
      if (before.empty() || !whole.starts_with(before)) continue;  // within a character
      EXPECT_EQ(continued(*tokenizer_, std::span(ids).subspan(n)), whole.substr(before.size()))
          << "behind " << escaped(before) << " of " << escaped(whole);
      ++n_checked;
    }
  }
  EXPECT_GT(n_checked, 500u);
}

std::vector<std::string> families_that_continue() {
  auto names = all_families();
  // The suffix of its tokens is a space, except on the last one: that of the text before is lost.
  std::erase(names, "suffix");
  return names;
}

INSTANTIATE_TEST_SUITE_P(Families,
                         ContinuedStreamOfFamily,
                         ::testing::ValuesIn(families_that_continue()),
                         [](const auto& instance) { return instance.param; });

using ConstrainedStreamOfFamily = StreamOfFamily;

// A constraint is held to the bytes of tokens.
TEST_P(ConstrainedStreamOfFamily, IsTheBytesOfItsTokens) {
  const auto& strings = testing::fixture_strings();
  std::size_t n_spaced = 0;
  for (std::size_t i = 0; i < strings.size() && !HasFailure(); i += 3) {
    const Ids ids = value_or_throw(tokenizer_->encode(strings[i], AddSpecialTokens::kNo));
    std::string bytes;
    if (std::any_of(ids.begin(), ids.end(), [&](TokenId id) { return tokenizer_->is_skipped(id); }))
      continue;
    for (const TokenId id : ids) bytes += tokenizer_->token_bytes(id);
    EXPECT_EQ(continued(*tokenizer_, ids), bytes) << escaped(strings[i]);
    if (tokenizer_->decode(ids, SkipSpecialTokens::kYes) != bytes) ++n_spaced;
  }
  EXPECT_GT(n_spaced, 40u) << "a turn of a chat leaves the space out";
}

INSTANTIATE_TEST_SUITE_P(Families,
                         ConstrainedStreamOfFamily,
                         ::testing::Values("llama2",
                                           "mistral",
                                           "metaspace_unk",
                                           "sentencepiece_bpe",
                                           "sentencepiece_unigram"),
                         [](const auto& instance) { return instance.param; });

class Streams : public ::testing::Test {
 protected:
  // One token for each byte, so that every split of the text happens.
  Ids bytes_of(std::string_view text) {
    Ids ids;
    for (const char c : text) {
      for (std::size_t id = 0; id < tokenizer_->vocab_size(); ++id)
        if (tokenizer_->token_bytes(static_cast<TokenId>(id)) == std::string_view(&c, 1)) {
          ids.push_back(static_cast<TokenId>(id));
          break;
        }
    }
    EXPECT_EQ(ids.size(), text.size());
    return ids;
  }
  std::string run(const Ids& ids, const StreamOptions& options) {
    StreamDecoder decoder(*tokenizer_, options);
    std::string text;
    for (const TokenId id : ids) text += decoder.push(id).text;
    return text + decoder.finish().text;
  }
  std::unique_ptr<Tokenizer> tokenizer_ = testing::load_fixture("gpt2");
};

TEST_F(Streams, NeverSplitACodePoint) {
  const std::string text =
      "é漢👩‍👩‍👧‍👦🏳️‍🌈🇩🇪 e\u0301 \U0010FFFF";
  StreamDecoder decoder(*tokenizer_, {});
  std::string joined;
  for (const TokenId id : bytes_of(text)) {
    const std::string piece = decoder.push(id).text;
    EXPECT_FALSE(utf8::first_invalid(piece));
    joined += piece;
  }
  EXPECT_EQ(joined, text);  // nothing left for finish()
  EXPECT_EQ(decoder.finish().text, "");
}

TEST_F(Streams, ReplaceBrokenBytesAsSoonAsTheyAreKnownToBeBroken) {
  StreamDecoder decoder(*tokenizer_, {});
  const Ids ids = bytes_of(
      "a\xE6\xBC"
      "b\xFF"
      "c\xF0\x9F\x98");
  std::vector<std::string> pieces;
  for (const TokenId id : ids) pieces.push_back(decoder.push(id).text);
  EXPECT_THAT(pieces, ::testing::ElementsAre("a", "", "",
                                             "\uFFFD"
                                             "b",
                                             "\uFFFD", "c", "", "", ""));
  EXPECT_EQ(decoder.finish().text, "\uFFFD");
}

TEST_F(Streams, StopAcrossTokensAtEveryOverlap) {
  for (const char* text : {"aaab", "ababac", "xyxyxz", "one STOP two", "STSTOP", "STOSTOP",
                           "漢字漢字\n\n字", "\n\n\n"})
    for (const std::vector<std::string>& stops : {std::vector<std::string>{"aab"},
                                                  {"abac", "bac"},
                                                  {"xyxz", "y"},
                                                  {"STOP"},
                                                  {"字\n", "\n\n"},
                                                  {"\n\n\n\n", "\n\n"},
                                                  {"a", "ab", "abc"},
                                                  {"c"},
                                                  {"漢字漢字\n\n字!"},
                                                  {"b", "b"}})
      check_stream(*tokenizer_, bytes_of(text), {.stop = stops});
}

TEST_F(Streams, SayWhichStopStringAndAfterHowManyTokens) {
  StreamDecoder decoder(*tokenizer_, {.stop = {"zz", "lo w"}});
  StreamDecoder::Piece piece;
  std::size_t n = 0;
  for (const TokenId id : bytes_of("hello world")) {
    piece = decoder.push(id);
    ++n;
    if (piece.stopped) break;
  }
  EXPECT_EQ(n, 7u);
  EXPECT_EQ(piece.n_tokens, 7u);
  EXPECT_EQ(piece.stop_index, 1u);
  const StreamDecoder::Piece after = decoder.push(5);
  EXPECT_TRUE(after.stopped);
  EXPECT_EQ(after.text, "");
  EXPECT_EQ(after.n_tokens, 7u);
  EXPECT_EQ(decoder.finish().text, "");
}

// min_tokens masks the tokens that would end an answer; strings that would are let pass alike.
TEST_F(Streams, LetStopStringsPassThatTheFirstTokensComplete) {
  const auto stopping_after = [&](std::size_t min_tokens) {
    return StreamOptions{.stop = {"ab", "bcd"}, .min_tokens = min_tokens};
  };
  EXPECT_EQ(run(bytes_of("xabyabz"), stopping_after(0)), "x");
  EXPECT_EQ(run(bytes_of("xabyabz"), stopping_after(2)), "x") << "completed by the third token";
  EXPECT_EQ(run(bytes_of("xabyabz"), stopping_after(3)), "xaby");
  EXPECT_EQ(run(bytes_of("xabyabz"), stopping_after(6)), "xabyabz");
  EXPECT_EQ(run(bytes_of("xabcdz"), stopping_after(3)), "xa") << "begun before, completed after";
  EXPECT_EQ(run(bytes_of("xabcdz"), stopping_after(5)), "xabcdz");
  // Nothing is held back that no stop string can still claim.
  StreamDecoder decoder(*tokenizer_, {.stop = {"ab"}, .min_tokens = 9});
  std::vector<std::string> pieces;
  for (const TokenId id : bytes_of("aab")) pieces.push_back(decoder.push(id).text);
  EXPECT_THAT(pieces, ::testing::ElementsAre("", "a", "ab"));
}

// A byte token has its text when the next token comes, which is not part of the answer then.
TEST(StreamsOfByteTokens, CountNoTokenBehindTheStopString) {
  const auto tokenizer = testing::load_fixture("llama2");
  const TokenId mark = tokenizer->token_to_id("!").value();
  const TokenId newline = tokenizer->token_to_id("<0x0A>").value();
  const auto count = [&](const Ids& ids, const StreamOptions& options) -> std::size_t {
    StreamDecoder decoder(*tokenizer, options);
    for (const TokenId id : ids)
      if (const auto piece = decoder.push(id); piece.stopped) return piece.n_tokens;
    const auto last = decoder.finish();
    return last.stopped ? last.n_tokens : 0;
  };
  EXPECT_EQ(count({mark, newline, mark}, {.stop = {"\n"}}), 2u);
  EXPECT_EQ(count({mark, newline}, {.stop = {"\n"}}), 2u) << "as at the end of an answer";
  EXPECT_EQ(count({mark, newline, newline, mark}, {.stop = {"\n\n"}}), 3u);
  EXPECT_EQ(count({mark, newline, mark}, {.stop = {"\n!"}}), 3u);
  EXPECT_EQ(count({mark, newline, mark}, {.stop = {"\n"}, .min_tokens = 1}), 2u);
  EXPECT_EQ(count({mark, newline, mark, mark}, {.stop = {"\n"}, .min_tokens = 2}), 0u);
  const TokenId end = tokenizer->token_to_id("</s>").value();
  EXPECT_EQ(count({mark, newline, end}, {.stop = {"\n"}, .ends = {end}}), 2u);
  EXPECT_EQ(count({mark, newline, end}, {.stop = {"\n"}, .ends = {end}, .min_tokens = 2}), 0u);
}

TEST_F(Streams, KeepTheStopStringWhenAsked) {
  EXPECT_EQ(run(bytes_of("one two three"), {.stop = {"two"}, .include_stop = IncludeStop::kYes}),
            "one two");
  EXPECT_EQ(run(bytes_of("one two three"), {.stop = {"two"}}), "one ");
}

TEST_F(Streams, CountTheTokenThatEndsTheAnswerAndGiveItNoText) {
  const TokenId newline = bytes_of("\n").front();
  StreamDecoder decoder(*tokenizer_, {.ends = {7, newline}});
  EXPECT_EQ(decoder.push(bytes_of("a").front()).text, "a");
  const StreamDecoder::Piece last = decoder.push(newline);
  EXPECT_EQ(last.text, "");
  EXPECT_EQ(last.n_tokens, 2u);
  EXPECT_EQ(last.end, 1u);
  EXPECT_EQ(decoder.finish().text, "");
  // The bytes of a character whose end did not come are text, and no stop string is completed.
  EXPECT_EQ(run(bytes_of("a\xE6\n"), {.ends = {newline}}), "a\uFFFD");
  EXPECT_EQ(run(bytes_of("a\n"), {.stop = {"a\n"}, .ends = {newline}}), "a");
}

TEST_F(Streams, GiveTheTokenThatEndsTheAnswerItsTextWhereItIsAskedForOrKept) {
  const TokenId newline = bytes_of("\n").front();
  ASSERT_FALSE(tokenizer_->eos_ids().empty());
  const TokenId eos = tokenizer_->eos_ids().front();
  ASSERT_TRUE(tokenizer_->is_skipped(eos));
  const std::string eos_text(tokenizer_->token_text(eos));
  const Ids ids = {bytes_of("a").front(), eos};
  using enum IncludeStop;
  EXPECT_EQ(run(bytes_of("a\n"), {.include_stop = kYes, .ends = {newline}}), "a\n");
  EXPECT_EQ(run(bytes_of("a\n"), {.kept = {newline}, .ends = {newline}}), "a\n");
  // A special one is not skipped.
  const auto unskipped = SkipSpecialTokens::kNo;
  EXPECT_EQ(run(ids, {.skip_special = unskipped, .ends = {eos}}), "a");
  EXPECT_EQ(run(ids, {.skip_special = unskipped, .ends = {newline}}), "a" + eos_text);
  EXPECT_EQ(run(ids, {.include_stop = kYes, .skip_special = unskipped, .ends = {eos}}),
            "a" + eos_text);
  EXPECT_EQ(run(ids, {.include_stop = kYes, .ends = {eos}}), "a");
}

TEST_F(Streams, ReleaseWhatWasHeldAtTheEnd) {
  EXPECT_EQ(run(bytes_of("one tw"), {.stop = {"two"}}), "one tw");
}

TEST_F(Streams, RefuseStopStringsThatCannotBe) {
  const std::vector<std::vector<std::string>> bad{{""},
                                                  {"\xFF"},
                                                  {"a", "\xE6\xBC"},
                                                  {std::string(5000, 'x')},
                                                  std::vector<std::string>(65, "x")};
  for (const auto& stops : bad) {
    const auto checked = StreamDecoder::check_stops(stops);
    ASSERT_FALSE(checked.ok());
    EXPECT_EQ(checked.error().code, ErrorCode::kInvalidValue);
    EXPECT_EQ(checked.error().param, "stop");
  }
  EXPECT_TRUE(StreamDecoder::check_stops(std::vector<std::string>{"x", "漢"}).ok());
}

TEST_F(Streams, IgnoreIdsOfNothing) {
  StreamDecoder decoder(*tokenizer_, {});
  EXPECT_EQ(decoder.push(-1).text, "");
  EXPECT_EQ(decoder.push(1'000'000).text, "");
  EXPECT_EQ(decoder.push(bytes_of("a").front()).text, "a");
}

}  // namespace
}  // namespace foretoken
