// Two processes may bind one socket file: the second takes it away silently. A lock on a file
// beside it says no, and ends with the process that holds it, however that ends. The file stays.
// It knows no socket; whoever binds owns one for as long as it serves.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "common/base/result.h"

namespace foretoken {

class FileLock {
 public:
  FileLock() = default;
  explicit FileLock(const std::string& path) {  // throws FatalError
    fd_ = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (fd_ < 0)
      throw FatalError(ErrorCode::kIo, path + " cannot be opened: " + std::strerror(errno));
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      ::close(std::exchange(fd_, -1));
      throw FatalError(ErrorCode::kIo, path + " is locked: another process serves this address");
    }
  }
  FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileLock() {
    if (fd_ >= 0) ::close(fd_);
  }

 private:
  int fd_ = -1;
};

}  // namespace foretoken
