// A line at a terminal, edited: keys as in a shell, history, Tab, and pasted text with its ends of
// lines. The door to libedit. Draws on standard error, so that standard output is the answers'
// alone. One thread.
#pragma once

#include <cwchar>
#include <functional>
#include <string>
#include <vector>

#include "services/cli/terminal_signals.h"

struct editline;
struct history;

namespace foretoken::cli {

class LineEditor {
 public:
  // What may stand in place of the whole text before the cursor.
  using Complete = std::function<std::vector<std::string>(const std::string& before)>;

  // Whether this terminal can move its cursor.
  static bool works_here();
  // `history_file` is read now and appended to; empty: none. `signals` outlives it.
  LineEditor(TerminalSignals& signals, std::string history_file, Complete complete);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class What { kLine, kInterrupt, kEnd };
  // Waits. kLine: `line` without its last end of line; others may be in it.
  What read(const std::string& prompt, std::string& line);
  void remember(const std::string& entry);

 private:
  static char* prompt_of(editline* el);
  static int get_character(editline* el, wchar_t* character);
  static unsigned char on_tab(editline* el, int key);
  static unsigned char on_paste(editline* el, int key);
  static unsigned char on_new_line(editline* el, int key);
  static unsigned char on_interrupt(editline* el, int key);
  static unsigned char on_stop(editline* el, int key);

  void bind_keys();
  void open_history();
  // False: the line that is edited is given up.
  bool on_signal(int signal);
  void draw_again();

  TerminalSignals& signals_;
  const std::string history_file_;
  const Complete complete_;
  std::string prompt_;
  editline* el_ = nullptr;
  struct history* history_ = nullptr;
  int n_columns_ = 0;           // of the terminal, when the line was drawn
  std::mbstate_t half_read_{};  // of a character of several bytes
  bool interrupted_ = false;
};

}  // namespace foretoken::cli
