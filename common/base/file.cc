#include "common/base/file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

namespace foretoken {

bool is_lfs_pointer(std::string_view begin) {
  return begin.starts_with("version https://git-lfs.github.com/spec/");
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t max_bytes) {
  std::error_code status;
  const bool exists = std::filesystem::exists(path, status);
  // A folder on the way may not be entered: what is in it cannot be known.
  if (status) return Error{ErrorCode::kIo, path.string() + ": cannot be read: " + status.message()};
  if (!exists) return Error{ErrorCode::kNotFound, path.string() + ": no such file"};
  if (!std::filesystem::is_regular_file(path, status))
    return Error{ErrorCode::kIo, path.string() + ": expected a regular file, found something else"};
  const auto size = std::filesystem::file_size(path, status);
  if (status) return Error{ErrorCode::kIo, path.string() + ": cannot be read: " + status.message()};
  if (size > max_bytes)
    return Error{ErrorCode::kMalformed, path.string() + ": expected at most " +
                                            std::to_string(max_bytes) + " bytes, found " +
                                            std::to_string(size)};
  std::string bytes(static_cast<std::size_t>(size), '\0');
  std::ifstream stream(path, std::ios::binary);
  if (!stream)
    return Error{ErrorCode::kIo, path.string() + ": cannot be read: " + std::strerror(errno)};
  if (!stream.read(bytes.data(), static_cast<std::streamsize>(size)) && size > 0)
    return Error{ErrorCode::kIo, path.string() + ": cannot be read"};
  if (is_lfs_pointer(bytes))
    return Error{ErrorCode::kMalformed, path.string() + ": " + std::string(kIsLfsPointer)};
  return bytes;
}

}  // namespace foretoken
