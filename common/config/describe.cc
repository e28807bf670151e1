#include "common/config/describe.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <type_traits>

#include "common/base/roff.h"

namespace foretoken {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string toml_of(bool value) { return value ? "true" : "false"; }
std::string toml_of(const std::string& value) { return quoted(value); }
std::string toml_of(const std::vector<std::string>& list) {
  std::string out = "[";
  for (const auto& element : list) out += (out.size() == 1 ? "" : ", ") + quoted(element);
  return out + "]";
}
template <class T>
requires(std::is_arithmetic_v<T> && !std::same_as<T, bool>) std::string toml_of(T value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

template <class T>
std::string type_of(const T&) {
  if constexpr (std::same_as<T, bool>)
    return "boolean";
  else if constexpr (std::integral<T>)
    return "whole number";
  else if constexpr (std::floating_point<T>)
    return "number";
  else if constexpr (std::same_as<T, std::string>)
    return "string";
  else
    return "list of strings";
}

std::string allowed(const Constraint& constraint) {
  std::ostringstream out;
  switch (constraint.kind) {
    case Constraint::Kind::kAny:
      break;
    case Constraint::Kind::kRange:
      out << static_cast<std::int64_t>(constraint.low) << " … "
          << static_cast<std::int64_t>(constraint.high);
      break;
    case Constraint::Kind::kOneOf:
      for (const auto choice : constraint.choices)
        out << (out.tellp() > 0 ? ", " : "") << "`" << choice << "`";
      break;
    case Constraint::Kind::kMemory:
      out << "`60%` of free memory, an amount such as `8GiB`, or `56000 tokens`";
      break;
    case Constraint::Kind::kDevice:
      out << "`cpu`, `cuda`, `cuda:1`, `cuda:0,1`";
      break;
    case Constraint::Kind::kWeights:
      out << "`NAME=WEIGHT`, each name once, weights from 0.01 to 100";
      break;
    case Constraint::Kind::kEndpoint:
    case Constraint::Kind::kEndpointList:
      out << "`ipc://NAME`, `tcp://ADDRESS:PORT`";
      break;
  }
  return out.str();
}

std::string capitalised(std::string text) {
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

// What a manual page says of a key: the cells of the reference page, without its marks.
std::string manual_of(const char* says,
                      const std::string& type,
                      const std::string& value,
                      std::string limit) {
  std::erase(limit, '`');
  if (const auto dots = limit.find("…"); dots != std::string::npos)
    limit.replace(dots, std::string_view("…").size(), "to");
  return std::string(says) + " (" + type + (limit.empty() ? "" : ": " + limit) + "; default " +
         value + ")";
}

}  // namespace

std::string default_config_toml() {
  std::ostringstream out;
  out << "# Generated from common/config/sections.h. Every value shown is the default; keep only "
         "the lines you change.\n"
         "# Flag (--set section.key=value) beats variable (FORETOKEN_SECTION_KEY) beats file beats "
         "default.\n";
  const Config defaults;
  Config::sections(defaults, [&](const char* section, const auto& s, const char* sentence) {
    out << "\n[" << section << "]  # " << sentence << "\n";
    std::decay_t<decltype(s)>::fields(
        s, [&](const char* key, const auto& value, const Constraint& constraint, const char* says) {
          out << "# " << says;
          if (constraint.kind == Constraint::Kind::kOneOf) {
            out << " (";
            for (std::size_t i = 0; i < constraint.choices.size(); ++i)
              out << (i > 0 ? ", " : "") << constraint.choices[i];
            out << ")";
          } else if (constraint.kind == Constraint::Kind::kRange) {
            out << " (" << allowed(constraint) << ")";
          }
          out << "\n" << key << " = " << toml_of(value) << "\n";
        });
  });
  return out.str();
}

std::string configuration_page() {
  std::ostringstream out;
  out << "<!-- Generated from common/config/sections.h; a test compares. Rewrite with "
         "FORETOKEN_UPDATE_GOLDEN=1. -->\n"
         "# Configuration\n\n"
         "One file serves a whole installation: every service knows all keys and reads what it "
         "needs. The file is the one named "
         "by `--config` or `$FORETOKEN_CONFIG`, else `$XDG_CONFIG_HOME/foretoken/foretoken.toml`, "
         "else "
         "`/etc/foretoken/foretoken.toml`. A key can be given as a flag, `--set "
         "speculation.draft_len=6`, or as a variable, "
         "`FORETOKEN_SPECULATION_DRAFT_LEN=6`; flag beats variable beats file beats default. An "
         "unknown key is an error, and all "
         "errors are reported at once. `--check-config` checks, `--print-config` shows each value "
         "with its origin.\n";
  const Config defaults;
  Config::sections(defaults, [&](const char* section, const auto& s, const char* sentence) {
    out << "\n## [" << section << "]\n\n"
        << capitalised(sentence)
        << ".\n\n| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n";
    std::decay_t<decltype(s)>::fields(
        s, [&](const char* key, const auto& value, const Constraint& constraint, const char* says) {
          out << "| `" << key << "` | " << type_of(value) << " | `" << toml_of(value) << "` | "
              << allowed(constraint) << " | " << says << " |\n";
        });
  });
  return out.str();
}

std::string configuration_manual(std::string_view release) {
  RoffPage page("foretoken.toml", 5, release, "configuration of Foretoken");
  page.section("Description");
  page.paragraph(
      "One file serves a whole installation: every service knows all keys and reads what it needs. "
      "The file is the one named by --config or $FORETOKEN_CONFIG, else "
      "$XDG_CONFIG_HOME/foretoken/foretoken.toml, else /etc/foretoken/foretoken.toml. It is TOML; "
      "keys that it leaves out have their defaults. An unknown key is an error, and all errors are "
      "reported at once.");
  page.paragraph(
      "A key can be given as a flag, --set speculation.draft_len=6, or as a variable, "
      "FORETOKEN_SPECULATION_DRAFT_LEN=6. Flag beats variable beats file beats default.");
  const Config defaults;
  Config::sections(defaults, [&](const char* section, const auto& s, const char* says) {
    page.section("[" + std::string(section) + "]");
    page.paragraph(capitalised(says) + ".");
    std::decay_t<decltype(s)>::fields(s, [&](const char* key, const auto& value,
                                             const Constraint& constraint, const char* meaning) {
      page.item(key, "", manual_of(meaning, type_of(value), toml_of(value), allowed(constraint)));
    });
  });
  page.section("Examples");
  page.example(
      "[model]\ntarget = \"/srv/models/large\"\ndraft = \"/srv/models/small\"\n\n"
      "[speculation]\ndraft_len = 6");
  page.section("Files");
  page.item("/etc/foretoken/foretoken.toml", "", "The file of the services that systemd runs.");
  page.section("See also");
  page.reference("foretoken", 1, false);
  page.reference("foretoken-config-check", 1, false);
  page.reference("foretoken-config-init", 1, true);
  return page.text();
}

std::vector<KeyChoices> keys_with_choices() {
  std::vector<KeyChoices> keys;
  const Config defaults;
  Config::sections(defaults, [&](const char* section, const auto& s, const char*) {
    std::decay_t<decltype(s)>::fields(
        s, [&](const char* key, const auto& value, const Constraint& constraint, const char*) {
          KeyChoices found{std::string(section) + "." + key, {}};
          if constexpr (std::same_as<std::decay_t<decltype(value)>, bool>)
            found.choices = {"true", "false"};
          found.choices.insert(found.choices.end(), constraint.choices.begin(),
                               constraint.choices.end());
          keys.push_back(std::move(found));
        });
  });
  return keys;
}

std::string print_config(const LoadedConfig& loaded) {
  std::ostringstream out;
  out << "# "
      << (loaded.file.empty() ? "no configuration file" : "configuration file: " + loaded.file)
      << "\n";
  Config::sections(loaded.config, [&](const char* section, const auto& s, const char*) {
    out << "\n[" << section << "]\n";
    std::decay_t<decltype(s)>::fields(
        s, [&](const char* key, const auto& value, const Constraint&, const char*) {
          const auto origin = loaded.origin.find(std::string(section) + "." + key);
          std::string line = std::string(key) + " = " + toml_of(value);
          line.resize(std::max<std::size_t>(line.size() + 2, 40), ' ');
          out << line << "# " << (origin == loaded.origin.end() ? "default" : origin->second);
          if (origin != loaded.origin.end() && origin->second == "environment")
            out << " " << environment_variable(section, key);
          out << "\n";
        });
  });
  return out.str();
}

}  // namespace foretoken
