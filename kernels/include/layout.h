// Where a token's K and V lie in a paged cache: the one place that turns (block, layer, head,
// offset) into bytes. Pure arithmetic on KvGeometry; usable on a device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/include/types.h"

namespace foretoken {

enum class KvHalf : std::uint8_t { kKeys, kValues };

// A slot names one token's place: block * block_tokens + offset.
constexpr std::int32_t kv_slot(std::int32_t block,
                               std::int32_t offset,
                               const KvGeometry& geometry) {
  return block * geometry.block_tokens + offset;
}

// Bytes from the start of the cache to element 0 of head `head` of the token at (block, offset).
constexpr std::size_t kv_offset(const KvGeometry& geometry,
                                std::int32_t block,
                                std::int32_t offset,
                                std::int32_t layer,
                                KvHalf half,
                                std::int32_t head) {
  const std::size_t plane = 2 * static_cast<std::size_t>(layer) + (half == KvHalf::kValues ? 1 : 0);
  const std::size_t row =
      static_cast<std::size_t>(head) * static_cast<std::size_t>(geometry.block_tokens) +
      static_cast<std::size_t>(offset);
  return static_cast<std::size_t>(block) * geometry.block_bytes() + plane * geometry.plane_bytes() +
         row * static_cast<std::size_t>(geometry.head_dim) * size_bytes(geometry.dtype);
}

constexpr std::size_t kv_offset_of_slot(const KvGeometry& geometry,
                                        std::int32_t slot,
                                        std::int32_t layer,
                                        KvHalf half,
                                        std::int32_t head) {
  return kv_offset(geometry, slot / geometry.block_tokens, slot % geometry.block_tokens, layer,
                   half, head);
}

}  // namespace foretoken
