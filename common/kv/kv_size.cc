#include "common/kv/kv_size.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

namespace foretoken {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

struct Unit {
  std::string_view name;
  double n_bytes;
};
constexpr std::array<Unit, 9> kUnits{{{"", 1},
                                      {"B", 1},
                                      {"KiB", 1024.0},
                                      {"MiB", 1024.0 * 1024.0},
                                      {"GiB", kGiB},
                                      {"TiB", 1024.0 * kGiB},
                                      {"MB", 1e6},
                                      {"GB", 1e9},
                                      {"TB", 1e12}}};

Error bad_memory(std::string_view text, std::string_view key) {
  return {ErrorCode::kConfig,
          std::string(key) + " is \"" + std::string(text) +
              "\"; it must be a share of free memory (\"60%\"), a size (\"8GiB\", \"512MiB\") or a "
              "number of tokens (\"56000 tokens\")",
          std::string(key)};
}

std::string in_mib(double n_bytes) {
  const auto tenths = static_cast<std::uint64_t>(n_bytes / (1024.0 * 1024.0) * 10.0);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

Result<KvMemory> parse_kv_memory(std::string_view text, std::string_view key) {
  const std::string_view value = trimmed(text);
  double number = 0;
  const auto [end, error] =
      std::from_chars(value.data(), value.data() + value.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || number <= 0) return bad_memory(text, key);
  const std::string_view unit = trimmed(value.substr(static_cast<std::size_t>(end - value.data())));
  if (unit == "%") {
    if (number > 100) return bad_memory(text, key);
    return KvMemory{.share = number / 100};
  }
  if (unit == "tokens") {
    if (number < 1 || number > 1e12) return bad_memory(text, key);
    return KvMemory{.n_tokens = static_cast<std::uint64_t>(number)};
  }
  const auto known = std::find_if(kUnits.begin(), kUnits.end(),
                                  [&](const Unit& each) { return each.name == unit; });
  if (known == kUnits.end()) return bad_memory(text, key);
  const double n_bytes = number * known->n_bytes;
  if (n_bytes < 1 || n_bytes > 1e18) return bad_memory(text, key);
  return KvMemory{.n_bytes = static_cast<std::uint64_t>(n_bytes)};
}

Result<std::int32_t> kv_blocks(const KvSizeRequest& request) {
  const std::string key(request.key);
  const auto memory = parse_kv_memory(request.memory, key);
  if (!memory.ok()) return memory.error();
  const auto block_bytes = static_cast<std::uint64_t>(request.geometry.block_bytes());
  const auto block_tokens = static_cast<std::uint64_t>(request.geometry.block_tokens);
  if (block_bytes == 0 || block_tokens == 0)
    return Error{ErrorCode::kInternal, "a KV cache without layers, heads or tokens", key};
  const auto free_bytes = static_cast<double>(request.free_bytes);
  const std::uint64_t token_blocks = (memory->n_tokens + block_tokens - 1) / block_tokens;
  const double wanted = memory->n_tokens > 0 ? static_cast<double>(token_blocks * block_bytes)
                        : memory->share > 0  ? memory->share * free_bytes
                                             : static_cast<double>(memory->n_bytes);
  if (wanted > free_bytes)
    return Error{ErrorCode::kOutOfMemory,
                 key + " asks for " + in_mib(wanted) + ", and " + in_mib(free_bytes) + " are free",
                 key};

  const std::uint64_t n_blocks = static_cast<std::uint64_t>(wanted) / block_bytes;
  const std::uint64_t for_one = (request.max_sequence_tokens + block_tokens - 1) / block_tokens;
  const std::uint64_t least = std::max(for_one, std::uint64_t{1});
  if (n_blocks < least)
    return Error{ErrorCode::kOutOfMemory,
                 key + " = \"" + std::string(request.memory) + "\" gives " +
                     std::to_string(n_blocks) + " blocks of " + std::to_string(block_tokens) +
                     " tokens; at least " + std::to_string(least) + " are needed (" +
                     in_mib(static_cast<double>(least) * static_cast<double>(block_bytes)) +
                     ") for one sequence of " + std::to_string(request.max_sequence_tokens) +
                     " tokens; a smaller model.max_model_len (--ctx-size) or kv_cache.dtype needs "
                     "less",
                 key};
  // Slots are 32-bit: block * block_tokens + offset.
  const std::uint64_t most =
      static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max()) / block_tokens;
  return static_cast<std::int32_t>(std::min(n_blocks, most));
}

}  // namespace foretoken
