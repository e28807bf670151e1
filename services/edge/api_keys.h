// The keys that clients of the edge may have. The file holds their digests only, so that who reads
// it has no key; each has a name, which is the tenant of its requests.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace foretoken::edge {

class ApiKeys {
 public:
  ApiKeys() = default;  // none: every client may ask
  // Lines "NAME DIGEST", 64 hexadecimal digits of the key's SHA-256; # begins a comment.
  static Result<ApiKeys> read(const std::string& file);

  bool empty() const { return keys_.empty(); }
  // The name of a key; nothing for one that is not listed. Takes equally long for each.
  std::optional<std::string> name_of(std::string_view key) const;

 private:
  struct Key {
    std::string name;
    std::string digest;  // 32 bytes
  };
  std::vector<Key> keys_;
};

}  // namespace foretoken::edge
