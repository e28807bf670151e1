#include "common/grammar/json_numbers.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "common/grammar/json_texts.h"

namespace foretoken {
namespace {

ExpressionId one_digit(char first, char last, Expressions& expressions) {
  return expressions.byte(bytes_between(first, last));
}

// Digits of numbers that are all scaled by 10^n_fraction: strings of one length, so that the order
// of texts is the order of numbers. Both ends are included.
struct DigitRange {
  std::string low;
  std::string high;
};

std::optional<std::string> one_more(std::string digits) {
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
    if (*digit != '9') {
      ++*digit;
      return digits;
    }
    *digit = '0';
  }
  return std::nullopt;
}

std::optional<std::string> one_less(std::string digits) {
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
    if (*digit != '0') {
      --*digit;
      return digits;
    }
    *digit = '9';
  }
  return std::nullopt;
}

std::string scaled(const Decimal& at, std::size_t n_fraction) {
  std::string digits = std::string(kWholeDigits - at.whole.size(), '0') + at.whole;
  std::string fraction = at.fraction.substr(0, n_fraction);
  fraction.resize(n_fraction, '0');
  return digits + fraction;
}

// The smallest magnitude at or beyond a bound, the largest at or within; none if there is none.
std::optional<std::string> lowest(const NumberBound& bound, std::size_t n_fraction) {
  if (bound.at.whole.size() > kWholeDigits) return std::nullopt;
  const bool exact = bound.at.fraction.size() <= n_fraction;
  std::string digits = scaled(bound.at, n_fraction);
  return exact && !bound.open ? digits : one_more(std::move(digits));
}

std::optional<std::string> highest(const NumberBound& bound, std::size_t n_fraction) {
  if (bound.at.whole.size() > kWholeDigits) return std::string(kWholeDigits + n_fraction, '9');
  const bool exact = bound.at.fraction.size() <= n_fraction;
  std::string digits = scaled(bound.at, n_fraction);
  return exact && bound.open ? one_less(std::move(digits)) : digits;
}

std::optional<DigitRange> range_of(std::optional<std::string> low,
                                   std::optional<std::string> high) {
  if (!low || !high || *low > *high) return std::nullopt;
  return DigitRange{std::move(*low), std::move(*high)};
}

std::optional<DigitRange> at_least_zero(const NumberBounds& bounds, std::size_t n_fraction) {
  const std::size_t n_digits = kWholeDigits + n_fraction;
  std::optional<std::string> low = std::string(n_digits, '0');
  std::optional<std::string> high = std::string(n_digits, '9');
  if (bounds.low && !bounds.low->at.negative) low = lowest(*bounds.low, n_fraction);
  if (bounds.high) {
    high = bounds.high->at.negative ? std::nullopt : highest(*bounds.high, n_fraction);
  }
  return range_of(std::move(low), std::move(high));
}

// Their magnitudes; a zero with a sign is left out.
std::optional<DigitRange> below_zero(const NumberBounds& bounds, std::size_t n_fraction) {
  const std::size_t n_digits = kWholeDigits + n_fraction;
  std::optional<std::string> low = std::string(n_digits - 1, '0') + '1';
  std::optional<std::string> high = std::string(n_digits, '9');
  if (bounds.high && bounds.high->at.negative) {
    const auto from_bound = lowest(*bounds.high, n_fraction);
    low = from_bound ? std::max(low, from_bound) : std::nullopt;
  }
  if (bounds.low) {
    high = bounds.low->at.negative ? highest(*bounds.low, n_fraction) : std::nullopt;
  }
  return range_of(std::move(low), std::move(high));
}

// Writes the numbers of a range that have the same number of digits before the point.
class DigitWriter {
 public:
  DigitWriter(DigitRange range, std::size_t n_whole, Expressions& expressions)
      : range_(std::move(range)), n_whole_(n_whole), expressions_(expressions) {}

  ExpressionId write() { return digits_from(0, kBoth); }

  // `n` more digits before the point may follow in any case, and a fraction.
  static ExpressionId free_rest(std::size_t min,
                                std::size_t max,
                                std::size_t n_fraction,
                                Expressions& expressions) {
    const auto digit = one_digit('0', '9', expressions);
    const auto whole =
        expressions.repeat(digit, static_cast<std::uint32_t>(min), static_cast<std::uint32_t>(max));
    if (n_fraction == 0) return whole;
    const auto fraction = expressions.repeat(digit, 1, static_cast<std::uint32_t>(n_fraction));
    return expressions.sequence(
        {whole, expressions.optional(expressions.sequence({expressions.literal("."), fraction}))});
  }

