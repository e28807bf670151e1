// The whole terminal as a page that is drawn again and again, and the keys that are pressed
// meanwhile: the door to ncurses. One at a time; the terminal is as before once it is gone.
#pragma once

#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "services/cli/terminal_size.h"
#include "services/cli/top_page.h"

namespace foretoken::cli {

class TerminalScreen {
 public:
  // Throws FatalError for a terminal that cannot be drawn on.
  TerminalScreen();
  ~TerminalScreen();
  TerminalScreen(const TerminalScreen&) = delete;
  TerminalScreen& operator=(const TerminalScreen&) = delete;

  TerminalSize size() const;
  void draw(const std::vector<PageLine>& lines);

  static constexpr int kResized = -1;  // in place of a key
  static constexpr int kInterrupted = -2;
  // A key, or what happened instead; nothing by the deadline.
  std::optional<int> key(TimePoint deadline);
};

}  // namespace foretoken::cli
