#include "common/base/own_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/fd.h"

namespace foretoken {

std::error_code make_own_folder(const std::filesystem::path& folder) {
  const auto path = folder.has_filename() ? folder : folder.parent_path();  // "a/" is "a"
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (error || ::mkdir(path.c_str(), S_IRWXU) == 0) return error;
  error = {errno, std::generic_category()};
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) error.clear();
  return error;
}

void close_to_others(const std::filesystem::path& folder) {
  const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0 || status.st_uid != ::geteuid()) return;
  constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
  if ((status.st_mode & kOthersWrite) != 0)
    (void)::fchmod(fd.get(), status.st_mode & ~kOthersWrite & 07777);
}

}  // namespace foretoken
