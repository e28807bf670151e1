// The small parts, each by itself: UTF-8, patterns, side files of a folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/base/utf8.h"
#include "common/tokenizer/added_tokens.h"
#include "common/tokenizer/decode_pipeline.h"
#include "common/tokenizer/regex.h"
#include "common/tokenizer/unicode.h"
#include "tests/tokenizer/fixtures.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::string lossy(std::string_view bytes, std::size_t chunk) {
  utf8::LossyDecoder decoder;
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += chunk)
    decoder.push(bytes.substr(at, chunk), text);
  decoder.finish(text);
  return text;
}

// Expected values from the Unicode Standard, section 3.9, tables 3-8 to 3-11: one U+FFFD for each
// maximal subpart.
TEST(Utf8, ReplacesEachMaximalBrokenPartOnce) {
  const std::string r(utf8::kReplacement);
  const std::vector<std::pair<std::string, std::string>> cases{
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", r + r + r + r + r + r + r + r + "A"},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", r + r + r + r + r + r + r + r + "A"},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", r + r + r + r + r + "A" + r + r + "B"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", r + r + r + r + "A"},
      {"\xE6\xBC\xA2", "漢"},
      {"\xE6\xBC", r},
      {"", ""},
  };
  for (const auto& [bytes, text] : cases)
    for (const std::size_t chunk : {1u, 2u, 3u, 100u})
      EXPECT_EQ(lossy(bytes, chunk), text) << testing::escaped(bytes);
}

TEST(Utf8, FindsTheFirstInvalidByte) {
  EXPECT_EQ(utf8::first_invalid("aé漢😀\U0010FFFF\uFFFF"), std::nullopt);
  EXPECT_EQ(utf8::first_invalid("ab\x80"), 2u);
  EXPECT_EQ(utf8::first_invalid("\xC1\x81"), 0u);
  EXPECT_EQ(utf8::first_invalid("a\xE0\x9F\xBF"), 1u);
  EXPECT_EQ(utf8::first_invalid("a\xED\xA0\x80"), 1u);
  EXPECT_EQ(utf8::first_invalid("\xF0\x8F\xBF\xBF"), 0u);
  EXPECT_EQ(utf8::first_invalid("\xF4\x90\x80\x80"), 0u);
  EXPECT_EQ(utf8::first_invalid("abc\xF0\x9F\x98"), 3u);
}

