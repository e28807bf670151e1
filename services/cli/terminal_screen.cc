#include "services/cli/terminal_screen.h"

#include <algorithm>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

// Its macros are common words.
#define NCURSES_NOMACROS
#include <ncursesw/curses.h>

#include "common/base/result.h"

namespace foretoken::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void note_signal(int /*number*/) { interrupted = 1; }

attr_t attribute_of(LineStyle style) {
  if (style == LineStyle::kTitle) return A_BOLD;
  return style == LineStyle::kHeading ? A_REVERSE : A_NORMAL;
}

}  // namespace

TerminalScreen::TerminalScreen() {
  std::setlocale(LC_CTYPE, "");  // so that names in UTF-8 are drawn as such
  // initscr() ends the program where it does not know the terminal.
  if (newterm(nullptr, stdout, stdin) == nullptr) {
    const char* term = std::getenv("TERM");
    throw FatalError(ErrorCode::kInvalidValue,
                     "this terminal cannot be drawn on: TERM is " +
                         (term == nullptr ? "not set" : "\"" + std::string(term) + "\""));
  }
  interrupted = 0;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    action.sa_handler = note_signal;  // no SA_RESTART: a waiting getch() returns
    ::sigaction(number, &action, nullptr);
  }
  cbreak();
  noecho();
  keypad(stdscr, TRUE);
  curs_set(0);
}

TerminalScreen::~TerminalScreen() { endwin(); }

TerminalSize TerminalScreen::size() const { return {getmaxx(stdscr), getmaxy(stdscr)}; }

void TerminalScreen::draw(const std::vector<PageLine>& lines) {
  erase();
  const TerminalSize screen = size();
  for (int row = 0; row < std::min(screen.rows, static_cast<int>(lines.size())); ++row) {
    const PageLine& line = lines[static_cast<std::size_t>(row)];
    attrset(static_cast<int>(attribute_of(line.style)));
    mvaddstr(row, 0, line.text.c_str());
    if (line.style == LineStyle::kHeading) hline(' ' | A_REVERSE, screen.columns);
  }
  attrset(A_NORMAL);
  refresh();
}

std::optional<int> TerminalScreen::key(TimePoint deadline) {
  while (true) {
    if (interrupted != 0) return kInterrupted;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_now()).count();
    timeout(static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000)));
    const int pressed = getch();
    if (pressed == KEY_RESIZE) return kResized;
    if (pressed != ERR) return pressed;
    if (steady_now() >= deadline) return std::nullopt;
  }
}

}  // namespace foretoken::cli
