// JSON numbers within bounds, digit by digit. Bounds are decimals and not doubles, so that a bound
// such as 0.1 or 2^63 - 1 is exact. Pure; knows nothing of schemas.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/grammar/expressions.h"

namespace foretoken {

struct Decimal {
  bool negative = false;  // never of zero
  std::string whole;      // no leading zeros, "0" for none
  std::string fraction;   // no trailing zeros
};

// From the form -12.5: digits, at most one point, no exponent.
Decimal read_decimal(std::string_view fixed);
int compare(const Decimal& a, const Decimal& b);  // < 0, 0, > 0

struct NumberBound {
  Decimal at;
  bool open = false;  // `at` itself is outside
};

struct NumberBounds {
  std::optional<NumberBound> low;
  std::optional<NumberBound> high;

  void raise_low(const NumberBound& bound);
  void lower_high(const NumberBound& bound);
};

// Digits that are written before and behind the point at most, so that a number ends.
inline constexpr std::size_t kWholeDigits = 20;
inline constexpr std::size_t kFractionDigits = 20;

// Whole numbers in their shortest form; nothing() if there is none.
ExpressionId integers_within(const NumberBounds& bounds, Expressions& expressions);

// Numbers with or without a fraction. With a bound: no exponent, and so few digits that a double
// near the bound falls on the right side of it.
ExpressionId numbers_within(const NumberBounds& bounds, Expressions& expressions);

}  // namespace foretoken
