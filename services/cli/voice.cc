#include "services/cli/voice.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <optional>
#include <utility>

#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

ColorWhen color_when = ColorWhen::kAuto;
Verbosity verbosity_now = Verbosity::kUsual;
bool has_status_line = false;

constexpr std::string_view kPlain = "\033[0m";

std::string_view sequence_of(Paint paint) {
  switch (paint) {
    case Paint::kBad:
      return "\033[1;31m";
    case Paint::kWarning:
      return "\033[33m";
    case Paint::kGood:
      return "\033[32m";
    case Paint::kHint:
      return "\033[36m";
    case Paint::kTitle:
      return "\033[1m";
    case Paint::kFaint:
      return "\033[2m";
  }
  return {};
}

// The first words of sentences.
constexpr std::pair<std::string_view, Paint> kFirstWords[] = {
    {"error:", Paint::kBad},    {"warning:", Paint::kWarning}, {"note:", Paint::kWarning},
    {"detail:", Paint::kFaint}, {"  try:", Paint::kHint},      {"  did you mean", Paint::kHint},
};

std::optional<ColorWhen> color_when_named(std::string_view name) {
  const auto found = std::find(std::begin(kColorWhenNames), std::end(kColorWhenNames), name);
  if (found == std::end(kColorWhenNames)) return std::nullopt;
  return static_cast<ColorWhen>(found - std::begin(kColorWhenNames));
}

bool shows_colors(bool is_terminal) {
  return wants_colors({.when = color_when,
                       .is_terminal = is_terminal,
                       .no_color = std::getenv("NO_COLOR"),
                       .term = std::getenv("TERM")});
}

std::string in_colors(std::string_view text, Paint paint) {
  return std::string(sequence_of(paint)) + std::string(text) + std::string(kPlain);
}

std::string with_first_word_painted(std::string_view line) {
  for (const auto& [word, paint] : kFirstWords)
    if (line.starts_with(word))
      return in_colors(word, paint) + std::string(line.substr(word.size()));
  return std::string(line);
}

}  // namespace

ColorWhen color_said_in(const std::vector<std::string>& words) {
  constexpr std::string_view kFlag = "--color";
  ColorWhen when = ColorWhen::kAuto;
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (!words[i].starts_with(kFlag)) continue;
    const std::string_view rest = std::string_view(words[i]).substr(kFlag.size());
    if (rest.starts_with('='))
      when = color_when_named(rest.substr(1)).value_or(when);
    else if (rest.empty() && i + 1 < words.size())
      when = color_when_named(words[i + 1]).value_or(when);
  }
  return when;
}

void set_colors(ColorWhen when) { color_when = when; }
void set_verbosity(Verbosity verbosity) { verbosity_now = verbosity; }

bool wants_colors(const ColorFacts& facts) {
  if (facts.when != ColorWhen::kAuto) return facts.when == ColorWhen::kAlways;
  const bool is_refused = facts.no_color != nullptr && *facts.no_color != '\0';
  const bool is_dumb = facts.term == nullptr || std::string_view(facts.term) == "dumb";
  return facts.is_terminal && !is_refused && !is_dumb;
}

std::string painted_out(const std::string& text, Paint paint) {
  return shows_colors(stdout_is_terminal()) ? in_colors(text, paint) : text;
}

std::string painted_err(const std::string& text, Paint paint) {
  return shows_colors(stderr_is_terminal()) ? in_colors(text, paint) : text;
}

PaintedErrors::PaintedErrors(std::ostream& stream)
    : stream_(stream), before_(stream.rdbuf()), painter_(before_) {
  stream_.rdbuf(&painter_);
}

PaintedErrors::~PaintedErrors() { stream_.rdbuf(before_); }

PaintedErrors::Painter::int_type PaintedErrors::Painter::overflow(int_type byte) {
  return traits_type::eq_int_type(byte, traits_type::eof())
             ? traits_type::not_eof(byte)
             : to_->sputc(traits_type::to_char_type(byte));
}

std::streamsize PaintedErrors::Painter::xsputn(const char* text, std::streamsize n) {
  if (!shows_colors(stderr_is_terminal())) return to_->sputn(text, n);
  std::string_view rest(text, static_cast<std::size_t>(n));
  std::string painted;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    painted += with_first_word_painted(line);
    rest.remove_prefix(line.size());
    if (rest.empty()) break;
    painted += '\n';
    rest.remove_prefix(1);
  }
  const auto n_painted = static_cast<std::streamsize>(painted.size());
  return to_->sputn(painted.data(), n_painted) == n_painted ? n : 0;
}

void draw_status_line(const std::string& text) {
  has_status_line = true;
  std::cerr << "\r" << text << "\033[K" << std::flush;
}

void erase_status_line() {
  if (std::exchange(has_status_line, false)) std::cerr << "\r\033[K" << std::flush;
}

void say_note(const std::string& sentence) {
  erase_status_line();
  std::cerr << "note: " << sentence << std::endl;
}

bool is_verbose() { return verbosity_now == Verbosity::kVerbose; }

void say_detail(const std::string& sentence) {
  if (!is_verbose()) return;
  erase_status_line();
  std::cerr << "detail: " << sentence << std::endl;
}

}  // namespace foretoken::cli
