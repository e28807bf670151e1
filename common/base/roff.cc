#include "common/base/roff.h"

#include <charconv>
#include <cstdlib>
#include <ctime>
#include <sstream>

namespace foretoken {
namespace {

constexpr std::size_t kWidth = 78;

// Reproducible builds set SOURCE_DATE_EPOCH.
std::string date_of_page() {
  std::time_t seconds = std::time(nullptr);
  if (const char* epoch = std::getenv("SOURCE_DATE_EPOCH"); epoch != nullptr) {
    const std::string_view text = epoch;
    std::from_chars(text.data(), text.data() + text.size(), seconds);
  }
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char date[sizeof "2026-11-23 "];
  return {date, std::strftime(date, sizeof date, "%Y-%m-%d", &parts)};
}

std::string upper_case(std::string_view text) {
  std::string upper;
  for (const char c : text) upper += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return upper;
}

}  // namespace

std::string roff_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '\\':
        out += "\\e";
        break;
      case '-':
        out += "\\-";
        break;
      case '\'':
        out += "\\(aq";
        break;
      case '`':
        out += "\\(ga";
        break;
      case '^':
        out += "\\(ha";
        break;
      case '~':
        out += "\\(ti";
        break;
      case '"':
        out += "\\(dq";
        break;
      default:
        out += c;
    }
  return out.starts_with('.') ? "\\&" + out : out;
}

RoffPage::RoffPage(std::string_view name,
                   int section,
                   std::string_view release,
                   std::string_view summary) {
  text_ = ".TH \"" + roff_escaped(upper_case(name)) + "\" " + std::to_string(section) + " " +
          date_of_page() + " \"" + roff_escaped(release) + "\" \"Foretoken manual\"\n";
  this->section("Name");
  wrapped(roff_escaped(name) + " \\- " + roff_escaped(summary));
}

void RoffPage::section(std::string_view title) {
  text_ += ".SH \"" + roff_escaped(upper_case(title)) + "\"\n";
  fresh_ = true;
}

void RoffPage::subsection(std::string_view title) {
  text_ += ".SS \"" + roff_escaped(title) + "\"\n";
  fresh_ = true;
}

void RoffPage::paragraph(std::string_view text) { raw_paragraph(roff_escaped(text)); }

void RoffPage::raw_paragraph(std::string_view roff) {
  begin_paragraph();
  wrapped(roff);
}

void RoffPage::item(std::string_view tag, std::string_view value, std::string_view text) {
  text_ += ".TP\n\\fB" + roff_escaped(tag) + "\\fR";
  if (!value.empty()) text_ += " \\fI" + roff_escaped(value) + "\\fR";
  text_ += "\n";
  wrapped(text.empty() ? "\\&" : roff_escaped(text));
  fresh_ = false;
}

void RoffPage::example(std::string_view lines) {
  begin_paragraph();
  text_ += ".EX\n";
  std::istringstream all{std::string(lines)};
  for (std::string line; std::getline(all, line);)
    text_ += (line.empty() ? "\\&" : roff_escaped(line)) + "\n";
  text_ += ".EE\n";
}

void RoffPage::reference(std::string_view name, int section, bool is_last) {
  text_ += ".BR " + roff_escaped(name) + " (" + std::to_string(section) + ")" +
           (is_last ? "" : ",") + "\n";
}

void RoffPage::begin_paragraph() {
  if (!fresh_) text_ += ".PP\n";
  fresh_ = false;
}

// Broken between words; a line must not begin with what roff takes for a command.
void RoffPage::wrapped(std::string_view roff) {
  std::istringstream words{std::string(roff)};
  std::string line;
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > kWidth) {
      text_ += line + "\n";
      line.clear();
    }
    if (line.empty() && word.starts_with('.')) word.insert(0, "\\&");
    line += (line.empty() ? "" : " ") + word;
  }
  if (!line.empty()) text_ += line + "\n";
}

}  // namespace foretoken
