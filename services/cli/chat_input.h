// What a person types in a chat, entry by entry, and Ctrl-C between them: edited lines at a
// terminal, plain ones from a terminal that cannot or from a pipe. One thread; the only reader of
// standard input while it lives.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "services/cli/line_editor.h"
#include "services/cli/terminal_signals.h"

namespace foretoken::cli {

class ChatInput {
 public:
  // At a terminal signals are blocked for this thread and for those it starts later, and are read
  // here instead.
  ChatInput(std::string history_file, LineEditor::Complete complete);

  enum class What { kEntry, kQuoted, kInterrupt, kEnd };
  // Waits. An entry is a line, or several: """ begins and ends them (kQuoted), and a line that ends
  // in \ goes on in the next one.
  What next_entry(std::string& entry);
  // Whether Ctrl-C was pressed since it was last asked or told; does not wait.
  bool interrupted();
  bool at_terminal() const { return signals_.has_value(); }

 private:
  What next_line(const char* prompt, std::string& line);
  What next_plain_line(std::string& line);

  std::optional<TerminalSignals> signals_;  // before the editor, which uses it
  std::unique_ptr<LineEditor> editor_;
  bool ended_ = false;
  std::string read_;  // plain lines: and not yet handed out
};

// Where this user's chats keep their history; empty if there is no such place.
std::string chat_history_file();

}  // namespace foretoken::cli
