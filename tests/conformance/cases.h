// The shapes each op is tested with, once for every device. Sizes sit on both sides of what kernels
// like: vectors of 16, panels of 64, tiles of 6, chunks of 32 to 256 steps.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/include/types.h"

namespace foretoken::cases {

struct Product {
  std::int32_t n_rows;
  std::int32_t n_out;
  std::int32_t n_in;
};
std::span<const Product> products();

struct Attention {
  std::int32_t n_sequences;
  std::int32_t n_rows;    // of each sequence
  std::int32_t n_before;  // positions already in the cache
  std::int32_t n_heads;
  std::int32_t n_kv_heads;
  std::int32_t head_dim;
  std::int32_t block_tokens;
};
std::span<const Attention> attentions();

struct Vocabulary {
  std::int32_t n_rows;
  std::int32_t n_columns;
  std::int32_t n_valid;
};
std::span<const Vocabulary> vocabularies();

std::span<const DType> weight_dtypes();
std::span<const DType> kv_dtypes();

}  // namespace foretoken::cases
