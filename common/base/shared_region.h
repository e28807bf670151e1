// Memory that two processes of one machine see: an anonymous file (memfd), so it has no name that
// could outlive both, and sealed, so that its receiver can neither cut it short under a
// reader's feet (SIGBUS) nor, where the kernel knows that seal, write to it. Page-aligned. Owns its
// mapping and descriptor; any thread.
#pragma once

#include <cstddef>
#include <utility>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace foretoken {

class SharedRegion {
 public:
  // Ours: mapped for reading and writing, all zero. `label`: what the system calls it in lists of
  // mappings; it cannot be opened by that. kIo.
  static Result<SharedRegion> make(const char* label, std::size_t n_bytes);
  // Another's, received as a descriptor: mapped for reading. Refused unless it is such a file of
  // exactly this size that cannot be shrunk any more: kMalformed, or kIo.
  static Result<SharedRegion> adopt(Fd file, std::size_t n_bytes);

  SharedRegion() = default;
  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&& other) noexcept;
  ~SharedRegion();

  int fd() const { return fd_.get(); }       // to be handed over; -1 once dropped, and of another's
  void drop_fd() { fd_ = Fd(); }             // the mapping stays
  std::byte* data() const { return data_; }  // not to be written through if it is another's
  std::size_t size() const { return size_; }

 private:
  SharedRegion(std::byte* data, std::size_t size, Fd fd)
      : data_(data), size_(size), fd_(std::move(fd)) {}
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  Fd fd_;
};

}  // namespace foretoken