 private:
  // Which ends of the range the digits so far are equal to.
  enum Tight : unsigned { kNeither = 0, kLow = 1, kHigh = 2, kBoth = 3 };

  ExpressionId rest_from(std::size_t at, unsigned tight) {
    const std::size_t n_digits = range_.low.size();
    if (tight == kNeither) return free_from(at);
    if (at < n_whole_) return digits_from(at, tight);
    // Digits that are not written are zeros.
    const bool may_end =
        !(tight & kLow) || range_.low.find_first_not_of('0', at) == range_.low.npos;
    std::vector<ExpressionId> ways;
    if (may_end) ways.push_back(expressions_.empty());
    if (at < n_digits) {
      auto digits = digits_from(at, tight);
      if (at == n_whole_) digits = expressions_.sequence({expressions_.literal("."), digits});
      ways.push_back(digits);
    }
    return any_text_of(std::move(ways), expressions_);
  }

  ExpressionId digits_from(std::size_t at, unsigned tight) {
    char low = (tight & kLow) ? range_.low[at] : '0';
    char high = (tight & kHigh) ? range_.high[at] : '9';
    std::vector<ExpressionId> ways;
    if (tight == kBoth && low == high) return then(low, high, rest_from(at + 1, kBoth));
    if (tight & kLow) {
      ways.push_back(then(low, low, rest_from(at + 1, kLow)));
      ++low;
    }
    if (tight & kHigh) {
      ways.push_back(then(high, high, rest_from(at + 1, kHigh)));
      --high;
    }
    if (low <= high) ways.push_back(then(low, high, rest_from(at + 1, kNeither)));
    return any_text_of(std::move(ways), expressions_);
  }

  ExpressionId free_from(std::size_t at) {
    const std::size_t n_digits = range_.low.size();
    if (at > n_whole_) return free_rest(0, n_digits - at, 0, expressions_);
    return free_rest(n_whole_ - at, n_whole_ - at, n_digits - n_whole_, expressions_);
  }

  ExpressionId then(char first, char last, ExpressionId rest) {
    return text_sequence({one_digit(first, last, expressions_), rest}, expressions_);
  }

  DigitRange range_;
  std::size_t n_whole_;
  Expressions& expressions_;
};

// All numbers of the range: for each count of digits before the point what the range leaves of it;
// counts of which it leaves all are written together.
ExpressionId write_range(const DigitRange& range,
                         std::size_t n_fraction,
                         Expressions& expressions) {
  std::vector<ExpressionId> ways;
  std::size_t n_free_min = 0, n_free_max = 0;
  for (std::size_t n_whole = 1; n_whole <= kWholeDigits; ++n_whole) {
    const std::string zeros(kWholeDigits - n_whole, '0');
    const std::string first = n_whole == 1 ? std::string(1 + n_fraction, '0')
                                           : '1' + std::string(n_whole - 1 + n_fraction, '0');
    const std::string last(n_whole + n_fraction, '9');
    const std::string low = std::max(range.low, zeros + first);
    const std::string high = std::min(range.high, zeros + last);
    if (low > high) continue;
    const std::size_t skip = zeros.size();
    if (n_whole > 1 && low.substr(skip) == first && high.substr(skip) == last) {
      if (n_free_min == 0) n_free_min = n_whole;
      n_free_max = n_whole;
    } else {
      ways.push_back(
          DigitWriter({low.substr(skip), high.substr(skip)}, n_whole, expressions).write());
    }
  }
  if (n_free_min > 0) {
    ways.push_back(expressions.sequence(
        {one_digit('1', '9', expressions),
         DigitWriter::free_rest(n_free_min - 1, n_free_max - 1, n_fraction, expressions)}));
  }
  return any_text_of(std::move(ways), expressions);
}

ExpressionId write_bounded(const NumberBounds& bounds,
                           std::size_t n_fraction,
                           Expressions& expressions) {
  std::vector<ExpressionId> ways;
  if (const auto range = at_least_zero(bounds, n_fraction))
    ways.push_back(write_range(*range, n_fraction, expressions));
  if (const auto range = below_zero(bounds, n_fraction)) {
    ways.push_back(text_sequence(
        {expressions.literal("-"), write_range(*range, n_fraction, expressions)}, expressions));
  }
  return any_text_of(std::move(ways), expressions);
}

