#include "common/spec/proposal_store.h"

#include <algorithm>
#include <array>
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

PathToken token_of(const TreeEdge& edge) {
  return {edge.token, edge.confidence, edge.source, edge.sources, edge.is_runner_up};
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

template <class Sequences>
auto& ProposalStore::find_in(Sequences& sequences, SeqId seq) {
  const auto found = sequences.find(seq);
  FORETOKEN_CHECK(found != sequences.end(), "no such sequence in the proposal store");
  return found->second;
}

const ProposalStore::Continuations& ProposalStore::find(SeqId seq) const {
  return find_in(sequences_, seq);
}

void ProposalStore::open(SeqId seq, const CommittedTokens& text) {
  sequences_.insert_or_assign(
      seq, Continuations{.text = &text, .edges = {}, .last_change = ++n_changes_});
}

void ProposalStore::drop_committed(SeqId seq) {
  Continuations& known = find_in(sequences_, seq);
  const auto n_dropped = std::erase_if(
      known.edges, [&](const TreeEdge& edge) { return edge.position < known.text->size(); });
  if (n_dropped > 0) known.last_change = ++n_changes_;
}

ProposalStore::State ProposalStore::state(SeqId seq) const {
  const Continuations& known = find(seq);
  return {.change = known.last_change, .length = known.text->size()};
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
    const TreeEdge before = *at;
    at->sources.add(edge.sources);
    at->is_runner_up = at->is_runner_up && edge.is_runner_up;
    if (std::tie(at->confidence, at->source) < std::tie(edge.confidence, edge.source))
      std::tie(at->confidence, at->source) = std::tie(edge.confidence, edge.source);
    if (*at != before) known.last_change = ++n_changes_;
    return;
  }
  known.last_change = ++n_changes_;
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
    bool has_next = false;
  };
  Node base{.after = proposal.prefix, .end = proposal.base};
  std::vector<Node> nodes(proposal.tokens.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const bool is_chain = proposal.parents.empty();
    const bool is_root = is_chain ? i == 0 : proposal.parents[i] == kParentIsBase;
    Node& parent = is_root ? base : nodes[is_chain ? i - 1 : proposal.parents[i]];
    const bool is_runner_up = std::exchange(parent.has_next, true);
    nodes[i] = {prefix_hash_next(parent.after, proposal.tokens[i]), parent.end + 1};
    if (parent.end >= length)
      add_edge(known, {parent.after, parent.end, proposal.tokens[i], proposal.confidences[i],
                       proposal.source, proposal.source, is_runner_up});
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
      scored.push_back({.token = token_of(edge), .depth = at - from, .stood = stood});
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
// tokens, a1 + a1 a2 + ... = a1 (1 + a2 (1 + ...)), which is computed from the leaves up. Each edge
// notes the best one after it: it belongs to one prefix, so that is always the same.
struct ProposalStore::Walk {
  using Index = std::uint16_t;
  static constexpr Index kNone = 0xFFFF;
  static_assert(kMaxEdges < kNone);
  struct Branch {
    double value = 0;
    Index first = kNone;
  };

  // Not an aggregate, which would clear `next` in each walk.
  Walk(const Continuations& of, const Calibration& by, double with_odds, ProposerSet which)
      : known(of), calibration(by), odds(with_odds), sources(which) {}

  const Continuations& known;
  const Calibration& calibration;
  const double odds;
  const ProposerSet sources;  // whose edges count
  // A tree has no more edges; colliding hashes could pretend it has.
  std::size_t visits_left = kMaxEdges;
  std::array<Index, kMaxEdges> next;  // by edge: only those that were visited have one

  Branch best(PrefixHash prefix, Position position, std::uint32_t n, std::uint32_t depth) {
    Branch best_branch;
    if (n == 0) return best_branch;
    for (const TreeEdge& edge : after(known, prefix)) {
      if (edge.position != position || visits_left == 0 || !sources.has_any_of(edge.sources))
        continue;
      --visits_left;
      const Branch rest =
          best(prefix_hash_next(prefix, edge.token), position + 1, n - 1, depth + 1);
      const double value = calibration.acceptance(token_of(edge), depth, odds) * (1 + rest.value);
      if (value <= best_branch.value && best_branch.first != kNone) continue;
      best_branch = {value, static_cast<Index>(&edge - known.edges.data())};
      next[best_branch.first] = rest.first;
    }
    return best_branch;
  }
};

std::vector<PathToken> ProposalStore::best_path_of(ProposerSet sources,
                                                   const PathLimits& limits,
                                                   const Continuations& known,
                                                   const Calibration& calibration) {
  Walk walk(known, calibration, limits.odds, sources);
  std::vector<PathToken> path;
  path.reserve(std::min<std::size_t>(limits.n, known.edges.size()));
  Walk::Index at = walk.best(known.text->prefix(), known.text->size(), limits.n, 0).first;
  for (; at != Walk::kNone; at = walk.next[at]) path.push_back(token_of(known.edges[at]));
  return path;
}

std::vector<PathToken> ProposalStore::best_path(SeqId seq,
                                                std::uint32_t n,
                                                const Calibration& calibration,
                                                double odds) const {
  return best_path_of(ProposerSet::all(), {.n = n, .odds = odds}, find(seq), calibration);
}

std::vector<PathToken> ProposalStore::best_path_without(ProposerKind source,
                                                        SeqId seq,
                                                        std::uint32_t n,
                                                        const Calibration& calibration) const {
  ProposerSet others = ProposerSet::all();
  others.remove(source);
  return best_path_of(others, {.n = n}, find(seq), calibration);
}

std::span<const ProposalStore::TreeEdge> ProposalStore::edges(SeqId seq) const {
  return find(seq).edges;
}

}  // namespace foretoken
