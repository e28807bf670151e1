// Reading whole small files, with a limit and a sentence for everything that can be wrong.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "common/base/result.h"

namespace foretoken {

// kNotFound, kIo, or kMalformed when it is longer than max_bytes. The message begins with the path.
Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t max_bytes);

}  // namespace foretoken
