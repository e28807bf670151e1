#include "services/cli/chat_input.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <utility>

namespace foretoken::cli {
namespace {

constexpr const char* kPrompt = "> ";
constexpr const char* kFurther = ". ";
constexpr std::string_view kBlock = "\"\"\"";

}  // namespace

ChatInput::ChatInput(std::string history_file, LineEditor::Complete complete) {
  if (::isatty(STDIN_FILENO) == 0) return;
  signals_.emplace();
  if (LineEditor::works_here())
    editor_ = std::make_unique<LineEditor>(*signals_, std::move(history_file), std::move(complete));
}

bool ChatInput::interrupted() {
  if (!signals_) return false;
  bool any = false;
  while (const auto signal = signals_->next()) {
    if (*signal == SIGINT)
      any = true;
    else if (*signal != SIGWINCH && *signal != SIGCONT)
      signals_->obey(*signal);
  }
  return any;
}

ChatInput::What ChatInput::next_entry(std::string& entry) {
  What what = next_line(kPrompt, entry);
  if (what != What::kEntry) return what;
  const bool is_block = entry.starts_with(kBlock);
  if (is_block) entry.erase(0, kBlock.size());
  const auto goes_on = [&] { return is_block ? !entry.ends_with(kBlock) : entry.ends_with('\\'); };
  while (goes_on()) {
    if (!is_block) entry.pop_back();
    std::string line;
    what = next_line(kFurther, line);
    if (what == What::kInterrupt) return what;
    if (what == What::kEnd) break;
    entry += "\n" + line;
  }
  if (is_block && entry.ends_with(kBlock)) entry.erase(entry.size() - kBlock.size());
  if (editor_ && !entry.starts_with(' ')) editor_->remember(entry);
  return is_block ? What::kQuoted : What::kEntry;
}

ChatInput::What ChatInput::next_line(const char* prompt, std::string& line) {
  if (editor_) {
    switch (editor_->read(prompt, line)) {
      case LineEditor::What::kLine:
        return What::kEntry;
      case LineEditor::What::kInterrupt:
        return What::kInterrupt;
      case LineEditor::What::kEnd:
        break;
    }
    std::cerr << "\n";
    return What::kEnd;
  }
  if (signals_) std::cerr << prompt << std::flush;
  return next_plain_line(line);
}

ChatInput::What ChatInput::next_plain_line(std::string& line) {
  for (;;) {
    if (const auto end = read_.find('\n'); end != std::string::npos) {
      line = read_.substr(0, end);
      read_.erase(0, end + 1);
      return What::kEntry;
    }
    if (ended_) {
      line = std::exchange(read_, {});
      return line.empty() ? What::kEnd : What::kEntry;
    }
    pollfd waiting[2] = {{STDIN_FILENO, POLLIN, 0},
                         {signals_ ? signals_->fd() : -1, POLLIN, 0}};  // -1 is passed over
    if (::poll(waiting, 2, -1) < 0 && errno != EINTR) return What::kEnd;
    if (interrupted()) {
      read_.clear();  // the terminal has dropped its half of the line, too
      return What::kInterrupt;
    }
    if (waiting[0].revents == 0) continue;
    char bytes[4096];
    const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof(bytes));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0)
      ended_ = true;
    else
      read_.append(bytes, static_cast<std::size_t>(n));
  }
}

std::string chat_history_file() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr && *value == '/' ? value : "");
  };
  std::string folder = variable("XDG_STATE_HOME");
  if (const std::string home = variable("HOME"); folder.empty() && !home.empty())
    folder = home + "/.local/state";
  return folder.empty() ? folder : folder + "/foretoken/chat_history";
}

}  // namespace foretoken::cli
