#include "common/grammar/node_graph.h"

namespace foretoken {

std::uint32_t NodeGraphBuilder::add(GraphNodeKind kind, std::uint32_t what, std::uint32_t next) {
  graph_.nodes.push_back({kind, what, next});
  return static_cast<std::uint32_t>(graph_.nodes.size() - 1);
}

std::uint32_t NodeGraphBuilder::add_fork(const std::vector<std::uint32_t>& branches) {
  const auto first = static_cast<std::uint32_t>(graph_.branches.size());
  graph_.branches.insert(graph_.branches.end(), branches.begin(), branches.end());
  return add(GraphNodeKind::kFork, first, static_cast<std::uint32_t>(graph_.branches.size()));
}

std::uint32_t NodeGraphBuilder::set_id(const ByteSet& bytes) {
  const auto [known, is_new] =
      set_ids_.try_emplace(bytes, static_cast<std::uint32_t>(graph_.sets.size()));
  if (is_new) graph_.sets.push_back(bytes);
  return known->second;
}

std::uint32_t NodeGraphBuilder::rule_of(ExpressionId body, std::uint32_t named) {
  const auto [known, is_new] = rule_ids_.try_emplace(
      static_cast<std::uint32_t>(body), static_cast<std::uint32_t>(graph_.rules.size()));
  const std::uint32_t rule = known->second;
  if (is_new) {
    graph_.rules.push_back({0, facts_.may_be_empty[static_cast<std::uint32_t>(body)], named});
    unbuilt_.emplace_back(rule, body);
  }
  if (graph_.rules[rule].named == GraphRule::kUnnamed) graph_.rules[rule].named = named;
  return rule;
}

std::uint32_t NodeGraphBuilder::sequence_of(const Expression& expression, std::uint32_t next) {
  for (auto part = expression.parts.rbegin(); part != expression.parts.rend(); ++part)
    next = node_of(*part, next);
  return next;
}

std::uint32_t NodeGraphBuilder::any_of(const Expression& expression, std::uint32_t next) {
  ByteSet single;
  std::vector<std::uint32_t> branches;
  for (const ExpressionId part : expression.parts) {
    if (!allows_text(part)) continue;
    if (expressions_[part].kind == ExpressionKind::kByteSet)
      single |= expressions_[part].bytes;
    else
      branches.push_back(node_of(part, next));
  }
  if (single.any()) branches.push_back(add(GraphNodeKind::kBytes, set_id(single), next));
  return branches.size() == 1 ? branches.front() : add_fork(branches);
}

std::uint32_t NodeGraphBuilder::copy_of(const Expression& repeat, std::uint32_t next) {
  const ExpressionId part = repeat.parts.front();
  if (!is_built_as_rule(repeat, facts_)) return node_of(part, next);
  const std::uint32_t rule = rule_of(part, GraphRule::kUnnamed);
  return add(GraphNodeKind::kCallNotEmpty, rule, next);
}

std::uint32_t NodeGraphBuilder::loop_of(const Expression& repeat, std::uint32_t next) {
  const std::uint32_t loop = add_fork({next, next});
  const std::uint32_t first = graph_.nodes[loop].what;
  graph_.branches[first] = copy_of(repeat, loop);
  return loop;
}

std::uint32_t NodeGraphBuilder::repeat_of(const Expression& expression, std::uint32_t next) {
  const ExpressionId part = expression.parts.front();
  if (!allows_text(part)) return next;
  // A copy that may be empty can as well be absent. So built, no copy is passed without a byte.
  const bool part_may_be_empty = facts_.may_be_empty[static_cast<std::uint32_t>(part)];
  const std::uint32_t n_required = part_may_be_empty ? 0 : expression.min;
  const std::uint32_t end = next;
  if (expression.max == Expressions::kUnbounded) {
    next = loop_of(expression, next);
  } else {
    for (std::uint32_t i = n_required; i < expression.max; ++i)
      next = add_fork({copy_of(expression, next), end});
  }
  for (std::uint32_t i = 0; i < n_required; ++i) next = copy_of(expression, next);
  return next;
}

std::uint32_t NodeGraphBuilder::node_of(ExpressionId id, std::uint32_t next) {
  const Expression& expression = expressions_[id];
  switch (expression.kind) {
    case ExpressionKind::kByteSet:
      return add(GraphNodeKind::kBytes, set_id(expression.bytes), next);
    case ExpressionKind::kSequence:
      return sequence_of(expression, next);
    case ExpressionKind::kAnyOf:
      return any_of(expression, next);
    case ExpressionKind::kRepeat:
      return repeat_of(expression, next);
    case ExpressionKind::kCall:
      break;
  }
  const std::uint32_t rule =
      rule_of(expressions_.body(expression.rule), static_cast<std::uint32_t>(expression.rule));
  return add(GraphNodeKind::kCall, rule, next);
}

NodeGraph NodeGraphBuilder::build(ExpressionId start) && {
  rule_of(start, GraphRule::kUnnamed);
  while (!unbuilt_.empty()) {
    const auto [rule, body] = unbuilt_.back();
    unbuilt_.pop_back();
    const std::uint32_t end = add(GraphNodeKind::kEnd, 0, 0);
    const std::uint32_t first = node_of(body, end);
    graph_.rules[rule].start = first;
  }
  return std::move(graph_);
}

}  // namespace foretoken
