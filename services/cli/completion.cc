#include "services/cli/completion.h"

#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>

#include "common/client/client.h"
#include "common/config/describe.h"
#include "services/cli/flag_checks.h"
#include "services/cli/host.h"
#include "services/cli/manual.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kLongestWait = 50ms;

bool takes_a_value(const CLI::Option& option) { return option.get_type_size() != 0; }

// The option that a word such as "--seed", "--seed=7" or "-n" names, or null.
CLI::Option* option_named(CLI::App& app, const std::string& word) {
  return app.get_option_no_throw(word.substr(0, word.find('=')));
}

// A command line on the way to its last word.
struct Place {
  CLI::App* app;                  // the verb so far
  CLI::Option* option = nullptr;  // whose value the last word is
  ConfigOptions config = {};      // said so far
};

Place place_of(CLI::App& app, const std::vector<std::string>& words) {
  Place place{&app};
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with('-')) {
      const auto named = place.app->get_subcommands(
          [&](const CLI::App* verb) { return verb->get_name() == word; });
      if (!named.empty()) place.app = named.front();
      continue;
    }
    CLI::Option* option = option_named(*place.app, word);
    if (option == nullptr || !takes_a_value(*option)) continue;
    std::string value;
    if (const auto equals = word.find('='); equals != std::string::npos)
      value = word.substr(equals + 1);
    else if (++i; i + 1 < words.size())
      value = words[i];
    else
      place.option = option;  // the last word
    if (value.empty()) continue;
    if (option->check_lname("config")) place.config.file = value;
    if (option->check_lname("set")) place.config.sets.push_back(value);
    // Of `up` it is the address of HTTP.
    if (!option->check_lname("host") || place.app->get_name() == "up") continue;
    // A name would have to be looked up, which may take longer than Tab waits.
    if (const auto endpoint = endpoint_of_host(value, Names::kRefuse); endpoint.ok())
      place.config.sets.push_back("bus.client=" + *endpoint);
  }
  return place;
}

std::vector<Candidate> settings() {
  std::vector<Candidate> all;
  for (const auto& [key, choices] : keys_with_choices()) {
    if (choices.empty()) all.push_back({key + "=", ""});
    for (const auto& choice : choices) all.push_back({key + "=" + choice, ""});
  }
  return all;
}

std::vector<Candidate> plain(const std::vector<std::string>& words) {
  std::vector<Candidate> all;
  for (const auto& word : words) all.push_back({word, ""});
  return all;
}

std::vector<Candidate> values_of(CLI::Option& option,
                                 const ConfigOptions& config,
                                 const AskModels& ask_models) {
  if (option.check_lname("set")) return settings();
  if (option.get_type_name() == kModelName) return plain(ask_models(config));
  return plain(choices_of(option));
}

std::vector<Candidate> verbs_of(CLI::App& app) {
  std::vector<Candidate> all;
  for (const CLI::App* verb :
       app.get_subcommands([](CLI::App* sub) { return !sub->get_group().empty(); }))
    all.push_back({verb->get_name(), verb->get_description()});
  return all;
}

std::vector<Candidate> flags_of(CLI::App& app) {
  std::vector<Candidate> all;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty())
      for (const auto& name : option->get_lnames())
        all.push_back({"--" + name, option->get_description()});
  return all;
}

std::vector<Candidate> words_of(const Place& place, const AskModels& ask_models) {
  std::vector<Candidate> all = verbs_of(*place.app);
  for (CLI::Option* option : place.app->get_options())
    if (option->get_positional())
      for (auto& value : values_of(*option, place.config, ask_models))
        all.push_back(std::move(value));
  return all;
}

std::vector<Candidate> beginning_with(const std::string& word, std::vector<Candidate> all) {
  std::erase_if(all, [&](const Candidate& candidate) { return !candidate.word.starts_with(word); });
  return all;
}

// "help bench serve", "help --man foretoken-up"
std::vector<Candidate> candidates_of_help(CLI::App& app, const std::vector<std::string>& words) {
  const std::string& last = words.back();
  if (words.size() > 2 && words[1] == "--man")
    return beginning_with(last, plain(manual_names(app)));
  std::vector<Candidate> all = verbs_of(*place_of(app, {words.begin() + 1, words.end()}).app);
  if (words.size() == 2) all.push_back({"--man", "the manual page, in roff"});
  return beginning_with(last, std::move(all));
}

std::vector<std::string> served_models(const ConfigOptions& options) {
  ConfigSources sources;
  if (!options.file.empty()) sources.file = options.file;
  sources.environment = process_environment();
  sources.settings = options.sets;
  const LoadedConfig loaded = load_config(sources);
  if (!loaded.errors.empty()) return {};
  Client client(loaded.config.bus);
  const auto status = client.status(steady_now() + kLongestWait);
  return status.ok() ? status->models : std::vector<std::string>{};
}

}  // namespace

std::vector<Candidate> candidates(CLI::App& app,
                                  const std::vector<std::string>& words,
                                  const AskModels& ask_models) {
  if (words.empty()) return {};
  if (words.size() > 1 && words.front() == "help") return candidates_of_help(app, words);
  const Place place = place_of(app, words);
  const std::string& last = words.back();
  if (place.option != nullptr)
    return beginning_with(last, values_of(*place.option, place.config, ask_models));
  if (!last.starts_with('-')) {
    auto all = words_of(place, ask_models);
    if (words.size() == 1) all.push_back({"help", "help VERB, help --man VERB"});
    return beginning_with(last, std::move(all));
  }
  const auto equals = last.find('=');
  if (equals == std::string::npos) return beginning_with(last, flags_of(*place.app));
  std::vector<Candidate> found;
  if (CLI::Option* option = option_named(*place.app, last); option != nullptr)
    for (auto& value : values_of(*option, place.config, ask_models))
      found.push_back({last.substr(0, equals + 1) + value.word, value.meaning});
  return beginning_with(last, std::move(found));
}

int run_complete(CLI::App& app, const std::vector<std::string>& words) {
  try {
    for (const auto& [word, meaning] : candidates(app, words, served_models))
      std::cout << word << (meaning.empty() ? "" : "\t" + meaning) << "\n";
  } catch (const std::exception&) {
    // An address that cannot be connected to, a broken file: the verb itself will say so. Tab says
    // nothing.
    return kExitOk;
  }
  return kExitOk;
}

}  // namespace foretoken::cli
