// How many KV blocks fit: kv_cache.memory or draft.memory ("60%" of free memory, "8GiB", "512MiB",
// "56000 tokens") and the model's geometry to a count, or a refusal that names the key. Pure: the
// free bytes come as an argument.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/result.h"
#include "kernels/include/types.h"

namespace foretoken {

// A size in bytes, as a share of what is free, or in tokens; exactly one is set.
struct KvMemory {
  std::uint64_t n_bytes = 0;
  double share = 0;  // (0, 1]
  std::uint64_t n_tokens = 0;
};

// "60%", "8GiB", "512MiB", "65536KiB", "1GB", "1073741824", "56000 tokens"; decimals allowed.
// kConfig otherwise. key: what the message calls it.
Result<KvMemory> parse_kv_memory(std::string_view text, std::string_view key = "kv_cache.memory");

struct KvSizeRequest {
  std::string_view memory = "60%";
  std::string_view key = "kv_cache.memory";
  KvGeometry geometry;
  std::uint64_t free_bytes = 0;
  std::uint64_t max_sequence_tokens = 0;  // one sequence of this length must fit
};

// kConfig when the text is wrong, kOutOfMemory when too few blocks fit or more than is free is
// asked for.
Result<std::int32_t> kv_blocks(const KvSizeRequest& request);

}  // namespace foretoken