ExpressionId unbounded_whole(Expressions& expressions) {
  const auto rest = expressions.repeat(one_digit('0', '9', expressions), 0, kWholeDigits - 1);
  return expressions.sequence(
      {expressions.optional(expressions.literal("-")),
       expressions.any_of({expressions.literal("0"),
                           expressions.sequence({one_digit('1', '9', expressions), rest})})});
}

// Up to 199: with 20 digits before the point still within a double.
ExpressionId exponent(Expressions& expressions) {
  const auto digit = one_digit('0', '9', expressions);
  const auto hundreds = expressions.sequence({expressions.literal("1"), digit, digit});
  const auto sign = expressions.byte(ByteSet().set('+').set('-'));
  return expressions.sequence({expressions.byte(ByteSet().set('e').set('E')),
                               expressions.optional(sign),
                               expressions.any_of({expressions.repeat(digit, 1, 2), hundreds})});
}

// Decimals of up to 15 digits are doubles of their own (DBL_DIG): beyond, a number just above an
// open bound would be read as the bound.
std::size_t fraction_digits_for(const NumberBounds& bounds) {
  std::size_t n_whole = 1, n_fraction = 0;
  bool open = false;
  for (const auto* bound : {&bounds.low, &bounds.high}) {
    if (!*bound) continue;
    n_whole = std::max(n_whole, (*bound)->at.whole.size());
    n_fraction = std::max(n_fraction, (*bound)->at.fraction.size());
    open = open || (*bound)->open;
  }
  constexpr std::size_t kExactDigits = std::numeric_limits<double>::digits10;
  const std::size_t exact = n_whole < kExactDigits ? kExactDigits - n_whole : 0;
  return open ? exact : std::max(exact, std::min(n_fraction, kFractionDigits));
}

}  // namespace

Decimal read_decimal(std::string_view fixed) {
  Decimal decimal;
  if (fixed.starts_with('-')) {
    decimal.negative = true;
    fixed.remove_prefix(1);
  }
  const std::size_t point = std::min(fixed.find('.'), fixed.size());
  std::string_view whole = fixed.substr(0, point);
  std::string_view fraction = fixed.substr(std::min(point + 1, fixed.size()));
  while (whole.size() > 1 && whole.front() == '0') whole.remove_prefix(1);
  while (!fraction.empty() && fraction.back() == '0') fraction.remove_suffix(1);
  decimal.whole = whole.empty() ? "0" : std::string(whole);
  decimal.fraction = std::string(fraction);
  if (decimal.whole == "0" && decimal.fraction.empty()) decimal.negative = false;
  return decimal;
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  int order = 0;
  if (a.whole.size() != b.whole.size()) {
    order = a.whole.size() < b.whole.size() ? -1 : 1;
  } else {
    order = a.whole.compare(b.whole);
    if (order == 0) order = a.fraction.compare(b.fraction);
  }
  return a.negative ? -order : order;
}

void NumberBounds::raise_low(const NumberBound& bound) {
  const int order = low ? compare(bound.at, low->at) : 1;
  if (order > 0 || (order == 0 && bound.open)) low = bound;
}

void NumberBounds::lower_high(const NumberBound& bound) {
  const int order = high ? compare(bound.at, high->at) : -1;
  if (order < 0 || (order == 0 && bound.open)) high = bound;
}

ExpressionId integers_within(const NumberBounds& bounds, Expressions& expressions) {
  if (!bounds.low && !bounds.high) return unbounded_whole(expressions);
  return write_bounded(bounds, 0, expressions);
}

ExpressionId numbers_within(const NumberBounds& bounds, Expressions& expressions) {
  if (bounds.low || bounds.high)
    return write_bounded(bounds, fraction_digits_for(bounds), expressions);
  const auto fraction = expressions.sequence(
      {expressions.literal("."),
       expressions.repeat(one_digit('0', '9', expressions), 1, kFractionDigits)});
  return expressions.sequence({unbounded_whole(expressions), expressions.optional(fraction),
                               expressions.optional(exponent(expressions))});
}

}  // namespace foretoken
