// The committed fixtures of make_fixtures.py: small tokenizers and what the reference made of many texts with them.
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
std::unique_ptr<Tokenizer> load_fixture(const std::string& family, const TokenizerOptions& options = {});

struct Golden {
  struct Sequence {
    std::vector<TokenId> ids;
    std::string text;
    std::string text_without_special;
  };
  std::vector<std::vector<TokenId>> ids;                        // of each string
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

// Text as it can be printed: everything but plain ASCII escaped.
std::string escaped(std::string_view text);

}  // namespace foretoken::testing
