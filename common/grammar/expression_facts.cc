#include "common/grammar/expression_facts.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/grammar/grammar.h"

namespace foretoken {
namespace {

// What all copies may cost, or each of them, for the copies to be made in place.
constexpr std::uint64_t kSmallCopies = 128;
constexpr std::uint32_t kSmallCopy = 4;

std::uint32_t index_of(ExpressionId id) { return static_cast<std::uint32_t>(id); }

// Expressions by use: the start, its parts, and the bodies of the rules they call.
class UsedExpressions {
 public:
  UsedExpressions(const Expressions& expressions, ExpressionId start)
      : expressions_(expressions), is_used_(expressions.size()) {
    add(start);
  }

  Result<std::vector<bool>> find() {
    while (!pending_.empty()) {
      const Expression& expression = expressions_[pending_.back()];
      pending_.pop_back();
      for (const ExpressionId part : expression.parts) add(part);
      if (expression.kind != ExpressionKind::kCall) continue;
      if (!expressions_.is_defined(expression.rule))
        return Error{ErrorCode::kInvalidValue,
                     "the rule '" + expressions_.name(expression.rule) + "' is not defined"};
      add(expressions_.body(expression.rule));
    }
    return std::move(is_used_);
  }

 private:
  void add(ExpressionId id) {
    if (is_used_[index_of(id)]) return;
    is_used_[index_of(id)] = true;
    pending_.push_back(id);
  }

  const Expressions& expressions_;
  std::vector<bool> is_used_;
  std::vector<ExpressionId> pending_;
};

enum class Property { kAllowsText, kMayBeEmpty };

// The least set of expressions that have a property: an expression has it once enough of
// its parts have it, so what is found is passed on to the expressions around it.
class PropertyHolders {
 public:
  PropertyHolders(const Expressions& expressions, const std::vector<bool>& is_used)
      : expressions_(expressions), is_used_(is_used), around_(expressions.size()) {
    for (std::uint32_t i = 0; i < is_used_.size(); ++i) {
      if (!is_used_[i]) continue;
      const Expression& expression = expressions_[ExpressionId{i}];
      for (const ExpressionId part : expression.parts) around_[index_of(part)].push_back(i);
      if (expression.kind == ExpressionKind::kCall)
        around_[index_of(expressions_.body(expression.rule))].push_back(i);
    }
  }

  std::vector<bool> find(Property property) const {
    std::vector<bool> holds(expressions_.size());
    std::vector<std::size_t> n_missing(expressions_.size());
    std::vector<std::uint32_t> pending;
    for (std::uint32_t i = 0; i < is_used_.size(); ++i) {
      n_missing[i] = n_needed(expressions_[ExpressionId{i}], property);
      if (is_used_[i] && n_missing[i] == 0) pending.push_back(i);
    }
    while (!pending.empty()) {
      const std::uint32_t one = pending.back();
      pending.pop_back();
      if (holds[one]) continue;
      holds[one] = true;
      for (const std::uint32_t outer : around_[one])
        if (n_missing[outer] > 0 && --n_missing[outer] == 0) pending.push_back(outer);
    }
    return holds;
  }

 private:
  static std::size_t n_needed(const Expression& expression, Property property) {
    switch (expression.kind) {
      case ExpressionKind::kByteSet:
        return property == Property::kAllowsText && expression.bytes.any() ? 0 : 1;
      case ExpressionKind::kSequence:
        return expression.parts.size();
      case ExpressionKind::kAnyOf:
        return 1;
      case ExpressionKind::kRepeat:
        return expression.min == 0 ? 0 : 1;
      case ExpressionKind::kCall:
        return 1;
    }
    return 1;
  }

