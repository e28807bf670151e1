#include "common/grammar/json_schema_facts.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "common/grammar/json_formats.h"

namespace foretoken {
namespace {

std::uint32_t count_of(const OrderedJson& count) {
  const double value = count.get<double>();
  return value >= Expressions::kUnbounded ? Expressions::kUnbounded - 1
                                          : static_cast<std::uint32_t>(value);
}

unsigned types_of(const OrderedJson& names) {
  if (names.is_string()) return type_of_name(names.get_ref<const std::string&>());
  unsigned types = 0;
  for (const OrderedJson& name : names) types |= type_of_name(name.get_ref<const std::string&>());
  return types;
}

void read_counts(const SchemaPlace& part, std::string_view of, CountRange& range) {
  if (const OrderedJson* min = keyword_of(part, "min" + std::string(of)))
    range.min = std::max(range.min, count_of(*min));
  if (const OrderedJson* max = keyword_of(part, "max" + std::string(of)))
    range.max = std::min(range.max, count_of(*max));
}

void read_bounds(const SchemaPlace& part, NumberBounds& bounds) {
  if (const OrderedJson* at = keyword_of(part, "minimum"))
    bounds.raise_low({decimal_of(*at), false});
  if (const OrderedJson* at = keyword_of(part, "exclusiveMinimum"))
    bounds.raise_low({decimal_of(*at), true});
  if (const OrderedJson* at = keyword_of(part, "maximum"))
    bounds.lower_high({decimal_of(*at), false});
  if (const OrderedJson* at = keyword_of(part, "exclusiveMaximum"))
    bounds.lower_high({decimal_of(*at), true});
}

void add_form(const SchemaPlace& part, std::string_view keyword, std::vector<TextForm>& forms) {
  const bool known = std::any_of(forms.begin(), forms.end(), [&](const TextForm& form) {
    return form.keyword == keyword &&
           *keyword_of(form.schema, keyword) == *keyword_of(part, keyword);
  });
  if (!known) forms.push_back({part, keyword});
}

void read_forms(const SchemaPlace& part, std::vector<TextForm>& forms) {
  if (keyword_of(part, "pattern") != nullptr) add_form(part, "pattern", forms);
  const OrderedJson* format = keyword_of(part, "format");
  if (format != nullptr && !pattern_of_format(format->get_ref<const std::string&>()).empty())
    add_form(part, "format", forms);
}

// Beside a pattern a format is an annotation, as in the standard: Zod writes its formats as both.
void drop_formats_beside_pattern(std::vector<TextForm>& forms) {
  const auto is_pattern = [](const TextForm& form) { return form.keyword == "pattern"; };
  if (std::any_of(forms.begin(), forms.end(), is_pattern))
    std::erase_if(forms, [&](const TextForm& form) { return !is_pattern(form); });
}

bool is_trivial(const KeywordRow& row, const OrderedJson& value, const SchemaFacts& facts) {
  if (row.name == "uniqueItems" && facts.items.max <= 1) return true;
  if (row.name == "multipleOf" && value == 1 && (facts.types & kJsonFraction) == 0) return true;
  return asks_for_nothing(row, value);
}

struct Unsupported {
  const SchemaPlace* part;
  std::string_view keyword;
};

std::optional<Unsupported> find_unsupported(const FlatSchema& flat, const SchemaFacts& facts) {
  for (const SchemaPlace& part : flat.parts) {
    for (const auto& [name, value] : part.json->items()) {
      const KeywordRow* row = find_keyword(name);
      if (row == nullptr || row->use != KeywordUse::kRefused) continue;
      if ((row->types & facts.types) != 0 && !is_trivial(*row, value, facts))
        return Unsupported{&part, row->name};
    }
  }
  return std::nullopt;
}

void add_once(const std::string& name,
              std::set<std::string>& seen,
              std::vector<std::string>& names) {
  if (seen.insert(name).second) names.push_back(name);
}

// Schemas of the first items: "prefixItems", or a list in "items" as in draft 7.
std::string_view first_items_keyword(const SchemaPlace& part) {
  if (keyword_of(part, "prefixItems") != nullptr) return "prefixItems";
  const OrderedJson* items = keyword_of(part, "items");
  return items != nullptr && items->is_array() ? "items" : "";
}

std::string_view further_items_keyword(const SchemaPlace& part) {
  const OrderedJson* items = keyword_of(part, "items");
  if (items != nullptr && !items->is_array()) return "items";
  if (items == nullptr || keyword_of(part, "additionalItems") == nullptr) return "";
  return "additionalItems";
}

}  // namespace

Decimal decimal_of(const OrderedJson& number) {
  if (!number.is_number_float()) return read_decimal(to_text(number));
  char digits[512];  // the longest double has 327 characters behind the point
  const auto [end, problem] =
      std::to_chars(digits, digits + sizeof digits, number.get<double>(), std::chars_format::fixed);
  if (problem != std::errc()) return read_decimal("0");
  return read_decimal({digits, static_cast<std::size_t>(end - digits)});
}

SchemaFacts facts_of(const FlatSchema& flat) {
  SchemaFacts facts;
  for (const SchemaPlace& part : flat.parts) {
    if (const OrderedJson* names = keyword_of(part, "type")) facts.types &= types_of(*names);
    read_bounds(part, facts.numbers);
    read_counts(part, "Length", facts.length);
    read_counts(part, "Items", facts.items);
    read_counts(part, "Properties", facts.properties);
    read_forms(part, facts.forms);
    if (keyword_of(part, "enum") != nullptr || keyword_of(part, "const") != nullptr)
      facts.value_lists.push_back(part);
  }
  drop_formats_beside_pattern(facts.forms);
  return facts;
}

void refuse_unsupported(const FlatSchema& flat,
                        const SchemaFacts& facts,
                        SchemaDocument& document) {
  if (const auto found = find_unsupported(flat, facts))
    document.refuse_keyword(*found->part, found->keyword, "is not supported");
}

bool has_unsupported(const FlatSchema& flat, const SchemaFacts& facts) {
  return find_unsupported(flat, facts).has_value();
}

std::vector<std::string> listed_names(const FlatSchema& flat) {
  std::set<std::string> seen;
  std::vector<std::string> names;
  for (const SchemaPlace& part : flat.parts) {
    if (const OrderedJson* properties = keyword_of(part, "properties"))
      for (const auto& [name, schema] : properties->items()) add_once(name, seen, names);
  }
  return names;
}

std::vector<std::string> required_names(const FlatSchema& flat) {
  std::set<std::string> seen;
  std::vector<std::string> names;
  for (const SchemaPlace& part : flat.parts) {
    if (const OrderedJson* required = keyword_of(part, "required"))
      for (const OrderedJson& name : *required)
        add_once(name.get_ref<const std::string&>(), seen, names);
  }
  return names;
}

std::vector<SchemaPlace> member_schemas(const FlatSchema& flat, const std::string& name) {
  std::vector<SchemaPlace> schemas;
  for (const SchemaPlace& part : flat.parts) {
    const OrderedJson* properties = keyword_of(part, "properties");
    if (properties != nullptr && properties->contains(name)) {
      schemas.push_back(below(part, "properties", name));
    } else if (keyword_of(part, "additionalProperties") != nullptr) {
      schemas.push_back(below(part, "additionalProperties"));
    }
  }
  return schemas;
}

std::vector<SchemaPlace> further_member_schemas(const FlatSchema& flat) {
  std::vector<SchemaPlace> schemas;
  for (const SchemaPlace& part : flat.parts)
    if (keyword_of(part, "additionalProperties") != nullptr)
      schemas.push_back(below(part, "additionalProperties"));
  return schemas;
}

std::size_t n_first_items(const FlatSchema& flat) {
  std::size_t n = 0;
  for (const SchemaPlace& part : flat.parts) {
    const std::string_view first = first_items_keyword(part);
    if (!first.empty()) n = std::max(n, keyword_of(part, first)->size());
  }
  return n;
}

std::vector<SchemaPlace> item_schemas(const FlatSchema& flat, std::size_t index) {
  std::vector<SchemaPlace> schemas;
  for (const SchemaPlace& part : flat.parts) {
    const std::string_view first = first_items_keyword(part);
    const std::string_view further = further_items_keyword(part);
    if (!first.empty() && index < keyword_of(part, first)->size()) {
      schemas.push_back(below(part, first, std::to_string(index)));
    } else if (!further.empty()) {
      schemas.push_back(below(part, further));
    }
  }
  return schemas;
}

}  // namespace foretoken
