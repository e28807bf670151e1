#include "common/base/limit.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>

namespace foretoken {

std::string number_text(double value) {
  std::array<char, 32> text{};
  const auto write = [&](auto number) {
    return std::string(text.data(),
                       std::to_chars(text.data(), text.data() + text.size(), number).ptr);
  };
  // A whole number with its digits, another one as short as a float that reads back equal.
  if (std::abs(value) < 1e15 && !(std::trunc(value) < value || std::trunc(value) > value))
    return write(static_cast<std::int64_t>(value));
  if (std::abs(value) > std::numeric_limits<float>::max()) return write(value);
  return write(static_cast<float>(value));
}

std::string range_text(const Limit& limit) {
  if (!std::isfinite(limit.low) && !std::isfinite(limit.high)) return "";
  return (limit.is_low_out ? "above " : "from ") + number_text(limit.low) +
         (limit.is_high_out  ? " and below "
          : limit.is_low_out ? " and at most "
                             : " to ") +
         number_text(limit.high) + (limit.off ? ", or " + number_text(*limit.off) : "");
}

}  // namespace foretoken
