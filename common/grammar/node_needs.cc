#include "common/grammar/node_needs.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace foretoken {
namespace {

struct CallFrom {
  std::uint32_t node = 0;
  Grammar::Call call;
};

// Shortest paths: the least need is settled first, and then what leads to it is updated. Rules are
// numbered behind the nodes.
class NeedsSearch {
 public:
  explicit NeedsSearch(const Grammar& grammar)
      : grammar_(grammar),
        n_nodes_(static_cast<std::uint32_t>(grammar.n_nodes())),
        needs_(n_nodes_ + grammar.n_rules(), NodeNeeds::kNoEnd),
        is_settled_(needs_.size()),
        leads_to_(n_nodes_),
        calls_to_(needs_.size()),
        started_by_(n_nodes_, NodeNeeds::kNoEnd) {
    for (std::uint32_t rule = 0; rule < grammar.n_rules(); ++rule)
      started_by_[grammar.rule(rule).start] = n_nodes_ + rule;
    for (std::uint32_t node = 0; node < n_nodes_; ++node) add_node(node);
  }

  NodeNeeds find() && {
    while (!pending_.empty()) {
      const auto [need, one] = pending_.top();
      pending_.pop();
      if (is_settled_[one]) continue;
      is_settled_[one] = true;
      if (one < n_nodes_)
        for (const std::uint32_t from : leads_to_[one]) reach_by_byte_or_call(from, need);
      for (const CallFrom& from : calls_to_[one]) reach_by_call(from);
    }
    NodeNeeds needs;
    needs.nodes.assign(needs_.begin(), needs_.begin() + n_nodes_);
    needs.rules.assign(needs_.begin() + n_nodes_, needs_.end());
    return needs;
  }

 private:
  void add_node(std::uint32_t node) {
    for (const Grammar::Edge& edge : grammar_.edges(node)) leads_to_[edge.next].push_back(node);
    for (const Grammar::Call& call : grammar_.calls(node)) {
      calls_to_[n_nodes_ + call.rule].push_back({node, call});
      if (call.next != Grammar::kReturnAtOnce) calls_to_[call.next].push_back({node, call});
    }
    if (grammar_.node(node).may_end) reach(node, 0);
  }

  void reach(std::uint32_t one, std::uint32_t need) {
    if (need >= needs_[one]) return;
    needs_[one] = need;
    pending_.emplace(need, one);
  }

  void reach_by_byte_or_call(std::uint32_t node, std::uint32_t need) {
    reach(node, need);
    if (started_by_[node] != NodeNeeds::kNoEnd) reach(started_by_[node], need);
  }

  void reach_by_call(const CallFrom& from) {
    const std::uint32_t rule = n_nodes_ + from.call.rule;
    if (!is_settled_[rule]) return;
    if (from.call.next == Grammar::kReturnAtOnce)
      return reach_by_byte_or_call(from.node, needs_[rule]);
    if (is_settled_[from.call.next])
      reach_by_byte_or_call(from.node, std::max(needs_[rule] + 1, needs_[from.call.next]));
  }

  const Grammar& grammar_;
  std::uint32_t n_nodes_;
  std::vector<std::uint32_t> needs_;
  std::vector<bool> is_settled_;
  std::vector<std::vector<std::uint32_t>> leads_to_;  // by node: from where a byte leads there
  std::vector<std::vector<CallFrom>> calls_to_;       // by node to come back to, and by rule
  std::vector<std::uint32_t> started_by_;             // by node: the rule that starts there
  std::priority_queue<std::pair<std::uint32_t, std::uint32_t>,
                      std::vector<std::pair<std::uint32_t, std::uint32_t>>,
                      std::greater<>>
      pending_;
};

}  // namespace

NodeNeeds NodeNeeds::of(const Grammar& grammar) { return NeedsSearch(grammar).find(); }

}  // namespace foretoken
