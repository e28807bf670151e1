// What the two fingerprints notice, and what they do not.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "common/base/json.h"
#include "tests/tokenizer/fixtures.h"

namespace foretoken {
namespace {

using testing::TemporaryFolder;

struct Fingerprints {
  Fingerprint vocabulary;
  Fingerprint text;
};

class FingerprintOf : public ::testing::Test {
 protected:
  Json tokenizer_ =
      Json::parse(testing::read_file(testing::fixture_folder("llama3") / "tokenizer.json"));
  Json config_ = {{"bos_token", "<|begin_of_text|>"},
                  {"eos_token", "<|eot_id|>"},
                  {"chat_template", "{{ messages }}"}};

  Fingerprints fingerprints(const std::string& extra_file = "", const std::string& extra = "") {
    TemporaryFolder folder;
    folder.write("tokenizer.json", tokenizer_.dump());
    folder.write("tokenizer_config.json", config_.dump());
    if (!extra_file.empty()) folder.write(extra_file, extra);
    const auto loaded = Tokenizer::load(folder.path());
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    return {(*loaded)->vocabulary_fingerprint(), (*loaded)->text_fingerprint()};
  }
};

TEST_F(FingerprintOf, DoesNotDependOnSpellingOrOrder) {
  const Fingerprints before = fingerprints();
  TemporaryFolder folder;
  folder.write("tokenizer.json", testing::read_file(testing::fixture_folder("llama3") /
                                                    "tokenizer.json"));  // file order
  folder.write("tokenizer_config.json", config_.dump(4));
  const auto loaded = Tokenizer::load(folder.path());
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ((*loaded)->vocabulary_fingerprint(), before.vocabulary);
  EXPECT_EQ((*loaded)->text_fingerprint(), before.text);
  for (Json& merge : tokenizer_["model"]["merges"])
    merge = merge[0].get<std::string>() + " " +
            merge[1].get<std::string>();  // as older files write them
  tokenizer_["truncation"] = {{"max_length", 5}};
  EXPECT_EQ(fingerprints().text, before.text);
}

TEST_F(FingerprintOf, BothNoticeWhatIdsMean) {
  const std::vector<std::function<void(Json&)>> changes{
      [](Json& j) {  // two ids exchanged
        auto& vocab = j["model"]["vocab"];
        std::swap(vocab["a"], vocab["b"]);
      },
      [](Json& j) { j["model"]["vocab"]["entirely new"] = 2000; },
      [](Json& j) { j["added_tokens"][1]["special"] = false; },
      [](Json& j) {
        j["added_tokens"].push_back(
            {{"id", 1500}, {"content", "<new>"}, {"special", true}, {"normalized", false}});
      },
  };
  const Fingerprints before = fingerprints();
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const Json saved = tokenizer_;
    changes[i](tokenizer_);
    const Fingerprints after = fingerprints();
    EXPECT_NE(after.vocabulary, before.vocabulary) << i;
    EXPECT_NE(after.text, before.text) << i;
    tokenizer_ = saved;
  }
}

TEST_F(FingerprintOf, VocabularyNoticesTheEndsOfText) {
  const Fingerprints before = fingerprints();
  const Fingerprints after = fingerprints("generation_config.json", R"({"eos_token_id": [1, 2]})");
  EXPECT_NE(after.vocabulary, before.vocabulary);
  EXPECT_EQ(fingerprints("generation_config.json", R"({"eos_token_id": 2})").vocabulary,
            before.vocabulary);
}

TEST_F(FingerprintOf, TextAloneNoticesHowTextBecomesIds) {
  const std::vector<std::function<void(Json&)>> changes{
      [](Json& j) { j["model"]["ignore_merges"] = false; },
      [](Json& j) { std::swap(j["model"]["merges"][0], j["model"]["merges"][1]); },
      [](Json& j) { j["model"]["merges"].erase(j["model"]["merges"].size() - 1); },
      [](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; },
      [](Json& j) {
        j["normalizer"] = {{"type", "NFC"}};
      },
      [](Json& j) { j["post_processor"] = nullptr; },
      [](Json& j) { j["added_tokens"][1]["lstrip"] = true; },
  };
  const Fingerprints before = fingerprints();
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const Json saved = tokenizer_;
    changes[i](tokenizer_);
    const Fingerprints after = fingerprints();
    EXPECT_EQ(after.vocabulary, before.vocabulary) << i;
    EXPECT_NE(after.text, before.text) << i;
    tokenizer_ = saved;
  }
  config_["chat_template"] = "{{ messages[0] }}";
  EXPECT_NE(fingerprints().text, before.text);
  EXPECT_EQ(fingerprints().vocabulary, before.vocabulary);
  EXPECT_NE(fingerprints("chat_template.jinja", "other").text,
            fingerprints().text);  // the file wins
  const auto list_with = [](const char* name) {
    return Json::array({{{"name", "default"}, {"template", "{{ messages[0] }}"}},
                        {{"name", name}, {"template", "{{ tools }}"}}});
  };
  const Fingerprint of_text = fingerprints().text;
  config_["chat_template"] = list_with("rag");
  EXPECT_EQ(fingerprints().text, of_text);  // it is never rendered
  config_["chat_template"] = list_with("tool_use");
  EXPECT_NE(fingerprints().text, of_text);
}

