// What TokenMemory must answer, by its rules and by search through all texts: no tables, no ring.
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "common/memory/token_memory.h"

namespace foretoken {

class BruteForce {
 public:
  std::size_t open() {
    texts_.emplace_back();
    return texts_.size() - 1;
  }
  void append(std::size_t document, std::span<const TokenId> tokens) {
    for (const TokenId token : tokens) {
      written_.push_back({document, texts_[document].size()});
      texts_[document].push_back(token);
    }
  }
  const std::vector<TokenId>& text(std::size_t document) const { return texts_[document]; }
  // All before it is forgotten; for memories of one document.
  void forget_before(std::size_t first) { first_ = first; }

  Recollection recall(std::span<const TokenId> query, const RecallRules& rules) const {
    Recollection out;
    for (const std::size_t order : {8u, 4u, 2u}) {
      std::vector<Place> places = longest(order, query, out.match);
      if (places.empty()) continue;
      if (out.match < rules.min_match) return {};
      out.n_places = static_cast<std::uint32_t>(places.size());
      walk(places, rules, out);
      return out;
    }
    return out;
  }

 private:
  struct Place {
    std::size_t document;
    std::size_t index;  // of the token that followed
  };
  struct Branch {
    std::vector<Place> places;
    std::size_t n_all;  // places at the root, of all branches
    std::size_t n;      // places where it begins
    float share_here;
    TokenId token;
    std::uint16_t parent;
    std::size_t room;
  };

  std::size_t match_at(Place at, std::span<const TokenId> query) const {
    const auto& text = texts_[at.document];
    std::size_t n = 0;
    while (n < std::min<std::size_t>(query.size(), TokenMemory::kMaxMatch) &&
           at.index > first_ + n && text[at.index - 1 - n] == query[query.size() - 1 - n])
      ++n;
    return n;
  }

  std::vector<Place> longest(std::size_t order,
                             std::span<const TokenId> query,
                             std::uint32_t& best) const {
    std::vector<Place> places;
    std::size_t n_compared = 0;
    best = 0;
    for (auto at = written_.rbegin(); at != written_.rend() && n_compared < TokenMemory::kMaxPlaces;
         ++at) {
      if (at->index < first_) break;
      const std::size_t match = match_at(*at, query);
      if (match < order) continue;
      ++n_compared;
      if (match > best) places.clear();
      best = std::max(best, static_cast<std::uint32_t>(match));
      if (match == best) places.push_back(*at);
    }
    return places;
  }

  TokenId token_at(Place at) const {
    const auto& text = texts_[at.document];
    return at.index < text.size() ? text[at.index] : -1;
  }

  std::vector<Place> after(const std::vector<Place>& places, TokenId token) const {
    std::vector<Place> kept;
    for (const Place at : places)
      if (token_at(at) == token) kept.push_back({at.document, at.index + 1});
    return kept;
  }

  // The chain; `others` gets the deviations from it.
  void follow(Branch from,
              const RecallRules& rules,
              Recollection& out,
              std::vector<Branch>* others) const {
    for (; from.room > 0; --from.room) {
      std::vector<std::pair<TokenId, std::size_t>> counts;  // in the order of the places
      for (const Place at : from.places) {
        const TokenId token = token_at(at);
        if (token < 0) continue;
        const auto known = std::find_if(counts.begin(), counts.end(),
                                        [=](const auto& c) { return c.first == token; });
        if (known == counts.end())
          counts.emplace_back(token, 1);
        else
          ++known->second;
      }
      if (counts.empty()) return;
      const auto best =
          std::max_element(counts.begin(), counts.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
      const auto n = static_cast<double>(from.places.size());
      const double least = rules.min_share * static_cast<double>(from.n_all);
      if (others != nullptr)
        for (const auto& [token, count] : counts) {
          if (token != best->first && static_cast<double>(count) >= least)
            others->push_back({after(from.places, token), from.n_all, count,
                               static_cast<float>(count) / static_cast<float>(n), token,
                               from.parent, from.room});
        }
      if (static_cast<double>(best->second) < least) return;
      out.tokens.push_back(best->first);
      out.shares.push_back(static_cast<float>(static_cast<double>(best->second) / n));
      out.parents.push_back(from.parent);
      from.parent = static_cast<std::uint16_t>(out.tokens.size() - 1);
      from.places = after(from.places, best->first);
    }
  }

  void walk(const std::vector<Place>& places, const RecallRules& rules, Recollection& out) const {
    std::vector<Branch> others;
    follow({places, places.size(), places.size(), 1, -1, Recollection::kRoot,
            std::min(rules.max_len, 2 * out.match)},
           rules, out, &others);
    out.n_chain = static_cast<std::uint32_t>(out.tokens.size());
    std::stable_sort(others.begin(), others.end(),
                     [](const Branch& a, const Branch& b) { return a.n > b.n; });
    if (others.size() > TokenMemory::kMaxRunnersUp) others.resize(TokenMemory::kMaxRunnersUp);
    for (Branch& branch : others) {
      out.tokens.push_back(branch.token);
      out.shares.push_back(branch.share_here);
      out.parents.push_back(branch.parent);
      branch.parent = static_cast<std::uint16_t>(out.tokens.size() - 1);
      branch.room = std::min<std::size_t>(branch.room, TokenMemory::kRunnerUpLength) - 1;
      follow(branch, rules, out, nullptr);
    }
  }

  std::vector<std::vector<TokenId>> texts_;
  std::vector<Place> written_;
  std::size_t first_ = 0;
};

}  // namespace foretoken
