// What texts a constraint allows, as expressions over bytes with rules that may call one another:
// written by the readers of JSON Schema, regular expressions and GBNF, read by Grammar, which makes
// an automaton of them. Expressions are values in a list; an id stays true and may be used in
// several places. A part is always older than the expression around it: cycles go through rules.
// Pure; one thread.
#pragma once

#include <bitset>
#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace foretoken {

using ByteSet = std::bitset<256>;

struct CharacterRange {  // code points, both ends included
  char32_t first = 0;
  char32_t last = 0;
  auto operator<=>(const CharacterRange&) const = default;
};

enum class ExpressionId : std::uint32_t {};
enum class RuleId : std::uint32_t {};

enum class ExpressionKind : std::uint8_t { kByteSet, kSequence, kAnyOf, kRepeat, kCall };

struct Expression {
  ExpressionKind kind = ExpressionKind::kSequence;
  ByteSet bytes;                    // kByteSet: one byte of these
  std::vector<ExpressionId> parts;  // kSequence (none: the empty text), kAnyOf (none: no text);
                                    // kRepeat: one
  std::uint32_t min = 0;            // kRepeat
  std::uint32_t max = 0;            // kRepeat; Expressions::kUnbounded: no limit
  RuleId rule{};                    // kCall
};

class Expressions {
 public:
  static constexpr std::uint32_t kUnbounded = std::numeric_limits<std::uint32_t>::max();

  ExpressionId nothing();  // no text at all, not even the empty one
  ExpressionId empty();    // the empty text
  ExpressionId literal(std::string_view bytes);
  ExpressionId byte(const ByteSet& bytes);
  // One code point of these, as UTF-8. Surrogates and what lies beyond U+10FFFF are left out.
  ExpressionId character(std::span<const CharacterRange> ranges);
  ExpressionId sequence(std::vector<ExpressionId> parts);
  ExpressionId any_of(std::vector<ExpressionId> parts);
  ExpressionId repeat(ExpressionId part, std::uint32_t min, std::uint32_t max);
  ExpressionId optional(ExpressionId part) { return repeat(part, 0, 1); }

  // A rule is named first and defined later, once, so that rules may call one another.
  // `name` is for messages alone.
  RuleId new_rule(std::string name = {});
  void define(RuleId rule, ExpressionId body);
  ExpressionId call(RuleId rule);

  const Expression& operator[](ExpressionId id) const {
    return expressions_[static_cast<std::uint32_t>(id)];
  }
  ExpressionId body(RuleId rule) const { return bodies_[static_cast<std::uint32_t>(rule)]; }
  bool is_defined(RuleId rule) const { return defined_[static_cast<std::uint32_t>(rule)]; }
  const std::string& name(RuleId rule) const { return names_[static_cast<std::uint32_t>(rule)]; }
  std::size_t n_rules() const { return bodies_.size(); }
  std::size_t size() const { return expressions_.size(); }

 private:
  ExpressionId add(Expression expression);

  std::vector<Expression> expressions_;
  std::map<std::vector<CharacterRange>, ExpressionId> characters_;
  std::vector<ExpressionId> bodies_;  // by rule
  std::vector<bool> defined_;         // by rule
  std::vector<std::string> names_;    // by rule
};

}  // namespace foretoken
