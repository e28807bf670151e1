// Which proposed tokens stand. Coupled acceptance (Daliri, Musco, Suresh, arXiv 2408.07978): the
// target draws its own token for every row with noise that depends on (seed, choice, position, id)
// alone, and a proposed token stands when it is that very token. Row k's draw is the one plain
// decoding would make if rows 0 .. k-1 stood, so what is committed is plain decoding's text
// whatever was proposed: the proposal decides how many tokens a round yields, the target decides
// which. The price: the two races agree with probability >= (1 - TV) / (1 + TV), where rejection
// sampling reaches 1 - TV.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/check.h"
#include "common/base/ids.h"

namespace foretoken {

struct Acceptance {
  std::uint32_t n_accepted = 0;  // proposed tokens that stand
  // [n_accepted + 1]: these, then the correction or, if all stand, the bonus.
  std::span<const TokenId> committed;
};

// `drafted` [n] are the proposed tokens, `chosen` [n + 1] the target's own of rows 0 .. n. Borrows
// from `chosen`.
inline Acceptance accept(std::span<const TokenId> drafted, std::span<const TokenId> chosen) {
  FORETOKEN_CHECK(chosen.size() == drafted.size() + 1);
  std::size_t n = 0;
  while (n < drafted.size() && drafted[n] == chosen[n]) ++n;
  return {static_cast<std::uint32_t>(n), chosen.first(n + 1)};
}

}  // namespace foretoken
