#include "common/model/head_ids.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "common/base/file.h"
#include "common/base/result.h"
#include "common/model/config.h"

namespace foretoken {
namespace {

constexpr std::size_t kBytesPerId = 4;

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& why) {
  throw FatalError(ErrorCode::kMalformed, file.string() + ": " + why);
}

TokenId id_at(std::string_view bytes, std::size_t i) {
  std::uint32_t word = 0;
  for (std::size_t b = 0; b < kBytesPerId; ++b)
    word |= std::uint32_t{static_cast<unsigned char>(bytes[i * kBytesPerId + b])} << 8 * b;
  return static_cast<TokenId>(word);
}

std::size_t most_bytes(const ModelConfig& config) {
  return kBytesPerId * static_cast<std::size_t>(config.vocab_size);
}

// Where it has no size, reading it says why.
void check_size(const std::filesystem::path& file, const ModelConfig& config) {
  std::error_code error;
  const std::uintmax_t n_bytes = std::filesystem::file_size(file, error);
  if (error) return;
  if (n_bytes > 0 && n_bytes % kBytesPerId == 0 && n_bytes <= most_bytes(config)) return;
  refuse(file, "has " + std::to_string(n_bytes) + " bytes; it must have " +
                   std::to_string(kBytesPerId) + " for each row of lm_head.weight, at most " +
                   std::to_string(most_bytes(config)) + " for the " +
                   std::to_string(config.vocab_size) + " ids of the vocabulary");
}

}  // namespace

std::vector<TokenId> read_head_ids(const std::filesystem::path& folder, const ModelConfig& config) {
  const auto file = folder / kHeadIdsFile;
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return {};
  check_size(file, config);
  const std::string bytes = value_or_throw(read_text_file(file, most_bytes(config)));
  std::vector<TokenId> ids(bytes.size() / kBytesPerId);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = id_at(bytes, i);
    const auto refuse_row = [&](const std::string& why) {
      refuse(file, "row " + std::to_string(i) + " has id " + std::to_string(ids[i]) + "; " + why);
    };
    if (ids[i] < 0 || ids[i] >= config.vocab_size)
      refuse_row("it must be 0 to " + std::to_string(config.vocab_size - 1) +
                 ", the ids of the vocabulary");
    if (i > 0 && ids[i] <= ids[i - 1])
      refuse_row("it must be above " + std::to_string(ids[i - 1]) + ", the id of the row before");
  }
  for (const TokenId end : config.eos_token_ids)
    if (!std::binary_search(ids.begin(), ids.end(), end))
      refuse(file, "has no row for end token " + std::to_string(end) +
                       " (eos_token_id): a draft that cannot end guesses past every end");
  return ids;
}

void refuse_trimmed_head(const ModelConfig& config,
                         const std::filesystem::path& folder,
                         const std::string& who) {
  if (config.head_ids.empty()) return;
  throw FatalError(ErrorCode::kUnsupportedModel,
                   folder.string() + ": has a head for " + std::to_string(config.head_ids.size()) +
                       " of " + std::to_string(config.vocab_size) + " ids (" + kHeadIdsFile +
                       "), which is enough for a draft; " + who + " needs logits of every id");
}

}  // namespace foretoken
