#include "common/engine/rank_setup.h"

#include <algorithm>
#include <string>

#include "common/base/hash.h"
#include "common/base/result.h"

namespace foretoken {
namespace {

std::vector<std::uint64_t> all_of(Collective& ranks, std::uint64_t mine) {
  return ranks.gather(std::span<const std::uint64_t>(&mine, 1));
}

}  // namespace

RankSeat find_seat(Collective& ranks, std::string_view host) {
  const std::uint64_t here = fnv1a(host);
  const auto hosts = all_of(ranks, here);
  const auto own = hosts.begin() + ranks.rank();
  return {.n_here = static_cast<int>(std::count(hosts.begin(), hosts.end(), here)),
          .index_here = static_cast<int>(std::count(hosts.begin(), own, here))};
}

std::uint64_t least_of(Collective& ranks, std::uint64_t mine) {
  const auto all = all_of(ranks, mine);
  return *std::min_element(all.begin(), all.end());
}

void check_alike(Collective& ranks, std::string_view what, std::string_view words) {
  const auto all = all_of(ranks, fnv1a(words));
  const auto other = std::find_if(all.begin(), all.end(), [&](auto d) { return d != all.front(); });
  if (other == all.end()) return;
  throw FatalError(ErrorCode::kConfig, "rank " + std::to_string(other - all.begin()) +
                                           " has another " + std::string(what) +
                                           " than rank 0; rank " + std::to_string(ranks.rank()) +
                                           " has " + std::string(words));
}

void check_apart(Collective& ranks, std::string_view what, std::string_view words) {
  const std::uint64_t of_none = fnv1a("");
  const auto all = all_of(ranks, fnv1a(words));
  for (auto one = all.begin(); one != all.end(); ++one) {
    const auto other = std::find(one + 1, all.end(), *one);
    if (*one == of_none || other == all.end()) continue;
    throw FatalError(ErrorCode::kConfig, "ranks " + std::to_string(one - all.begin()) + " and " +
                                             std::to_string(other - all.begin()) +
                                             " have the same " + std::string(what) +
                                             ": each needs its own");
  }
}

}  // namespace foretoken
