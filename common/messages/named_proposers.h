// A set of proposers as two fields of a message have it: the one proposer that versions before 1.6
// know, and the bits of all. Pure.
#pragma once

#include <cstdint>

#include "common/base/proposer_set.h"

namespace foretoken::wire {

struct NamedProposers {
  ProposerKind first = ProposerKind::kNone;  // never kMemory, which those versions do not know
  std::uint32_t bits = 0;                    // 0: `first` alone
};

inline NamedProposers named(ProposerSet set) {
  NamedProposers names;
  set.for_each([&](ProposerKind kind) {
    if (names.first == ProposerKind::kNone && kind != ProposerKind::kMemory) names.first = kind;
  });
  if (set != ProposerSet(names.first)) names.bits = set.bits();
  return names;
}

inline ProposerSet proposers_named(ProposerKind first, std::uint32_t bits) {
  return bits != 0 ? ProposerSet::of_bits(bits) : ProposerSet(first);
}

}  // namespace foretoken::wire
