// How the command speaks to people: in colours where they are wanted, and with --verbose of what it
// does on the way. Set by the parser, before anything is said; one thread.
#pragma once

#include <cstdint>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

namespace foretoken::cli {

enum class ColorWhen : std::uint8_t { kAuto, kAlways, kNever };
inline constexpr std::string_view kColorWhenNames[] = {"auto", "always", "never"};
// Of `--color WHEN` or `--color=WHEN` among the words of a line: the last one that is a WHEN. For
// what is said before the line is read, and why it cannot be.
ColorWhen color_said_in(const std::vector<std::string>& words);

enum class Verbosity : bool { kUsual, kVerbose };
void set_colors(ColorWhen when);
void set_verbosity(Verbosity verbosity);

// What decides about colours: the flag, else NO_COLOR, the terminal and its name. nullptr: not set.
struct ColorFacts {
  ColorWhen when = ColorWhen::kAuto;
  bool is_terminal = false;
  const char* no_color = nullptr;
  const char* term = nullptr;
};
bool wants_colors(const ColorFacts& facts);

enum class Paint : std::uint8_t { kBad, kWarning, kGood, kHint, kTitle, kFaint };
// With the sequences of a terminal around it, where standard output or standard error has colours.
// A colour repeats what words say: it is never the only sign.
std::string painted_out(const std::string& text, Paint paint);
std::string painted_err(const std::string& text, Paint paint);

// Standard error in colours: the words that sentences begin with ("error:", "note:", "  try:"). As
// it was before once this is gone.
class PaintedErrors {
 public:
  explicit PaintedErrors(std::ostream& stream);
  ~PaintedErrors();
  PaintedErrors(const PaintedErrors&) = delete;
  PaintedErrors& operator=(const PaintedErrors&) = delete;

 private:
  // Sentences are written from their first word on in one piece, so no state is kept.
  class Painter final : public std::streambuf {
   public:
    explicit Painter(std::streambuf* to) : to_(to) {}

   private:
    int_type overflow(int_type byte) override;
    std::streamsize xsputn(const char* text, std::streamsize n) override;
    int sync() override { return to_->pubsync(); }

    std::streambuf* to_;
  };

  std::ostream& stream_;
  std::streambuf* before_;
  Painter painter_;
};

// A line of standard error at a terminal that is drawn over itself, one at a time. Whatever else is
// written to that terminal needs it erased first; a note and a detail do so themselves.
void draw_status_line(const std::string& text);
void erase_status_line();

// A line to standard error about what is going on, for people; a detail with --verbose alone.
void say_note(const std::string& sentence);
bool is_verbose();
void say_detail(const std::string& sentence);

}  // namespace foretoken::cli
