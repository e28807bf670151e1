#include "common/grammar/json_schema_values.h"

#include <algorithm>

#include "common/base/utf8.h"

namespace foretoken {
namespace {

constexpr int kMaxCheckDepth = 100;

Verdict joined(Verdict a, Verdict b) {
  if (a == Verdict::kNo || b == Verdict::kNo) return Verdict::kNo;
  return a == Verdict::kYes ? b : a;
}

Verdict verdict_of(bool holds) { return holds ? Verdict::kYes : Verdict::kNo; }

bool is_within(std::size_t n, const CountRange& range) { return range.min <= n && n <= range.max; }

std::size_t n_code_points(const std::string& text) {
  std::size_t n = 0;
  for (std::size_t at = 0; at < text.size(); ++n)
    at += utf8::sequence_length(static_cast<unsigned char>(text[at]));
  return n;
}

bool is_within(const Decimal& number, const NumberBounds& bounds) {
  if (bounds.low) {
    const int order = compare(number, bounds.low->at);
    if (order < 0 || (order == 0 && bounds.low->open)) return false;
  }
  if (!bounds.high) return true;
  const int order = compare(number, bounds.high->at);
  return order < 0 || (order == 0 && !bounds.high->open);
}

class ValueCheck {
 public:
  explicit ValueCheck(SchemaDocument& document) : document_(document) {}

  Verdict check(const OrderedJson& value, const std::vector<SchemaPlace>& schemas, int depth) {
    if (depth > kMaxCheckDepth) return Verdict::kUnknown;
    return check_flat(value, document_.flatten(schemas), depth);
  }

  Verdict check_flat(const OrderedJson& value, const FlatSchema& flat, int depth) {
    if (document_.failed()) return Verdict::kUnknown;
    if (flat.allows_nothing) return Verdict::kNo;
    Verdict verdict = check_parts(value, flat, depth);
    for (const SchemaChoice& choice : flat.choices) {
      if (verdict == Verdict::kNo) break;
      verdict = joined(verdict, check_choice(value, choice, depth));
    }
    return verdict;
  }

 private:
  Verdict check_choice(const OrderedJson& value, const SchemaChoice& choice, int depth) {
    std::size_t n_yes = 0, n_unknown = 0;
    for (const SchemaPlace& branch : choice.branches()) {
      const Verdict verdict = check(value, {branch}, depth + 1);
      n_yes += verdict == Verdict::kYes;
      n_unknown += verdict == Verdict::kUnknown;
    }
    if (choice.keyword == "anyOf")
      return n_yes > 0 || n_unknown == 0 ? verdict_of(n_yes > 0) : Verdict::kUnknown;
    return n_yes > 1 || n_unknown == 0 ? verdict_of(n_yes == 1) : Verdict::kUnknown;
  }

  Verdict check_parts(const OrderedJson& value, const FlatSchema& flat, int depth) {
    SchemaFacts facts = facts_of(flat);
    const unsigned type = type_of_value(value);
    if ((facts.types & type) == 0) return Verdict::kNo;
    for (const SchemaPlace& list : facts.value_lists)
      if (!is_listed(value, list)) return Verdict::kNo;
    facts.types = type;
    const Verdict known = has_unsupported(flat, facts) ? Verdict::kUnknown : Verdict::kYes;
    if (type & kJsonNumber)
      return joined(known, verdict_of(is_within(decimal_of(value), facts.numbers)));
    if (type == kJsonString) return joined(known, check_string(value, facts));
    if (type == kJsonArray) return joined(known, check_array(value, {flat, facts}, depth));
    if (type == kJsonObject) return joined(known, check_object(value, {flat, facts}, depth));
    return known;
  }

  bool is_listed(const OrderedJson& value, const SchemaPlace& list) {
    const OrderedJson* constant = keyword_of(list, "const");
    if (constant != nullptr && !are_equal_values(*constant, value)) return false;
    const OrderedJson* values = keyword_of(list, "enum");
    if (values == nullptr) return true;
    // The value is often one of the list itself.
    if (!values->empty() && &values->front() <= &value && &value <= &values->back()) return true;
    document_.spend(values->size() * (1 + value.size()) / 8);
    return std::any_of(values->begin(), values->end(),
                       [&](const OrderedJson& one) { return are_equal_values(one, value); });
  }

  struct Whole {
    const FlatSchema& flat;
    const SchemaFacts& facts;
  };

  static Verdict check_string(const OrderedJson& value, const SchemaFacts& facts) {
    const auto fits = is_within(n_code_points(value.get_ref<const std::string&>()), facts.length);
    return joined(verdict_of(fits), facts.forms.empty() ? Verdict::kYes : Verdict::kUnknown);
  }

  Verdict check_array(const OrderedJson& value, const Whole& whole, int depth) {
    Verdict verdict = verdict_of(is_within(value.size(), whole.facts.items));
    for (std::size_t i = 0; i < value.size() && verdict != Verdict::kNo; ++i)
      verdict = joined(verdict, check(value[i], item_schemas(whole.flat, i), depth + 1));
    return verdict;
  }

  Verdict check_object(const OrderedJson& value, const Whole& whole, int depth) {
    Verdict verdict = verdict_of(is_within(value.size(), whole.facts.properties));
    for (const std::string& name : required_names(whole.flat))
      if (!value.contains(name)) return Verdict::kNo;
    for (const auto& [name, member] : value.items()) {
      if (verdict == Verdict::kNo) break;
      verdict = joined(verdict, check(member, member_schemas(whole.flat, name), depth + 1));
    }
    return verdict;
  }

  SchemaDocument& document_;
};

}  // namespace

bool are_equal_values(const OrderedJson& a, const OrderedJson& b) {
  if (a.is_number() && b.is_number()) return compare(decimal_of(a), decimal_of(b)) == 0;
  if (a.type() != b.type() || a.size() != b.size()) return false;
  if (a.is_array())
    return std::equal(a.begin(), a.end(), b.begin(),
                      [](const auto& x, const auto& y) { return are_equal_values(x, y); });
  if (!a.is_object()) return a == b;
  for (const auto& [name, member] : a.items()) {
    const auto found = b.find(name);
    if (found == b.end() || !are_equal_values(member, *found)) return false;
  }
  return true;
}

Verdict check_value(const OrderedJson& value, const FlatSchema& flat, SchemaDocument& document) {
  return ValueCheck(document).check_flat(value, flat, 0);
}

std::vector<const OrderedJson*> listed_values(const SchemaFacts& facts) {
  if (facts.value_lists.empty()) return {};
  const SchemaPlace& list = facts.value_lists.front();
  if (const OrderedJson* constant = keyword_of(list, "const")) return {constant};
  std::vector<const OrderedJson*> values;
  for (const OrderedJson& value : *keyword_of(list, "enum")) values.push_back(&value);
  return values;
}

}  // namespace foretoken
