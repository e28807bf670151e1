// The values of "format" that constrain a text, as regular expressions. Each allows no text that
// the format forbids; of some it leaves out rare forms.
#pragma once

#include <string_view>

namespace foretoken {

// For the whole text; empty if the format is unknown, and so an annotation.
std::string_view pattern_of_format(std::string_view format);

}  // namespace foretoken
