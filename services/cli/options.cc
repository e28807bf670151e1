#include "services/cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "common/runtime/args.h"
#include "services/cli/completion.h"
#include "services/cli/host.h"
#include "services/cli/manual.h"
#include "services/cli/suggestions.h"
#include "services/cli/verb_flags.h"
#include "services/cli/verbs.h"
#include "services/cli/voice.h"

namespace foretoken::cli {
namespace {

using Words = std::vector<std::string>;

void declare(VerbFlags& flags) {
  CLI::App& app = flags.app();
  app.require_subcommand(1);
  app.set_help_flag("-h,--help", "show this help");
  app.set_version_flag("--version", "", "show the version");  // taken before the parser sees it
  app.footer(
      "Examples:\n  foretoken up --detach && foretoken demo\n  foretoken chat --temperature 0.8 "
      "--seed 7\n\n"
      "Exit codes: 0 ok, 1 failed, 2 usage, 3 not reachable, 4 model, 5 deadline, 6 "
      "environment,\n"
      "7 results differ, 130 interrupted.\nMore: foretoken help VERB, foretoken help --man VERB; "
      "docs/cli.md");
  add_service_flags(flags);
  add_client_flags(flags);
  add_bench_flags(flags);
  add_model_flags(flags);
  add_draft_flags(flags);
  add_config_flags(flags);
  flags.finish();
}

std::string verb_of(const CLI::App& app) {
  std::string verb;
  for (auto subs = app.get_subcommands(); !subs.empty(); subs = subs.front()->get_subcommands())
    verb += (verb.empty() ? "" : " ") + subs.front()->get_name();
  return verb;
}

// What is answered before the line is parsed: a shell that asks for completions, pages of the
// manual, a verb that does not exist. Returns how the command ends then.
std::optional<int> answer_early(CLI::App& app, Words& words) {
  // Tab: what the shell's script asks, with "--" before the words of the line.
  if (words.front() == "complete") {
    words.erase(words.begin(), words.begin() + (words.size() > 1 && words[1] == "--" ? 2 : 1));
    return run_complete(app, words);
  }
  if (words.front() == "help" && words.size() > 1 && words[1] == "--man")
    return print_manual(app, {words.begin() + 2, words.end()});
  // "help model pair" is "model pair --help".
  if (words.front() == "help")
    std::rotate(words.begin(), words.begin() + 1, words.end()), words.back() = "--help";
  if (report_unknown_verb(app, words)) return kExitUsage;
  return std::nullopt;
}

int print_help(const CLI::App& app) {
  std::cout << app.help() << std::flush;  // of the verb that was named
  if (std::cout) return kExitOk;
  std::cerr << "error: could not write to standard output\n";
  return kExitFailed;
}

int report_misuse(CLI::App& app, const Words& words, const CLI::ParseError& error) {
  if (report_unknown_option(app, words)) return kExitUsage;
  const std::string verb = verb_of(app);
  std::cerr << "error: " << error.what() << "\n  try: foretoken " << verb
            << (verb.empty() ? "" : " ") << "--help\n";
  return kExitUsage;
}

// How the command ends if the line is not to be carried out.
std::optional<int> read_words(CLI::App& app, const Words& words) {
  try {
    Words reversed = separate_empty_values(app, words);
    std::ranges::reverse(reversed);  // the parser takes them from the back
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    return print_help(app);
  } catch (const CLI::ParseError& error) {
    return report_misuse(app, words, error);
  }
  return std::nullopt;
}

// --host as keys of the configuration.
std::optional<int> apply_host(ConfigOptions& config) {
  if (config.host.empty()) return std::nullopt;
  const auto endpoint = endpoint_of_host(config.host);
  if (!endpoint.ok()) return report_error(endpoint.error());
  config.sets.push_back("bus.client=" + *endpoint);
  config.flags["bus.client"] = "--host";
  return std::nullopt;
}

}  // namespace

std::optional<CliOptions> parse_options(int argc, char** argv, int* exit_code) {
  CliOptions options;
  VerbFlags flags(options);
  declare(flags);
  const auto end = [&](int code) {
    *exit_code = code;
    return std::nullopt;
  };
  if (argc < 2) {
    std::cerr << flags.app().help();
    return end(kExitUsage);
  }
  Words words(argv + 1, argv + argc);
  if (words.front() == "--version") words.front() = "version";
  set_colors(color_said_in(words));
  if (const auto code = answer_early(flags.app(), words)) return end(*code);
  if (const auto code = read_words(flags.app(), words)) return end(*code);
  options.verb = verb_of(flags.app());
  // The detached half of `up` repeats nothing that the other has said.
  if (options.output.verbose && !options.up.supervise) set_verbosity(Verbosity::kVerbose);
  if (const auto code = apply_host(options.config)) return end(*code);
  flags.apply_keys();
  *exit_code = kExitOk;
  return options;
}

}  // namespace foretoken::cli
