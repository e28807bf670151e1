// The half of TokenMemory that looks up: the places with the longest match, then what follows them.
#include <algorithm>
#include <array>

#include "common/base/hash.h"
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

// From places onwards, always with the token that most of them have; the others are dropped.
class TokenMemory::Walk {
 public:
  Walk(const TokenMemory& memory, const RecallRules& rules, Recollection& recollection)
      : memory_(memory), rules_(rules), out_(recollection) {}

  void run(const Places& places) {
    const std::uint32_t max_len = std::min(rules_.max_len, 2 * places.match);
    go({.places = places, .room = max_len}, Kind::kChain);
    out_.n_chain = static_cast<std::uint32_t>(out_.tokens.size());
    // Branches are short: they rest on few places.
    for (std::size_t i = 0; i < n_deviations_; ++i) {
      Deviation branch = deviations_[i];
      add(branch.token, branch.share_here, branch.parent);
      branch.parent = static_cast<std::uint16_t>(out_.tokens.size() - 1);
      branch.room = std::min(branch.room, kRunnerUpLength) - 1;
      go(branch, Kind::kRunnerUp);
    }
  }

 private:
  enum class Kind { kChain, kRunnerUp };

  // Where a walk begins: places that agree so far.
  struct Deviation {
    Places places;
    double share = 1;      // of all places at the root
    float share_here = 1;  // of the places that had its parent
    TokenId token = -1;    // not yet in the tree
    std::uint16_t parent = Recollection::kRoot;
    std::uint32_t room = 0;  // tokens it may still add, its own among them
  };
  struct Count {
    TokenId token = -1;
    std::uint32_t n = 0;
  };

  void add(TokenId token, float share, std::uint16_t parent) {
    out_.tokens.push_back(token);
    out_.shares.push_back(share);
    out_.parents.push_back(parent);
  }

  // The next token of every place; nothing where a document ends.
  void count(Places& places) {
    n_counts_ = 0;
    for (std::uint32_t i = 0; i < places.n; ++i) {
      const TokenId token = next_[i] = memory_.read(places.at[i]);
      if (token < 0) continue;
      const auto end = counts_.begin() + n_counts_;
      const auto known =
          std::find_if(counts_.begin(), end, [=](const Count& c) { return c.token == token; });
      if (known == end) counts_[n_counts_++] = {token, 0};
      ++known->n;
    }
  }

  Places those_with(const Places& places, TokenId token) const {
    Places kept{.match = places.match};
    for (std::uint32_t i = 0; i < places.n; ++i)
      if (next_[i] == token) kept.at[kept.n++] = {places.at[i].number, places.at[i].offset + 1};
    return kept;
  }

  void go(Deviation from, Kind kind) {
    for (; from.room > 0; --from.room) {
      count(from.places);
      const auto end = counts_.begin() + n_counts_;
      const auto best = std::max_element(  // the first of equals: the one seen latest
          counts_.begin(), end, [](const Count& a, const Count& b) { return a.n < b.n; });
      if (best == end) return;
      const double n_places = from.places.n;
      const double share = from.share * best->n / n_places;
      if (kind == Kind::kChain)
        for (auto other = counts_.begin(); other != end; ++other)
          if (other != best) note(from, *other);
      if (share < rules_.min_share) return;
      add(best->token, static_cast<float>(best->n / n_places), from.parent);
      from.parent = static_cast<std::uint16_t>(out_.tokens.size() - 1);
      from.share = share;
      from.places = those_with(from.places, best->token);
    }
  }

  // Keeps the likeliest; of equals the one nearer to the root.
  void note(const Deviation& from, const Count& other) {
    const double share = from.share * other.n / from.places.n;
    if (share < rules_.min_share) return;
    std::size_t at = n_deviations_;
    while (at > 0 && deviations_[at - 1].share < share) --at;
    if (at == kMaxRunnersUp) return;
    n_deviations_ = std::min(n_deviations_ + 1, kMaxRunnersUp);
    std::move_backward(deviations_.begin() + static_cast<std::ptrdiff_t>(at),
                       deviations_.begin() + static_cast<std::ptrdiff_t>(n_deviations_ - 1),
                       deviations_.begin() + static_cast<std::ptrdiff_t>(n_deviations_));
    deviations_[at] = {
        .places = those_with(from.places, other.token),
        .share = share,
        .share_here = static_cast<float>(other.n) / static_cast<float>(from.places.n),
        .token = other.token,
        .parent = from.parent,
        .room = from.room};
  }

  const TokenMemory& memory_;
  const RecallRules& rules_;
  Recollection& out_;
  std::array<TokenId, kMaxPlaces> next_;
  std::array<Count, kMaxPlaces> counts_;
  std::ptrdiff_t n_counts_ = 0;
  std::array<Deviation, kMaxRunnersUp> deviations_;
  std::size_t n_deviations_ = 0;
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
