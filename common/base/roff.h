// A manual page in roff with the macros of man(7), written top to bottom. Text stands for itself:
// what roff would take for commands is escaped. Reads the clock (or SOURCE_DATE_EPOCH) for the date
// of the page and nothing else.
#pragma once

#include <string>
#include <string_view>

namespace foretoken {

class RoffPage {
 public:
  // name: "foretoken-up"; release: "Foretoken 0.1.0"; summary: one sentence without a full stop.
  RoffPage(std::string_view name, int section, std::string_view release, std::string_view summary);

  void section(std::string_view title);
  void subsection(std::string_view title);
  void paragraph(std::string_view text);
  // Already roff, such as "\\fBforetoken up\\fR [OPTIONS]".
  void raw_paragraph(std::string_view roff);
  // A tag in bold, with its value in italics behind it where there is one, and what it means.
  void item(std::string_view tag, std::string_view value, std::string_view text);
  void example(std::string_view lines);
  // name(section)
  void reference(std::string_view name, int section, bool is_last);

  const std::string& text() const { return text_; }

 private:
  void begin_paragraph();
  void wrapped(std::string_view roff);

  std::string text_;
  bool fresh_ = true;  // right behind a heading, where a paragraph needs no macro
};

// The text with what roff reads specially escaped.
std::string roff_escaped(std::string_view text);

}  // namespace foretoken
