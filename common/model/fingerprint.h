// The fingerprint of a model: equal for two folders whose models compute the same function of the
// same stored tensors, however these are cut into files and whatever type they are held in. A
// loader notes digests while it packs; here they become one number, and a folder gets the same
// number without a load. Uses no device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/model/config.h"
#include "common/model/digest.h"
#include "common/model/safetensors.h"

namespace foretoken {

// What changes the function a model computes, besides its tensors.
void add_config(const ModelConfig& config, Digest& digest);

// `digests`: of the contents of each tensor that was read, by name.
Fingerprint fingerprint_of(const ModelConfig& config,
                           const Checkpoint& checkpoint,
                           const std::map<std::string, std::uint64_t>& digests);

// What services say that hold this folder: the first with any KV cache that has no scales of the
// checkpoint; a second one, where it has such scales, with a cache in float8_e4m3. Reads every
// weight, at the speed of the disk, and keeps none. Throws FatalError as load_model does.
std::vector<Fingerprint> fingerprints_of_folder(const std::filesystem::path& folder);

// The last of these, of the first 64 KiB of each tensor alone, in a moment: for finding out before
// a load that two folders are not the same model. Comparable with its own kind only. Throws
// likewise.
Fingerprint sampled_fingerprint(const std::filesystem::path& folder);

}  // namespace foretoken
