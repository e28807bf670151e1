// The passes of many services as one answer: where all that they keep is more than an answer holds,
// each gives as many of its newest as the others. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "common/messages/client.h"

namespace foretoken {

// Leaves out the oldest passes until the list has at most so many bytes in an answer; returns how
// many it has. What was left out shows in `first`. More than `most`: there are too many services.
std::size_t cut_passes(std::vector<wire::ServicePasses>& passes, std::size_t most);

}  // namespace foretoken
