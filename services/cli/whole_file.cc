// A file that is there whole or not at all.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

// 0 or an errno.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return 0;
}

std::string beside(const std::string& path) { return path + ".new-" + std::to_string(::getpid()); }

Error cannot_write(const std::string& path, int why, const std::string& flag) {
  return {ErrorCode::kIo, "cannot write " + path + ": " + std::strerror(why), flag};
}

}  // namespace

Result<void> check_writable(const std::string& path, const std::string& flag) {
  if (path.empty()) return {};
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    if (S_ISDIR(info.st_mode)) return cannot_write(path, EISDIR, flag);
    if (::access(path.c_str(), W_OK) != 0) return cannot_write(path, errno, flag);
    return {};
  }
  // Links are followed when they are written.
  if (::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode)) return {};
  const std::string fresh = beside(path);
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return cannot_write(path, errno, flag);
  ::close(fd);
  ::unlink(fresh.c_str());
  return {};
}

Result<void> write_whole_file(const std::string& path,
                              std::string_view text,
                              Existing existing,
                              unsigned mode) {
  const auto cannot = [&](int why) { return cannot_write(path, why, "--out"); };
  const auto exists = [&] { return Error{ErrorCode::kConfig, path + " exists already", "--out"}; };
  struct stat info {};
  const bool found = ::lstat(path.c_str(), &info) == 0;
  if (found && existing == Existing::kKeep) return exists();
  // Devices, pipes and links are written through: /dev/stdout must not become a file.
  if (found && !S_ISREG(info.st_mode)) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (fd < 0) return cannot(errno);
    const int wrong = write_all(fd, text);
    if (::close(fd) != 0 || wrong != 0) return cannot(wrong != 0 ? wrong : errno);
    return {};
  }
  const std::string fresh = beside(path);
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return cannot(errno);
  int wrong = write_all(fd, text);
  if (::close(fd) != 0 && wrong == 0) wrong = errno;
  // link() does not replace what another process has put there meanwhile, rename() does.
  if (wrong == 0 && existing == Existing::kKeep && ::link(fresh.c_str(), path.c_str()) != 0)
    wrong = errno;
  if (wrong == 0 && existing == Existing::kReplace && std::rename(fresh.c_str(), path.c_str()) != 0)
    wrong = errno;
  ::unlink(fresh.c_str());
  if (wrong == EEXIST) return exists();
  if (wrong != 0) return cannot(wrong);
  return {};
}

}  // namespace foretoken::cli
