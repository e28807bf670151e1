// What a flag's value may be: refusals that say the value and the limit. The parser's own ranges
// let NaN through and its own conversions do not say the limit.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/limit.h"

namespace foretoken::cli {

// The whole text as a number, or nothing.
template <class T>
std::optional<T> parsed(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

// `also`: a value beside the range.
CLI::Validator whole(std::uint64_t low,
                     std::uint64_t high,
                     std::optional<std::int64_t> also = std::nullopt);
CLI::Validator number(const Limit& limit);
CLI::Validator one_of(const std::vector<std::string>& known);
// "the path" -> "the path is empty".
CLI::Validator not_empty(const std::string& what);
// Refuses nothing: the configuration checks the value. For completion.
CLI::Validator offered(const std::vector<std::string>& known);
// What one_of() or offered() lists, for completion; empty where an option has neither.
std::vector<std::string> choices_of(CLI::Option& option);

// The type of a flag whose value is a model that is served.
inline constexpr const char* kModelName = "MODEL";

}  // namespace foretoken::cli
