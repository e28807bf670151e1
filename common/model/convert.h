// Weights from one element type to another on the host, once, at load. Rounds to nearest even.
// Uses no file and no device; eight bits are quantization.h's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/include/types.h"

namespace foretoken {

// Element i of `bytes`: the number itself, of eight-bit types the code before its scale.
void widen(DType dtype, std::span<const std::byte> bytes, std::span<float> out);

// The reverse. False if a finite value became infinite (float16 ends at 65504).
[[nodiscard]] bool narrow(std::span<const float> values, DType dtype, std::span<std::byte> out);

// No NaN and no infinity among the elements.
bool all_finite(DType dtype, std::span<const std::byte> bytes);

// Index and value of the first element that is no finite number: a search for a sentence, slower
// than the question whether there is one.
struct NotFinite {
  std::size_t index = 0;
  float value = 0;
};
std::optional<NotFinite> first_not_finite(DType dtype, std::span<const std::byte> bytes);

}  // namespace foretoken
