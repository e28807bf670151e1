#include "services/cli/line_editor.h"

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "services/cli/terminal_size.h"

namespace foretoken::cli {
namespace {

constexpr int kHistoryEntries = 1000;
constexpr off_t kHistoryFileBytes = 1 << 20;          // written anew beyond this
constexpr std::size_t kLongestRemembered = 16 << 10;  // bytes
constexpr std::wstring_view kEndOfPaste = L"\033[201~";

LineEditor* editor_of(editline* el) {
  void* self = nullptr;
  el_get(el, EL_CLIENTDATA, &self);
  return static_cast<LineEditor*>(self);
}

// A terminal that can do it puts sequences around what is pasted.
enum class Brackets { kOn, kOff };
void set_brackets(Brackets brackets) {
  std::fputs(brackets == Brackets::kOn ? "\033[?2004h" : "\033[?2004l", stderr);
  std::fflush(stderr);
}

// Characters have to be read as UTF-8 whatever the locale is: so is all text here.
void use_utf8() {
  if (std::setlocale(LC_CTYPE, "") == nullptr ||
      std::string_view(::nl_langinfo(CODESET)) != "UTF-8")
    std::setlocale(LC_CTYPE, "C.UTF-8");
}

std::string common_beginning(const std::vector<std::string>& words) {
  std::string common = words.front();
  for (const auto& word : words) {
    const auto [end, other] = std::mismatch(common.begin(), common.end(), word.begin(), word.end());
    common.erase(end, common.end());
  }
  return common;
}

}  // namespace

bool LineEditor::works_here() {
  const char* terminal = std::getenv("TERM");
  return ::isatty(STDIN_FILENO) != 0 && ::isatty(STDERR_FILENO) != 0 && terminal != nullptr &&
         *terminal != 0 && std::string_view(terminal) != "dumb";
}

LineEditor::LineEditor(TerminalSignals& signals, std::string history_file, Complete complete)
    : signals_(signals), history_file_(std::move(history_file)), complete_(std::move(complete)) {
  use_utf8();
  el_ = el_init("foretoken", stdin, stderr, stderr);
  if (el_ == nullptr) throw std::runtime_error("cannot edit lines at this terminal");
  el_set(el_, EL_CLIENTDATA, this);
  el_set(el_, EL_PROMPT, prompt_of);
  el_set(el_, EL_GETCFN, get_character);
  el_set(el_, EL_SIGNAL, 0);
  el_set(el_, EL_EDITOR, "emacs");
  // Pasted text comes as it is: Ctrl-C in the middle of it is a character, and \r stays one.
  el_set(el_, EL_SETTY, "-d", "-isig", "-icrnl", "-inlcr", nullptr);
  open_history();
  bind_keys();
  el_source(el_, nullptr);  // ~/.editrc
}

LineEditor::~LineEditor() {
  el_end(el_);
  if (history_ != nullptr) history_end(history_);
}

void LineEditor::bind_keys() {
  el_set(el_, EL_ADDFN, "foretoken-complete", "complete a command", on_tab);
  el_set(el_, EL_ADDFN, "foretoken-paste", "take pasted text", on_paste);
  el_set(el_, EL_ADDFN, "foretoken-new-line", "begin another line", on_new_line);
  el_set(el_, EL_ADDFN, "foretoken-interrupt", "give the line up", on_interrupt);
  el_set(el_, EL_ADDFN, "foretoken-stop", "stop until continued", on_stop);
  constexpr std::pair<const char*, const char*> kKeys[] = {
      {"^C", "foretoken-interrupt"},   {"^Z", "foretoken-stop"},
      {"\t", "foretoken-complete"},    {"\\e[200~", "foretoken-paste"},
      {"\\e\n", "foretoken-new-line"},  // Alt-Enter
      {"\\e\r", "foretoken-new-line"}, {"^R", "em-inc-search-prev"},
      {"^W", "ed-delete-prev-word"},   {"\\e[3~", "ed-delete-next-char"},
      {"\\e[1~", "ed-move-to-beg"},    {"\\e[4~", "ed-move-to-end"},
      {"\\e[1;5D", "ed-prev-word"},    {"\\e[1;5C", "em-next-word"},
  };
  for (const auto& [key, does] : kKeys) el_set(el_, EL_BIND, key, does, nullptr);
}

void LineEditor::open_history() {
  history_ = history_init();
  HistEvent event;
  ::history(history_, &event, H_SETSIZE, kHistoryEntries);
  ::history(history_, &event, H_SETUNIQUE, 1);
  el_set(el_, EL_HIST, ::history, history_);
  if (history_file_.empty()) return;
  std::error_code error;
  const auto folder = std::filesystem::path(history_file_).parent_path();
  if (std::filesystem::create_directories(folder, error); !error)
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  ::history(history_, &event, H_LOAD, history_file_.c_str());
  struct stat info {};
  if (::stat(history_file_.c_str(), &info) == 0 && info.st_size > kHistoryFileBytes)
    ::history(history_, &event, H_SAVE, history_file_.c_str());
}

void LineEditor::remember(const std::string& entry) {
  if (entry.empty() || entry.size() > kLongestRemembered) return;
  HistEvent event;
  ::history(history_, &event, H_ENTER, entry.c_str());
  if (history_file_.empty()) return;
  const int fd = ::open(history_file_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  std::FILE* file = fd < 0 ? nullptr : ::fdopen(fd, "a");
  if (file == nullptr) return;  // a chat without a file of it is a chat
  std::fseek(file, 0, SEEK_END);
  ::history(history_, &event, H_NSAVE_FP, std::size_t{1}, file);
  std::fclose(file);
}

char* LineEditor::prompt_of(editline* el) { return editor_of(el)->prompt_.data(); }

bool LineEditor::on_signal(int signal) {
  switch (signal) {
    case SIGINT:
      interrupted_ = true;
      return false;
    case SIGWINCH:
      draw_again();
      return true;
    case SIGCONT:
      el_set(el_, EL_PREP_TERM, 1);
      set_brackets(Brackets::kOn);
      draw_again();
      return true;
    default:
      set_brackets(Brackets::kOff);
      el_set(el_, EL_PREP_TERM, 0);
      signals_.obey(signal);
      return true;
  }
}

// Where the cursor is after the terminal changed its width, only the terminal knows, unless all is
// in one row. Otherwise the line is drawn anew below.
void LineEditor::draw_again() {
  const LineInfoW* line = el_wline(el_);
  int width = static_cast<int>(prompt_.size());
  for (const wchar_t* each = line->buffer; each < line->lastchar; ++each)
    width += *each == L'\n' ? n_columns_ : std::max(0, ::wcwidth(*each));
  el_resize(el_);
  const int before = std::exchange(n_columns_, error_width());
  std::fputs(width < std::min(before, n_columns_) ? "\r\033[K" : "\r\n", stderr);
  el_set(el_, EL_REFRESH);
}

int LineEditor::get_character(editline* el, wchar_t* character) {
  LineEditor& self = *editor_of(el);
  for (;;) {
    pollfd waiting[2] = {{STDIN_FILENO, POLLIN, 0}, {self.signals_.fd(), POLLIN, 0}};
    if (::poll(waiting, 2, -1) < 0 && errno != EINTR) return -1;
    while (const auto signal = self.signals_.next())
      if (!self.on_signal(*signal)) return -1;
    if (waiting[0].revents == 0) continue;
    char byte = 0;
    const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return 0;  // the terminal is gone
    const std::size_t used = std::mbrtowc(character, &byte, 1, &self.half_read_);
    if (used == static_cast<std::size_t>(-1)) {
      self.half_read_ = {};  // no UTF-8
      continue;
    }
    if (used != static_cast<std::size_t>(-2)) return 1;
  }
}

unsigned char LineEditor::on_tab(editline* el, int) {
  const LineInfo* line = el_line(el);
  const std::string before(line->buffer, line->cursor);
  const auto found = editor_of(el)->complete_(before);
  if (found.empty()) return CC_ERROR;
  const std::string common = common_beginning(found);
  if (common.size() > before.size()) {
    el_insertstr(el, common.c_str() + before.size());
    return CC_REFRESH;
  }
  if (found.size() == 1) return CC_NORM;
  std::string list = "\n";
  for (const auto& each : found) list += each + "\n";
  std::fputs(list.c_str(), stderr);
  return CC_REDISPLAY;
}

// Ends of lines stay; other control characters would be commands.
unsigned char LineEditor::on_paste(editline* el, int) {
  std::wstring text;
  for (wchar_t character = 0; !text.ends_with(kEndOfPaste);) {
    if (el_wgetc(el, &character) != 1) return CC_EOF;
    text += character;
  }
  text.erase(text.size() - kEndOfPaste.size());
  std::wstring clean;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == L'\r') {
      if (i + 1 == text.size() || text[i + 1] != L'\n') clean += L'\n';
    } else if (text[i] == L'\n' || text[i] == L'\t' || text[i] >= L' ') {
      clean += text[i];
    }
  }
  if (!clean.empty() && el_winsertstr(el, clean.c_str()) != 0) return CC_ERROR;
  return CC_REFRESH;
}

unsigned char LineEditor::on_new_line(editline* el, int) {
  return el_insertstr(el, "\n") == 0 ? CC_REFRESH : CC_ERROR;
}

unsigned char LineEditor::on_interrupt(editline* el, int) {
  editor_of(el)->interrupted_ = true;
  return CC_EOF;
}

unsigned char LineEditor::on_stop(editline* el, int) {
  editor_of(el)->on_signal(SIGTSTP);
  return CC_NORM;
}

LineEditor::What LineEditor::read(const std::string& prompt, std::string& line) {
  prompt_ = prompt;
  interrupted_ = false;
  half_read_ = {};
  int n_bytes = 0;
  el_resize(el_);
  n_columns_ = error_width();
  // Before the prompt says that keys may be typed.
  el_set(el_, EL_PREP_TERM, 1);
  set_brackets(Brackets::kOn);
  const char* read = el_gets(el_, &n_bytes);
  set_brackets(Brackets::kOff);
  if (interrupted_) return What::kInterrupt;
  if (read == nullptr || n_bytes <= 0) return What::kEnd;
  line = read;
  if (line.ends_with('\n')) line.pop_back();
  return What::kLine;
}

}  // namespace foretoken::cli