TEST(Utf8, WritesWhatItReads) {
  for (const char32_t point : {0x0u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    std::string text = "x";
    utf8::append(text, point);
    EXPECT_EQ(utf8::code_point_at(text, 1).value, point);
    EXPECT_EQ(utf8::code_point_before(text, text.size()).value, point);
    EXPECT_EQ(utf8::code_point_at(text, 1).length, text.size() - 1);
  }
}

TEST(Unicode, ColumnsAreThoseOfATerminal) {
  for (const auto& [code_point, columns] :
       {std::pair(U'a', 1), std::pair(U'é', 1), std::pair(U'\u0301', 0), std::pair(U'漢', 2),
        std::pair(U'ﾊ', 1), std::pair(U'🎉', 2)})
    EXPECT_EQ(columns, unicode::columns_of(code_point)) << static_cast<std::uint32_t>(code_point);
}

TEST(Unicode, NormalizesAndLowercases) {
  EXPECT_EQ(unicode::normalize("e\u0301", unicode::Form::kNfc), "é");
  EXPECT_EQ(unicode::normalize("é", unicode::Form::kNfd), "e\u0301");
  EXPECT_EQ(unicode::normalize("ﬁ①", unicode::Form::kNfkc), "fi1");
  EXPECT_EQ(unicode::normalize("q\u0307\u0323", unicode::Form::kNfd), "q\u0323\u0307");
  EXPECT_EQ(unicode::lowercase("ÀΣİẞ"), "àσi\u0307ß");
}

// What `tokenizers` 0.23 says of them (tests/long/code_points.py): its Punctuation has the tables
// of Unicode 8, its normalization those of Unicode 9.
TEST(Unicode, FollowsTheReferenceBackToItsTables) {
  for (const char32_t point : {U'!', U'§', U'$', U'¿', U'、', char32_t{0x166D}, char32_t{0x111C9}})
    EXPECT_TRUE(unicode::is_punctuation(point)) << static_cast<unsigned>(point);
  for (const char32_t point : {char32_t{0x61D}, char32_t{0x2E4B}, char32_t{0x2E43},
                               char32_t{0x11F43}, char32_t{0x1E95F}, U'€', U'a'})
    EXPECT_FALSE(unicode::is_punctuation(point)) << static_cast<unsigned>(point);
  EXPECT_EQ(unicode::normalize("\U0001E030", unicode::Form::kNfkc), "\U0001E030");
  EXPECT_EQ(unicode::normalize("a\u0301\U0001E4EC", unicode::Form::kNfd), "a\u0301\U0001E4EC");
}

TEST(Unicode, CountsWhatTheTablesDoNotKnow) {
  EXPECT_EQ(count_unassigned("plain text, \n"), 0u);
  EXPECT_EQ(count_unassigned("Grüße 漢字 😀 \uE000"), 0u);
  EXPECT_EQ(count_unassigned("\u0378 and \U0003FFF0\U0003FFF1"), 3u);
}

// Segments as "begin-end" for text and "begin-end=id" for tokens.
std::vector<std::string> segments(const AddedTokenMatcher& matcher, std::string_view text) {
  std::vector<AddedTokenMatcher::Segment> found;
  matcher.split(text, found);
  std::vector<std::string> shown;
  for (const auto& segment : found)
    shown.push_back(std::to_string(segment.begin) + "-" + std::to_string(segment.end) +
                    (segment.token ? "=" + std::to_string(*segment.token) : ""));
  return shown;
}

AddedTokenMatcher matcher_of(const std::vector<AddedToken>& tokens) {
  AddedTokenMatcher matcher;
  for (const AddedToken& token : tokens) matcher.add(token, token.content);
  return matcher;
}

// Ids and offsets as `tokenizers` 0.23.3 gives them.
TEST(AddedTokens, OfSpacesCountUnlessAllOfThemWereTakenBefore) {
  const AddedToken both{.id = 7, .content = "  ", .lstrip = true, .rstrip = true};
  const AddedToken right{.id = 7, .content = "  ", .rstrip = true};
  const AddedToken left{.id = 7, .content = "  ", .lstrip = true};
  const AddedToken plain{.id = 7, .content = "  "};
  const AddedToken word{.id = 8, .content = "ab", .rstrip = true};
  EXPECT_THAT(segments(matcher_of({both}), "a   b"), ElementsAre("0-1", "1-4=7", "4-5"));
  EXPECT_THAT(segments(matcher_of({both}), "a    b"), ElementsAre("0-1", "1-5=7", "5-6"));
  EXPECT_THAT(segments(matcher_of({both}), "        "), ElementsAre("0-8=7"));
  EXPECT_THAT(segments(matcher_of({right}), "a    b"), ElementsAre("0-1", "1-5=7", "3-5=7", "5-6"));
  EXPECT_THAT(segments(matcher_of({right}), "        "),
              ElementsAre("0-8=7", "2-8=7", "4-8=7", "6-8=7"));
  EXPECT_THAT(segments(matcher_of({left}), "a   b"), ElementsAre("0-1", "1-3=7", "3-5"));
  EXPECT_THAT(segments(matcher_of({word, left}), "ab  c"), ElementsAre("0-4=8", "4-5"));
  EXPECT_THAT(segments(matcher_of({word, both}), "ab     c"), ElementsAre("0-7=8", "7-8"));
  EXPECT_THAT(segments(matcher_of({word, plain}), "ab  c"), ElementsAre("0-4=8", "2-4=7", "4-5"));
}

// The reference fails at these texts ("AddedVocabulary bad split"); to us the token has nothing
// left, either.
TEST(AddedTokens, ThatEndWithinTakenSpacesDoNotCount) {
  const AddedTokenMatcher matcher = matcher_of(
      {{.id = 8, .content = "ab", .rstrip = true}, {.id = 7, .content = "  ", .lstrip = true}});
  EXPECT_THAT(segments(matcher, "ab   c"), ElementsAre("0-5=8", "5-6"));
  EXPECT_THAT(segments(matcher, "ab     c"), ElementsAre("0-7=8", "7-8"));
}

std::vector<std::string> matches(std::string_view pattern, std::string_view text, RegexJit jit) {
  const auto regex = Regex::compile(pattern, jit);
  EXPECT_TRUE(regex.ok());
  RegexScratch scratch;
  std::vector<TextRange> found;
  EXPECT_TRUE(regex->find_all(text, scratch, found).ok());
  std::vector<std::string> texts;
  for (const TextRange& range : found)
    texts.emplace_back(text.substr(range.begin, range.end - range.begin));
  return texts;
}

TEST(Regexes, MatchCompiledAndInterpreted) {
  for (const RegexJit jit : {RegexJit::kWherePossible, RegexJit::kOff}) {
    EXPECT_THAT(matches(gpt2_pattern(), "I'm  fine, 世界 12", jit),
                ElementsAre("I", "'m", " ", " fine", ",", " 世界", " 12"));
    EXPECT_THAT(matches("(?=b)|a", "ab", jit),
                ElementsAre("a"));  // an empty match where the last one ended is none
    EXPECT_THAT(matches("b*", "abbc", jit), ElementsAre("", "bb", ""));
  }
}

// U+180E stopped being a space in Unicode 6.3; U+0085 is one.
TEST(Regexes, KnowWhatASpaceIs) {
  EXPECT_THAT(matches("\\s+", "a\u0085\u3000b\u180Ec", RegexJit::kWherePossible),
              ElementsAre("\u0085\u3000"));
  EXPECT_THAT(matches("[^\\s]+", "a\u00A0\u180E", RegexJit::kWherePossible),
              ElementsAre("a", "\u180E"));
  EXPECT_THAT(matches("\\S+", "a\u2028\u180E", RegexJit::kWherePossible),
              ElementsAre("a", "\u180E"));
}

TEST(Decoding, StripsTheEndOfAFusedStream) {
  DecoderSpec spec{true, {decoder::Fuse{}, decoder::Strip{"_", 1, 2}}};
  DecodePipeline pipeline(spec);
  std::string text;
  for (const char* token : {"__a", "_", "_", "b_", "__", "_"}) pipeline.push(token, text);
  EXPECT_EQ(text, "_a__b__");  // two of the last four may still have to go
  pipeline.finish(text);
  EXPECT_EQ(text, "_a__b__");
}

std::string decoded_behind(TextBefore before,
                           const DecoderSpec& spec,
                           std::initializer_list<const char*> tokens) {
  DecodePipeline pipeline(spec, before);
  std::string text;
  for (const char* token : tokens) pipeline.push(token, text);
  pipeline.finish(text);
  return text;
}

// As tokenizers 0.23 decodes the tokens alone, and what they add behind "▁The".
TEST(Decoding, TakesNoSpaceOffWhatContinuesAText) {
  using decoder::LeadingSpaces;
  const decoder::Replace spaces{"▁", " "};
  const decoder::Strip one{" ", 1, 0};
  struct Continued {
    std::vector<DecoderStep> steps;
    std::string alone;
    std::string continued;
  };
  const std::vector<Continued> cases{
      {{spaces, decoder::ByteFallback{}, decoder::Fuse{}, one}, " Paris is", "  Paris is"},
      {{spaces, one}, "Parisis", "Parisis"},  // of every token, wherever it stands
      {{decoder::Metaspace{"▁", PrependScheme::kAlways}}, " Paris is", "  Paris is"},
      {{decoder::Metaspace{"▁", PrependScheme::kFirst}}, " Paris is", "  Paris is"},
      {{decoder::Metaspace{"▁", PrependScheme::kNever}}, "  Paris is", "  Paris is"},
      {{decoder::SentencePiece{LeadingSpaces::kKept}}, "  Paris is", "  Paris is"},
      {{decoder::SentencePiece{LeadingSpaces::kOneStripped}}, " Paris is", "  Paris is"},
      {{decoder::SentencePiece{LeadingSpaces::kAllStripped}}, "Paris is", "  Paris is"}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const DecoderSpec spec{true, cases[i].steps};
    EXPECT_EQ(decoded_behind(TextBefore::kNo, spec, {"▁", "▁Paris", "▁is"}), cases[i].alone);
    EXPECT_EQ(decoded_behind(TextBefore::kYes, spec, {"▁", "▁Paris", "▁is"}), cases[i].continued);
  }
  EXPECT_EQ(decoded_behind(TextBefore::kNo, {}, {"Paris", "is"}), "Paris is");
  EXPECT_EQ(decoded_behind(TextBefore::kYes, {}, {"Paris", "is"}), " Paris is");
}

TEST(Folder, SaysWhereTextBeginsAndEnds) {
  testing::TemporaryFolder folder;
  folder.write("tokenizer.json",
               testing::read_file(testing::fixture_folder("llama3") / "tokenizer.json"));
  folder.write(
      "special_tokens_map.json",
      R"({"bos_token": "<|begin_of_text|>", "eos_token": {"content": "<|end_of_text|>"}})");
  folder.write("config.json", R"({"eos_token_id": 1})");
  auto loaded = Tokenizer::load(folder.path());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ((*loaded)->bos_token(), "<|begin_of_text|>");
  EXPECT_EQ((*loaded)->eos_token(), "<|end_of_text|>");
  EXPECT_THAT(*(*loaded)->encode("", AddSpecialTokens::kYes), ElementsAre(*(*loaded)->bos_id()));
  EXPECT_THAT((*loaded)->eos_ids(), ElementsAre(1));
  EXPECT_FALSE((*loaded)->chat_template());

  folder.write("generation_config.json",
               R"({"eos_token_id": [2, 1, 2]})");  // overrides config.json
  folder.write("tokenizer_config.json",
               R"({"bos_token": null, "chat_template": [{"name": "tool_use", "template": "t"},
                                            {"name": "default", "template": "d"}]})");
  loaded = Tokenizer::load(folder.path());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_THAT((*loaded)->eos_ids(), ElementsAre(1, 2));
  EXPECT_FALSE((*loaded)->bos_id());  // null means none, even if the older file names one
  EXPECT_EQ((*loaded)->chat_template(), "d");
  EXPECT_EQ((*loaded)->tool_template(), "t");

  folder.write("chat_template.jinja", "j");
  loaded = Tokenizer::load(folder.path());
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ((*loaded)->chat_template(), "j");
  EXPECT_FALSE((*loaded)->tool_template());

  std::filesystem::create_directory(folder.path() / "additional_chat_templates");
  folder.write("additional_chat_templates/tool_use.jinja", "jt");
  loaded = Tokenizer::load(folder.path());
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ((*loaded)->chat_template(), "j");
  EXPECT_EQ((*loaded)->tool_template(), "jt");
}