TEST_F(FingerprintOf, TextAloneNoticesWhatIsPutAroundAText) {
  tokenizer_["post_processor"] = nullptr;
  const Fingerprints before = fingerprints();
  for (const char* flag : {"add_bos_token", "add_eos_token"}) {
    config_[flag] = true;
    EXPECT_EQ(fingerprints().vocabulary, before.vocabulary) << flag;
    EXPECT_NE(fingerprints().text, before.text) << flag;
    config_[flag] = false;  // as without the key
    EXPECT_EQ(fingerprints().text, before.text) << flag;
  }
}

TEST_F(FingerprintOf, TextAloneNoticesTheTokensThatATemplateWrites) {
  for (const char* name : {"bos_token", "pad_token"}) {
    config_["chat_template"] = "{{ messages }}";
    config_[name] = "<|begin_of_text|>";
    const Fingerprint unused = fingerprints().text;
    config_["chat_template"] = std::string("{{ ") + name + " }}";
    const Fingerprints before = fingerprints();
    config_[name] = "<|eot_id|>";
    EXPECT_EQ(fingerprints().vocabulary, before.vocabulary) << name;
    EXPECT_NE(fingerprints().text, before.text) << name;
    config_["chat_template"] = "{{ messages }}";
    EXPECT_EQ(fingerprints().text, unused) << name;
  }
}

TEST(Fingerprints, OfASentencePieceModelNoticeItsConfiguration) {
  TemporaryFolder folder;
  folder.write("tokenizer.model", testing::read_file(testing::fixture_folder("sentencepiece_bpe") /
                                                     "tokenizer.model"));
  const auto load = [&](const char* config) {
    folder.write("tokenizer_config.json", config);
    auto loaded = Tokenizer::load(folder.path());
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    return std::move(*loaded);
  };
  const auto with_bos = load("{}");
  EXPECT_EQ(load(R"({"add_bos_token": true})")->text_fingerprint(), with_bos->text_fingerprint());
  std::set<Fingerprint> texts{with_bos->text_fingerprint()};
  for (const char* config :
       {R"({"add_bos_token": false})", R"({"add_eos_token": true})", R"({"legacy": false})",
        R"({"legacy": false, "add_prefix_space": false})"}) {
    const auto other = load(config);
    EXPECT_EQ(other->vocabulary_fingerprint(), with_bos->vocabulary_fingerprint()) << config;
    EXPECT_TRUE(texts.insert(other->text_fingerprint()).second) << config;
  }
  EXPECT_EQ(load(R"({"add_prefix_space": false})")->text_fingerprint(),
            with_bos->text_fingerprint());  // without `legacy` it is not read
}

TEST(Fingerprints, DifferBetweenAllFamilies) {
  std::set<Fingerprint> vocabularies, texts;
  const auto families = testing::fixture_families();
  for (const std::string& family : families) {
    const auto tokenizer = testing::load_fixture(family);
    vocabularies.insert(tokenizer->vocabulary_fingerprint());
    texts.insert(tokenizer->text_fingerprint());
  }
  EXPECT_EQ(vocabularies.size(), families.size());
  EXPECT_EQ(texts.size(), families.size());
}

}  // namespace
}  // namespace foretoken
