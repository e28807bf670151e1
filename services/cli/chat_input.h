// Lines and Ctrl-C of a person at a terminal, one after the other: no handler runs in between. With
// pipes instead of a terminal it reads lines and leaves the signal alone. One thread; the only
// reader of standard input while it lives.
#pragma once

#include <string>

namespace foretoken::cli {

class ChatInput {
 public:
  // At a terminal SIGINT is blocked for this thread and for those it starts later, and is read here
  // instead.
  explicit ChatInput(bool at_terminal);
  ~ChatInput();
  ChatInput(const ChatInput&) = delete;
  ChatInput& operator=(const ChatInput&) = delete;

  enum class What { kLine, kInterrupt, kEnd };
  // Waits. kLine: `line` without its end of line.
  What next_line(std::string& line);
  // Whether Ctrl-C was pressed since it was last asked or told; does not wait.
  bool interrupted();

 private:
  int signal_fd_ = -1;
  bool ended_ = false;
  std::string read_;  // and not yet handed out
};

}  // namespace foretoken::cli
