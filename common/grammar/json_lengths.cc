#include "common/grammar/json_lengths.h"

#include <algorithm>
#include <map>

#include "common/grammar/json_texts.h"

namespace foretoken {
namespace {

constexpr std::uint64_t kNoEnd = std::uint64_t{1} << 40;  // any length from here on

struct LengthRange {
  std::uint64_t min = 0;
  std::uint64_t max = 0;

  bool is_fixed() const { return min == max && max < kNoEnd; }
};

std::uint64_t product(std::uint64_t a, std::uint64_t b) {
  if (a == 0 || b == 0) return 0;
  return a >= kNoEnd / b ? kNoEnd : a * b;
}

class LengthLimit {
 public:
  LengthLimit(const std::set<ExpressionId>& characters, Expressions& expressions)
      : characters_(characters), expressions_(expressions) {}

  std::optional<ExpressionId> limited(ExpressionId id, LengthRange to) {
    const LengthRange has = length_of(id);
    if (to.min <= has.min && has.max <= to.max) return id;
    if (has.max < to.min || has.min > to.max) return expressions_.nothing();
    const Expression whole = expressions_[id];  // a copy: the list grows
    if (characters_.contains(id)) return std::nullopt;
    if (whole.kind == ExpressionKind::kRepeat) return limited_repeat(whole, to);
    if (whole.kind == ExpressionKind::kAnyOf) return limited_choice(whole, to);
    if (whole.kind == ExpressionKind::kSequence) return limited_sequence(whole, to);
    return std::nullopt;
  }

 private:
  LengthRange length_of(ExpressionId id) {
    if (const auto known = known_.find(id); known != known_.end()) return known->second;
    const LengthRange length = characters_.contains(id) ? LengthRange{1, 1} : measured(id);
    return known_[id] = length;
  }

  LengthRange measured(ExpressionId id) {
    const Expression& whole = expressions_[id];
    LengthRange length;
    switch (whole.kind) {
      case ExpressionKind::kByteSet:
      case ExpressionKind::kCall:
        return {0, kNoEnd};  // not written by the writer of characters
      case ExpressionKind::kSequence:
        for (const ExpressionId part : whole.parts) {
          const LengthRange one = length_of(part);
          length = {std::min(kNoEnd, length.min + one.min), std::min(kNoEnd, length.max + one.max)};
        }
        return length;
      case ExpressionKind::kAnyOf:
        length = whole.parts.empty() ? LengthRange{} : length_of(whole.parts.front());
        for (const ExpressionId part : whole.parts) {
          const LengthRange one = length_of(part);
          length = {std::min(length.min, one.min), std::max(length.max, one.max)};
        }
        return length;
      case ExpressionKind::kRepeat: {
        const LengthRange one = length_of(whole.parts.front());
        const bool endless = whole.max == Expressions::kUnbounded;
        return {product(one.min, whole.min), product(one.max, endless ? kNoEnd : whole.max)};
      }
    }
    return length;
  }

  std::optional<ExpressionId> limited_repeat(const Expression& whole, LengthRange to) {
    const LengthRange one = length_of(whole.parts.front());
    if (!one.is_fixed() || one.max == 0) return std::nullopt;
    const std::uint64_t min = std::max<std::uint64_t>(whole.min, (to.min + one.min - 1) / one.min);
    if (whole.max == Expressions::kUnbounded && to.max == kNoEnd)
      return expressions_.repeat(whole.parts.front(), static_cast<std::uint32_t>(min),
                                 Expressions::kUnbounded);
    const std::uint64_t max = std::min<std::uint64_t>(whole.max, to.max / one.min);
    if (min > max) return expressions_.nothing();
    return expressions_.repeat(whole.parts.front(), static_cast<std::uint32_t>(min),
                               static_cast<std::uint32_t>(max));
  }

  std::optional<ExpressionId> limited_choice(const Expression& whole, LengthRange to) {
    std::vector<ExpressionId> ways;
    for (const ExpressionId part : whole.parts) {
      const auto way = limited(part, to);
      if (!way) return std::nullopt;
      ways.push_back(*way);
    }
    return any_text_of(std::move(ways), expressions_);
  }

  // One part may have several lengths: it takes what the others leave.
  std::optional<ExpressionId> limited_sequence(const Expression& whole, LengthRange to) {
    std::uint64_t n_others = 0;
    std::optional<std::size_t> varied;
    for (std::size_t i = 0; i < whole.parts.size(); ++i) {
      const LengthRange one = length_of(whole.parts[i]);
      if (one.is_fixed()) {
        n_others += one.min;
      } else if (varied) {
        return std::nullopt;
      } else {
        varied = i;
      }
    }
    if (!varied || n_others > to.max) return std::nullopt;
    const LengthRange left{to.min > n_others ? to.min - n_others : 0,
                           to.max == kNoEnd ? kNoEnd : to.max - n_others};
    const auto part = limited(whole.parts[*varied], left);
    if (!part) return std::nullopt;
    std::vector<ExpressionId> parts = whole.parts;
    parts[*varied] = *part;
    return text_sequence(std::move(parts), expressions_);
  }

  const std::set<ExpressionId>& characters_;
  Expressions& expressions_;
  std::map<ExpressionId, LengthRange> known_;
};

}  // namespace

std::optional<ExpressionId> with_length(ExpressionId id,
                                        std::uint32_t min,
                                        std::uint32_t max,
                                        const std::set<ExpressionId>& characters,
                                        Expressions& expressions) {
  const LengthRange to{min, max == Expressions::kUnbounded ? kNoEnd : max};
  return LengthLimit(characters, expressions).limited(id, to);
}

}  // namespace foretoken
