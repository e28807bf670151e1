// draft_ids.i32 of a model folder: the ids that the rows of a trimmed head stand for. A draft may
// leave out what its target hardly ever says: the embedding has every id, the head some. Uses no
// tensor and no tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "common/base/ids.h"

namespace foretoken {

struct ModelConfig;

inline constexpr const char* kHeadIdsFile = "draft_ids.i32";

// Little-endian int32 values, as many as lm_head.weight has rows; empty if there is no such file.
// Ids ascend, are 0 or more and below config.vocab_size, and have all of config.eos_token_ids among
// them. Throws FatalError(kIo | kMalformed).
std::vector<TokenId> read_head_ids(const std::filesystem::path& folder, const ModelConfig& config);

// FatalError(kUnsupportedModel) if the head is trimmed, for what needs logits of every id; `who` is
// the subject of the sentence: "a target".
void refuse_trimmed_head(const ModelConfig& config,
                         const std::filesystem::path& folder,
                         const std::string& who);

}  // namespace foretoken
