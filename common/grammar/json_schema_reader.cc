#include "common/grammar/json_schema_reader.h"

#include <algorithm>
#include <set>

#include "common/grammar/json_formats.h"
#include "common/grammar/json_lengths.h"
#include "common/grammar/json_schema_values.h"
#include "common/grammar/regex.h"

namespace foretoken {
namespace {

constexpr std::size_t kMaxExpressions = 400'000;
constexpr int kMaxChosen = 40;  // choices within choices, allOf and references between them
constexpr std::uint32_t kMaxCount = 10'000;  // characters of a string, items of an array

// Numbers that JSON text has and a double does not, such as 2^64 + 1, are not written as they were.
bool is_exact(const OrderedJson& value) {
  if (value.is_number()) return is_exact_number(value);
  return std::all_of(value.begin(), value.end(), [](const OrderedJson& part) {
    return !part.is_structured() ? !part.is_number() || is_exact_number(part) : is_exact(part);
  });
}

}  // namespace

ExpressionId JsonSchemaReader::read() {
  const ExpressionId whole = value({document_.root()});
  while (!pending_.empty() && !document_.failed()) {
    const auto [rule, flat] = std::move(pending_.back());
    pending_.pop_back();
    expressions_.define(rule, body(flat, 0));
  }
  return whole;
}

ExpressionId JsonSchemaReader::value(const std::vector<SchemaPlace>& schemas) {
  FlatSchema flat = document_.flatten(schemas);
  if (expressions_.size() > kMaxExpressions)
    document_.refuse("the schema allows texts that are too many to be written down");
  if (document_.failed() || flat.allows_nothing) return expressions_.nothing();
  if (flat.parts.empty() && flat.choices.empty()) return texts_.any_value();
  return flat.refers ? rule_for(std::move(flat)) : body(flat, 0);
}

ExpressionId JsonSchemaReader::rule_for(FlatSchema flat) {
  auto key = flat.key();
  if (const auto known = rules_.find(key); known != rules_.end())
    return expressions_.call(known->second);
  const RuleId rule = expressions_.new_rule(flat.place());
  rules_.emplace(std::move(key), rule);
  pending_.emplace_back(rule, std::move(flat));
  return expressions_.call(rule);
}

ExpressionId JsonSchemaReader::body(const FlatSchema& flat, int n_chosen) {
  document_.spend(1 + flat.parts.size());
  if (expressions_.size() > kMaxExpressions)
    document_.refuse("the schema allows texts that are too many to be written down");
  if (document_.failed() || flat.allows_nothing) return expressions_.nothing();
  const SchemaFacts facts = facts_of(flat);
  if (!facts.value_lists.empty()) return listed(flat, facts);
  if (!flat.choices.empty()) return chosen(flat, n_chosen);
  refuse_unsupported(flat, facts, document_);
  return typed(flat, facts);
}

ExpressionId JsonSchemaReader::listed(const FlatSchema& flat, const SchemaFacts& facts) {
  const SchemaPlace& list = facts.value_lists.front();
  const std::string_view keyword = keyword_of(list, "const") != nullptr ? "const" : "enum";
  std::vector<ExpressionId> ways;
  for (const OrderedJson* one : listed_values(facts)) {
    if (!is_exact(*one)) return refused(list, keyword, "has a whole number beyond 64 bits");
    const Verdict verdict = check_value(*one, flat, document_);
    if (document_.failed()) return expressions_.nothing();
    if (verdict == Verdict::kUnknown)
      return refused(list, keyword,
                     "is not supported beside a pattern, a format or an unsupported keyword");
    if (verdict == Verdict::kYes) ways.push_back(expressions_.literal(to_text(*one)));
  }
  return any_text_of(std::move(ways), expressions_);
}

ExpressionId JsonSchemaReader::chosen(const FlatSchema& flat, int n_chosen) {
  FlatSchema rest = flat;
  const SchemaChoice choice = rest.choices.back();
  rest.choices.pop_back();
  if (n_chosen >= kMaxChosen) return refused(choice.schema, choice.keyword, "is nested too deeply");
  if (choice.keyword == "oneOf" && !may_be_chosen(rest, choice)) {
    return refused(choice.schema, choice.keyword,
                   "has branches that cannot be told apart by type, by range or by a required "
                   "member with a constant; anyOf is supported for any branches");
  }
  std::vector<ExpressionId> ways;
  for (const SchemaPlace& branch : choice.branches()) {
    if (rest.parts.empty() && rest.choices.empty()) {
      ways.push_back(value({branch}));
    } else {
      FlatSchema whole = rest;
      whole.refers = false;
      document_.add({branch}, whole);
      ways.push_back(whole.refers ? rule_for(std::move(whole)) : body(whole, n_chosen + 1));
    }
    if (document_.failed()) return expressions_.nothing();
  }
  return any_text_of(std::move(ways), expressions_);
}

// Branches of oneOf that no value satisfies at once are as those of anyOf.
bool JsonSchemaReader::may_be_chosen(const FlatSchema& rest, const SchemaChoice& choice) {
  std::vector<FlatSchema> flats;
  for (const SchemaPlace& branch : choice.branches()) {
    document_.spend(1 + rest.parts.size());
    if (document_.failed()) return false;
    flats.push_back(rest);
    document_.add({branch}, flats.back());
  }
  for (std::size_t i = 0; i < flats.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (!are_disjoint(flats[i], flats[j], document_)) return false;
  return true;
}

ExpressionId JsonSchemaReader::typed(const FlatSchema& flat, const SchemaFacts& facts) {
  std::vector<ExpressionId> ways;
  if (facts.types & kJsonNull) ways.push_back(expressions_.literal("null"));
  if (facts.types & kJsonBoolean) {
    ways.push_back(expressions_.literal("true"));
    ways.push_back(expressions_.literal("false"));
  }
  if (facts.types & kJsonFraction) {
    ways.push_back(numbers_within(facts.numbers, expressions_));
  } else if (facts.types & kJsonInteger) {
    ways.push_back(integers_within(facts.numbers, expressions_));
  }
  if (facts.types & kJsonString) ways.push_back(string(flat, facts));
  if (facts.types & kJsonArray) ways.push_back(array(flat, facts));
  if (facts.types & kJsonObject) ways.push_back(object(flat, facts));
  if (document_.failed()) return expressions_.nothing();
  return any_text_of(std::move(ways), expressions_);
}

ExpressionId JsonSchemaReader::string(const FlatSchema& flat, const SchemaFacts& facts) {
  CountRange length = facts.length;
  if (length.min > length.max) return expressions_.nothing();
  if (length.min > kMaxCount)
    return refused(flat, "minLength", "is above the limit of " + std::to_string(kMaxCount));
  if (length.max != Expressions::kUnbounded) length.max = std::min(length.max, kMaxCount);
  if (facts.forms.empty()) return texts_.string(length.min, length.max);
  if (facts.forms.size() == 1) return formed_string(facts.forms.front(), length);
  const TextForm& second = facts.forms[1];
  return refused(second.schema, second.keyword, "is not supported beside another of its kind");
}

ExpressionId JsonSchemaReader::formed_string(const TextForm& form, const CountRange& length) {
  const std::string& given = keyword_of(form.schema, form.keyword)->get_ref<const std::string&>();
  const bool is_pattern = form.keyword == "pattern";
  std::set<ExpressionId> characters;
  const CharacterWriter write = [&](Expressions& expressions,
                                    std::span<const CharacterRange> ranges) {
    const ExpressionId one = write_json_character(expressions, ranges);
    characters.insert(one);
    return one;
  };
  const auto text =
      read_regex(is_pattern ? std::string_view(given) : pattern_of_format(given),
                 is_pattern ? RegexAnchors::kSearch : RegexAnchors::kWhole, write, expressions_);
  if (!text.ok()) return refused(form.schema, form.keyword, "has " + text.error().message);
  const auto limited = with_length(*text, length.min, length.max, characters, expressions_);
  if (!limited) {
    return refused(form.schema, form.keyword,
                   is_pattern ? "is not supported beside minLength or maxLength, unless one part "
                                "of it alone is repeated: write the length into it"
                              : "is not supported beside minLength or maxLength that it does not "
                                "keep by itself");
  }
  const auto quote = expressions_.literal("\"");
  return text_sequence({quote, *limited, quote}, expressions_);
}

ExpressionId JsonSchemaReader::refused(const SchemaPlace& schema,
                                       std::string_view keyword,
                                       std::string_view why) {
  document_.refuse_keyword(schema, keyword, why);
  return expressions_.nothing();
}

ExpressionId JsonSchemaReader::refused(const FlatSchema& flat,
                                       std::string_view keyword,
                                       const std::string& why) {
  for (const SchemaPlace& part : flat.parts)
    if (keyword_of(part, keyword) != nullptr) document_.refuse_keyword(part, keyword, why);
  return expressions_.nothing();
}

}  // namespace foretoken
