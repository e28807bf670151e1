// The door of libsentencepiece: the tokenizer of a folder that has a tokenizer.model and no
// tokenizer.json. Control tokens written in a text, and those of added_tokens.json, are found
// first; what lies between goes to the library. Decoding is our own pipeline, so that it can
// stream.
#pragma once

#include <filesystem>
#include <memory>

#include "common/base/result.h"
#include "common/tokenizer/folder.h"
#include "common/tokenizer/tokenizer.h"

namespace foretoken {

Result<std::unique_ptr<Tokenizer>> load_sentencepiece(const std::filesystem::path& folder,
                                                      FolderText text);

}  // namespace foretoken
