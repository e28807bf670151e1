// The numbers that name things, as types that do not mix. Token ids and positions stay plain
// integers: they live in tensors and arithmetic.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace foretoken {

using TokenId = std::int32_t;    // index into the vocabulary; negative is never valid
using Position = std::uint32_t;  // tokens from the first prompt token, which is 0
using PrefixHash =
    std::uint64_t;  // rolling hash of all tokens before a position (common/spec/prefix_hash.h)
using Fingerprint = std::uint64_t;

// A distinct integer type per kind of id.
template <class Tag, class Integer>
struct Id {
  Integer value = 0;
  auto operator<=>(const Id&) const = default;
};

using SeqId = Id<struct SeqIdTag, std::uint64_t>;  // a sequence, as its target numbers it
using WorkerId =
    Id<struct WorkerIdTag, std::uint64_t>;  // a service instance: stable across restarts
using Incarnation =
    Id<struct IncarnationTag, std::uint64_t>;      // one life of a process: random at start
using Lease = Id<struct LeaseTag, std::uint32_t>;  // one attachment of a sequence to a draft
using Epoch = Id<struct EpochTag, std::uint32_t>;  // one PROPOSE within a lease

// 128-bit idempotency key of a request; chosen by the client or the front door.
struct RequestId {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  auto operator<=>(const RequestId&) const = default;
};

}  // namespace foretoken

template <class Tag, class Integer>
struct std::hash<foretoken::Id<Tag, Integer>> {
  std::size_t operator()(const foretoken::Id<Tag, Integer>& id) const noexcept {
    return std::hash<Integer>{}(id.value);
  }
};

template <>
struct std::hash<foretoken::RequestId> {
  std::size_t operator()(const foretoken::RequestId& id) const noexcept {
    return std::hash<std::uint64_t>{}(id.low ^ (id.high * 0x9E3779B97F4A7C15ull));
  }
};
