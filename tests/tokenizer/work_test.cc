// Adversarial texts cost n log n, counted in operations rather than seconds; and cutting long
// pieces changes no token.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "common/tokenizer/bpe.h"
#include "common/tokenizer/limits.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/spec_reader.h"
#include "common/tokenizer/tokenizer_json.h"
#include "tests/tokenizer/fixtures.h"

namespace foretoken {
namespace {

constexpr std::size_t kMegabyte = 1u << 20;

std::string repeated(std::string_view unit, std::size_t n_bytes) {
  std::string text;
  while (text.size() + unit.size() <= n_bytes) text += unit;
  return text;
}

class WorkOfFamily : public ::testing::TestWithParam<std::string> {
 protected:
  // What BPE does for a text, added tokens left aside: the same parts as in a BpeTokenizer, which
  // keeps its scratch to itself.
  std::uint64_t operations(const std::string& text) {
    RegexScratch regex;
    BpeScratch scratch;
    Pieces pieces;
    std::vector<TokenId> ids;
    pieces.buffer = *normalizer_.apply(text, regex);
    pieces.ranges = {{0, pieces.buffer.size(), true}};
    EXPECT_TRUE(pre_tokenizer_.apply(pieces, regex).ok());
    for (const Pieces::Range& range : pieces.ranges) bpe_.encode(pieces.text(range), scratch, ids);
    const bool has_added_token = std::ranges::any_of(spec_.added_tokens, [&](const auto& token) {
      return text.find(token.content) != std::string::npos;
    });
    if (!has_added_token) {
      EXPECT_EQ(ids, *tokenizer_->encode(text, AddSpecialTokens::kNo));
    }
    return scratch.n_operations;
  }
  std::unique_ptr<Tokenizer> tokenizer_ = testing::load_fixture(GetParam());
  TokenizerJson json_ =
      *read_tokenizer_json(testing::fixture_folder(GetParam()) / "tokenizer.json");
  TokenizerSpec spec_ = *read_spec(json_.tree, "tokenizer.json", RegexPolicy::kTestedOnly);
  Vocabulary vocabulary_{json_.vocab};
  Bpe bpe_ = *Bpe::build(vocabulary_, json_.merges, spec_.bpe, "tokenizer.json");
  Normalizer normalizer_ = *Normalizer::build(spec_.normalizer, RegexJit::kWherePossible);
  PreTokenizer pre_tokenizer_ = *PreTokenizer::build(spec_.pre_tokenizer, RegexJit::kWherePossible);
};

TEST_P(WorkOfFamily, GrowsHardlyFasterThanTheText) {
  for (const std::string_view unit : {"a", "^", " ", "_", "=", "\n", "the", "ab", "0", "é", "漢",
                                      "\u0301", "😀", "'s", "x ", "\t \n"}) {
    const std::string half = repeated(unit, kMegabyte / 16);
    const std::string whole = repeated(unit, kMegabyte / 8);
    const auto n_half = operations(half);
    const auto n_whole = operations(whole);
    EXPECT_LE(static_cast<double>(n_whole), 2.3 * static_cast<double>(n_half) + 64)
        << testing::escaped(unit);
    EXPECT_LE(static_cast<double>(n_whole),
              4.0 * static_cast<double>(whole.size()) * std::log2(whole.size()))
        << testing::escaped(unit);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families,
    WorkOfFamily,
    ::testing::Values("gpt2", "llama3", "qwen2", "llama2", "metaspace_fused", "suffix"),
    [](const auto& instance) { return instance.param; });

TEST(Work, AMillionCaretsAndAMegabyteOfOneLetter) {
  for (const char* family : {"gpt2", "cl100k", "llama2", "mixture"}) {
    const auto tokenizer = testing::load_fixture(family);
    for (const char* unit : {"^", "a", "\u0301\u0323"}) {
      const std::string text = repeated(unit, 1'000'000);
      const auto ids = tokenizer->encode(text, AddSpecialTokens::kNo);
      ASSERT_TRUE(ids.ok()) << ids.error().message;
      EXPECT_FALSE(ids->empty());
      if (std::string_view(family) == "mixture") continue;  // it normalizes
      EXPECT_EQ(tokenizer->decode(*ids, SkipSpecialTokens::kNo), text);
    }
  }
}

TEST(Work, TextBeyondTheLimitIsRefused) {
  const auto tokenizer = testing::load_fixture("gpt2");
  const auto ids = tokenizer->encode(std::string(tokenizer_limits::kMaxTextBytes + 1, 'a'),
                                     AddSpecialTokens::kNo);
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().code, ErrorCode::kInvalidValue);
}

TEST(Work, TextThatIsNotUtf8IsRefusedAtItsByte) {
  const auto tokenizer = testing::load_fixture("gpt2");
  for (const auto& [text, at] :
       std::vector<std::pair<std::string, std::string>>{{"abc\xFF", "byte 3"},
                                                        {"\xE6\xBC", "byte 0"},
                                                        {"a\xC0\x80", "byte 1"},
                                                        {"é\xED\xA0\x80", "byte 2"},
                                                        {"\xF4\x90\x80\x80", "byte 0"}}) {
    const auto ids = tokenizer->encode(text, AddSpecialTokens::kNo);
    ASSERT_FALSE(ids.ok());
    EXPECT_EQ(ids.error().code, ErrorCode::kInvalidValue);
    EXPECT_NE(ids.error().message.find(at), std::string::npos) << ids.error().message;
  }
}

// The textbook: rank by rank, left to right, whole pieces. The oracle for heap, scan and cuts.
std::vector<TokenId> merge_by_definition(
    std::vector<std::string> symbols,
    const std::vector<std::pair<std::string, std::string>>& merges,
    const Vocabulary& vocabulary) {
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [left, right] : merges) {
      for (std::size_t i = 0; i + 1 < symbols.size() && !changed; ++i) {
        if (symbols[i] != left || symbols[i + 1] != right) continue;
        symbols[i] += symbols[i + 1];
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        changed = true;
      }
      if (changed) break;
    }
  }
  std::vector<TokenId> ids;
  for (const std::string& symbol : symbols) ids.push_back(vocabulary.find(symbol));
  return ids;
}

