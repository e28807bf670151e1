// Writes the texts that a schema document allows as expressions. Schemas that references lead to
// become rules, each list of them once, so that recursion ends. Not for use outside of
// common/grammar.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/grammar/expressions.h"
#include "common/grammar/json_schema_document.h"
#include "common/grammar/json_schema_facts.h"
#include "common/grammar/json_texts.h"

namespace foretoken {

class JsonSchemaReader {
 public:
  JsonSchemaReader(SchemaDocument& document, Expressions& expressions)
      : document_(document), expressions_(expressions), texts_(expressions) {}

  // Of no use if the document has failed afterwards.
  ExpressionId read();

 private:
  struct Members {
    std::vector<ExpressionId> texts;  // of a member, key and value
    std::vector<bool> required;       // by text
    ExpressionId further{};           // a member that is not listed; nothing() if there is none
    std::uint32_t n_least = 0;        // members that the object must have
  };

  ExpressionId value(const std::vector<SchemaPlace>& schemas);
  ExpressionId rule_for(FlatSchema flat);
  ExpressionId body(const FlatSchema& flat, int n_chosen);
  ExpressionId listed(const FlatSchema& flat, const SchemaFacts& facts);
  ExpressionId chosen(const FlatSchema& flat, int n_chosen);
  bool may_be_chosen(const FlatSchema& rest, const SchemaChoice& choice);
  ExpressionId typed(const FlatSchema& flat, const SchemaFacts& facts);

  ExpressionId string(const FlatSchema& flat, const SchemaFacts& facts);
  ExpressionId formed_string(const TextForm& form, const CountRange& length);

  ExpressionId array(const FlatSchema& flat, const SchemaFacts& facts);

  ExpressionId object(const FlatSchema& flat, const SchemaFacts& facts);
  Members members_of(const FlatSchema& flat, const SchemaFacts& facts);
  ExpressionId further_member(const FlatSchema& flat, const std::vector<std::string>& names);
  ExpressionId members_text(const Members& members);
  ExpressionId optional_members(const Members& members, std::size_t begin, std::size_t end);
  ExpressionId after_comma(ExpressionId text);

  ExpressionId refused(const SchemaPlace& schema, std::string_view keyword, std::string_view why);
  // Of the first part that has the keyword.
  ExpressionId refused(const FlatSchema& flat, std::string_view keyword, const std::string& why);

  SchemaDocument& document_;
  Expressions& expressions_;
  JsonTexts texts_;
  std::map<std::vector<const OrderedJson*>, RuleId> rules_;
  std::vector<std::pair<RuleId, FlatSchema>> pending_;  // rules without a body
};

}  // namespace foretoken