  const Expressions& expressions_;
  const std::vector<bool>& is_used_;
  std::vector<std::vector<std::uint32_t>> around_;
};

bool is_unbounded(const Expression& repeat) { return repeat.max == Expressions::kUnbounded; }

std::uint64_t n_copies_of(const Expression& repeat) {
  return is_unbounded(repeat) ? repeat.min + std::uint64_t{1} : repeat.max;
}

std::uint64_t repeat_cost(const Expression& repeat, const ExpressionFacts& facts) {
  const std::uint64_t part = facts.cost[index_of(repeat.parts.front())];
  const std::uint64_t n_copies = n_copies_of(repeat);
  const std::uint64_t n_optional = is_unbounded(repeat) ? 1 : repeat.max - repeat.min;
  const std::uint64_t copies = is_built_as_rule(repeat, facts) ? n_copies + part : n_copies * part;
  return copies + n_optional;
}

std::uint64_t cost_of(const Expression& expression, const ExpressionFacts& facts) {
  if (expression.kind == ExpressionKind::kRepeat) return 1 + repeat_cost(expression, facts);
  std::uint64_t cost = 1;
  for (const ExpressionId part : expression.parts) cost += facts.cost[index_of(part)];
  return cost;
}

Error too_large() {
  return {ErrorCode::kInvalidValue, "the grammar is too large: it has more than " +
                                        std::to_string(Grammar::kMaxNodes) +
                                        " nodes, repeated parts counted as often as they repeat"};
}

Result<void> check_nesting(const Expressions& expressions, const std::vector<bool>& is_used) {
  std::vector<std::uint32_t> height(expressions.size());
  for (std::uint32_t i = 0; i < height.size(); ++i) {
    if (!is_used[i]) continue;
    for (const ExpressionId part : expressions[ExpressionId{i}].parts)
      height[i] = std::max(height[i], height[index_of(part)] + 1);
    if (height[i] > Grammar::kMaxNesting)
      return Error{ErrorCode::kInvalidValue, "the grammar is nested deeper than " +
                                                 std::to_string(Grammar::kMaxNesting) + " levels"};
  }
  return {};
}

// Parts are older than what is around them, so one pass in the order of ids finds all costs.
Result<void> find_costs(const Expressions& expressions,
                        const std::vector<bool>& is_used,
                        ExpressionFacts& facts) {
  facts.cost.assign(expressions.size(), 0);
  for (std::uint32_t i = 0; i < is_used.size(); ++i) {
    if (!is_used[i]) continue;
    const std::uint64_t cost = cost_of(expressions[ExpressionId{i}], facts);
    if (cost > Grammar::kMaxNodes) return too_large();
    facts.cost[i] = static_cast<std::uint32_t>(cost);
  }
  return {};
}

Result<void> check_total(const Expressions& expressions,
                         const std::vector<bool>& is_used,
                         ExpressionId start,
                         const ExpressionFacts& facts) {
  std::vector<bool> is_counted(expressions.n_rules());
  std::uint64_t total = facts.cost[index_of(start)];
  for (std::uint32_t i = 0; i < is_used.size(); ++i) {
    const Expression& expression = expressions[ExpressionId{i}];
    if (!is_used[i] || expression.kind != ExpressionKind::kCall) continue;
    const auto rule = static_cast<std::uint32_t>(expression.rule);
    if (is_counted[rule]) continue;
    is_counted[rule] = true;
    total += facts.cost[index_of(expressions.body(expression.rule))];
  }
  if (total > Grammar::kMaxNodes) return too_large();
  return {};
}

}  // namespace

bool is_built_as_rule(const Expression& repeat, const ExpressionFacts& facts) {
  const std::uint32_t part = index_of(repeat.parts.front());
  if (repeat.max <= 1 || (is_unbounded(repeat) && repeat.min == 0)) return false;
  if (facts.may_be_empty[part]) return true;
  return facts.cost[part] > kSmallCopy && n_copies_of(repeat) * facts.cost[part] > kSmallCopies;
}

Result<ExpressionFacts> ExpressionFacts::of(const Expressions& expressions, ExpressionId start) {
  auto used = UsedExpressions(expressions, start).find();
  if (!used.ok()) return used.error();
  const std::vector<bool>& is_used = *used;
  if (auto nesting = check_nesting(expressions, is_used); !nesting.ok()) return nesting.error();
  ExpressionFacts facts;
  const PropertyHolders holders(expressions, is_used);
  facts.allows_text = holders.find(Property::kAllowsText);
  facts.may_be_empty = holders.find(Property::kMayBeEmpty);
  if (auto costs = find_costs(expressions, is_used, facts); !costs.ok()) return costs.error();
  if (auto total = check_total(expressions, is_used, start, facts); !total.ok())
    return total.error();
  return facts;
}

}  // namespace foretoken
