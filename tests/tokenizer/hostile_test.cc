// Files that are wrong, each in one way: refused with a reason that names file and field, never a
// crash. And a storm of random mutations, which may load or not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "common/base/json.h"
#include "common/base/utf8.h"
#include "common/tokenizer/bpe_tokenizer.h"
#include "common/tokenizer/decode_pipeline.h"
#include "common/tokenizer/regex.h"
#include "tests/tokenizer/fixtures.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;

Json small_tokenizer() {
  return Json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [
      {"id": 9, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
      {"id": 10, "content": "Tool", "single_word": true, "lstrip": true, "rstrip": true, "normalized": true, "special": false}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "Isolated", "invert": false},
      {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": true},
      {"type": "Digits", "individual_digits": true}]},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [9], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "_"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "dropout": null, "unk_token": "?", "continuing_subword_prefix": null,
      "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
      "vocab": {"?": 0, "a": 1, "b": 2, "_": 3, "ab": 4, "_a": 5, "<0x0A>": 6, "c": 7, "abc": 8},
      "merges": [["a", "b"], ["_", "a"], ["ab", "c"]]}})");
}

Result<std::unique_ptr<Tokenizer>> load(const std::string& bytes) {
  TemporaryFolder folder;
  folder.write("tokenizer.json", bytes);
  return Tokenizer::load(folder.path());
}

TEST(HostileFiles, TheUnbrokenOneLoads) {
  const auto loaded = load(small_tokenizer().dump());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(*(*loaded)->encode("abc", AddSpecialTokens::kYes), (std::vector<TokenId>{9, 3, 8}));
}

TEST(HostileFiles, ARefusalNamesTheFolder) {
  TemporaryFolder folder;
  const auto nothing = Tokenizer::load(folder.path());
  ASSERT_FALSE(nothing.ok());
  EXPECT_THAT(nothing.error().message,
              HasSubstr("no tokenizer.json and no tokenizer.model, in " + folder.path().string()));
  folder.write("tokenizer.json", "{");
  EXPECT_THAT(Tokenizer::load(folder.path()).error().message,
              HasSubstr(", in " + folder.path().string()));
  const auto missing = Tokenizer::load(folder.path() / "none");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message,
              HasSubstr((folder.path() / "none").string() + " is not a folder"));
}

struct Breakage {
  const char* what;
  std::function<void(Json&)> apply;
  const char* reason;  // part of the message
};

