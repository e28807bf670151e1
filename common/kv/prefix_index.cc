#include "common/kv/prefix_index.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/hash.h"

namespace foretoken {
namespace {

std::uint64_t hash_of(const PrefixLink& parent, std::span<const TokenId> tokens) {
  std::uint64_t hash = parent.hash;
  for (const TokenId token : tokens)
    hash =
        mix64(hash ^
              (static_cast<std::uint64_t>(static_cast<std::uint32_t>(token)) * kGoldenRatio64 + 1));
  return hash;
}

bool is_same(const PrefixEntry& entry,
             const PrefixLink& parent,
             std::uint64_t salt,
             std::span<const TokenId> tokens) {
  return entry.parent_serial == parent.serial && entry.salt == salt &&
         std::equal(entry.tokens.begin(), entry.tokens.end(), tokens.begin(), tokens.end());
}

}  // namespace

PrefixLink PrefixIndex::root(std::uint64_t salt) {
  return {mix64(salt ^ 0x466F7265746F6B65ull), 0};
}

const PrefixEntry* PrefixIndex::find(const PrefixLink& parent,
                                     std::uint64_t salt,
                                     std::span<const TokenId> tokens) const {
  const auto [first, last] = by_hash_.equal_range(hash_of(parent, tokens));
  for (auto it = first; it != last; ++it)
    if (is_same(it->second, parent, salt, tokens)) return &it->second;
  return nullptr;
}

PrefixIndex::Published PrefixIndex::publish(const PrefixLink& parent,
                                            std::uint64_t salt,
                                            std::span<const TokenId> tokens,
                                            std::int32_t block) {
  if (const PrefixEntry* known = find(parent, salt, tokens)) return {known->link, false};
  if (const auto elsewhere = by_block_.find(block); elsewhere != by_block_.end())
    return {elsewhere->second, false};
  PrefixEntry entry;
  entry.link = {hash_of(parent, tokens), ++last_serial_};
  entry.parent_serial = parent.serial;
  entry.salt = salt;
  entry.block = block;
  entry.tokens.assign(tokens.begin(), tokens.end());
  const PrefixLink link = entry.link;
  by_block_.emplace(block, link);
  by_hash_.emplace(link.hash, std::move(entry));
  return {link, true};
}

void PrefixIndex::erase(std::int32_t block) {
  const auto known = by_block_.find(block);
  if (known == by_block_.end()) return;
  const auto [first, last] = by_hash_.equal_range(known->second.hash);
  const auto entry =
      std::find_if(first, last, [&](const auto& each) { return each.second.block == block; });
  FORETOKEN_CHECK(entry != last);
  by_hash_.erase(entry);
  by_block_.erase(known);
}

std::vector<PrefixEntry> PrefixIndex::entries() const {
  std::vector<PrefixEntry> all;
  all.reserve(by_hash_.size());
  for (const auto& [hash, entry] : by_hash_) all.push_back(entry);
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.link.serial < b.link.serial; });
  return all;
}

}  // namespace foretoken
