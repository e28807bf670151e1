// The demo pair's vocabulary, as a target gives it to Constraints. For tests.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"

namespace foretoken::test {

inline std::unique_ptr<Tokenizer> demo_tokenizer() {
  return value_or_throw(
      Tokenizer::load(std::filesystem::path(FORETOKEN_SOURCE_DIR) / "models/demo-target"));
}

// By id; empty: a token that leaves no text.
inline std::vector<std::string> texts_of(const Tokenizer& tokenizer) {
  std::vector<std::string> texts(tokenizer.vocab_size());
  for (std::size_t id = 0; id < texts.size(); ++id) {
    const auto token = static_cast<TokenId>(id);
    if (tokenizer.is_token(token) && !tokenizer.is_skipped(token))
      texts[id] = tokenizer.token_bytes(token);
  }
  return texts;
}

}  // namespace foretoken::test
