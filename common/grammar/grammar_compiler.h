// Makes a Grammar of a graph: nodes without forks, rules in an order, what each needs to end.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/result.h"
#include "common/grammar/grammar.h"
#include "common/grammar/node_graph.h"

namespace foretoken {

class GrammarCompiler {
 public:
  GrammarCompiler(const Expressions& expressions, NodeGraph graph);
  // Errors: those of Grammar::compile but for what ExpressionFacts has found.
  Result<std::shared_ptr<const Grammar>> compile() &&;

 private:
  std::uint32_t node_at(std::uint32_t graph_node);
  Result<void> make_nodes();
  bool add_items(std::uint32_t graph_node);  // false: too many
  void add_item(std::uint32_t graph_node, std::vector<std::uint32_t>& pending);
  void mark_returns();
  Result<void> order_rules();
  Error left_recursion(const std::vector<std::uint32_t>& callers, std::uint32_t rule) const;
  Result<void> set_needs();
  void make_classes();

  const Expressions& expressions_;
  NodeGraph graph_;
  std::shared_ptr<Grammar> grammar_;
  std::vector<std::uint32_t> node_at_;     // by node of the graph
  std::vector<std::uint32_t> graph_node_;  // by node
  std::vector<std::uint32_t> seen_for_;    // by node of the graph: the last node it is part of
  std::size_t n_seen_ = 0;
};

}  // namespace foretoken
