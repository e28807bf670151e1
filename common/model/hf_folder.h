// config.json and generation_config.json of a Hugging Face folder, in the old spelling and the new,
// and the ids of a trimmed head (head_ids.h) into a validated ModelConfig. Uses no tensor. Every
// refusal names file, field, expectation and finding.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

#include "common/model/config.h"

namespace foretoken {

// Of config.json and generation_config.json.
inline constexpr std::size_t kMaxConfigBytes = 1u << 20;

// Throws FatalError(kIo | kMalformed | kUnsupportedModel).
ModelConfig read_model_config(const std::filesystem::path& folder);

// The same from text. `generation` may be empty: no such file. `folder_name` only appears in
// messages.
ModelConfig parse_model_config(std::string_view config,
                               std::string_view generation,
                               std::string_view folder_name);

// All files that make text into ids and messages into text, where `from` has them. Files of these
// names in `to` are replaced. Throws FatalError(kIo).
void copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to);

// Chat templates beside the usual one (additional_chat_templates), where `from` has some. Throws
// FatalError(kIo).
void copy_additional_templates(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace foretoken
