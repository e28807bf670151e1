#include "common/engine/staging.h"

#include <algorithm>

namespace foretoken {

void* Staging::reserve(Backend& backend, std::size_t n_bytes) {
  if (n_bytes > buffer_.size_bytes()) {
    buffer_ = Buffer();  // first, so that old and new need not fit side by side
    buffer_ = backend.allocate(std::max(n_bytes + n_bytes / 2, std::size_t{4096}));
  }
  return buffer_.as<void>();
}

}  // namespace foretoken
