// Every tested pattern against Oniguruma, the engine of the reference, on seeded random text of all
// scripts.
#include <gtest/gtest.h>

#include <random>

#include "common/base/utf8.h"
#include "common/tokenizer/regex.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/tokenizer/oracle/oniguruma.h"

namespace foretoken {
namespace {

TEST(TestedPatterns, SplitLikeOniguruma) {
  constexpr std::uint32_t kSeed = 77;
  std::mt19937 random(kSeed);
  const auto below = [&random](std::uint32_t n) {
    return std::uniform_int_distribution<std::uint32_t>(0, n - 1)(random);
  };
  const std::vector<std::string> pieces{"'s",      "'T",     "'re",    "'VE",
                                        "'ſ",      "'ll",    "’s",     "can't",
                                        "Hello",   "WORLD",  "iPhone", "ÉCOLE",
                                        " ",       "  ",     "\n",     "\r\n",
                                        "\t",      "\n\n  ", "123",    "12345678",
                                        "٣٤",      "½",      "Ⅷ",      "...",
                                        "!?",      "/",      "a/b",    "漢字かなカナ",
                                        "한국어",  "ไทย",    "हिन्दी",  "👩‍👩‍👧",
                                        "e\u0301", "\u200d", "\u00a0", "\u3000",
                                        "\u180e",  "\u0085", "\u2028", "_",
                                        "<|x|>",   "#!",     "ǅ",      "ʰ",
                                        "ß",       "ı",      "İ",      "ﬁ",
                                        "\u01C5a", "Ωmega"};
  for (const std::string_view pattern : tested_patterns()) {
    const Oniguruma oracle(pattern);
    const auto compiled = Regex::compile(pattern, RegexJit::kWherePossible);
    const auto interpreted = Regex::compile(pattern, RegexJit::kOff);
    ASSERT_TRUE(compiled.ok() && interpreted.ok()) << pattern;
    RegexScratch scratch;
    for (int round = 0; round < 400; ++round) {
      std::string text;
      for (std::uint32_t n = below(30); n > 0; --n) {
        if (below(3) != 0) {
          text += pieces[below(static_cast<std::uint32_t>(pieces.size()))];
          continue;
        }
        // Any code point; half of them from the first planes' busy parts.
        std::uint32_t point = below(2) == 0 ? below(0x3000) : below(0x110000);
        if (point >= 0xD800 && point <= 0xDFFF) point = 0xFFFD;
        utf8::append(text, point);
      }
      const auto expected = oracle.find_all(text);
      for (const auto* regex : {&*compiled, &*interpreted}) {
        std::vector<TextRange> found;
        ASSERT_TRUE(regex->find_all(text, scratch, found).ok());
        ASSERT_EQ(found.size(), expected.size())
            << pattern << "\nseed " << kSeed << " round " << round << " " << text;
        for (std::size_t i = 0; i < found.size(); ++i) {
          ASSERT_EQ(found[i].begin, expected[i].begin) << pattern << " " << text;
          ASSERT_EQ(found[i].end, expected[i].end) << pattern << " " << text;
        }
      }
    }
  }
}

}  // namespace
}  // namespace foretoken
