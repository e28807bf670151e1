#include "services/cli/terminal_size.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace foretoken::cli {

TerminalSize terminal_size() {
  winsize size{};
  if (::isatty(1) == 0 || ::ioctl(1, TIOCGWINSZ, &size) != 0) return {};
  return {size.ws_col, size.ws_row};
}

int error_width() {
  winsize size{};
  return ::ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace foretoken::cli
