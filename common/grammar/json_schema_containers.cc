// Arrays and objects of a schema.
#include <algorithm>
#include <set>

#include "common/grammar/json_schema_reader.h"

namespace foretoken {
namespace {

constexpr std::size_t kMaxFirstItems = 100;
constexpr std::uint32_t kMaxItems = 10'000;

}  // namespace

ExpressionId JsonSchemaReader::array(const FlatSchema& flat, const SchemaFacts& facts) {
  const std::size_t n_first = n_first_items(flat);
  const std::uint32_t min = facts.items.min;
  std::uint32_t max = facts.items.max;
  if (min > max) return expressions_.nothing();
  if (min > kMaxItems)
    return refused(flat, "minItems", "is above the limit of " + std::to_string(kMaxItems));
  if (n_first > kMaxFirstItems) {
    const std::string why = "has more schemas than the limit of " + std::to_string(kMaxFirstItems);
    refused(flat, "prefixItems", why);
    return refused(flat, "items", why);
  }
  if (max != Expressions::kUnbounded) max = std::min(max, kMaxItems);

  // From the last item to the first: what may follow the items before.
  const auto item = texts_.shared(value(item_schemas(flat, n_first)));
  const auto n_places = static_cast<std::uint32_t>(n_first);
  const bool ends_early = is_nothing(item, expressions_) || max <= n_places;
  ExpressionId rest = expressions_.empty();
  if (ends_early) {
    if (min > n_places) rest = expressions_.nothing();
  } else {
    const std::uint32_t n_min = min > n_places ? min - n_places : 0;
    const std::uint32_t n_max = max == Expressions::kUnbounded ? max : max - n_places;
    if (n_first > 0) {
      rest = expressions_.repeat(after_comma(item), n_min, n_max);
    } else {
      const auto more = expressions_.repeat(after_comma(item), n_min > 0 ? n_min - 1 : 0,
                                            n_max == Expressions::kUnbounded ? n_max : n_max - 1);
      rest = expressions_.sequence({item, more});
      if (n_min == 0) rest = expressions_.optional(rest);
    }
  }
  for (std::uint32_t i = n_places; i-- > 0;) {
    ExpressionId here = max <= i ? expressions_.nothing() : value(item_schemas(flat, i));
    if (i > 0) here = text_sequence({expressions_.literal(","), here}, expressions_);
    here = text_sequence({here, rest}, expressions_);
    rest = i < min ? here : any_text_of({expressions_.empty(), here}, expressions_);
  }
  return text_sequence({expressions_.literal("["), rest, expressions_.literal("]")}, expressions_);
}

ExpressionId JsonSchemaReader::object(const FlatSchema& flat, const SchemaFacts& facts) {
  const Members members = members_of(flat, facts);
  if (document_.failed()) return expressions_.nothing();
  return text_sequence(
      {expressions_.literal("{"), members_text(members), expressions_.literal("}")}, expressions_);
}

JsonSchemaReader::Members JsonSchemaReader::members_of(const FlatSchema& flat,
                                                       const SchemaFacts& facts) {
  std::vector<std::string> names = listed_names(flat);
  const std::vector<std::string> demanded = required_names(flat);
  const std::set<std::string> required(demanded.begin(), demanded.end());
  for (const std::string& name : demanded)
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  document_.spend(names.size());

  Members members;
  for (const std::string& name : names) {
    if (document_.failed()) return members;
    const auto text = value(member_schemas(flat, name));
    const bool is_required = required.contains(name);
    if (is_nothing(text, expressions_) && !is_required) continue;
    // Where no member is required, texts are written in several places.
    members.texts.push_back(text_sequence({expressions_.literal(to_text(OrderedJson(name)) + ":"),
                                           required.empty() ? texts_.shared(text) : text},
                                          expressions_));
    members.required.push_back(is_required);
  }
  members.further = further_member(flat, names);
  members.n_least = facts.properties.min;
  const bool is_closed = is_nothing(members.further, expressions_);
  const std::size_t n_most = is_closed ? members.texts.size() : Expressions::kUnbounded;
  if (members.n_least > std::max<std::size_t>(1, required.size()))
    refused(flat, "minProperties", "is above 1 and the number of required members");
  if (facts.properties.max < n_most) {
    refused(flat, "maxProperties",
            "is not supported where further members are allowed or more are listed");
  }
  return members;
}

ExpressionId JsonSchemaReader::further_member(const FlatSchema& flat,
                                              const std::vector<std::string>& names) {
  const auto text = texts_.shared(value(further_member_schemas(flat)));
  if (is_nothing(text, expressions_)) return text;
  for (const std::string& name : names) {
    if (name.size() <= JsonTexts::kMaxKeyBytes) continue;
    document_.refuse("a key of more than " + std::to_string(JsonTexts::kMaxKeyBytes) +
                     " bytes in an object that allows further keys is not supported");
    return expressions_.nothing();
  }
  const auto key = texts_.other_key({names.begin(), names.end()});
  return texts_.shared(
      text_sequence({texts_.shared(key), expressions_.literal(":"), text}, expressions_));
}

ExpressionId JsonSchemaReader::members_text(const Members& members) {
  const auto first = std::find(members.required.begin(), members.required.end(), true);
  const std::size_t n = members.texts.size();
  if (first == members.required.end()) {
    const bool has_further = !is_nothing(members.further, expressions_);
    const std::size_t n_places = n + has_further;
    const auto some =
        n_places == 0 ? expressions_.nothing() : optional_members(members, 0, n_places);
    if (members.n_least > 0) return some;
    return any_text_of({expressions_.empty(), some}, expressions_);
  }
  // Commas stand behind the members before the first required one and before those behind it.
  const auto at = static_cast<std::size_t>(first - members.required.begin());
  std::vector<ExpressionId> parts;
  for (std::size_t i = 0; i < at; ++i) {
    parts.push_back(expressions_.optional(
        expressions_.sequence({members.texts[i], expressions_.literal(",")})));
  }
  parts.push_back(members.texts[at]);
  for (std::size_t i = at + 1; i < n; ++i) {
    const auto text = after_comma(members.texts[i]);
    parts.push_back(members.required[i] ? text : expressions_.optional(text));
  }
  if (!is_nothing(members.further, expressions_))
    parts.push_back(expressions_.repeat(after_comma(members.further), 0, Expressions::kUnbounded));
  return text_sequence(std::move(parts), expressions_);
}

// One or more of the members, all of them optional: those of the first half and then any of the
// second, or of the second half alone. Each is written about log2(n) times. The place behind the
// last listed member is that of the further ones.
ExpressionId JsonSchemaReader::optional_members(const Members& members,
                                                std::size_t begin,
                                                std::size_t end) {
  const auto some_further = [&](ExpressionId text) {
    return expressions_.repeat(after_comma(text), 0, Expressions::kUnbounded);
  };
  const bool is_further = begin == members.texts.size();
  if (end - begin == 1 && !is_further) return members.texts[begin];
  if (is_further) return expressions_.sequence({members.further, some_further(members.further)});
  const std::size_t middle = begin + (end - begin) / 2;
  std::vector<ExpressionId> parts{optional_members(members, begin, middle)};
  for (std::size_t i = middle; i < end; ++i) {
    parts.push_back(i < members.texts.size() ? expressions_.optional(after_comma(members.texts[i]))
                                             : some_further(members.further));
  }
  return expressions_.any_of(
      {expressions_.sequence(std::move(parts)), optional_members(members, middle, end)});
}

ExpressionId JsonSchemaReader::after_comma(ExpressionId text) {
  return text_sequence({expressions_.literal(","), text}, expressions_);
}

}  // namespace foretoken
