// Folders with a tokenizer.model only, against sentencepiece itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/tokenizer/fixtures.h"

namespace foretoken {
namespace {

using testing::escaped;

class SentencePieceModel : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ = testing::load_fixture(GetParam());
  testing::SentencePieceGolden golden_ = testing::read_sentencepiece_golden(GetParam());
};

TEST_P(SentencePieceModel, EncodesAndDecodesLikeTheLibrary) {
  ASSERT_GT(golden_.texts.size(), 900u);
  for (const auto& text : golden_.texts) {
    const std::string& string = testing::fixture_strings()[text.index];
    const auto ids = tokenizer_->encode(string, AddSpecialTokens::kNo);
    ASSERT_TRUE(ids.ok());
    ASSERT_EQ(*ids, text.ids) << escaped(string);
    ASSERT_EQ(tokenizer_->decode(*ids, SkipSpecialTokens::kNo), text.decoded) << escaped(string);
  }
  for (const auto& [ids, text] : golden_.sequences)
    ASSERT_EQ(tokenizer_->decode(ids, SkipSpecialTokens::kNo), text)
        << ::testing::PrintToString(ids);
}

TEST_P(SentencePieceModel, PutsBosFirstAndFindsControlTokensInText) {
  const auto plain = tokenizer_->encode("one </s> two", AddSpecialTokens::kNo);
  const auto special = tokenizer_->encode("one </s> two", AddSpecialTokens::kYes);
  ASSERT_TRUE(plain.ok() && special.ok());
  ASSERT_EQ(special->size(), plain->size() + 1);
  EXPECT_EQ(special->front(), tokenizer_->bos_id());
  EXPECT_THAT(*plain, ::testing::Contains(*tokenizer_->token_to_id("</s>")));
  EXPECT_THAT(tokenizer_->eos_ids(), ::testing::ElementsAre(*tokenizer_->token_to_id("</s>")));
  EXPECT_EQ(tokenizer_->decode(*special, SkipSpecialTokens::kYes).find("</s>"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Kinds,
                         SentencePieceModel,
                         ::testing::Values("sentencepiece_bpe",
                                           "sentencepiece_unigram",
                                           "sentencepiece_spaces",
                                           "sentencepiece_no_prefix"),
                         [](const auto& instance) { return instance.param; });

TEST(SentencePiece, RefusesWhatIsNotAModel) {
  const std::string good =
      testing::read_file(testing::fixture_folder("sentencepiece_bpe") / "tokenizer.model");
  for (const std::string& bytes : {std::string(), std::string("not a model"),
                                   good.substr(0, good.size() / 2), std::string(10000, '\xFF')}) {
    testing::TemporaryFolder folder;
    folder.write("tokenizer.model", bytes);
    const auto loaded = Tokenizer::load(folder.path());
    ASSERT_FALSE(loaded.ok()) << bytes.size();
    EXPECT_THAT(loaded.error().message, ::testing::HasSubstr("tokenizer.model"));
  }
}

TEST(SentencePiece, AddedTokensExtendTheModel) {
  testing::TemporaryFolder folder;
  folder.write("tokenizer.model", testing::read_file(testing::fixture_folder("sentencepiece_bpe") /
                                                     "tokenizer.model"));
  folder.write("added_tokens.json", R"({"<extra>": 640, "[PAD]": 645})");
  const auto loaded = Tokenizer::load(folder.path());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ((*loaded)->vocab_size(), 646u);
  EXPECT_FALSE((*loaded)->is_token(642));
  EXPECT_THAT(*(*loaded)->encode("a<extra>", AddSpecialTokens::kNo), ::testing::Contains(640));
  folder.write("added_tokens.json", R"({"<extra>": 5})");
  EXPECT_FALSE(Tokenizer::load(folder.path()).ok());
}

}  // namespace
}  // namespace foretoken
