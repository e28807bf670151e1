#include "common/grammar/grammar_compiler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/grammar/node_needs.h"

namespace foretoken {
namespace {

constexpr std::uint32_t kNoNode = 0xFFFFFFFFu;
constexpr std::size_t kMaxSeen = 16 * Grammar::kMaxEdges;  // bounds the time

Error grammar_refused(std::string message) {
  return {ErrorCode::kInvalidValue, std::move(message)};
}

}  // namespace

GrammarCompiler::GrammarCompiler(const Expressions& expressions, NodeGraph graph)
    : expressions_(expressions),
      graph_(std::move(graph)),
      grammar_(new Grammar),
      node_at_(graph_.nodes.size(), kNoNode),
      seen_for_(graph_.nodes.size(), kNoNode) {}

std::uint32_t GrammarCompiler::node_at(std::uint32_t graph_node) {
  std::uint32_t& node = node_at_[graph_node];
  if (node == kNoNode) {
    node = static_cast<std::uint32_t>(graph_node_.size());
    graph_node_.push_back(graph_node);
  }
  return node;
}

void GrammarCompiler::add_item(std::uint32_t graph_node, std::vector<std::uint32_t>& pending) {
  const GraphNode& item = graph_.nodes[graph_node];
  switch (item.kind) {
    case GraphNodeKind::kEnd:
      grammar_->nodes_.back().may_end = true;
      break;
    case GraphNodeKind::kBytes:
      grammar_->edges_.push_back({item.what, node_at(item.next)});
      break;
    case GraphNodeKind::kFork:
      pending.insert(pending.end(), graph_.branches.begin() + item.what,
                     graph_.branches.begin() + item.next);
      break;
    case GraphNodeKind::kCall:
      if (graph_.rules[item.what].may_be_empty) pending.push_back(item.next);
      [[fallthrough]];
    case GraphNodeKind::kCallNotEmpty:
      grammar_->calls_.push_back({item.what, node_at(item.next)});
      break;
  }
}

bool GrammarCompiler::add_items(std::uint32_t graph_node) {
  const auto node = static_cast<std::uint32_t>(grammar_->nodes_.size());
  grammar_->nodes_.push_back({static_cast<std::uint32_t>(grammar_->edges_.size()),
                              static_cast<std::uint32_t>(grammar_->calls_.size())});
  std::vector<std::uint32_t> pending{graph_node};
  while (!pending.empty()) {
    const std::uint32_t one = pending.back();
    pending.pop_back();
    if (++n_seen_ > kMaxSeen) return false;
    if (seen_for_[one] == node) continue;
    seen_for_[one] = node;
    add_item(one, pending);
  }
  return grammar_->edges_.size() + grammar_->calls_.size() <= Grammar::kMaxEdges;
}

Result<void> GrammarCompiler::make_nodes() {
  for (const GraphRule& rule : graph_.rules)
    grammar_->rules_.push_back({.start = node_at(rule.start), .may_be_empty = rule.may_be_empty});
  for (std::size_t i = 0; i < graph_node_.size(); ++i)
    if (!add_items(graph_node_[i]))
      return grammar_refused("the grammar is too large: it has more than " +
                             std::to_string(Grammar::kMaxEdges) + " edges");
  grammar_->nodes_.push_back({static_cast<std::uint32_t>(grammar_->edges_.size()),
                              static_cast<std::uint32_t>(grammar_->calls_.size())});
  mark_returns();
  return {};
}

// So a rule that calls itself at its end needs no calls under way.
void GrammarCompiler::mark_returns() {
  for (Grammar::Call& call : grammar_->calls_) {
    const std::uint32_t next = call.next;
    if (grammar_->node(next).may_end && grammar_->edges(next).empty() &&
        grammar_->calls(next).empty())
      call.next = Grammar::kReturnAtOnce;
  }
}

// `callers` end with the one that calls `rule`, which is among them.
Error GrammarCompiler::left_recursion(const std::vector<std::uint32_t>& callers,
                                      std::uint32_t rule) const {
  std::string name;
  for (auto one = std::find(callers.begin(), callers.end(), rule); one != callers.end(); ++one) {
    const std::uint32_t named = graph_.rules[*one].named;
    if (named != GraphRule::kUnnamed && name.empty()) name = expressions_.name(RuleId{named});
  }
  return grammar_refused((name.empty() ? "a rule" : "the rule '" + name + "'") +
                         " can begin with itself (left recursion)");
}

// Rules by which of them call one another before any byte: depth first, callers before the called.
Result<void> GrammarCompiler::order_rules() {
  enum class Visit : std::uint8_t { kNone, kUnderWay, kDone };
  std::vector<Visit> visits(grammar_->n_rules(), Visit::kNone);
  auto place = static_cast<std::uint32_t>(grammar_->n_rules());
  std::vector<std::uint32_t> path;
  std::vector<std::size_t> n_called;
  for (std::uint32_t first = 0; first < grammar_->n_rules(); ++first) {
    if (visits[first] != Visit::kNone) continue;
    path.assign(1, first);
    n_called.assign(1, 0);
    visits[first] = Visit::kUnderWay;
    while (!path.empty()) {
      const auto calls = grammar_->calls(grammar_->rule(path.back()).start);
      if (n_called.back() == calls.size()) {
        visits[path.back()] = Visit::kDone;
        grammar_->rules_[path.back()].place = --place;
        path.pop_back();
        n_called.pop_back();
        continue;
      }
      const std::uint32_t called = calls[n_called.back()++].rule;
      if (visits[called] == Visit::kUnderWay) return left_recursion(path, called);
      if (visits[called] == Visit::kDone) continue;
      visits[called] = Visit::kUnderWay;
      path.push_back(called);
      n_called.push_back(0);
    }
  }
  return {};
}

Result<void> GrammarCompiler::set_needs() {
  const NodeNeeds needs = NodeNeeds::of(*grammar_);
  if (needs.rules.front() == NodeNeeds::kNoEnd)
    return grammar_refused("the grammar allows only the empty text");
  if (needs.rules.front() > Grammar::kMaxDepth)
    return grammar_refused(
        "the grammar is too deep: its shortest text needs " + std::to_string(needs.rules.front()) +
        " rules within one another, and the limit is " + std::to_string(Grammar::kMaxDepth));
  for (std::size_t node = 0; node < needs.nodes.size(); ++node)
    grammar_->nodes_[node].needs = needs.nodes[node];
  for (std::size_t rule = 0; rule < needs.rules.size(); ++rule)
    grammar_->rules_[rule].needs = needs.rules[rule];
  return {};
}

void GrammarCompiler::make_classes() {
  std::array<std::uint32_t, 256> class_of{};
  std::uint32_t n_classes = 1;
  for (const ByteSet& set : graph_.sets) {  // each set splits the classes it has a part of
    std::array<std::uint32_t, 512> split{};
    std::uint32_t n_split = 0;
    for (std::size_t byte = 0; byte < class_of.size(); ++byte) {
      std::uint32_t& split_class = split[2 * class_of[byte] + (set[byte] ? 1 : 0)];
      if (split_class == 0) split_class = ++n_split;
      class_of[byte] = split_class - 1;
    }
    n_classes = n_split;
    if (n_classes == class_of.size()) break;
  }
  grammar_->n_classes_ = n_classes;
  for (std::size_t byte = 0; byte < class_of.size(); ++byte)
    grammar_->class_of_[byte] = static_cast<std::uint8_t>(class_of[byte]);
  for (const ByteSet& set : graph_.sets) {
    ByteSet classes;
    for (std::size_t byte = 0; byte < class_of.size(); ++byte)
      if (set[byte]) classes.set(class_of[byte]);
    grammar_->sets_.push_back(classes);
  }
}

Result<std::shared_ptr<const Grammar>> GrammarCompiler::compile() && {
  if (auto made = make_nodes(); !made.ok()) return made.error();
  if (auto ordered = order_rules(); !ordered.ok()) return ordered.error();
  if (auto needs = set_needs(); !needs.ok()) return needs.error();
  make_classes();
  return std::shared_ptr<const Grammar>(std::move(grammar_));
}

}  // namespace foretoken
