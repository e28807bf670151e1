// The tokenizer of the demo pair against the reference.
#include <gtest/gtest.h>

#include "tests/tokenizer/fixtures.h"

namespace foretoken {
namespace {

TEST(DemoTokenizer, EncodesAndDecodesLikeTheReference) {
  const std::filesystem::path folder =
      std::filesystem::path(FORETOKEN_SOURCE_DIR) / "models/demo-target";
  if (!std::filesystem::exists(folder / "tokenizer.json") ||
      !std::filesystem::exists(testing::fixture_folder("demo_target_golden.json")))
    GTEST_SKIP() << "no demo model or no golden ids of it";
  if (testing::file_hash(folder / "tokenizer.json") != testing::demo_golden_hash())
    GTEST_SKIP() << "models/demo-target/tokenizer.json has changed: run "
                    "tests/tokenizer/make_fixtures.py --only demo";
  const auto loaded = Tokenizer::load(folder);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const auto golden = testing::read_golden_file(testing::fixture_folder("demo_target_golden.json"));
  for (std::size_t i = 0; i < golden.ids.size(); ++i) {
    const auto ids = (*loaded)->encode(testing::fixture_strings()[i], AddSpecialTokens::kNo);
    ASSERT_TRUE(ids.ok());
    ASSERT_EQ(*ids, golden.ids[i]) << testing::escaped(testing::fixture_strings()[i]);
    ASSERT_EQ((*loaded)->decode(*ids, SkipSpecialTokens::kNo), golden.text(i));
    ASSERT_EQ((*loaded)->decode(*ids, SkipSpecialTokens::kYes), golden.text_without_special(i));
  }
}

}  // namespace
}  // namespace foretoken
