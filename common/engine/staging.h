// What goes to a device and comes back for one pass: buffers that grow, and values of different
// types side by side in one copy.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "kernels/include/backend.h"

namespace foretoken {

// Where the next part of a parcel may begin.
constexpr std::size_t aligned_part(std::size_t offset) { return (offset + 15) / 16 * 16; }

// A device buffer that grows and is filled from a vector.
class Staging {
 public:
  template <class T>
  T* room(Backend& backend, std::size_t n) {
    return static_cast<T*>(reserve(backend, n * sizeof(T)));
  }
  template <class T>
  const T* fill(Backend& backend, const std::vector<T>& values) {
    T* to = room<T>(backend, values.size());
    if (!values.empty()) backend.upload(to, values.data(), values.size() * sizeof(T));
    return to;
  }

  const void* address() const { return buffer_.as<void>(); }

 private:
  void* reserve(Backend& backend, std::size_t n_bytes);
  Buffer buffer_;
};
// Parts of different types side by side, as they go up.
class Parcel {
 public:
  void clear() { bytes_.clear(); }
  template <class T>
  std::size_t add(const std::vector<T>& values) {  // its offset
    const std::size_t at = aligned_part(bytes_.size());
    bytes_.resize(at + values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(bytes_.data() + at, values.data(), values.size() * sizeof(T));
    return at;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace foretoken
