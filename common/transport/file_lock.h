// Two processes may bind one socket file: the second takes it away silently. A lock on a file
// beside it says no, and ends with the process that holds it, however that ends. The file stays.
// It uses no socket; the owner of a bound socket holds one for as long as it serves.
#pragma once

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace foretoken {

class FileLock {
 public:
  FileLock() = default;
  explicit FileLock(const std::string& path)  // throws FatalError
      : file_(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)) {
    if (!file_)
      throw FatalError(
          ErrorCode::kIo,
          path + " cannot be opened: " + std::strerror(errno) +
              "; an ipc endpoint needs a folder that can be written to (bus.runtime_dir)");
    if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0)
      throw FatalError(ErrorCode::kIo, path + " is locked: another process serves this address");
  }

 private:
  Fd file_;
};

}  // namespace foretoken