TEST(HostileFiles, AreRefusedWithAReason) {
  const std::vector<Breakage> breakages{
      {"no model", [](Json& j) { j.erase("model"); }, "model: expected an object"},
      {"model of another kind", [](Json& j) { j["model"]["type"] = "Unigram"; },
       "model.type: expected BPE (WordPiece, Unigram"},
      {"another kind with its own vocabulary",
       [](Json& j) {
         j["model"]["type"] = "Unigram";
         j["model"]["vocab"] = {{"a", -1.5}};
       },
       "found \"Unigram\""},
      {"model is a list", [](Json& j) { j["model"] = Json::array(); },
       "model: expected an object, found an array"},
      {"no vocabulary", [](Json& j) { j["model"].erase("vocab"); },
       "model.vocab: expected at least one token"},
      {"empty vocabulary", [](Json& j) { j["model"]["vocab"] = Json::object(); },
       "model.vocab: expected at least one token"},
      {"vocabulary is a list", [](Json& j) { j["model"]["vocab"] = {"a"}; },
       "model.vocab: expected an object"},
      {"an id is text", [](Json& j) { j["model"]["vocab"]["a"] = "1"; },
       "model.vocab[\"a\"]: expected an integer, found a string"},
      {"an id is fractional", [](Json& j) { j["model"]["vocab"]["a"] = 1.5; },
       "model.vocab[\"a\"]: expected an integer"},
      {"an id is negative", [](Json& j) { j["model"]["vocab"]["a"] = -1; }, "found -1"},
      {"an id is huge", [](Json& j) { j["model"]["vocab"]["a"] = 4'000'000'000; },
       "found 4000000000"},
      {"an id is beyond 64 bits",
       [](Json& j) { j["model"]["vocab"]["a"] = 18'000'000'000'000'000'000ull; },
       "model.vocab[\"a\"]"},
      {"two tokens with one id", [](Json& j) { j["model"]["vocab"]["b"] = 1; },
       "expected an id of its own"},
      {"a token of 5000 bytes", [](Json& j) { j["model"]["vocab"][std::string(5000, 'x')] = 50; },
       "4096 bytes"},
      {"merge of an unknown token",
       [](Json& j) {
         j["model"]["merges"].push_back({"a", "zz"});
       },
       "model.merges[3]: expected tokens of the vocabulary, found \"zz\""},
      {"merge of an unknown left",
       [](Json& j) {
         j["model"]["merges"].push_back({"zz", "a"});
       },
       "found \"zz\""},
      {"merge into an unknown token",
       [](Json& j) {
         j["model"]["merges"].push_back({"b", "b"});
       },
       "found \"bb\""},
      {"merge of three",
       [](Json& j) {
         j["model"]["merges"].push_back({"a", "b", "c"});
       },
       "model.merges[3]"},
      {"merge of one", [](Json& j) { j["model"]["merges"].push_back("ab"); }, "model.merges[3]"},
      {"merge with two spaces", [](Json& j) { j["model"]["merges"].push_back("a b c"); },
       "model.merges[3]"},
      {"merge of nothing",
       [](Json& j) {
         j["model"]["merges"].push_back({"", "a"});
       },
       "an empty side"},
      {"merge is a number", [](Json& j) { j["model"]["merges"].push_back(7); }, "model.merges[3]"},
      {"merge of numbers",
       [](Json& j) {
         j["model"]["merges"].push_back({1, 2});
       },
       "model.merges[3]"},
      {"merges is text", [](Json& j) { j["model"]["merges"] = "a b"; },
       "model.merges: expected an array"},
      {"unknown token unknown", [](Json& j) { j["model"]["unk_token"] = "[UNK]"; },
       "model.unk_token"},
      {"unknown token is a number", [](Json& j) { j["model"]["unk_token"] = 0; },
       "model.unk_token: expected a string"},
      {"a flag is text", [](Json& j) { j["model"]["byte_fallback"] = "yes"; },
       "model.byte_fallback: expected true or false"},
      {"a prefix is a number", [](Json& j) { j["model"]["continuing_subword_prefix"] = 1; },
       "continuing_subword_prefix"},
      {"normalizer unknown",
       [](Json& j) { j["normalizer"]["normalizers"][0]["type"] = "Precompiled"; },
       "normalizer.normalizers[0].type"},
      {"normalizer without a type", [](Json& j) { j["normalizer"] = Json::object(); },
       "normalizer.type: expected a string"},
      {"normalizer is text", [](Json& j) { j["normalizer"] = "NFC"; },
       "normalizer: expected an object"},
      {"sequence without members", [](Json& j) { j["normalizer"].erase("normalizers"); },
       "normalizer.normalizers: expected an array"},
      {"pre-tokenizer unknown", [](Json& j) { j["pre_tokenizer"]["type"] = "UnicodeScripts"; },
       "pre_tokenizer.type"},
      {"untested pattern",
       [](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a+)+$"; },
       "a pattern of a known tokenizer"},
      {"pattern of neither kind",
       [](Json& j) {
         j["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"Glob", "*"}};
       },
       "pattern"},
      {"empty pattern",
       [](Json& j) {
         j["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"String", ""}};
       },
       "an empty one"},
      {"behaviour unknown",
       [](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Dropped"; }, "Dropped"},
      {"replacement of two characters",
       [](Json& j) { j["pre_tokenizer"]["pretokenizers"][1]["replacement"] = "__"; },
       "expected one character"},
      {"prepend scheme unknown",
       [](Json& j) { j["pre_tokenizer"]["pretokenizers"][1]["prepend_scheme"] = "last"; },
       "always, first or never"},
      {"decoder unknown", [](Json& j) { j["decoder"]["decoders"][1]["type"] = "CTC"; },
       "decoder.decoders[1].type"},
      {"decoder strips -1", [](Json& j) { j["decoder"]["decoders"][3]["start"] = -1; },
       "decoder.decoders[3].start"},
      {"decoder replaces by pattern",
       [](Json& j) {
         j["decoder"]["decoders"][0]["pattern"] = {{"Regex", "\\s+"}};
       },
       "a regular expression"},
      {"post-processor unknown", [](Json& j) { j["post_processor"]["type"] = "BertProcessing"; },
       "post_processor.type"},
      {"template names no token",
       [](Json& j) { j["post_processor"]["special_tokens"] = Json::object(); },
       "post_processor.special_tokens.<s>"},
      {"template id of nothing",
       [](Json& j) { j["post_processor"]["special_tokens"]["<s>"]["ids"] = {77}; },
       "ids of tokens"},
      {"template without the text", [](Json& j) { j["post_processor"]["single"].erase(1); },
       "one Sequence"},
      {"template with the text twice",
       [](Json& j) { j["post_processor"]["single"].push_back(j["post_processor"]["single"][1]); },
       "one Sequence"},
      {"added tokens are an object", [](Json& j) { j["added_tokens"] = Json::object(); },
       "added_tokens: expected an array"},
      {"added token without id", [](Json& j) { j["added_tokens"][0].erase("id"); },
       "added_tokens[0].id"},
      {"added token without content", [](Json& j) { j["added_tokens"][0].erase("content"); },
       "added_tokens[0].content"},
      {"added token twice", [](Json& j) { j["added_tokens"].push_back(j["added_tokens"][0]); },
       "expected each token once"},
      {"added token with a used id", [](Json& j) { j["added_tokens"][0]["id"] = 4; }, "\"ab\" has"},
      {"added tokens sharing an id", [](Json& j) { j["added_tokens"][1]["id"] = 9; },
       "expected an id of its own"},
      {"added token with another id", [](Json& j) { j["added_tokens"][1]["content"] = "ab"; },
       "the id of \"ab\" in model.vocab, 4"},
      {"added token is empty", [](Json& j) { j["added_tokens"][1]["content"] = ""; },
       "added_tokens[1].content"},
      {"added token far away", [](Json& j) { j["added_tokens"][1]["id"] = 2'000'000'000; },
       "added_tokens[1].id"},
      {"an added flag is a number", [](Json& j) { j["added_tokens"][0]["special"] = 1; },
       "added_tokens[0].special"},
      {"a hundred stages",
       [](Json& j) {
         for (int i = 0; i < 100; ++i) j["normalizer"]["normalizers"].push_back({{"type", "NFC"}});
       },
       "at most 64 stages"},
  };
  for (const Breakage& breakage : breakages) {
    Json json = small_tokenizer();
    breakage.apply(json);
    const auto loaded = load(json.dump());
    ASSERT_FALSE(loaded.ok()) << breakage.what;
    EXPECT_THAT(loaded.error().message, HasSubstr(breakage.reason)) << breakage.what;
    EXPECT_THAT(loaded.error().message, ::testing::StartsWith("tokenizer.json: ")) << breakage.what;
    EXPECT_FALSE(utf8::first_invalid(loaded.error().message)) << breakage.what;
  }
}

TEST(HostileFiles, BytesThatAreNoTokenizerAreRefused) {
  const std::string good = small_tokenizer().dump();
  std::string deep = good;
  deep.replace(deep.find("\"NFC\""), 5, std::string(40, '[') + std::string(40, ']'));
  std::string twice = good;
  twice.insert(1, "\"model\":{},");
  std::string token_twice = good;
  token_twice.replace(token_twice.find("\"abc\":8"), 7, "\"abc\":8,\"abc\":11");
  std::string field_twice = good;
  field_twice.replace(field_twice.find("\"fuse_unk\""), 10, "\"fuse_unk\":true,\"fuse_unk\"");
  std::string surrogate = good;
  surrogate.replace(surrogate.find("\"abc\":8"), 5, "\"\\ud800\"");
  std::string not_utf8 = good;
  not_utf8.replace(not_utf8.find("\"abc\":8"), 5, "\"a\xFF\"");
  for (const std::string& bytes : std::vector<std::string>{
           std::string(), std::string("{"), std::string("[]"), std::string("null"),
           std::string("{}"), std::string("\x00\x01", 2), std::string(1 << 16, '['),
           good.substr(0, good.size() / 2), good.substr(0, good.size() - 1), good + good,
           good + "x", deep, twice, token_twice, field_twice, surrogate, not_utf8,
           "\xEF\xBB\xBF"
           "{"}) {
    const auto loaded = load(bytes);
    ASSERT_FALSE(loaded.ok()) << bytes.substr(0, 100);
    EXPECT_THAT(loaded.error().message, HasSubstr("tokenizer.json")) << bytes.substr(0, 60);
  }
}

TEST(HostileFiles, AFolderWithoutTokenizerSaysSo) {
  TemporaryFolder folder;
  const auto loaded = Tokenizer::load(folder.path());
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::kNotFound);
  std::filesystem::create_directory(folder.path() / "tokenizer.json");
  EXPECT_EQ(Tokenizer::load(folder.path()).error().code, ErrorCode::kIo);
}

TEST(HostileFiles, SmallFilesOfTheFolderAreChecked) {
  const std::vector<std::tuple<const char*, const char*, const char*>> wrong{
      {"tokenizer_config.json", "[]", "expected an object"},
      {"tokenizer_config.json", "{\"bos_token\": 7}", "bos_token: expected a string"},
      {"tokenizer_config.json", "{\"bos_token\": \"<nothing>\"}",
       "bos_token: expected a token of the vocabulary"},
      {"tokenizer_config.json", "{\"bos_token\": {\"text\": \"<s>\"}}", "bos_token.content"},
      {"tokenizer_config.json", "{\"add_bos_token\": \"true\"}",
       "add_bos_token: expected true or false"},
      {"tokenizer_config.json", "{\"chat_template\": 5}", "chat_template: expected a string"},
      {"tokenizer_config.json",
       "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"x\"}]}", "default"},
      {"tokenizer_config.json", "{\"chat_template\": [{\"template\": \"x\"}]}",
       "name: expected a string"},
      {"tokenizer_config.json",
       R"({"chat_template": [{"name": "default", "template": ""}, {"name": "tool_use"}]})",
       "template: expected a string"},
      {"tokenizer_config.json", "{\"a\": 1, \"a\": 2}", "each name once"},
      {"generation_config.json", "{\"eos_token_id\": \"9\"}", "eos_token_id: expected an integer"},
      {"generation_config.json", "{\"eos_token_id\": 99}", "expected ids of tokens, found 99"},
      {"generation_config.json", "{\"eos_token_id\": [9, -2]}", "eos_token_id[1]"},
      {"config.json", "{\"eos_token_id\": 1e99}", "eos_token_id"},
      {"config.json", "not json", "valid JSON"},
      {"special_tokens_map.json", "{\"eos_token\": []}", "eos_token: expected a string"},
      {"chat_template.jinja", "\xFF", "UTF-8"},
  };
  for (const auto& [file, bytes, reason] : wrong) {
    TemporaryFolder folder;
    folder.write("tokenizer.json", small_tokenizer().dump());
    folder.write(file, bytes);
    const auto loaded = Tokenizer::load(folder.path());
    ASSERT_FALSE(loaded.ok()) << file << " " << bytes;
    EXPECT_THAT(loaded.error().message, HasSubstr(reason)) << bytes;
  }
  TemporaryFolder folder;
  folder.write("tokenizer.json", small_tokenizer().dump());
  folder.write("chat_template.jinja", std::string(300u << 10, 'x'));
  EXPECT_FALSE(Tokenizer::load(folder.path()).ok());
}

TEST(HostileFiles, AnUntestedPatternLoadsWithPermission) {
  Json json = small_tokenizer();
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "[ab]";
  TemporaryFolder folder;
  folder.write("tokenizer.json", json.dump());
  const auto refused = Tokenizer::load(folder.path());
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("model.patterns = \"any\""));
  EXPECT_EQ(regex_policy_from_name("any"), RegexPolicy::kAny);
  EXPECT_EQ(regex_policy_from_name("tested"), RegexPolicy::kTestedOnly);
  const auto permitted = Tokenizer::load(folder.path(), {.patterns = RegexPolicy::kAny});
  ASSERT_TRUE(permitted.ok());
  EXPECT_EQ((*permitted)->untested_pattern(), "[ab]");
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "[ab";
  folder.write("tokenizer.json", json.dump());
  const auto broken = Tokenizer::load(folder.path(), {.patterns = RegexPolicy::kAny});
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.error().message, HasSubstr("does not compile"));
}

// The published DeepSeek files have the two characters themselves inside the brackets.
TEST(HostileFiles, APatternMayHaveALineFeedWhereATestedOneSpellsIt) {
  for (const std::string_view tested : tested_patterns()) {
    std::string pattern(tested);
    for (const auto& [spelled, itself] : {std::pair{"\\r", "\r"}, std::pair{"\\n", "\n"}})
      for (std::size_t at; (at = pattern.find(spelled)) != std::string::npos;)
        pattern.replace(at, 2, itself);
    Json json = small_tokenizer();
    json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern;
    TemporaryFolder folder;
    folder.write("tokenizer.json", json.dump());
    const auto loaded = Tokenizer::load(folder.path());
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ((*loaded)->untested_pattern(), "");
  }
}

TEST(HostileFiles, FirstBehindANormalizerThatRemovesTheBeginningIsRefused) {
  Json json = small_tokenizer();  // its Metaspace says "first"
  TemporaryFolder folder;
  const auto replace = [](const char* what, const char* content) {
    return Json{{"type", "Replace"}, {"pattern", {{"String", what}}}, {"content", content}};
  };
  for (const Json& harmless :
       {replace(" ", "_"), replace("é", "ee"), Json{{"type", "NFKC"}},
        Json{{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}}}) {
    json["normalizer"] = harmless;
    folder.write("tokenizer.json", json.dump());
    EXPECT_TRUE(Tokenizer::load(folder.path()).ok()) << harmless.dump();
  }
  for (const Json& removing :
       {replace(" ", ""), replace("ab", "c"),
        Json{{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}},
        Json{{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", "_"}}}) {
    json["normalizer"] = removing;
    folder.write("tokenizer.json", json.dump());
    const auto loaded = Tokenizer::load(folder.path());
    ASSERT_FALSE(loaded.ok()) << removing.dump();
    EXPECT_EQ(loaded.error().code, ErrorCode::kUnsupportedModel);
    EXPECT_THAT(loaded.error().message, HasSubstr("prepend_scheme \"first\""));
  }
  json["pre_tokenizer"]["pretokenizers"][1]["prepend_scheme"] = "always";
  folder.write("tokenizer.json", json.dump());
  EXPECT_TRUE(Tokenizer::load(folder.path()).ok());
}

// The reference finds an empty token between any two bytes: "abab" becomes a, b, a, b where a and b
// would merge, and it fails at "é" ("AddedVocabulary bad split").
TEST(HostileFiles, AnAddedTokenThatNormalizesToNothingIsRefused) {
  Json json = small_tokenizer();
  TemporaryFolder folder;
  json["normalizer"] = Json{{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}};
  json["added_tokens"][1]["content"] = "  ";
  folder.write("tokenizer.json", json.dump());
  const auto loaded = Tokenizer::load(folder.path());
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::kUnsupportedModel);
  EXPECT_THAT(
      loaded.error().message,
      HasSubstr(
          "added_tokens[1].content: expected a text of which the normalizer leaves something"));
  json["added_tokens"][1]["normalized"] = false;
  folder.write("tokenizer.json", json.dump());
  EXPECT_TRUE(Tokenizer::load(folder.path()).ok());
}

TEST(HostileFiles, DropoutOfMergesIsRefused) {
  Json json = small_tokenizer();
  TemporaryFolder folder;
  for (const Json& none : {Json(nullptr), Json(0), Json(0.0)}) {
    json["model"]["dropout"] = none;
    folder.write("tokenizer.json", json.dump());
    EXPECT_TRUE(Tokenizer::load(folder.path()).ok()) << none.dump();
  }
  for (const Json& some : {Json(0.1), Json(1), Json("0.1")}) {
    json["model"]["dropout"] = some;
    folder.write("tokenizer.json", json.dump());
    const auto loaded = Tokenizer::load(folder.path());
    ASSERT_FALSE(loaded.ok()) << some.dump();
    EXPECT_EQ(loaded.error().code, ErrorCode::kUnsupportedModel);
    EXPECT_THAT(loaded.error().message, HasSubstr("model.dropout: expected null or 0"));
  }
}

// A permitted pattern with exponential backtracking meets its limit, and the request is refused.
TEST(HostileFiles, APatternThatExplodesIsStopped) {
  Json json = small_tokenizer();
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a+)+b";
  TemporaryFolder folder;
  folder.write("tokenizer.json", json.dump());
  for (const RegexJit jit : {RegexJit::kWherePossible, RegexJit::kOff}) {
    const auto loaded = Tokenizer::load(folder.path(), {.patterns = RegexPolicy::kAny, .jit = jit});
    ASSERT_TRUE(loaded.ok());
    const auto ids = (*loaded)->encode(std::string(64, 'a') + "cb", AddSpecialTokens::kNo);
    ASSERT_FALSE(ids.ok());
    EXPECT_THAT(ids.error().message, HasSubstr("over its limit"));
  }
}

// Mutations of a valid file: bytes flipped, parts removed, doubled, swapped, numbers and keywords
// exchanged.
class Mutator {
 public:
  explicit Mutator(std::uint32_t seed) : random_(seed) {}

  std::string mutate(std::string bytes) {
    static const std::vector<std::string> pieces{"null",
                                                 "true",
                                                 "-1",
                                                 "1e9",
                                                 "\"\"",
                                                 "[]",
                                                 "{}",
                                                 "4294967296",
                                                 "\"a\"",
                                                 "0",
                                                 ",",
                                                 ":",
                                                 "\"type\"",
                                                 "\"BPE\"",
                                                 "\\u0000",
                                                 "\xC3\xA9",
                                                 "99999999999999999999"};
    for (std::size_t n = below(4) == 0 ? 3 : 1; n > 0 && !bytes.empty(); --n) {
      const std::size_t at = below(bytes.size());
      const std::size_t length = std::min(bytes.size() - at, below(24) + 1);
      switch (below(9)) {
        case 0:
          bytes[at] = static_cast<char>(below(256));
          break;
        case 1:
          bytes.erase(at, length);
          break;
        case 2:
          bytes.insert(at, bytes.substr(below(bytes.size()), length));
          break;
        case 3:
          bytes.insert(at, pieces[below(pieces.size())]);
          break;
        case 4:
          bytes.resize(at);
          break;
        case 5:
          replace_value(bytes, at, pieces[below(pieces.size())]);
          break;
        default:
          replace_value(bytes, at, std::to_string(below(20)));
          break;
      }
    }
    return bytes;
  }
  std::size_t below(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
  }

 private:
  // What stands between a colon and the next comma: keeps the JSON whole, which gets deeper.
  static void replace_value(std::string& bytes, std::size_t at, const std::string& value) {
    const std::size_t colon = bytes.find(':', at);
    if (colon == std::string::npos) return;
    const std::size_t end = bytes.find_first_of(",}]", colon);
    if (end != std::string::npos) bytes.replace(colon + 1, end - colon - 1, value);
  }
  std::mt19937 random_;
};

TEST(HostileFiles, TwentyThousandMutationsNeverCrash) {
  constexpr std::uint32_t kSeed = 41;
  const std::vector<std::string> bases{
      small_tokenizer().dump(), small_tokenizer().dump(1),
      R"({"model":{"vocab":{"a":0,"b":1,"ab":2,"Ġ":3,"Ċ":4},"merges":["a b"]},"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"},"added_tokens":[{"id":5,"content":"<e>","special":true}]})"};
  Mutator mutator(kSeed);
  std::size_t n_loaded = 0;
  for (int round = 0; round < 20'000; ++round) {
    const std::string bytes = mutator.mutate(bases[mutator.below(bases.size())]);
    auto json = parse_tokenizer_json(bytes, "tokenizer.json");
    if (!json.ok()) {
      ASSERT_FALSE(json.error().message.empty());
      continue;
    }
    const auto built = BpeTokenizer::build(*json, {}, "tokenizer.json", {});
    if (!built.ok()) {
      ASSERT_FALSE(built.error().message.empty());
      continue;
    }
    ++n_loaded;
    const auto ids = (*built)->encode("abc AB Tool 12\n<s>é", AddSpecialTokens::kYes);
    if (!ids.ok()) continue;
    const std::string text = (*built)->decode(*ids, SkipSpecialTokens::kNo);
    ASSERT_FALSE(utf8::first_invalid(text)) << "seed " << kSeed << " round " << round;
  }
  EXPECT_GT(n_loaded, 1000u) << "mutations so rough that nothing loads test only the JSON parser";
}

TEST(HostileFiles, MutatedSentencePieceModelsNeverCrash) {
  constexpr std::uint32_t kSeed = 43;
  const std::string good =
      testing::read_file(testing::fixture_folder("sentencepiece_bpe") / "tokenizer.model");
  Mutator mutator(kSeed);
  TemporaryFolder folder;
  int n_refused = 0;
  for (int round = 0; round < 300; ++round) {
    folder.write("tokenizer.model", mutator.mutate(good));
    const auto loaded = Tokenizer::load(folder.path());
    if (loaded.ok()) {
      static_cast<void>((*loaded)->encode("abc é\n", AddSpecialTokens::kYes));
    } else {
      ++n_refused;
      EXPECT_FALSE(loaded.error().message.empty()) << "round " << round;
    }
  }
  EXPECT_GT(n_refused, 0) << "no mutation was noticed";
}

}  // namespace
}  // namespace foretoken
