#include "common/grammar/json_schema_document.h"

#include <algorithm>
#include <charconv>
#include <unordered_set>
#include <utility>

#include "common/base/utf8.h"
#include "common/grammar/json_keywords.h"

namespace foretoken {
namespace {

// Of one schema: every schema that is read or compared, once for each time.
constexpr std::size_t kMaxSteps = 200'000;
constexpr std::size_t kMaxPointerBytes = 300;

std::string in_quotes(std::string_view text) {
  return "\"" + std::string(text.substr(0, 64)) + (text.size() > 64 ? "…\"" : "\"");
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      decoded += text[at];
      continue;
    }
    unsigned byte = 0;
    if (at + 2 >= text.size()) return std::nullopt;
    const char* first = text.data() + at + 1;
    const auto [end, problem] = std::from_chars(first, first + 2, byte, 16);
    if (problem != std::errc() || end != first + 2) return std::nullopt;
    decoded += static_cast<char>(byte);
    at += 2;
  }
  return decoded;
}

// The value one step of a JSON pointer below another; null if there is none.
const OrderedJson* stepped(const OrderedJson& value, const std::string& step) {
  if (value.is_object()) {
    const auto found = value.find(step);
    return found == value.end() ? nullptr : &*found;
  }
  if (!value.is_array() || step.empty() || step.size() > 9) return nullptr;
  std::size_t index = 0;
  const auto [end, problem] = std::from_chars(step.data(), step.data() + step.size(), index);
  const bool read = problem == std::errc() && end == step.data() + step.size();
  return read && index < value.size() ? &value[index] : nullptr;
}

bool holds_place(const std::vector<SchemaPlace>& places, const OrderedJson* json) {
  return std::any_of(places.begin(), places.end(),
                     [&](const SchemaPlace& place) { return place.json == json; });
}

}  // namespace

std::string pointer_below(const std::string& pointer, std::string_view step) {
  if (pointer.size() > kMaxPointerBytes) return pointer;
  std::string escaped =
      replaced(replaced(std::string(step.substr(0, kMaxPointerBytes)), "~", "~0"), "/", "~1");
  escaped.insert(0, "/");
  return pointer + escaped;
}

const OrderedJson* keyword_of(const SchemaPlace& schema, std::string_view keyword) {
  if (!schema.json->is_object()) return nullptr;
  const auto found = schema.json->find(std::string(keyword));
  return found == schema.json->end() ? nullptr : &*found;
}

SchemaPlace below(const SchemaPlace& schema, std::string_view keyword) {
  return {keyword_of(schema, keyword), pointer_below(schema.pointer, keyword)};
}

SchemaPlace below(const SchemaPlace& schema, std::string_view keyword, std::string_view step) {
  const SchemaPlace outer = below(schema, keyword);
  return {stepped(*outer.json, std::string(step)), pointer_below(outer.pointer, step)};
}

std::vector<SchemaPlace> SchemaChoice::branches() const {
  const SchemaPlace list = below(schema, keyword);
  std::vector<SchemaPlace> places;
  for (const OrderedJson& branch : *list.json)
    places.push_back({&branch, pointer_below(list.pointer, std::to_string(places.size()))});
  return places;
}

std::vector<const OrderedJson*> FlatSchema::key() const {
  std::vector<const OrderedJson*> of_parts, of_choices;
  for (const SchemaPlace& part : parts) of_parts.push_back(part.json);
  for (const SchemaChoice& choice : choices)
    of_choices.push_back(keyword_of(choice.schema, choice.keyword));
  std::sort(of_parts.begin(), of_parts.end());
  std::sort(of_choices.begin(), of_choices.end());
  of_parts.push_back(nullptr);
  of_parts.insert(of_parts.end(), of_choices.begin(), of_choices.end());
  return of_parts;
}

std::string FlatSchema::place() const {
  if (!parts.empty()) return parts.front().pointer;
  return choices.empty() ? "" : choices.front().schema.pointer;
}

void SchemaDocument::refuse(std::string_view sentence) {
  if (!problem_) problem_ = utf8::text_of(sentence);  // a name may have been cut
}

void SchemaDocument::refuse_keyword(const SchemaPlace& schema,
                                    std::string_view keyword,
                                    std::string_view why) {
  refuse(in_quotes(keyword) + " at " + (schema.pointer.empty() ? "the top" : schema.pointer) + " " +
         std::string(why));
}

void SchemaDocument::spend(std::size_t steps) {
  n_steps_ += steps;
  if (n_steps_ > kMaxSteps) {
    refuse("the schema is too large once references, allOf and choices are followed: more than " +
           std::to_string(kMaxSteps) + " steps");
  }
}

FlatSchema SchemaDocument::flatten(const std::vector<SchemaPlace>& schemas) {
  FlatSchema flat;
  add(schemas, flat);
  return flat;
}

