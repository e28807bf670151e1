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

}  // namespace

std::vector<TokenId> read_head_ids(const std::filesystem::path& folder, const ModelConfig& config) {
  const auto file = folder / kHeadIdsFile;
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return {};
  const std::size_t most = kBytesPerId * static_cast<std::size_t>(config.vocab_size);
  const std::string bytes = value_or_throw(read_text_file(file, most));
  if (bytes.empty() || bytes.size() % kBytesPerId != 0)
    refuse(file, "has " + std::to_string(bytes.size()) +
                     " bytes; expected 4 for each row of lm_head.weight");
  std::vector<TokenId> ids(bytes.size() / kBytesPerId);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = id_at(bytes, i);
    const auto name = [&] {
      return "id " + std::to_string(ids[i]) + " of row " + std::to_string(i);
    };
    if (ids[i] < 0 || ids[i] >= config.vocab_size)
      refuse(file, name() + " is not below the vocabulary of " + std::to_string(config.vocab_size));
    if (i > 0 && ids[i] <= ids[i - 1])
      refuse(file, name() + " does not follow " + std::to_string(ids[i - 1]) + ": ids must ascend");
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
