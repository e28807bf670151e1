#include "common/runtime/args.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <iostream>
#include <utility>

#include "common/runtime/manual.h"
#include "common/runtime/service_main.h"

namespace foretoken {
namespace {

// An instance name becomes part of file names and logs.
std::string check_id(const std::string& id) {
  const bool good = !id.empty() && id.size() <= 32 && id.front() != '-' &&
                    std::all_of(id.begin(), id.end(), [](char c) {
                      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                             (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
                    });
  return good ? ""
              : "must be 1 to 32 letters, digits, - or _, and not begin with -; it is \"" + id +
                    "\"";
}

// An empty path would count as not given: the service would start with the files of the usual
// places.
std::string check_config(const std::string& file) {
  return file.empty() ? "the path is empty" : "";
}

}  // namespace

ParsedArgs parse_args(const std::string& program,
                      const std::string& summary,
                      int argc,
                      char** argv,
                      const std::vector<ServiceSwitch>& switches) {
  CLI::App app(summary, program);
  Args args;
  std::string file;
  app.add_option("--config", file,
                 "configuration file (default: the usual places, see foretoken config)")
      ->check(check_config)
      ->type_name("FILE");
  app.add_option("--id", args.id, "which instance this is")
      ->check(check_id)
      ->capture_default_str()
      ->type_name("ID");
  app.add_option("--set", args.settings, "override one key; may be repeated")
      ->type_name("SECTION.KEY=VALUE");
  for (const ServiceSwitch& each : switches) app.add_flag(each.flag, *each.is_on, each.help);
  app.add_flag("--check-config", args.check_config, "check the configuration and stop");
  app.add_flag("--print-config", args.print_config, "print every value with its origin and stop");
  app.add_flag("--version", args.version, "print version and build and stop");
  bool manual = false;
  app.add_flag("--man", manual, "print the manual page, for man(1), and stop");
  app.footer("Keys can also be given as FORETOKEN_SECTION_KEY. SIGTERM drains and ends.");
  try {
    std::vector<std::string> words = separate_empty_values(app, {argv + 1, argv + argc});
    std::ranges::reverse(words);  // the parser takes them from the back
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error, std::cout, std::cerr);
    return {std::nullopt, code == 0 ? 0 : kExitUsage};
  }
  if (manual) {
    std::cout << manual_page(app, {.name = program,
                                   .command = program,
                                   .section = 8,
                                   .see_also = {{"foretoken", 1}, {"foretoken.toml", 5}}})
              << std::flush;
    if (std::cout) return {std::nullopt, 0};
    std::cerr << program << ": could not write to standard output\n";
    return {std::nullopt, kExitGone};
  }
  if (!file.empty()) args.config_file = file;
  return {args, 0};
}

std::vector<std::string> separate_empty_values(const CLI::App& app,
                                               const std::vector<std::string>& words) {
  const CLI::App* verb = &app;
  std::vector<std::string> separate;
  bool is_value = false;  // of the option before it
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!is_value && word == "--") {
      separate.insert(separate.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      break;
    }
    separate.push_back(word);
    if (std::exchange(is_value, false)) continue;
    if (!word.starts_with('-')) {
      const auto named =
          verb->get_subcommands([&](const CLI::App* each) { return each->get_name() == word; });
      if (!named.empty()) verb = named.front();
      continue;
    }
    const std::string name = word.substr(0, word.starts_with("--") ? word.find('=') : 2);
    const CLI::Option* option = verb->get_option_no_throw(name);
    if (option == nullptr || option->get_items_expected_max() == 0) continue;
    is_value = name == word;
    if (word == name + "=" && word.starts_with("--")) {
      separate.back() = name;
      separate.emplace_back();
    }
  }
  return separate;
}

}  // namespace foretoken