// Transformers renders with its special_tokens_map: every named token that is set.
TEST(Folder, NamesTheTokensThatTemplatesGet) {
  testing::TemporaryFolder folder;
  folder.write("tokenizer.json",
               testing::read_file(testing::fixture_folder("llama3") / "tokenizer.json"));
  folder.write(
      "tokenizer_config.json",
      R"({"eos_token": "<|eot_id|>", "unk_token": {"content": "<unk>"}, "cls_token": ""})");
  folder.write(
      "special_tokens_map.json",
      R"({"pad_token": {"content": "<|pad|>", "lstrip": false}, "unk_token": "<other>", "sep_token": null})");
  auto loaded = Tokenizer::load(folder.path());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_THAT((*loaded)->named_tokens(),
              ElementsAre(Pair("eos_token", "<|eot_id|>"), Pair("unk_token", "<unk>"),
                          Pair("pad_token", "<|pad|>")));

  folder.write("tokenizer_config.json", R"({"mask_token": 5})");
  loaded = Tokenizer::load(folder.path());
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().message, ::testing::HasSubstr("mask_token: expected a string"));
}

// A sentencepiece model has the three tokens itself, as Transformers' class for it has.
TEST(Folder, NamesTheTokensOfASentencePieceModel) {
  testing::TemporaryFolder folder;
  folder.write("tokenizer.model", testing::read_file(testing::fixture_folder("sentencepiece_bpe") /
                                                     "tokenizer.model"));
  folder.write("tokenizer_config.json", R"({"pad_token": "<sep>"})");
  const auto loaded = Tokenizer::load(folder.path());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_THAT((*loaded)->named_tokens(),
              ElementsAre(Pair("bos_token", "<s>"), Pair("eos_token", "</s>"),
                          Pair("pad_token", "<sep>"), Pair("unk_token", "<unk>")));
}

