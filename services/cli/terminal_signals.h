// Signals of a person at a terminal, read one after the other: no handler runs in between. One
// thread.
#pragma once

#include <optional>

namespace foretoken::cli {

class TerminalSignals {
 public:
  // From here on they are blocked for this thread and for those it starts later.
  TerminalSignals();
  ~TerminalSignals();
  TerminalSignals(const TerminalSignals&) = delete;
  TerminalSignals& operator=(const TerminalSignals&) = delete;

  int fd() const { return fd_; }  // readable: next() has one
  // SIGINT, SIGWINCH, SIGTSTP, SIGCONT, or one that ends a process; nothing if none has come.
  std::optional<int> next();
  // What happens without this class: the process ends, or stops until it is continued.
  void obey(int signal);

 private:
  int fd_ = -1;
};

}  // namespace foretoken::cli
