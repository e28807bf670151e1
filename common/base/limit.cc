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
  if (limit.low >= limit.high) return number_text(limit.low);
  return (limit.is_low_out ? "above " : "from ") + number_text(limit.low) +
         (limit.is_high_out  ? " and below "
          : limit.is_low_out ? " and at most "
                             : " to ") +
         number_text(limit.high) + (limit.off ? ", or " + number_text(*limit.off) : "");
}

std::string limit_text(const Limit& limit) {
  std::string text = range_text(limit);
  const std::string each = limit.most_each == 0 ? "" : std::to_string(limit.most_each) + " bytes";
  if (limit.most != 0)
    text += (text.empty() ? "" : "; ") + std::string("at most ") + std::to_string(limit.most) +
            (each.empty() ? "" : " of " + each);
  else if (!each.empty())
    text = "at most " + each;
  return text;
}

}  // namespace foretoken
