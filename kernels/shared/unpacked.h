// Where each backend's packing begins: what stacked sources are together, apart from where their
// weights go. Host memory only; contract::check has passed them.
#pragma once

#include <algorithm>
#include <span>

#include "kernels/include/types.h"

namespace foretoken {

// Dtype and sizes of the whole; its buffers are empty.
inline Linear unpacked(std::span<const LinearSource> sources, Stacking stacking) {
  Linear linear;
  linear.dtype = sources.front().dtype;
  linear.stacking = stacking;
  linear.n_in = sources.front().n_in;
  linear.group = sources.front().group;
  linear.kind = sources.front().kind;
  for (const LinearSource& source : sources) linear.n_out += source.n_out;
  return linear;
}

inline bool any_bias(std::span<const LinearSource> sources) {
  return std::any_of(sources.begin(), sources.end(),
                     [](const LinearSource& source) { return source.bias != nullptr; });
}

}  // namespace foretoken