TEST(Bpe, EqualsItsDefinitionOnRandomMerges) {
  constexpr std::uint32_t kSeed = 5;
  std::mt19937 random(kSeed);
  const auto below = [&random](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  for (int round = 0; round < 150; ++round) {
    std::vector<std::string> tokens{"a", "b", "c", "d"};
    std::vector<std::pair<std::string, std::string>> merges;
    while (tokens.size() < 24) {
      const std::string left = tokens[below(tokens.size())], right = tokens[below(tokens.size())];
      if (left.size() + right.size() > 8 ||
          std::find(tokens.begin(), tokens.end(), left + right) != tokens.end())
        continue;
      merges.emplace_back(left, right);
      tokens.push_back(left + right);
    }
    std::shuffle(merges.begin(), merges.end(), random);
    std::vector<std::pair<std::string, TokenId>> entries;
    for (std::size_t i = 0; i < tokens.size(); ++i)
      entries.emplace_back(tokens[i], static_cast<TokenId>(i));
    const Vocabulary vocabulary(entries);
    const auto bpe = Bpe::build(vocabulary, merges, {}, "test");
    ASSERT_TRUE(bpe.ok());
    BpeScratch scratch;
    for (const std::size_t length : {1u, 2u, 5u, 23u, 24u, 25u, 60u, 200u}) {
      std::string piece;
      std::vector<std::string> symbols;
      for (std::size_t i = 0; i < length; ++i) {
        symbols.emplace_back(1, "abcd"[below(4)]);
        piece += symbols.back();
      }
      std::vector<TokenId> ids;
      bpe->encode(piece, scratch, ids);
      ASSERT_EQ(ids, merge_by_definition(symbols, merges, vocabulary))
          << "seed " << kSeed << " round " << round << " " << piece;
    }
  }
}

// Long pieces are cut where no merge can join: the ids are those of the uncut piece, put together.
TEST(Bpe, CutsLongPiecesWithoutChangingATokenId) {
  const std::vector<std::pair<std::string, TokenId>> entries{{"a", 0},  {"b", 1},  {"c", 2},
                                                             {"ab", 3}, {"bc", 4}, {"abc", 5}};
  const Vocabulary vocabulary(entries);
  const auto bpe = Bpe::build(vocabulary, {{"b", "c"}, {"a", "b"}, {"a", "bc"}}, {}, "test");
  ASSERT_TRUE(bpe.ok());
  std::string unit = "abcabba";  // c|a, b|b, b|a never join
  std::vector<TokenId> of_unit, of_long;
  BpeScratch scratch;
  bpe->encode(unit, scratch, of_unit);
  ASSERT_EQ(of_unit, (std::vector<TokenId>{5, 3, 1, 0}));
  const std::string text = repeated(unit, 7 * 100'000);
  bpe->encode(text, scratch, of_long);
  // "a|a" between two units is no junction either.
  ASSERT_EQ(of_long.size(), 400'000u);
  for (std::size_t i = 0; i < of_long.size(); ++i) ASSERT_EQ(of_long[i], of_unit[i % 4]) << i;
}

}  // namespace
}  // namespace foretoken
