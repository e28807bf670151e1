#include "common/runtime/manual.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cctype>
#include <set>

#include "common/base/roff.h"
#include "common/runtime/service_main.h"

namespace foretoken {
namespace {

// "-n, --max-tokens"
std::string names_of(const CLI::Option& option) {
  std::string names;
  for (const auto& name : option.get_snames()) names += (names.empty() ? "-" : ", -") + name;
  for (const auto& name : option.get_lnames()) names += (names.empty() ? "--" : ", --") + name;
  return names;
}

std::string value_of(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";  // a flag
  return option.get_type_name() + (option.get_expected_max() > 1 ? " ..." : "");
}

std::string meaning_of(const CLI::Option& option) {
  std::string meaning = option.get_description();
  if (option.get_required()) meaning += "; required";
  if (const auto value = option.get_default_str(); !value.empty() && option.get_type_size() != 0)
    meaning += "; default " + value;
  return meaning;
}

std::string sentence(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  if (!text.ends_with('.')) text += '.';
  return text;
}

// The NAME section does not repeat the name and has no full stop, by convention.
std::string summary_of(std::string text) {
  constexpr std::string_view kName = "Foretoken: ";
  if (text.starts_with(kName)) text.erase(0, kName.size());
  if (text.ends_with('.')) text.pop_back();
  return text;
}

bool is_shown(const CLI::Option& option) { return !option.get_group().empty(); }

std::string synopsis(CLI::App& app, const ManualHead& head) {
  std::string text = "\\fB" + roff_escaped(head.command) + "\\fR";
  const auto verbs = app.get_subcommands([](CLI::App*) { return true; });
  if (!verbs.empty()) return text + " \\fIVERB\\fR ...";
  text += " [\\fIOPTIONS\\fR]";
  for (const CLI::Option* option : app.get_options())
    if (option->get_positional()) {
      std::string name = "\\fI" + roff_escaped(option->get_name(true, false)) + "\\fR";
      if (option->get_expected_max() > 1) name += "...";
      text += option->get_required() ? " " + name : " [" + name + "]";
    }
  return text;
}

void write_options(CLI::App& app, RoffPage& page) {
  bool has_title = false;
  for (const auto& group : app.get_groups()) {
    const auto options = app.get_options([&](const CLI::Option* option) {
      return is_shown(*option) && option->get_group() == group;
    });
    if (options.empty()) continue;
    if (!has_title) page.section("Options");
    has_title = true;
    if (group != "Options") page.subsection(group);
    for (const CLI::Option* option : options) {
      const bool is_argument = option->get_positional();
      page.item(is_argument ? option->get_name(true, false) : names_of(*option),
                is_argument ? "" : value_of(*option), meaning_of(*option));
    }
  }
}

void write_verbs(CLI::App& app, RoffPage& page, const ManualHead& head) {
  const auto verbs =
      app.get_subcommands([](const CLI::App* verb) { return !verb->get_group().empty(); });
  if (verbs.empty()) return;
  page.section("Verbs");
  for (const CLI::App* verb : verbs) {
    const std::pair own(head.name + "-" + verb->get_name(), 1);
    const bool has_page = std::ranges::find(head.see_also, own) != head.see_also.end();
    page.item(head.command + " " + verb->get_name(), "",
              verb->get_description() + (has_page ? "; see " + own.first + "(1)" : ""));
  }
}

// "Examples:\n  lines\n\nmore": the lines as examples, the rest as notes.
void write_footer(const std::string& footer, RoffPage& page) {
  constexpr std::string_view kTitle = "Examples:\n";
  std::string rest = footer;
  if (footer.starts_with(kTitle)) {
    const std::size_t end = std::min(footer.find("\n\n"), footer.size());
    page.section("Examples");
    page.example(footer.substr(kTitle.size(), end - kTitle.size()));
    rest = end == footer.size() ? "" : footer.substr(end + 2);
  }
  if (rest.empty()) return;
  page.section("Notes");
  page.paragraph(rest);
}

}  // namespace

std::string release_name() { return "Foretoken " + version_text(); }

std::string manual_page(CLI::App& app, const ManualHead& head) {
  RoffPage page(head.name, head.section, release_name(), summary_of(app.get_description()));
  page.section("Synopsis");
  page.raw_paragraph(synopsis(app, head));
  page.section("Description");
  page.paragraph(sentence(app.get_description()));
  write_verbs(app, page, head);
  write_options(app, page);
  write_footer(app.get_footer(), page);
  page.section("See also");
  for (std::size_t i = 0; i < head.see_also.size(); ++i)
    page.reference(head.see_also[i].first, head.see_also[i].second, i + 1 == head.see_also.size());
  return page.text();
}

}  // namespace foretoken
