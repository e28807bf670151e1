// Ids and text against the reference implementation, for every family and every fixture string.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tokenizer/fixtures.h"

namespace foretoken {
namespace {

using testing::escaped;
using testing::fixture_strings;

struct Case {
  std::string family;
  RegexJit jit;
};

class GoldenTokenizer : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    TokenizerOptions options;
    options.jit = GetParam().jit;
    tokenizer_ = testing::load_fixture(GetParam().family, options);
    golden_ = testing::read_golden(GetParam().family);
    ASSERT_EQ(golden_.ids.size(), fixture_strings().size());
    ASSERT_GE(golden_.ids.size(), 2000u);
  }
  std::unique_ptr<Tokenizer> tokenizer_;
  testing::Golden golden_;
};

// Stops after a few: one cause usually breaks hundreds.
class FewFailures {
 public:
  bool enough() { return ++n_ > 5; }

 private:
  int n_ = 0;
};

TEST_P(GoldenTokenizer, EncodesLikeTheReference) {
  FewFailures failures;
  for (std::size_t i = 0; i < golden_.ids.size(); ++i) {
    const auto ids = tokenizer_->encode(fixture_strings()[i], AddSpecialTokens::kNo);
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    if (*ids == golden_.ids[i]) continue;
    ADD_FAILURE() << "string " << i << " " << escaped(fixture_strings()[i]) << "\n ours "
                  << ::testing::PrintToString(*ids) << "\n reference "
                  << ::testing::PrintToString(golden_.ids[i]);
    if (failures.enough()) return;
  }
}

TEST_P(GoldenTokenizer, AddsSpecialTokensLikeTheReference) {
  FewFailures failures;
  for (const auto& [i, expected] : golden_.ids_with_special) {
    const auto ids = tokenizer_->encode(fixture_strings()[i], AddSpecialTokens::kYes);
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    EXPECT_EQ(*ids, expected) << escaped(fixture_strings()[i]);
    if (*ids != expected && failures.enough()) return;
  }
}

TEST_P(GoldenTokenizer, DecodesLikeTheReference) {
  ASSERT_FALSE(golden_.ids.empty());
  ASSERT_FALSE(golden_.sequences.empty());
  FewFailures failures;
  const auto check = [&](std::span<const TokenId> ids, const std::string& text,
                         const std::string& without_special) {
    const std::string ours = tokenizer_->decode(ids, SkipSpecialTokens::kNo);
    const std::string ours_without = tokenizer_->decode(ids, SkipSpecialTokens::kYes);
    if (ours == text && ours_without == without_special) return true;
    ADD_FAILURE() << "ids "
                  << ::testing::PrintToString(std::vector<TokenId>(ids.begin(), ids.end()))
                  << "\n ours " << escaped(ours) << " and " << escaped(ours_without)
                  << "\n reference " << escaped(text) << " and " << escaped(without_special);
    return !failures.enough();
  };
  for (std::size_t i = 0; i < golden_.ids.size(); ++i)
    if (!check(golden_.ids[i], golden_.text(i), golden_.text_without_special(i))) return;
  for (const auto& sequence : golden_.sequences)
    if (!check(sequence.ids, sequence.text, sequence.text_without_special)) return;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& family : testing::fixture_families())
    for (const RegexJit jit : {RegexJit::kWherePossible, RegexJit::kOff})
      all.push_back({family, jit});
  return all;
}

INSTANTIATE_TEST_SUITE_P(
    Families, GoldenTokenizer, ::testing::ValuesIn(cases()), [](const auto& instance) {
      return instance.param.family + (instance.param.jit == RegexJit::kOff ? "_interpreted" : "");
    });

}  // namespace
}  // namespace foretoken
