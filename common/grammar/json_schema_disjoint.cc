// Whether branches of oneOf can be told apart.
#include <algorithm>
#include <set>

#include "common/grammar/json_schema_values.h"

namespace foretoken {
namespace {

constexpr int kMaxComparedDepth = 6;

bool are_apart(const CountRange& a, const CountRange& b) { return a.max < b.min || b.max < a.min; }

bool lies_below(const std::optional<NumberBound>& high, const std::optional<NumberBound>& low) {
  if (!high || !low) return false;
  const int order = compare(high->at, low->at);
  return order < 0 || (order == 0 && (high->open || low->open));
}

bool are_apart(const NumberBounds& a, const NumberBounds& b) {
  return lies_below(a.high, b.low) || lies_below(b.high, a.low);
}

class Comparison {
 public:
  explicit Comparison(SchemaDocument& document) : document_(document) {}

  bool are_disjoint(const FlatSchema& a, const FlatSchema& b, int depth) {
    document_.spend();
    if (depth > kMaxComparedDepth || document_.failed()) return false;
    if (a.allows_nothing || b.allows_nothing) return true;
    const SchemaFacts facts_a = facts_of(a), facts_b = facts_of(b);
    if ((facts_a.types & facts_b.types) == 0) return true;
    if (are_listed_apart(facts_a, a, b) || are_listed_apart(facts_b, b, a)) return true;
    if (differ_by_type(facts_a, facts_b, a, b, depth)) return true;
    return differ_in_each_branch(a, b, depth) || differ_in_each_branch(b, a, depth);
  }

 private:
  // None of the values that one lists satisfies the other.
  bool are_listed_apart(const SchemaFacts& facts, const FlatSchema& one, const FlatSchema& other) {
    if (facts.value_lists.empty()) return false;
    const auto values = listed_values(facts);
    return std::all_of(values.begin(), values.end(), [&](const OrderedJson* value) {
      return check_value(*value, other, document_) == Verdict::kNo ||
             check_value(*value, one, document_) == Verdict::kNo;
    });
  }

  bool differ_by_type(const SchemaFacts& facts_a,
                      const SchemaFacts& facts_b,
                      const FlatSchema& a,
                      const FlatSchema& b,
                      int depth) {
    const unsigned common = facts_a.types & facts_b.types;
    if (common & (kJsonNull | kJsonBoolean)) return false;
    if ((common & kJsonNumber) && !are_apart(facts_a.numbers, facts_b.numbers)) return false;
    if ((common & kJsonString) && !are_apart(facts_a.length, facts_b.length)) return false;
    if ((common & kJsonArray) && !are_apart(facts_a.items, facts_b.items)) return false;
    return !(common & kJsonObject) || differ_in_member(a, b, depth);
  }

  // A member that one of them demands cannot satisfy both.
  bool differ_in_member(const FlatSchema& a, const FlatSchema& b, int depth) {
    std::set<std::string> demanded;
    for (const FlatSchema* flat : {&a, &b})
      for (std::string& name : required_names(*flat)) demanded.insert(std::move(name));
    return std::any_of(demanded.begin(), demanded.end(), [&](const std::string& name) {
      const FlatSchema in_a = document_.flatten(member_schemas(a, name));
      const FlatSchema in_b = document_.flatten(member_schemas(b, name));
      return are_disjoint(in_a, in_b, depth + 1);
    });
  }

  bool differ_in_each_branch(const FlatSchema& a, const FlatSchema& b, int depth) {
    if (a.choices.empty()) return false;
    FlatSchema rest = a;
    const SchemaChoice choice = rest.choices.back();
    rest.choices.pop_back();
    const auto branches = choice.branches();
    return std::all_of(branches.begin(), branches.end(), [&](const SchemaPlace& branch) {
      FlatSchema with_branch = rest;
      document_.add({branch}, with_branch);
      return are_disjoint(with_branch, b, depth + 1);
    });
  }

  SchemaDocument& document_;
};

}  // namespace

bool are_disjoint(const FlatSchema& a, const FlatSchema& b, SchemaDocument& document) {
  return Comparison(document).are_disjoint(a, b, 0);
}

}  // namespace foretoken
