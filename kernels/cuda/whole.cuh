// Values of 16 bytes, stored and loaded as one access at the scope of the system: by the PTX memory
// model it is whole or not there, for other devices and other processes too, it is not held back by
// what a cache that is not coherent has, and a reader that sees one part sees the rest, so that no
// fence is needed. Addresses are multiples of 16. Beside device.cuh; the emulator's meaning is at
// the end.
#pragma once

#include <cstring>

#include "kernels/cuda/device.cuh"

namespace foretoken::cuda {

#if defined(__CUDACC__)

template <class T>
__device__ __forceinline__ void store_whole(T* to, const T& value) {
  static_assert(sizeof(T) == 16);
  std::uint64_t half[2];
  memcpy(half, &value, sizeof half);
  asm volatile(
      "{\n"
      ".reg .b128 whole;\n"
      "mov.b128 whole, {%1, %2};\n"
      "st.relaxed.sys.global.b128 [%0], whole;\n"
      "}" ::"l"(to),
      "l"(half[0]), "l"(half[1])
      : "memory");
}
template <class T>
__device__ __forceinline__ T load_whole(const T* from) {
  static_assert(sizeof(T) == 16);
  std::uint64_t half[2];
  asm volatile(
      "{\n"
      ".reg .b128 whole;\n"
      "ld.relaxed.sys.global.b128 whole, [%2];\n"
      "mov.b128 {%0, %1}, whole;\n"
      "}"
      : "=l"(half[0]), "=l"(half[1])
      : "l"(from)
      : "memory");
  T value;
  memcpy(&value, half, sizeof half);
  return value;
}

#else

template <class T>
void store_whole(T* to, const T& value) {
  static_assert(sizeof(T) == 16);
  if (reinterpret_cast<std::uintptr_t>(to) % 16 != 0) std::abort();  // so would the device
  *to = value;
}
template <class T>
T load_whole(const T* from) {
  static_assert(sizeof(T) == 16);
  if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0) std::abort();
  return *from;
}

#endif

}  // namespace foretoken::cuda
