// Which cached block holds which full block of tokens after which prefix. The hash only finds an
// entry; tokens, salt and parent are then compared, so that a collision costs a look-up and never a
// wrong word. Knows block numbers, not holders. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/base/ids.h"

namespace foretoken {

// A full block in the chain of its prefix. `serial` is never used twice, so a chain through it
// names exact contents.
struct PrefixLink {
  std::uint64_t hash = 0;
  std::uint64_t serial = 0;
  bool operator==(const PrefixLink&) const = default;
};

struct PrefixEntry {
  PrefixLink link;
  std::uint64_t parent_serial = 0;  // 0: the first block of a text
  std::uint64_t salt = 0;           // tenants with different salts share nothing
  std::int32_t block = -1;
  std::vector<TokenId> tokens;  // [block_tokens]
};

class PrefixIndex {
 public:
  static PrefixLink root(std::uint64_t salt);

  // The entry of these tokens after `parent`, or null.
  const PrefixEntry* find(const PrefixLink& parent,
                          std::uint64_t salt,
                          std::span<const TokenId> tokens) const;

  // Publishes a block; an equal entry that is there already stays, as does one of this block: it
  // may have been published by another holder after a parent of equal text that is gone. Returns
  // the entry's link and whether it is new.
  struct Published {
    PrefixLink link;
    bool is_new = false;
  };
  Published publish(const PrefixLink& parent,
                    std::uint64_t salt,
                    std::span<const TokenId> tokens,
                    std::int32_t block);

  void erase(std::int32_t block);  // nothing if it was not published
  bool contains(std::int32_t block) const { return by_block_.contains(block); }
  std::size_t size() const { return by_block_.size(); }
  std::vector<PrefixEntry> entries() const;

 private:
  std::unordered_multimap<std::uint64_t, PrefixEntry> by_hash_;
  std::unordered_map<std::int32_t, PrefixLink> by_block_;
  std::uint64_t last_serial_ = 0;
};

}  // namespace foretoken
