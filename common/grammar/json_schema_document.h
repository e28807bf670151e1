// A JSON Schema as a document: places in it, references, and what a list of schemas that must all
// hold says once allOf and references are followed. Knows keywords by their form, not by what they
// mean; writes no expressions. Not for use outside of common/grammar.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"

namespace foretoken {

struct SchemaPlace {
  const OrderedJson* json = nullptr;  // of the document; an object or a boolean
  std::string pointer;                // JSON pointer, for messages; a long one is cut
};

std::string pointer_below(const std::string& pointer, std::string_view step);

// The value of a keyword; null if the schema is a boolean or does not have it.
const OrderedJson* keyword_of(const SchemaPlace& schema, std::string_view keyword);
SchemaPlace below(const SchemaPlace& schema, std::string_view keyword);
SchemaPlace below(const SchemaPlace& schema, std::string_view keyword, std::string_view step);

// anyOf or oneOf.
struct SchemaChoice {
  SchemaPlace schema;  // that has the keyword
  std::string_view keyword;

  std::vector<SchemaPlace> branches() const;
};

// Schemas that must all hold, without allOf and references.
struct FlatSchema {
  std::vector<SchemaPlace> parts;  // each once; those that say something beside choices
  std::vector<SchemaChoice> choices;
  bool allows_nothing = false;  // one of them is `false`
  bool refers = false;          // a reference was followed

  // Equal for equal parts and choices.
  std::vector<const OrderedJson*> key() const;
  std::string place() const;  // the pointer to its first part, for messages
};

class SchemaDocument {
 public:
  explicit SchemaDocument(const OrderedJson& root) : root_(root) {}

  SchemaPlace root() const { return {&root_, ""}; }

  // Keeps the first sentence; later ones are dropped. What is read after a refusal is not used.
  void refuse(std::string_view sentence);
  void refuse_keyword(const SchemaPlace& schema, std::string_view keyword, std::string_view why);
  bool failed() const { return problem_.has_value(); }
  const std::string& problem() const { return *problem_; }

  // Bounds the work that one schema may ask for; refuses beyond.
  void spend(std::size_t steps = 1);

  FlatSchema flatten(const std::vector<SchemaPlace>& schemas);
  void add(const std::vector<SchemaPlace>& schemas, FlatSchema& flat);

  // What "$ref" refers to; refuses if there is no such place.
  std::optional<SchemaPlace> follow(const SchemaPlace& schema);

 private:
  std::optional<SchemaPlace> find(const SchemaPlace& schema, const std::string& reference);
  bool is_well_formed(const SchemaPlace& schema);
  void add_one(const SchemaPlace& schema, FlatSchema& flat, std::vector<SchemaPlace>& unread);

  const OrderedJson& root_;
  std::optional<std::string> problem_;
  std::size_t n_steps_ = 0;
  std::map<const OrderedJson*, SchemaPlace> followed_;
  std::map<const OrderedJson*, bool> checked_;
};

}  // namespace foretoken
