// The door of simdjson: files of a tokenizer folder, bytes to values, hostile content refused with
// a reason. Knows the shape of tokenizer.json only as far as vocabulary and merges, which are
// large, are concerned.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/tokenizer/json_tree.h"

namespace foretoken {

struct TokenizerJson {
  JsonTree tree;                                            // without model.vocab and model.merges
  std::vector<std::pair<std::string, TokenId>> vocab;       // no text and no id twice
  std::vector<std::pair<std::string, std::string>> merges;  // in order of rank
  // Does not depend on spacing, order of names, or how merges are spelled.
  std::uint64_t canonical_hash = 0;
};

Result<TokenizerJson> read_tokenizer_json(const std::filesystem::path& path);
// From bytes instead of a file, for tests; `file` is what messages call it.
Result<TokenizerJson> parse_tokenizer_json(std::string_view bytes, std::string_view file);

// A small JSON file; an object is required. ErrorCode::kNotFound if there is no such file.
Result<JsonTree> read_json_file(const std::filesystem::path& path);
}  // namespace foretoken
