// Reading whole small files, with a limit and a sentence for everything that can be wrong.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace foretoken {

// A file begins so that Git LFS left in the place of one that it did not download.
bool is_lfs_pointer(std::string_view begin);
inline constexpr std::string_view kIsLfsPointer =
    "is a Git LFS pointer, not the file itself: run git lfs pull, or download the file";

// kNotFound, kIo, or kMalformed when it is longer than max_bytes or a Git LFS pointer. The message
// begins with the path.
Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t max_bytes);

}  // namespace foretoken
