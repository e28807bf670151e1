#include "services/edge/answer_constraint.h"

#include <utility>

#include "services/edge/router_request.h"

namespace foretoken::edge {
namespace {

constexpr std::string_view kSchemaKey = "json_schema";
constexpr std::string_view kRegexKey = "regex";
constexpr std::string_view kGrammarKey = "gbnf";
constexpr const char* kAnyObject = R"({"type":"object"})";

// Within the limit of its key, and not empty: that would say nothing.
ReadConstraint checked(std::string field, std::string_view key, std::string text) {
  const std::size_t most = limit_of(key).most_each;
  if (text.empty()) return invalid_value(field + " is empty", field);
  if (text.size() > most)
    return invalid_value(field + " has " + std::to_string(text.size()) + " bytes as " +
                             std::string(key) + "; the limit is " + std::to_string(most),
                         field);
  return std::optional(AnswerConstraint{std::move(field), key, std::move(text)});
}

// A schema, or its text.
ReadConstraint of_schema(const OrderedJson& schema, const std::string& field) {
  if (schema.is_object()) return checked(field, kSchemaKey, to_text(schema));
  if (schema.is_string()) return checked(field, kSchemaKey, schema.get<std::string>());
  if (schema.is_null()) return invalid_value(field + " is missing", field);
  return invalid_value(field + " is of type " + schema.type_name() + "; it must be an object",
                       field);
}

ReadConstraint of_text(const OrderedJson& value, const std::string& field, std::string_view key) {
  if (value.is_string()) return checked(field, key, value.get<std::string>());
  return invalid_value(field + " is of type " + value.type_name() + "; it must be a text", field);
}
ReadConstraint of_regex(const OrderedJson& value, const std::string& field) {
  return of_text(value, field, kRegexKey);
}
ReadConstraint of_grammar(const OrderedJson& value, const std::string& field) {
  return of_text(value, field, kGrammarKey);
}

std::string escaped(const std::string& text) {
  std::string pattern;
  for (const char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

// Texts, one of which is the answer.
ReadConstraint of_choices(const OrderedJson& texts, const std::string& field) {
  if (!texts.is_array() || texts.empty() || texts.size() > kChoicesOfTextLimit.most)
    return invalid_value(
        field + " must be a list of 1 to " + std::to_string(kChoicesOfTextLimit.most) + " texts",
        field);
  std::string pattern;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].is_string() || texts[i] == "")
      return invalid_value(field + "[" + std::to_string(i) + "] must be a text that is not empty",
                           field);
    pattern += (i > 0 ? "|" : "") + escaped(texts[i].get<std::string>());
  }
  return checked(field, kRegexKey, std::move(pattern));
}

ReadConstraint of_any_object(const OrderedJson& wanted, const std::string& field) {
  if (!wanted.is_boolean()) return invalid_value(field + " must be true or false", field);
  if (wanted == false) return std::optional<AnswerConstraint>();
  return checked(field, kSchemaKey, kAnyObject);
}

ReadConstraint of_response_format(const OrderedJson& format, const std::string& field) {
  return read_format(format, field, "json_schema");
}

struct Form {
  const char* name;
  ReadConstraint (*read)(const OrderedJson& value, const std::string& field);
};

// Members of vLLM's structured_outputs.
constexpr Form kMembers[] = {
    {"json", of_schema},
    {"regex", of_regex},
    {"choice", of_choices},
    {"grammar", of_grammar},
    {"json_object", of_any_object},
};
// Fields of a body, structured_outputs apart.
constexpr Form kFields[] = {
    {"response_format", of_response_format},
    {"guided_json", of_schema},
    {"guided_regex", of_regex},
    {"guided_choice", of_choices},
    {"guided_grammar", of_grammar},
    {"json_schema", of_schema},
    {"regex", of_regex},
    {"gbnf", of_grammar},
    {"grammar", of_grammar},
};

// Keeps what is read, as long as it is one.
class OneConstraint {
 public:
  Result<void> add(ReadConstraint read) {
    if (!read.ok()) return read.error();
    if (!*read) return {};
    if (found_)
      return invalid_value(
          found_->field + " and " + (*read)->field + " both constrain the answer; one of them may",
          (*read)->field);
    found_ = std::move(*read);
    return {};
  }
  Result<void> add(const Form& form, const OrderedJson& from, const std::string& within = {}) {
    const OrderedJson& value = member(from, form.name);
    if (value.is_null()) return {};
    return add(form.read(value, within + form.name));
  }
  std::optional<AnswerConstraint> take() { return std::move(found_); }

 private:
  std::optional<AnswerConstraint> found_;
};

bool is_member(const std::string& name) {
  for (const Form& form : kMembers)
    if (name == form.name) return true;
  return false;
}

// {"json", "regex", "choice", "grammar" or "json_object"}
Result<void> read_structured_outputs(const OrderedJson& outputs,
                                     OneConstraint& found,
                                     std::vector<std::string>& ignored) {
  const std::string where = "structured_outputs";
  if (outputs.is_null()) return {};
  if (const auto good = check_object(outputs, where); !good.ok()) return good.error();
  if (!member(outputs, "structural_tag").is_null())
    return Error{ErrorCode::kUnsupportedParameter, where + ".structural_tag is not supported",
                 where + ".structural_tag"};
  bool says_something = false;
  for (const auto& [name, value] : outputs.items()) {
    if (value.is_null() || value == false) continue;
    says_something |= is_member(name);
    // Ours has no white space between the tokens of JSON, whatever is asked for.
    if (!is_member(name) && name != "disable_any_whitespace") ignored.push_back(where + "." + name);
  }
  if (!says_something)
    return invalid_value(where + " needs one of json, regex, choice, grammar and json_object",
                         where);
  for (const Form& form : kMembers)
    if (const auto done = found.add(form, outputs, where + "."); !done.ok()) return done.error();
  return {};
}

}  // namespace

ReadConstraint read_format(const OrderedJson& format,
                           const std::string& where,
                           const char* within) {
  if (const auto good = check_object(format, where); !good.ok()) return good.error();
  const std::string type = text_or_empty(member(format, "type"));
  if (format.is_null() || type == "text") return std::optional<AnswerConstraint>();
  const OrderedJson& beside = member(format, "schema");
  if (type == "json_object")  // some servers take a schema with it
    return beside.is_null() ? checked(where, kSchemaKey, kAnyObject)
                            : of_schema(beside, where + ".schema");
  if (type == "json_schema") {
    const std::string around = within == nullptr ? where : where + "." + within;
    const OrderedJson& schema =
        within == nullptr ? beside : member(member(format, within), "schema");
    return of_schema(schema, around + ".schema");
  }
  return invalid_value(where + ".type is " + to_text(member(format, "type")) +
                           "; it must be text, json_object or json_schema",
                       where + ".type");
}

ReadConstraint read_constraint(const OrderedJson& body, std::vector<std::string>& ignored) {
  OneConstraint found;
  for (const Form& form : kFields) {
    // llama.cpp's own clients send an empty grammar for none.
    if (form.name == std::string_view("grammar") && member(body, form.name) == "") continue;
    if (const auto done = found.add(form, body); !done.ok()) return done.error();
  }
  const auto done = read_structured_outputs(member(body, "structured_outputs"), found, ignored);
  if (!done.ok()) return done.error();
  return found.take();
}

std::string use_constraint(std::optional<AnswerConstraint> constraint, Json& request) {
  if (!constraint) return {};
  request[std::string(constraint->key)] = std::move(constraint->text);
  return std::move(constraint->field);
}

}  // namespace foretoken::edge