TEST(Folder, AddsBosWhereThePostProcessorIsSilent) {
  testing::TemporaryFolder folder;
  folder.write("tokenizer.json",
               testing::read_file(testing::fixture_folder("gpt2") / "tokenizer.json"));
  folder.write(
      "tokenizer_config.json",
      R"({"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "add_bos_token": true, "add_eos_token": true})");
  const auto loaded = Tokenizer::load(folder.path());
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(*(*loaded)->encode("", AddSpecialTokens::kYes), (std::vector<TokenId>{0, 0}));
  EXPECT_TRUE((*loaded)->encode("", AddSpecialTokens::kNo)->empty());
}

// Transformers 5.24 gives <s> at the front of the llama2 fixture's texts, and </s> behind the
// mistral fixture's, under each of these.
TEST(Folder, LeavesBosAndEosToThePostProcessor) {
  for (const char* family : {"llama2", "mistral"})
    for (const char* flags : {"", R"(, "add_bos_token": false)", R"(, "add_eos_token": true)",
                              R"(, "add_bos_token": true, "add_eos_token": false)"}) {
      testing::TemporaryFolder folder;
      folder.write("tokenizer.json",
                   testing::read_file(testing::fixture_folder(family) / "tokenizer.json"));
      folder.write("tokenizer_config.json",
                   std::string(R"({"bos_token": "<s>", "eos_token": "</s>")") + flags + "}");
      const auto loaded = Tokenizer::load(folder.path());
      ASSERT_TRUE(loaded.ok()) << loaded.error().message;
      const TokenId bos = *(*loaded)->token_to_id("<s>"), eos = *(*loaded)->token_to_id("</s>");
      const std::vector<TokenId> expected =
          family == std::string("mistral") ? std::vector{bos, eos} : std::vector{bos};
      EXPECT_EQ(*(*loaded)->encode("", AddSpecialTokens::kYes), expected) << family << flags;
    }
}

