// The name of a prefix: a 64-bit rolling hash of its tokens. Target and draft compute it alike, so
// it is part of the protocol. A collision can cost time, never text.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/hash.h"
#include "common/base/ids.h"

namespace foretoken {

// H(0), of the empty prefix.
constexpr PrefixHash prefix_hash_root(Fingerprint model, Fingerprint vocabulary) {
  return mix64(model ^ mix64(vocabulary));
}

// H(n + 1) from H(n) and token n.
constexpr PrefixHash prefix_hash_next(PrefixHash prefix, TokenId token) {
  const auto word = static_cast<std::uint64_t>(static_cast<std::uint32_t>(token));
  return mix64(prefix ^ (word * kGoldenRatio64 + 1));
}

constexpr PrefixHash prefix_hash_extend(PrefixHash prefix, std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) prefix = prefix_hash_next(prefix, token);
  return prefix;
}

}  // namespace foretoken
