// How the contract of Collective meets an implementation: for_ranks() runs a body on every rank.
#pragma once

#include <functional>
#include <vector>

#include "common/collective/collective.h"

namespace foretoken::test {

std::vector<int> rank_counts();
void for_ranks(int n_ranks, const std::function<void(Collective&)>& body);

}  // namespace foretoken::test
