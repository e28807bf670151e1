#include "services/cli/flag_checks.h"

#include <algorithm>
#include <functional>
#include <sstream>

#include "common/base/nearest.h"

namespace foretoken::cli {
namespace {

CLI::Validator refuse_unless(const std::string& limit,
                             const std::function<bool(const std::string&)>& good) {
  return CLI::Validator(
      [limit, good](std::string& text) {
        return good(text) ? "" : "\"" + text + "\" is not " + limit;
      },
      "");
}

// The parser keeps a name with each check and prints it nowhere: completion reads the words there.
constexpr std::string_view kListed = "one of:";

std::string listed(const std::vector<std::string>& known) {
  std::string name(kListed);
  for (const auto& word : known) name += word + "\n";
  return name;
}

}  // namespace

CLI::Validator whole(std::uint64_t low, std::uint64_t high, std::optional<std::int64_t> also) {
  const std::string limit = "a whole number from " + std::to_string(low) + " to " +
                            std::to_string(high) + (also ? ", or " + std::to_string(*also) : "");
  return refuse_unless(limit, [low, high, also](const std::string& text) {
    const auto value = parsed<std::uint64_t>(text);
    return (value && *value >= low && *value <= high) ||
           (also && parsed<std::int64_t>(text) == also);
  });
}

CLI::Validator number(const Limit& limit) {
  return refuse_unless("a number " + range_text(limit), [limit](const std::string& text) {
    const auto value = parsed<double>(text);
    return value && limit.contains(*value);
  });
}

CLI::Validator one_of(const std::vector<std::string>& known) {
  return CLI::Validator(
      [known](std::string& text) {
        if (std::find(known.begin(), known.end(), text) != known.end()) return std::string();
        const auto near = nearest(text, known);
        return "\"" + text + "\" is not " + alternatives(known) +
               (near ? " (did you mean " + *near + "?)" : "");
      },
      "", listed(known));
}

CLI::Validator not_empty(const std::string& what) {
  return CLI::Validator(
      [what](const std::string& text) { return text.empty() ? what + " is empty" : ""; }, "");
}

CLI::Validator offered(const std::vector<std::string>& known) {
  return CLI::Validator([](std::string&) { return std::string(); }, "", listed(known));
}

std::vector<std::string> choices_of(CLI::Option& option) {
  std::string name;
  try {
    name = option.get_validator(0)->get_name();
  } catch (const CLI::OptionNotFound&) {
    return {};
  }
  if (!name.starts_with(kListed)) return {};
  std::vector<std::string> words;
  std::istringstream lines(name.substr(kListed.size()));
  for (std::string word; std::getline(lines, word);) words.push_back(word);
  return words;
}

}  // namespace foretoken::cli
