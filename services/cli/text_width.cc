#include "services/cli/text_width.h"

#include "common/base/utf8.h"
#include "common/tokenizer/unicode.h"

namespace foretoken::cli {
namespace {

struct Extent {
  std::size_t n_bytes = 0, columns = 0;
};

// Of what fits into so many columns; marks belong to the character before them.
Extent extent_of(std::string_view text, std::size_t most_columns) {
  Extent all;
  while (all.n_bytes < text.size()) {
    const utf8::CodePoint next = utf8::code_point_at(text, all.n_bytes);
    const auto width = static_cast<std::size_t>(unicode::columns_of(next.value));
    if (all.columns + width > most_columns) break;
    all.n_bytes += next.length;
    all.columns += width;
  }
  return all;
}

std::string blanks(std::string_view text, std::size_t columns) {
  const std::size_t width = width_of(text);
  std::string fill;
  fill.assign(width < columns ? columns - width : 0, ' ');
  return fill;
}

}  // namespace

std::size_t width_of(std::string_view text) { return extent_of(text, text.max_size()).columns; }

std::string cut_to(std::string_view text, std::size_t columns) {
  return std::string(text.substr(0, extent_of(text, columns).n_bytes));
}

std::string filled_to(std::string_view text, std::size_t columns) {
  return std::string(text) + blanks(text, columns);
}

std::string right_aligned(std::string_view text, std::size_t columns) {
  return blanks(text, columns) + std::string(text);
}

}  // namespace foretoken::cli
