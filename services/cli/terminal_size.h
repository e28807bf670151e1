// How large the terminal is that standard output goes to, or standard error.
#pragma once

namespace foretoken::cli {

struct TerminalSize {
  int columns = 0, rows = 0;  // 0: standard output is no terminal
};
TerminalSize terminal_size();
// Columns of that of standard error; 80 where it says none.
int error_width();

}  // namespace foretoken::cli
