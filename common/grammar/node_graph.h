// The rules of a grammar as a graph with forks, the first step from expressions to a Grammar: each
// rule starts at a node and ends at one of its own. What allows no text is left out. Pure.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/grammar/expression_facts.h"
#include "common/grammar/expressions.h"

namespace foretoken {

enum class GraphNodeKind : std::uint8_t { kEnd, kBytes, kFork, kCall, kCallNotEmpty };

struct GraphNode {
  GraphNodeKind kind = GraphNodeKind::kEnd;
  // kBytes: the set; calls: the rule; kFork: the first branch.
  std::uint32_t what = 0;
  std::uint32_t next = 0;  // kFork: one past the last branch
};

struct GraphRule {
  std::uint32_t start = 0;
  bool may_be_empty = false;
  std::uint32_t named = 0;  // the rule of the expressions, kUnnamed: none
  static constexpr std::uint32_t kUnnamed = 0xFFFFFFFFu;
};

struct NodeGraph {
  std::vector<GraphNode> nodes;
  std::vector<std::uint32_t> branches;
  std::vector<GraphRule> rules;  // 0: the whole
  std::vector<ByteSet> sets;
};

class NodeGraphBuilder {
 public:
  NodeGraphBuilder(const Expressions& expressions, const ExpressionFacts& facts)
      : expressions_(expressions), facts_(facts) {}
  NodeGraph build(ExpressionId start) &&;

 private:
  std::uint32_t add(GraphNodeKind kind, std::uint32_t what, std::uint32_t next);
  std::uint32_t add_fork(const std::vector<std::uint32_t>& branches);
  std::uint32_t set_id(const ByteSet& bytes);
  std::uint32_t rule_of(ExpressionId body, std::uint32_t named);

  // The node from where `expression` is read, and then what `next` reads.
  std::uint32_t node_of(ExpressionId expression, std::uint32_t next);
  std::uint32_t sequence_of(const Expression& expression, std::uint32_t next);
  std::uint32_t any_of(const Expression& expression, std::uint32_t next);
  std::uint32_t repeat_of(const Expression& expression, std::uint32_t next);
  std::uint32_t copy_of(const Expression& repeat, std::uint32_t next);
  std::uint32_t loop_of(const Expression& repeat, std::uint32_t next);
  bool allows_text(ExpressionId id) const {
    return facts_.allows_text[static_cast<std::uint32_t>(id)];
  }

  const Expressions& expressions_;
  const ExpressionFacts& facts_;
  NodeGraph graph_;
  std::unordered_map<ByteSet, std::uint32_t> set_ids_;
  std::unordered_map<std::uint32_t, std::uint32_t> rule_ids_;    // by body
  std::vector<std::pair<std::uint32_t, ExpressionId>> unbuilt_;  // rule, body
};

}  // namespace foretoken
