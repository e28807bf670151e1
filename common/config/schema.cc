#include "common/config/schema.h"

#include <concepts>
#include <limits>
#include <type_traits>
#include <utility>

#include "common/base/json.h"
#include "common/config/models.h"
#include "common/config/sections.h"

namespace foretoken {
namespace {

// ECMA-262 without look-around, which some editors lack. nullptr: no text is wrong by its form.
const char* pattern_of(KeyLimit::Kind kind) {
  switch (kind) {
    case KeyLimit::Kind::kMemory:
      return R"(^([0-9]+ tokens|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?(%|B|KiB|MiB|GiB|TiB))$)";
    case KeyLimit::Kind::kDevice:
      return R"(^(cpu|cuda|cuda:0*[0-9]{1,3}(,0*[0-9]{1,3})*)$)";
    case KeyLimit::Kind::kEndpoint:
    case KeyLimit::Kind::kEndpointList:
      return R"(^(ipc://[^@]|tcp://.+:.|inproc://.))";
    case KeyLimit::Kind::kListen:
      return R"(^(.+:0*[0-9]{1,5})?$)";
    case KeyLimit::Kind::kWeights:
      return R"(^.+=[-+.0-9eE]+$)";
    case KeyLimit::Kind::kAny:
    case KeyLimit::Kind::kNotEmpty:
    case KeyLimit::Kind::kRange:
    case KeyLimit::Kind::kOneOf:
    case KeyLimit::Kind::kProposers:
      break;
  }
  return nullptr;
}

OrderedJson text_schema(const KeyLimit& limit) {
  OrderedJson schema = {{"type", "string"}};
  for (const auto choice : limit.choices) schema["enum"].push_back(std::string(choice));
  if (const char* pattern = pattern_of(limit.kind)) schema["pattern"] = pattern;
  if (limit.kind == KeyLimit::Kind::kNotEmpty) schema["minLength"] = 1;
  return schema;
}

OrderedJson list_schema(const KeyLimit& limit) {
  return {{"type", "array"}, {"items", text_schema(limit)}};
}

// One word or a list of them; in a list of several, none of them is "none".
OrderedJson proposers_schema(const KeyLimit& limit) {
  OrderedJson list = list_schema(limit);
  list["minItems"] = 1;
  list["uniqueItems"] = true;
  list["not"] = {{"minItems", 2}, {"contains", {{"const", name_of(ProposerKind::kNone)}}}};
  return {{"anyOf", {text_schema(limit), std::move(list)}}};
}

// As a file has it.
template <class T>
OrderedJson default_of(const T& value) {
  return value;
}
OrderedJson default_of(ProposerSet set) {
  if (set.size() == 1) return names_in(set);
  return list_of(set);
}

template <std::integral T>
OrderedJson number_schema(const KeyLimit& limit) {
  const bool is_range = limit.kind == KeyLimit::Kind::kRange;
  return {{"type", "integer"},
          {"minimum", is_range ? static_cast<std::int64_t>(limit.low)
                               : std::int64_t{std::numeric_limits<T>::min()}},
          {"maximum", is_range ? static_cast<std::int64_t>(limit.high)
                               : std::int64_t{std::numeric_limits<T>::max()}}};
}

OrderedJson real_number_schema(const KeyLimit& limit) {
  OrderedJson schema = {{"type", "number"}};
  if (limit.kind == KeyLimit::Kind::kRange)
    schema["minimum"] = limit.low, schema["maximum"] = limit.high;
  return schema;
}

template <class T>
OrderedJson value_schema(const KeyLimit& limit) {
  if constexpr (std::same_as<T, bool>) {
    return {{"type", "boolean"}};
  } else if constexpr (std::integral<T>) {
    return number_schema<T>(limit);
  } else if constexpr (std::same_as<T, double>) {
    return real_number_schema(limit);
  } else if constexpr (std::same_as<T, std::string>) {
    return text_schema(limit);
  } else if constexpr (std::same_as<T, ProposerSet>) {
    return proposers_schema(limit);
  } else {
    OrderedJson schema = list_schema(limit);
    if (limit.kind == KeyLimit::Kind::kEndpointList) schema["minItems"] = 1;
    return schema;
  }
}

OrderedJson table_schema(const std::string& sentence, OrderedJson keys) {
  return {{"type", "object"},
          {"description", sentence},
          {"properties", std::move(keys)},
          {"additionalProperties", false}};
}

// Tables of models stand among the keys: what is no key is one. A number alone is no name.
void add_model_tables(OrderedJson& schema, const std::string& section, OrderedJson keys) {
  schema["additionalProperties"] =
      table_schema(section == "model" ? "a model: its name, and what it has for itself"
                                      : "what holds for the services of this model alone",
                   std::move(keys));
  schema["propertyNames"] = {{"pattern", "^[A-Za-z0-9_][-A-Za-z0-9_]{0,23}$"},
                             {"not", {{"pattern", "^[0-9]{1,4}$"}}}};
}

template <class Section>
OrderedJson section_schema(const std::string& section, const Section& s, const char* sentence) {
  OrderedJson keys = OrderedJson::object(), keys_of_model = OrderedJson::object();
  Section::fields(s,
                  [&](const char* key, const auto& value, const KeyLimit& limit, const char* says) {
                    OrderedJson schema = value_schema<std::decay_t<decltype(value)>>(limit);
                    schema["description"] = says;
                    // In the table of a model the section's value stands for a key that is left
                    // out.
                    if (may_differ_by_model(section, key)) keys_of_model[key] = schema;
                    schema["default"] = default_of(value);
                    keys[key] = std::move(schema);
                  });
  OrderedJson schema = table_schema(sentence, std::move(keys));
  if (!keys_of_model.empty()) add_model_tables(schema, section, std::move(keys_of_model));
  return schema;
}

}  // namespace

std::string configuration_schema() {
  OrderedJson sections = OrderedJson::object();
  const Config defaults;
  Config::sections(defaults, [&](const char* section, const auto& s, const char* sentence) {
    sections[section] = section_schema(section, s, sentence);
  });
  OrderedJson schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                        {"title", "foretoken.toml"}};
  schema.update(table_schema(
      "Configuration of Foretoken. Generated from common/config/sections.h; `foretoken config "
      "check` finds what a schema cannot, such as keys that do not go together.",
      std::move(sections)));
  return to_text(schema, 2) + "\n";
}

}  // namespace foretoken
