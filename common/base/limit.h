// What a parameter of a request may be. Its listing gives one Limit a line; the refusal, the
// reference pages and the flags of the command all come from it.
#pragma once

#include <concepts>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace foretoken {

struct Limit {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool is_low_out = false;  // the range begins above low
  bool is_high_out = false;
  std::size_t most = 0;       // entries of a list
  std::size_t most_each = 0;  // bytes of a text or tokens of a list, each entry for itself
  // The value that stands for "not given", which no client may send, and what holds then.
  std::optional<double> none = {};
  std::string_view otherwise = {};
  bool takes_bool = false;  // true = low, false = not given
  // A value beside the range that a client may send for low, where that means off.
  std::optional<double> off = {};

  constexpr Limit unless_given(std::string_view words) const {
    Limit limit = *this;
    limit.otherwise = words;
    return limit;
  }
  constexpr Limit unless_given(double value, std::string_view words) const {
    Limit limit = unless_given(words);
    limit.none = value;
    return limit;
  }
  constexpr Limit at_most(std::size_t entries, std::size_t each = 0) const {
    Limit limit = *this;
    limit.most = entries;
    limit.most_each = each;
    return limit;
  }
  constexpr Limit or_bool() const {
    Limit limit = *this;
    limit.takes_bool = true;
    return limit;
  }
  constexpr Limit or_off(double value) const {
    Limit limit = *this;
    limit.off = value;
    return limit;
  }
  constexpr bool is_none(double value) const { return none && value >= *none && value <= *none; }
  constexpr bool is_off(double value) const { return off && value >= *off && value <= *off; }
  // False for NaN, as every comparison with it is.
  constexpr bool contains(double value) const {
    return (is_low_out ? value > low : value >= low) &&
           (is_high_out ? value < high : value <= high);
  }
};

// Of a parameter that is no key of a request: the services fill it in.
struct InternalLimit : Limit {};
template <class L>
inline constexpr bool kIsInternal = std::same_as<std::remove_cvref_t<L>, InternalLimit>;

constexpr Limit any_value() { return {}; }
constexpr Limit from_to(double low, double high) { return {.low = low, .high = high}; }
constexpr Limit above_to(double low, double high) {
  return {.low = low, .high = high, .is_low_out = true};
}
constexpr Limit from_below(double low, double high) {
  return {.low = low, .high = high, .is_high_out = true};
}
constexpr Limit entries(std::size_t most, std::size_t each = 0) {
  return any_value().at_most(most, each);
}
constexpr Limit bytes(std::size_t most) { return {.most_each = most}; }

// "from 0 to 100", "above 0 and at most 1", "from 0 and below 1", "from 0 to 9, or -1", "1"; ""
// without a range.
std::string range_text(const Limit& limit);
// The range, and how many entries and bytes there may be: "from -100 to 100; at most 300", "at most
// 16 of 256 bytes"; "" without a limit.
std::string limit_text(const Limit& limit);
// A number as people write it: 0.5, 100, 1e+10.
std::string number_text(double value);

}  // namespace foretoken