TEST(Tokenizers, ServeManyThreadsAtOnce) {
  for (const char* family : {"qwen2", "llama2", "sentencepiece_bpe"}) {
    const auto tokenizer = testing::load_fixture(family);
    const auto& strings = testing::fixture_strings();
    std::vector<std::vector<TokenId>> expected;
    for (std::size_t i = 0; i < 100; ++i)
      expected.push_back(*tokenizer->encode(strings[i], AddSpecialTokens::kYes));
    std::vector<int> n_wrong(4, 0);
    std::vector<std::thread> threads;
    for (int& wrong : n_wrong)
      threads.emplace_back([&] {
        for (std::size_t i = 0; i < 100; ++i) {
          wrong += *tokenizer->encode(strings[i], AddSpecialTokens::kYes) != expected[i];
          static_cast<void>(tokenizer->decode(expected[i], SkipSpecialTokens::kYes));
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(n_wrong, ::testing::Each(0)) << family;
  }
}

TEST(Tokens, ShowTheirBytes) {
  const auto gpt2 = testing::load_fixture("gpt2");
  EXPECT_EQ(gpt2->token_bytes(*gpt2->token_to_id("Ġthe")), " the");
  EXPECT_EQ(gpt2->token_bytes(*gpt2->token_to_id("Ã")), "\xC3");
  EXPECT_EQ(gpt2->token_text(*gpt2->token_to_id("Ġthe")), "Ġthe");
  EXPECT_FALSE(gpt2->is_token(-1));
  EXPECT_FALSE(gpt2->is_token(static_cast<TokenId>(gpt2->vocab_size())));
  EXPECT_EQ(gpt2->token_bytes(-5), "");
  EXPECT_EQ(gpt2->token_to_id("no such token"), std::nullopt);
  const auto llama2 = testing::load_fixture("llama2");
  EXPECT_EQ(llama2->token_bytes(*llama2->token_to_id("<0xE6>")), "\xE6");
  EXPECT_EQ(llama2->token_bytes(*llama2->token_to_id("▁the")), " the");
  EXPECT_EQ(llama2->bos_token(), "<s>");
}

}  // namespace
}  // namespace foretoken
