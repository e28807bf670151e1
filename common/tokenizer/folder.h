// What the small files of a model folder say about text: which tokens begin and end one, and the
// chat templates. The large file, tokenizer.json or tokenizer.model, is read elsewhere.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"

namespace foretoken {

struct FolderText {
  std::string bos_token;  // empty: none
  std::string eos_token;
  // The other names that templates may use, such as {"pad_token", "<pad>"}; only those there are.
  std::vector<std::pair<std::string, std::string>> other_tokens;
  std::optional<bool> add_bos;  // add_bos_token, add_eos_token of tokenizer_config.json
  std::optional<bool> add_eos;
  // Tokens that are marked special here. A tokenizer.json marks its own.
  std::set<std::string, std::less<>> special_tokens;
  // Of tokenizer.model alone. `legacy`: every stretch between special tokens begins with a space,
  // if the model says so; otherwise only a text does, if `add_prefix_space` says so.
  bool legacy = true;
  bool add_prefix_space = true;
  std::vector<std::int64_t> eos_ids;  // of generation_config.json, else config.json; may be empty
  std::string eos_file;               // where they stand
  std::optional<std::string> chat_template;
  std::optional<std::string> tool_template;  // in its place where a request has tools
};

Result<FolderText> read_folder_text(const std::filesystem::path& folder);

}  // namespace foretoken
