#include "common/grammar/expressions.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/check.h"

namespace foretoken {
namespace {

struct ByteRange {  // both ends included
  unsigned char first = 0;
  unsigned char last = 0;
  auto operator<=>(const ByteRange&) const = default;
};
using EncodedRange = std::vector<ByteRange>;  // one range for each byte of a character

ByteSet byte_set(ByteRange range) {
  ByteSet bytes;
  for (unsigned byte = range.first; byte <= range.last; ++byte) bytes.set(byte);
  return bytes;
}

constexpr CharacterRange kUtf8Parts[] = {
    // of equal length in UTF-8, without surrogates
    {0, 0x7F},
    {0x80, 0x7FF},
    {0x800, 0xD7FF},
    {0xE000, 0xFFFF},
    {0x10000, 0x10FFFF}};

int utf8_size(char32_t character) {
  return character < 0x80 ? 1 : character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
}

unsigned char utf8_byte(char32_t character, int size, int index) {
  constexpr unsigned kLeads[] = {0, 0, 0xC0, 0xE0, 0xF0};
  const unsigned bits = static_cast<unsigned>(character) >> (6 * (size - 1 - index));
  return static_cast<unsigned char>(index == 0 ? (kLeads[size] | bits) : (0x80u | (bits & 0x3Fu)));
}

// Splits a range of characters of equal length until each byte runs through a range of its own.
void append_encoded(CharacterRange range, std::vector<EncodedRange>& encoded) {
  const int size = utf8_size(range.first);
  for (int n_last = 1; n_last < size; ++n_last) {  // the last bytes run from 80 to BF or not at all
    const char32_t mask = (char32_t{1} << (6 * n_last)) - 1;
    if ((range.first & ~mask) == (range.last & ~mask)) continue;
    if ((range.first & mask) != 0) {
      append_encoded({range.first, range.first | mask}, encoded);
      append_encoded({(range.first | mask) + 1, range.last}, encoded);
      return;
    }
    if ((range.last & mask) != mask) {
      append_encoded({range.first, (range.last & ~mask) - 1}, encoded);
      append_encoded({range.last & ~mask, range.last}, encoded);
      return;
    }
  }
  EncodedRange bytes;
  for (int i = 0; i < size; ++i)
    bytes.push_back({utf8_byte(range.first, size, i), utf8_byte(range.last, size, i)});
  encoded.push_back(std::move(bytes));
}

// Those that end alike share their end: what is written becomes few expressions.
ExpressionId shared_ends(const std::vector<EncodedRange>& encoded, Expressions& expressions) {
  ByteSet single;
  std::map<ByteRange, std::vector<EncodedRange>> beginnings;  // by last byte
  for (const EncodedRange& bytes : encoded) {
    if (bytes.size() == 1)
      single |= byte_set(bytes.front());
    else
      beginnings[bytes.back()].emplace_back(bytes.begin(), bytes.end() - 1);
  }
  std::vector<ExpressionId> parts;
  if (single.any()) parts.push_back(expressions.byte(single));
  for (const auto& [last, longer] : beginnings) {
    const ExpressionId beginning = shared_ends(longer, expressions);
    parts.push_back(expressions.sequence({beginning, expressions.byte(byte_set(last))}));
  }
  return expressions.any_of(std::move(parts));
}

}  // namespace

ExpressionId Expressions::add(Expression expression) {
  expressions_.push_back(std::move(expression));
  return static_cast<ExpressionId>(expressions_.size() - 1);
}

ExpressionId Expressions::nothing() { return add({.kind = ExpressionKind::kAnyOf}); }

ExpressionId Expressions::empty() { return add({.kind = ExpressionKind::kSequence}); }

ExpressionId Expressions::literal(std::string_view bytes) {
  std::vector<ExpressionId> parts;
  parts.reserve(bytes.size());
  for (const char byte_of_text : bytes)
    parts.push_back(byte(ByteSet().set(static_cast<unsigned char>(byte_of_text))));
  return sequence(std::move(parts));
}

ExpressionId Expressions::byte(const ByteSet& bytes) {
  return add({.kind = ExpressionKind::kByteSet, .bytes = bytes});
}

// Equal sets are written once: a grammar names few sets often.
ExpressionId Expressions::character(std::span<const CharacterRange> ranges) {
  std::vector<CharacterRange> key(ranges.begin(), ranges.end());
  if (const auto known = characters_.find(key); known != characters_.end()) return known->second;
  std::vector<EncodedRange> encoded;
  for (const CharacterRange& range : ranges) {
    for (const CharacterRange& part : kUtf8Parts) {
      const CharacterRange common{std::max(range.first, part.first),
                                  std::min(range.last, part.last)};
      if (common.first <= common.last) append_encoded(common, encoded);
    }
  }
  return characters_.emplace(std::move(key), shared_ends(encoded, *this)).first->second;
}

ExpressionId Expressions::sequence(std::vector<ExpressionId> parts) {
  if (parts.size() == 1) return parts.front();
  return add({.kind = ExpressionKind::kSequence, .parts = std::move(parts)});
}

ExpressionId Expressions::any_of(std::vector<ExpressionId> parts) {
  if (parts.size() == 1) return parts.front();
  return add({.kind = ExpressionKind::kAnyOf, .parts = std::move(parts)});
}

ExpressionId Expressions::repeat(ExpressionId part, std::uint32_t min, std::uint32_t max) {
  FORETOKEN_CHECK(min <= max);
  if (min == 1 && max == 1) return part;
  return add({.kind = ExpressionKind::kRepeat, .parts = {part}, .min = min, .max = max});
}

RuleId Expressions::new_rule(std::string name) {
  bodies_.emplace_back();
  defined_.push_back(false);
  names_.push_back(std::move(name));
  return static_cast<RuleId>(bodies_.size() - 1);
}

void Expressions::define(RuleId rule, ExpressionId body) {
  const auto index = static_cast<std::uint32_t>(rule);
  FORETOKEN_CHECK(!defined_[index]);
  bodies_[index] = body;
  defined_[index] = true;
}

ExpressionId Expressions::call(RuleId rule) {
  return add({.kind = ExpressionKind::kCall, .rule = rule});
}

}  // namespace foretoken
