// The figures of `foretoken top` as lines of text. Pure; a terminal screen draws them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/cli/terminal_size.h"
#include "services/cli/top_figures.h"

namespace foretoken::cli {

// The smallest screen that has a page; on a smaller one there is a line.
inline constexpr TerminalSize kSmallestPage{.columns = 80, .rows = 16};

enum class SortBy : std::uint8_t { kName, kCpu, kMemory, kQueue };
inline constexpr int kSortOrders = 4;

struct TopLayout {
  TerminalSize size = kSmallestPage;
  SortBy sort = SortBy::kName;
  bool shows_drafts = false;  // in place of acceptance and rounds
  bool is_paused = false;
  std::string note;  // what went wrong with the last look
};

enum class LineStyle : std::uint8_t { kText, kTitle, kHeading };
struct PageLine {
  std::string text;
  LineStyle style = LineStyle::kText;
};

// At most as many lines as the size has rows, each cut to its columns.
std::vector<PageLine> top_page(const TopFigures& figures, const TopLayout& layout);
// All that matters in one line.
std::string top_line(const TopFigures& figures);

}  // namespace foretoken::cli