void SchemaDocument::add(const std::vector<SchemaPlace>& schemas, FlatSchema& flat) {
  std::vector<SchemaPlace> unread(schemas.rbegin(), schemas.rend());
  std::map<const OrderedJson*, bool> seen;
  while (!unread.empty() && !failed()) {
    const SchemaPlace schema = std::move(unread.back());
    unread.pop_back();
    spend();
    if (!std::exchange(seen[schema.json], true)) add_one(schema, flat, unread);
  }
}

void SchemaDocument::add_one(const SchemaPlace& schema,
                             FlatSchema& flat,
                             std::vector<SchemaPlace>& unread) {
  if (schema.json->is_boolean()) {
    flat.allows_nothing = flat.allows_nothing || !schema.json->get<bool>();
    return;
  }
  if (!is_well_formed(schema)) return;
  if (holds_place(flat.parts, schema.json)) return;
  bool constrains = false;
  std::vector<SchemaPlace> further;
  for (const auto& [name, value] : schema.json->items()) {
    const KeywordRow* row = find_keyword(name);
    if (row == nullptr) continue;
    if (row->use == KeywordUse::kReference) {
      flat.refers = true;
      if (auto place = follow(schema)) further.push_back(std::move(*place));
    } else if (row->use == KeywordUse::kAll) {
      const auto branches = SchemaChoice{schema, row->name}.branches();
      further.insert(further.end(), branches.begin(), branches.end());
    } else if (row->use == KeywordUse::kChoice) {
      const bool known =
          std::any_of(flat.choices.begin(), flat.choices.end(), [&](const SchemaChoice& choice) {
            return choice.schema.json == schema.json && choice.keyword == row->name;
          });
      if (!known) flat.choices.push_back({schema, row->name});
    } else {
      constrains = true;
    }
  }
  if (constrains) flat.parts.push_back(schema);
  unread.insert(unread.end(), further.rbegin(), further.rend());
}

// Of each schema once: its keywords have the values that they must have.
bool SchemaDocument::is_well_formed(const SchemaPlace& schema) {
  if (const auto known = checked_.find(schema.json); known != checked_.end()) return known->second;
  for (const auto& [name, value] : schema.json->items()) {
    const KeywordRow* row = find_keyword(name);
    if (name == "$id" && schema.json != &root_) {
      refuse_keyword(schema, name, "is supported at the top only");
    } else if (row != nullptr) {
      if (const char* problem = form_problem(row->form, value))
        refuse_keyword(schema, name, problem);
      if (row->use == KeywordUse::kChoice && value.empty())
        refuse_keyword(schema, name, "must have at least one schema");
      if (row->use == KeywordUse::kRefused && row->types == kJsonAny)
        refuse_keyword(schema, name, "is not supported");
    }
  }
  return checked_[schema.json] = !failed();
}

std::optional<SchemaPlace> SchemaDocument::follow(const SchemaPlace& schema) {
  if (const auto known = followed_.find(schema.json); known != followed_.end())
    return known->second;
  const auto refers_to = [&](const SchemaPlace& place) {
    return find(place, keyword_of(place, "$ref")->get_ref<const std::string&>());
  };
  auto place = refers_to(schema);
  std::unordered_set<const OrderedJson*> seen{schema.json};
  for (auto next = place; next && !failed();) {
    spend();
    const OrderedJson* further = keyword_of(*next, "$ref");
    if (further == nullptr || !further->is_string()) break;
    if (!seen.insert(next->json).second) refuse_keyword(schema, "$ref", "refers to itself");
    next = refers_to(*next);
  }
  if (!place || failed()) return std::nullopt;
  followed_[schema.json] = *place;
  return place;
}

std::optional<SchemaPlace> SchemaDocument::find(const SchemaPlace& schema,
                                                const std::string& reference) {
  const auto decoded =
      percent_decoded(std::string_view(reference).substr(reference.starts_with('#')));
  if (!reference.starts_with('#') || !decoded || (!decoded->empty() && decoded->front() != '/')) {
    refuse_keyword(schema, "$ref",
                   "refers to " + in_quotes(reference) +
                       "; only JSON pointers within the schema are supported, such as #/$defs/a");
    return std::nullopt;
  }
  SchemaPlace place{&root_, ""};
  for (std::size_t at = 0; at < decoded->size() && place.json != nullptr;) {
    const std::size_t end = std::min(decoded->find('/', at + 1), decoded->size());
    const std::string step =
        replaced(replaced(decoded->substr(at + 1, end - at - 1), "~1", "/"), "~0", "~");
    place = {stepped(*place.json, step), pointer_below(place.pointer, step)};
    at = end;
  }
  if (place.json == nullptr || !(place.json->is_object() || place.json->is_boolean())) {
    refuse_keyword(schema, "$ref", "refers to " + in_quotes(reference) + ", which is no schema");
    return std::nullopt;
  }
  return place;
}

}  // namespace foretoken
