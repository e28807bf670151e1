// Text for the columns of a terminal, as wide as it is shown: a name with accents has more bytes
// than columns, one of Chinese characters more columns than characters. Pure; the locale does not
// matter.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace foretoken::cli {

std::size_t width_of(std::string_view text);
// As much of it as fits, whole characters.
std::string cut_to(std::string_view text, std::size_t columns);
// Filled with blanks at its end, or at its beginning, to at least so many columns.
std::string filled_to(std::string_view text, std::size_t columns);
std::string right_aligned(std::string_view text, std::size_t columns);

}  // namespace foretoken::cli
