#include "services/cli/suggestions.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <iostream>
#include <optional>

#include "common/base/nearest.h"

namespace foretoken::cli {
namespace {

std::string comma_list(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// One that begins like it, or the nearest.
std::optional<std::string> meant(const std::string& word, const std::vector<std::string>& known) {
  const auto beginning = std::find_if(known.begin(), known.end(),
                                      [&](const auto& each) { return each.starts_with(word); });
  return beginning != known.end() ? std::optional(*beginning) : nearest(word, known);
}

void report_verb(const std::string& path,
                 const std::string& word,
                 const std::vector<std::string>& known) {
  std::cerr << "error: " << path << " has no verb `" << word << "`\n";
  if (const auto near = meant(word, known))
    std::cerr << "  did you mean `" << path << " " << *near << "`?\n";
  else
    std::cerr << "  it has: " << comma_list(known) << "\n";
  std::cerr << "  try: " << path << " --help\n";
}

std::vector<std::string> options_of(CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options()) {
    if (option->get_group().empty()) continue;
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
    for (const auto& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

void report_option(const std::string& path, CLI::App& verb, const std::string& name) {
  std::cerr << "error: " << path << " has no option `" << name << "`\n";
  if (const auto near = meant(name, options_of(verb)))
    std::cerr << "  did you mean `" << *near << "`?\n";
  std::cerr << "  try: " << path << " --help\n";
}

CLI::App* verb_named(CLI::App& parent, const std::string& word) {
  const auto found =
      parent.get_subcommands([&](const CLI::App* verb) { return verb->get_name() == word; });
  return found.empty() ? nullptr : found.front();
}

// "--seed=7" -> "--seed", "-n5" -> "-n".
std::string name_in(const std::string& word) {
  return word.starts_with("--") ? word.substr(0, word.find('=')) : word.substr(0, 2);
}

bool is_option(const std::string& word) {
  return word.size() > 1 && word.front() == '-' &&
         std::isdigit(static_cast<unsigned char>(word[1])) == 0;
}

}  // namespace

bool report_unknown_verb(CLI::App& app, const std::vector<std::string>& words) {
  CLI::App* parent = &app;
  std::string path = "foretoken";
  for (const std::string& word : words) {
    const auto verbs = parent->get_subcommands([](const CLI::App*) { return true; });
    if (verbs.empty() || word.starts_with("-")) return false;
    CLI::App* found = verb_named(*parent, word);
    if (found == nullptr) {
      std::vector<std::string> known;
      for (const CLI::App* verb : verbs) known.push_back(verb->get_name());
      report_verb(path, word, known);
      return true;
    }
    parent = found;
    path += " " + word;
  }
  return false;
}

bool report_unknown_option(CLI::App& app, const std::vector<std::string>& words) {
  CLI::App* verb = &app;
  std::string path = "foretoken";
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (!is_option(words[i])) {
      if (CLI::App* next = verb_named(*verb, words[i]); next != nullptr) {
        verb = next;
        path += " " + words[i];
      }
      continue;
    }
    const std::string name = name_in(words[i]);
    const CLI::Option* option = verb->get_option_no_throw(name);
    if (option == nullptr) {
      report_option(path, *verb, name);
      return true;
    }
    if (option->get_items_expected_max() != 0 && name == words[i]) ++i;  // its value
  }
  return false;
}

}  // namespace foretoken::cli
