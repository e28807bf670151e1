// The committed fixtures of make_fixtures.py: small tokenizers and what the reference made of many
// texts with them.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"

namespace foretoken::testing {

std::filesystem::path fixture_folder(const std::string& name = "");
std::vector<std::string> fixture_families();
const std::vector<std::string>& fixture_strings();
std::unique_ptr<Tokenizer> load_fixture(const std::string& family,
                                        const TokenizerOptions& options = {});

struct Golden {
  struct Sequence {
    std::vector<TokenId> ids;
    std::string text;
    std::string text_without_special;
  };
  std::vector<std::vector<TokenId>> ids;                         // of each string
  std::map<std::size_t, std::vector<TokenId>> ids_with_special;  // of every fifth
  std::map<std::size_t, std::string> decoded;                    // where it differs from the string
  std::map<std::size_t, std::string> decoded_without_special;    // where it differs from `decoded`
  std::vector<Sequence> sequences;                               // arbitrary ids

  const std::string& text(std::size_t i) const {
    const auto it = decoded.find(i);
    return it == decoded.end() ? fixture_strings()[i] : it->second;
  }
  const std::string& text_without_special(std::size_t i) const {
    const auto it = decoded_without_special.find(i);
    return it == decoded_without_special.end() ? text(i) : it->second;
  }
};
Golden read_golden(const std::string& family);
Golden read_golden_file(const std::filesystem::path& path);

// What sentencepiece made of some of the strings, and of arbitrary ids.
struct SentencePieceGolden {
  struct Text {
    std::size_t index;
    std::vector<TokenId> ids;
    std::string decoded;
  };
  std::vector<Text> texts;
  std::vector<std::pair<std::vector<TokenId>, std::string>> sequences;
};
SentencePieceGolden read_sentencepiece_golden(const std::string& family);

// The hash that make_fixtures.py stores of a file, as hexadecimal digits; and the one stored in
// demo_target_golden.json.
std::string file_hash(const std::filesystem::path& path);
std::string demo_golden_hash();

// A folder that vanishes with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, std::string_view bytes) const;

 private:
  std::filesystem::path path_;
};
std::string read_file(const std::filesystem::path& path);

// Text as it can be printed: everything but plain ASCII escaped.
std::string escaped(std::string_view text);

}  // namespace foretoken::testing
