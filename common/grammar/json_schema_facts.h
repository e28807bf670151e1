// What the keywords of a flat schema say together: types, bounds, lengths, members, items. Writes
// no expressions. Not for use outside of common/grammar.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/grammar/json_keywords.h"
#include "common/grammar/json_numbers.h"
#include "common/grammar/json_schema_document.h"

namespace foretoken {

struct CountRange {
  std::uint32_t min = 0;
  std::uint32_t max = Expressions::kUnbounded;

  bool is_any() const { return min == 0 && max == Expressions::kUnbounded; }
};

// "pattern", or a "format" that is known and stands beside no pattern.
struct TextForm {
  SchemaPlace schema;
  std::string_view keyword;
};

struct SchemaFacts {
  unsigned types = kJsonAny;
  NumberBounds numbers;
  CountRange length;      // of a string, in code points
  CountRange items;       // of an array
  CountRange properties;  // of an object
  std::vector<TextForm> forms;
  std::vector<SchemaPlace> value_lists;  // schemas that have "enum" or "const"
};

SchemaFacts facts_of(const FlatSchema& flat);

// The first keyword of the parts that is not supported and says something about values of `types`;
// refuses it if there is one.
void refuse_unsupported(const FlatSchema& flat, const SchemaFacts& facts, SchemaDocument& document);
bool has_unsupported(const FlatSchema& flat, const SchemaFacts& facts);

Decimal decimal_of(const OrderedJson& number);

// Names in "properties", in order, each once; names in "required" likewise.
std::vector<std::string> listed_names(const FlatSchema& flat);
std::vector<std::string> required_names(const FlatSchema& flat);
// What must hold of the member of this name, and of a member whose name is not listed.
std::vector<SchemaPlace> member_schemas(const FlatSchema& flat, const std::string& name);
std::vector<SchemaPlace> further_member_schemas(const FlatSchema& flat);

// Items that have a schema of their own place, and what must hold of the item at a place.
std::size_t n_first_items(const FlatSchema& flat);
std::vector<SchemaPlace> item_schemas(const FlatSchema& flat, std::size_t index);

}  // namespace foretoken
