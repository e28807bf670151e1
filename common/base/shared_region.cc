#include "common/base/shared_region.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010  // Linux 5.1
#endif

namespace foretoken {
namespace {

Error cannot(const std::string& what) {
  return {ErrorCode::kIo, what + ": " + std::strerror(errno)};
}

}  // namespace

Result<SharedRegion> SharedRegion::make(const char* label, std::size_t n_bytes) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  // Some systems allow files without the right to execute alone, older ones do not know of it.
  int made = ::memfd_create(label, kFlags | MFD_NOEXEC_SEAL);
  if (made < 0 && errno == EINVAL) made = ::memfd_create(label, kFlags);
  Fd file{made};
  if (!file) return cannot("memfd_create");
  if (::ftruncate(file.get(), static_cast<off_t>(n_bytes)) != 0)
    return cannot("ftruncate of a memfd");
  void* data =
      ::mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (data == MAP_FAILED) return cannot("mmap of a memfd");
  SharedRegion region(static_cast<std::byte*>(data), n_bytes, std::move(file));
  if (::fcntl(region.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return cannot("sealing a memfd");
  // No other process needs to write; a kernel without this seal only leaves the other side free to
  // spoil what it is sent itself.
  (void)::fcntl(region.fd(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  (void)::fcntl(region.fd(), F_ADD_SEALS, F_SEAL_SEAL);
  return region;
}

Result<SharedRegion> SharedRegion::adopt(Fd file, std::size_t n_bytes) {
  const int fd = file.get();
  const auto refuse = [](const char* why) {
    return Error{ErrorCode::kMalformed, std::string("the other side's memory ") + why};
  };
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) return refuse("is not a memfd");
  if ((seals & F_SEAL_SHRINK) == 0) return refuse("may be cut short: it lacks the seal");
  struct statfs where {};
  // A memfd on huge pages has seals, too, and no promise that there is a page behind it.
  if (::fstatfs(fd, &where) != 0 || where.f_type != TMPFS_MAGIC)
    return refuse("is not on ordinary pages");
  struct stat file_status {};
  if (::fstat(fd, &file_status) != 0) return cannot("fstat of a memfd");
  if (!S_ISREG(file_status.st_mode) || file_status.st_size != static_cast<off_t>(n_bytes))
    return refuse("has another size than was agreed");
  // Not populated: what a peer has not touched would count as our memory.
  void* data = ::mmap(nullptr, n_bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return cannot("mmap of the other side's memory");
  return SharedRegion(static_cast<std::byte*>(data), n_bytes, Fd());
}

SharedRegion::SharedRegion(SharedRegion&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      fd_(std::move(other.fd_)) {}

SharedRegion& SharedRegion::operator=(SharedRegion&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  return *this;
}

SharedRegion::~SharedRegion() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace foretoken
