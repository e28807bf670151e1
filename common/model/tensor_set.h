// A checkpoint against a config: every tensor the config implies is there with its shape and a
// dtype we read, and nothing is there that the config does not imply. Looks at headers, at
// the shapes written beside packed codes, and at a head beside a tied embedding.
#pragma once

#include <filesystem>

#include "common/model/config.h"
#include "common/model/safetensors.h"

namespace foretoken {

// Throws FatalError naming file, tensor, expectation and finding. A config that ties the head to
// the embedding no longer does afterwards if the checkpoint has a head with other contents: the
// head in the file is the one that counts, as in the reference.
void check_tensor_set(ModelConfig& config,
                      const Checkpoint& checkpoint,
                      const std::filesystem::path& folder);

}  // namespace foretoken
