// The half of TokenMemory that looks up: the places with the longest match, then what follows them.
#include <algorithm>
#include <array>

#include "common/base/hash.h"
#include "common/base/majority_walk.h"
#include "common/memory/key.h"
#include "common/memory/token_memory.h"

namespace foretoken {

void Recollection::clear() {
  tokens.clear();
  parents.clear();
  shares.clear();
  n_chain = match = n_places = n_looked = 0;
}

std::uint32_t TokenMemory::match_at(Cursor at, std::span<const TokenId> query) const {
  const std::size_t most = std::min(query.size(), kMaxMatch);
  std::uint32_t length = 0;
  while (length < most) {
    if (at.offset == 0) {
      const std::uint32_t before = chunk(at.number).before;
      if (before == kNowhere || !is_live(before)) break;
      at = {before, chunk(before).n_used};
    }
    --at.offset;
    if (chunk(at.number).tokens[at.offset] != query[query.size() - 1 - length])
      break;  // a boundary is no token
    ++length;
  }
  return length;
}

TokenId TokenMemory::read(Cursor& at) const {
  if (at.offset >= chunk(at.number).n_used) {
    const std::uint32_t after = chunk(at.number).after;
    if (after == kNowhere) return kBoundary;
    at = {after, 0};
    if (chunk(after).n_used == 0) return kBoundary;
  }
  return chunk(at.number).tokens[at.offset];
}

TokenMemory::Places TokenMemory::places_of(std::size_t order,
                                           std::uint64_t key,
                                           std::span<const TokenId> query,
                                           std::uint32_t& n_looked) const {
  Places places;
  std::uint32_t place = heads_[order].of(mix64(key));
  std::uint32_t n_compared = 0;
  for (std::uint32_t n_links = 0; place != kNowhere && n_links < kMaxLooked; ++n_links) {
    const Cursor at{place / kChunk, place % kChunk};
    // After the numbers came round a dead place can have a live number.
    if (!is_live(at.number) || at.offset >= chunk(at.number).n_used) break;
    ++n_looked;
    const std::uint32_t match = match_at(at, query);
    place = chunk(at.number).earlier[order][at.offset];
    if (match < kOrders[order]) continue;  // other words in the same bucket
    if (match > places.match) places = {.match = match};
    if (match == places.match) places.at[places.n++] = at;
    if (++n_compared == kMaxPlaces) break;
  }
  return places;
}

// What most places go on with, and the likeliest deviations from it.
class TokenMemory::Walk {
 public:
  Walk(const TokenMemory& memory, const RecallRules& rules, Recollection& recollection)
      : memory_(memory), rules_(rules), out_(recollection) {}

  void run(const Places& places) {
    const std::uint32_t max_len = std::min(rules_.max_len, 2 * places.match);
    at_ = places.at;
    n_all_ = places.n;
    add(walk(places.n, max_len, [&](const Deviation& deviation) { note(deviation); }),
        Recollection::kRoot);
    out_.n_chain = static_cast<std::uint32_t>(out_.tokens.size());
    // Branches are short: they rest on few places.
    for (std::size_t i = 0; i < n_branches_; ++i) {
      const Branch& branch = branches_[i];
      const std::size_t room = std::min<std::size_t>(max_len - branch.depth, kRunnerUpLength);
      const auto parent =
          branch.depth == 0 ? Recollection::kRoot : static_cast<std::uint16_t>(branch.depth - 1);
      add({.tokens = {branch.token}, .shares = {branch.share_here}}, parent);
      const auto own = static_cast<std::uint16_t>(out_.tokens.size() - 1);
      at_ = branch.at;
      add(walk(branch.n, room - 1, {}), own);
    }
  }

 private:
  // Places that go on with another token than the chain.
  struct Branch {
    std::array<Cursor, kMaxPlaces> at;  // after the token
    std::uint32_t n = 0;
    double share_here = 1;  // of the places that had come so far
    TokenId token = -1;
    std::size_t depth = 0;  // tokens of the chain before it
  };

  Walked walk(std::size_t n_places, std::size_t n_tokens, const OnDeviation& on_deviation) {
    const auto next_of = [&](std::size_t place, const std::vector<TokenId>&) {
      const TokenId token = memory_.read(at_[place]);
      if (token >= 0) ++at_[place].offset;
      return token;
    };
    return majority_walk(n_places,
                         {.n_tokens = n_tokens, .least_share = rules_.min_share, .n_all = n_all_},
                         next_of, on_deviation);
  }

  void add(const Walked& walked, std::uint16_t parent) {
    for (std::size_t i = 0; i < walked.tokens.size(); ++i) {
      out_.tokens.push_back(walked.tokens[i]);
      out_.shares.push_back(static_cast<float>(walked.shares[i]));
      out_.parents.push_back(parent);
      parent = static_cast<std::uint16_t>(out_.tokens.size() - 1);
    }
  }

  // Keeps the likeliest; of equals the one nearer to the root.
  void note(const Deviation& deviation) {
    const auto n = static_cast<std::uint32_t>(deviation.places.size());
    if (n < rules_.min_share * n_all_) return;
    std::size_t at = n_branches_;
    while (at > 0 && branches_[at - 1].n < n) --at;
    if (at == kMaxRunnersUp) return;
    n_branches_ = std::min(n_branches_ + 1, kMaxRunnersUp);
    std::move_backward(branches_.begin() + static_cast<std::ptrdiff_t>(at),
                       branches_.begin() + static_cast<std::ptrdiff_t>(n_branches_ - 1),
                       branches_.begin() + static_cast<std::ptrdiff_t>(n_branches_));
    Branch& branch = branches_[at];
    branch.n = n;
    branch.share_here = n / static_cast<double>(deviation.n_places);
    branch.token = deviation.token;
    branch.depth = deviation.n_walked;
    for (std::size_t i = 0; i < n; ++i) branch.at[i] = at_[deviation.places[i]];
  }

  const TokenMemory& memory_;
  const RecallRules& rules_;
  Recollection& out_;
  std::array<Cursor, kMaxPlaces> at_;  // of the places that are walked
  std::uint32_t n_all_ = 0;
  std::array<Branch, kMaxRunnersUp> branches_;
  std::size_t n_branches_ = 0;
};

void TokenMemory::recall(std::span<const TokenId> query,
                         const RecallRules& rules,
                         Recollection& recollection) const {
  recollection.clear();
  std::array<std::uint64_t, kOrders.size()> keys{};
  std::uint64_t key = 0;
  std::uint32_t n_in_key = 0;
  for (std::size_t o = 0; o < kOrders.size() && kOrders[o] <= query.size(); ++o) {
    for (; n_in_key < kOrders[o]; ++n_in_key)
      key = longer_key(key, query[query.size() - 1 - n_in_key]);
    keys[o] = key;
  }
  for (std::size_t o = kOrders.size(); o-- > 0;) {
    if (kOrders[o] > query.size()) continue;
    const Places places = places_of(o, keys[o], query, recollection.n_looked);
    if (places.n == 0) continue;  // fewer tokens may be found
    if (places.match < rules.min_match) return;
    recollection.match = places.match;
    recollection.n_places = places.n;
    return Walk(*this, rules, recollection).run(places);
  }
}

}  // namespace foretoken
