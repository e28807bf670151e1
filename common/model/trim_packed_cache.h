// Which files of packed weights (packed_cache.h) are removed: those that a new file replaces, those
// whose model folder is no longer there, and beyond a limit the least recently used. Only files
// that this user and this host wrote, and that no process uses: locks of one host may mean nothing
// on another. The host of a file of another build's format cannot be read: it stays. Reads their
// origin only. Any thread; several processes may do it at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace foretoken {

struct RemovedPackedFile {
  std::filesystem::path file;
  std::uint64_t size_bytes = 0;
  std::string reason;
};

enum class Trim : std::uint8_t {
  kPlan,  // looks only at what would be removed now
  kRemove
};

struct TrimRules {
  std::string host;              // files of others stay
  std::uint64_t most_bytes = 0;  // of this host's files together
  // Files in the folder that the one about to be written replaces under another name.
  std::vector<std::filesystem::path> replaced = {};
};

// First those that are replaced, and those whose model folder is not there, while another folder is
// in the same parent: else its disk may not be mounted. A folder that cannot be looked at counts as
// there. Then the least recently used, until those of this host take at most `most_bytes`.
std::vector<RemovedPackedFile> trim_packed_cache(const std::filesystem::path& folder,
                                                 const TrimRules& rules,
                                                 Trim how);

}  // namespace foretoken
