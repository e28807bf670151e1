// What the ranks of one model tell one another before the first step: where they sit, what they can
// spare, and that they are alike and apart where they must be. Every rank calls each of these, in
// the same order.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/collective/collective.h"

namespace foretoken {

struct RankSeat {
  int n_here = 1;      // ranks on this rank's host
  int index_here = 0;  // which of them this is
};

RankSeat find_seat(Collective& ranks, std::string_view host);

// Of all ranks: what the poorest has is what all may count on.
std::uint64_t least_of(Collective& ranks, std::uint64_t mine);

// Throws FatalError(kConfig) on every rank if one of them says something else. `what` names it:
// "build", "arithmetic".
void check_alike(Collective& ranks, std::string_view what, std::string_view words);
// And this one if two of them say the same; "" = nothing to keep apart.
void check_apart(Collective& ranks, std::string_view what, std::string_view words);

}  // namespace foretoken
