#include "common/spec/proposal_store.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/base/check.h"
#include "common/spec/prefix_hash.h"

namespace foretoken {
namespace {

using TreeEdge = ProposalStore::TreeEdge;

bool by_content(const TreeEdge& a, const TreeEdge& b) {
  return std::tie(a.prefix, a.token, a.position) < std::tie(b.prefix, b.token, b.position);
}

// Makes room in steps, so that a flood costs little per edge: the least confident eighth goes.
void drop_least_confident(std::vector<TreeEdge>& edges) {
  const auto goes_before = [](const TreeEdge& a, const TreeEdge& b) {
    return std::tie(a.confidence, b.position, a.prefix, a.token) <
           std::tie(b.confidence, a.position, b.prefix, b.token);
  };
  std::vector<TreeEdge> ranked = edges;
  const auto bar = ranked.begin() + static_cast<std::ptrdiff_t>(ranked.size() / 8);
  std::nth_element(ranked.begin(), bar, ranked.end(), goes_before);
  const TreeEdge least_kept = *bar;
  std::erase_if(edges, [&](const TreeEdge& edge) { return goes_before(edge, least_kept); });
}

}  // namespace

const ProposalStore::Continuations& ProposalStore::find(SeqId seq) const {
  const auto found = sequences_.find(seq);
  FORETOKEN_CHECK(found != sequences_.end(), "no such sequence in the proposal store");
  return found->second;
}

ProposalStore::Continuations& ProposalStore::find(SeqId seq) {
  return const_cast<Continuations&>(std::as_const(*this).find(seq));
}

void ProposalStore::open(SeqId seq, const CommittedTokens& text) {
  sequences_.insert_or_assign(seq, Continuations{.text = &text, .edges = {}});
}

void ProposalStore::drop_committed(SeqId seq) {
  Continuations& known = find(seq);
  std::erase_if(known.edges,
                [&](const TreeEdge& edge) { return edge.position < known.text->size(); });
}

void ProposalStore::close(SeqId seq) { sequences_.erase(seq); }

bool ProposalStore::well_formed(const Proposal& proposal) const {
  const std::size_t n = proposal.tokens.size();
  if (n > kMaxEdges || proposal.confidences.size() != n) return false;
  if (!proposal.parents.empty() && proposal.parents.size() != n) return false;
  for (std::size_t i = 0; i < n; ++i)
    if (proposal.tokens[i] < 0 || proposal.tokens[i] >= vocab_size_) return false;
  for (std::size_t i = 0; i < proposal.parents.size(); ++i)
    if (proposal.parents[i] != kParentIsBase && proposal.parents[i] >= i) return false;
  return true;
}

void ProposalStore::add_edge(Continuations& known, const TreeEdge& edge) {
  auto at = std::lower_bound(known.edges.begin(), known.edges.end(), edge, by_content);
  if (at != known.edges.end() && !by_content(edge, *at)) {
    at->sources.add(edge.sources);
    if (std::tie(at->confidence, at->source) < std::tie(edge.confidence, edge.source))
      std::tie(at->confidence, at->source) = std::tie(edge.confidence, edge.source);
    return;
  }
  known.edges.insert(at, edge);
  if (known.edges.size() > kMaxEdges) drop_least_confident(known.edges);
}

Insertion ProposalStore::insert(SeqId seq, const Proposal& proposal) {
  const auto found = sequences_.find(seq);
  if (found == sequences_.end()) return Insertion::kUnknownSequence;
  if (!well_formed(proposal)) return Insertion::kMalformed;
  Continuations& known = found->second;
  const Position length = known.text->size();
  if (proposal.base > length) return Insertion::kAhead;
  if (known.text->prefix(proposal.base) != proposal.prefix) return Insertion::kDivergent;

  struct Node {
    PrefixHash after = 0;  // hash of the tokens up to and including the node
    Position end = 0;      // their number
  };
  std::vector<Node> nodes(proposal.tokens.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const bool is_chain = proposal.parents.empty();
    const bool is_root = is_chain ? i == 0 : proposal.parents[i] == kParentIsBase;
    const Node parent = is_root ? Node{proposal.prefix, proposal.base}
                                : nodes[is_chain ? i - 1 : proposal.parents[i]];
    nodes[i] = {prefix_hash_next(parent.after, proposal.tokens[i]), parent.end + 1};
    if (parent.end >= length)
      add_edge(known, {parent.after, parent.end, proposal.tokens[i], proposal.confidences[i],
                       proposal.source, proposal.source});
  }
  return Insertion::kInserted;
}

std::vector<ScoredToken> ProposalStore::score(SeqId seq, Position from) const {
  const Continuations& known = find(seq);
  std::vector<ScoredToken> scored;
  bool goes_on = true;
  for (Position at = from; at < known.text->size() && goes_on; ++at) {
    goes_on = false;
    const TokenId committed = known.text->tokens()[at];
    for (const TreeEdge& edge : after(known, known.text->prefix(at))) {
      if (edge.position != at) continue;
      const bool stood = edge.token == committed;
      goes_on = goes_on || stood;
      scored.push_back({.token = {edge.token, edge.confidence, edge.source, edge.sources},
                        .depth = at - from,
                        .stood = stood});
    }
  }
  return scored;
}

// Those that follow a prefix.
std::span<const TreeEdge> ProposalStore::after(const Continuations& known, PrefixHash prefix) {
  const auto by_prefix = [](const TreeEdge& edge) { return edge.prefix; };
  const auto found = std::ranges::equal_range(known.edges, prefix, {}, by_prefix);
  return {found.begin(), found.end()};
}

// Depth-first over the tree of edges. The best path maximises the expected number of accepted
// tokens, a1 + a1 a2 + ... = a1 (1 + a2 (1 + ...)), which is computed from the leaves up.
struct ProposalStore::Walk {
  const Continuations& known;
  const Calibration& calibration;
  double odds = 1;
  // A tree has no more edges; colliding hashes could pretend it has.
  std::size_t visits_left = kMaxEdges;

  double best(PrefixHash prefix,
              Position position,
              std::uint32_t n,
              std::uint32_t depth,
              std::vector<PathToken>& reversed) {
    reversed.clear();
    if (n == 0) return 0;
    double best_value = 0;
    std::vector<PathToken> below;
    for (const TreeEdge& edge : after(known, prefix)) {
      if (edge.position != position || visits_left == 0) continue;
      --visits_left;
      const PathToken token{edge.token, edge.confidence, edge.source, edge.sources};
      const double rest =
          best(prefix_hash_next(prefix, token.token), position + 1, n - 1, depth + 1, below);
      const double value = calibration.acceptance(token, depth, odds) * (1 + rest);
      if (value <= best_value && !reversed.empty()) continue;
      best_value = value;
      reversed.swap(below);
      reversed.push_back(token);
    }
    return best_value;
  }
};

std::vector<PathToken> ProposalStore::best_path(SeqId seq,
                                                std::uint32_t n,
                                                const Calibration& calibration,
                                                double odds) const {
  const Continuations& known = find(seq);
  std::vector<PathToken> path;
  Walk walk{known, calibration, odds};
  walk.best(known.text->prefix(), known.text->size(), n, 0, path);
  std::reverse(path.begin(), path.end());
  return path;
}

std::span<const ProposalStore::TreeEdge> ProposalStore::edges(SeqId seq) const {
  return find(seq).edges;
}

}  // namespace foretoken
