#include "common/config/describe.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <type_traits>

#include "common/base/roff.h"
#include "common/config/models.h"

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
std::string toml_of(ProposerSet set) {
  return set.size() == 1 ? quoted(names_in(set)) : toml_of(list_of(set));
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
  else if constexpr (std::same_as<T, ProposerSet>)
    return "string or list of strings";
  else
    return "list of strings";
}

std::string allowed(const KeyLimit& limit) {
  std::ostringstream out;
  switch (limit.kind) {
    case KeyLimit::Kind::kAny:
      break;
    case KeyLimit::Kind::kNotEmpty:
      out << "not `\"\"`";
      break;
    case KeyLimit::Kind::kRange:
      out << static_cast<std::int64_t>(limit.low) << " … " << static_cast<std::int64_t>(limit.high);
      break;
    case KeyLimit::Kind::kOneOf:
    case KeyLimit::Kind::kProposers:
      for (const auto choice : limit.choices)
        out << (out.tellp() > 0 ? ", " : "") << "`" << choice << "`";
      break;
    case KeyLimit::Kind::kMemory:
      out << "`60%` of free memory, an amount such as `8GiB`, or `56000 tokens`";
      break;
    case KeyLimit::Kind::kDevice:
      out << "`cpu`, `cuda`, `cuda:1`, `cuda:0,1`";
      break;
    case KeyLimit::Kind::kWeights:
      out << "`NAME=WEIGHT`, each name once, weights from 0.01 to 100";
      break;
    case KeyLimit::Kind::kEndpoint:
    case KeyLimit::Kind::kEndpointList:
      out << "`ipc://NAME`, `tcp://ADDRESS:PORT`";
      break;
    case KeyLimit::Kind::kListen:
      out << "`ADDRESS:PORT`";
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

// The sections and keys that [SECTION.NAME] may hold, from their listing.
std::string several_models_page() {
  std::string sections, keys;
  const Config defaults;
  Config::sections(defaults, [&](const char* section, const auto& s, const char*) {
    std::vector<std::string> own;
    std::size_t n = 0;
    std::decay_t<decltype(s)>::fields(
        s, [&](const char* key, const auto&, const KeyLimit&, const char*) {
          ++n;
          if (may_differ_by_model(section, key))
            own.push_back("`" + std::string(section) + "." + key + "`");
        });
    if (own.size() == n)
      sections += (sections.empty() ? "" : ", ") + ("`[" + std::string(section)) + "]`";
    if (own.size() < n)
      for (const auto& key : own) keys += (keys.empty() ? "" : ", ") + key;
  });
  return "\n## Several models\n\n"
         "A table `[model.NAME]` declares a model, and there may be several; `[model]` alone is "
         "one without a NAME. A NAME has "
         "letters, digits, `-` and `_`. It is a part of the `--id` of the model's services "
         "(`target-NAME-0`), and what clients ask "
         "for unless `name` says otherwise. `target`, `name` and `alias` then stand in the tables "
         "of models alone; without `target` "
         "the model is the demo pair, and without `draft` one that is not has none.\n\n"
         "A section holds for all models, `[SECTION.NAME]` for one of them. Every key of " +
         sections + " may stand there, and " + keys +
         ". As a flag: `--set target.NAME.device=cuda:1`; there are no variables for one model. "
         "Flag beats variable beats file; "
         "within one of these, what names a model beats what does not.\n\n"
         "`router.default_model` is the model of requests that name none, or `default`. A name or "
         "an alias that means two models "
         "is an error.\n";
}

constexpr std::string_view kSeveralModels = R"(
# Several models: a table [model.NAME] each, and nothing in [model] that each has for itself (target, name, alias). NAME is
# what clients ask for unless the table has a name, and a part of the --id of its services. Other sections hold for all
# models; [SECTION.NAME] holds for one of them.
#
# [router]
# default_model = "chat"
#
# [model.chat]
# target = "/srv/models/chat"
# draft = "/srv/models/chat-draft"
# alias = ["gpt-4o-mini"]
# targets = 2
#
# [model.code]
# target = "/srv/models/code"
#
# [target.code]
# device = "cuda:1"
)";

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
        s, [&](const char* key, const auto& value, const KeyLimit& limit, const char* says) {
          out << "# " << says;
          if (!limit.choices.empty()) {
            out << " (";
            for (std::size_t i = 0; i < limit.choices.size(); ++i)
              out << (i > 0 ? ", " : "") << limit.choices[i];
            out << ")";
          } else if (limit.kind == KeyLimit::Kind::kRange) {
            out << " (" << allowed(limit) << ")";
          }
          out << "\n" << key << " = " << toml_of(value) << "\n";
        });
  });
  out << kSeveralModels;
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
         "with its origin. `foretoken config schema` prints all this as a JSON Schema, for "
         "editors.\n";
  const Config defaults;
  Config::sections(defaults, [&](const char* section, const auto& s, const char* sentence) {
    out << "\n## [" << section << "]\n\n"
        << capitalised(sentence)
        << ".\n\n| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n";
    std::decay_t<decltype(s)>::fields(
        s, [&](const char* key, const auto& value, const KeyLimit& limit, const char* says) {
          out << "| `" << key << "` | " << type_of(value) << " | `" << toml_of(value) << "` | "
              << allowed(limit) << " | " << says << " |\n";
        });
  });
  out << several_models_page();
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
    std::decay_t<decltype(s)>::fields(
        s, [&](const char* key, const auto& value, const KeyLimit& limit, const char* meaning) {
          page.item(key, "", manual_of(meaning, type_of(value), toml_of(value), allowed(limit)));
        });
  });
  page.section("Examples");
  page.example(
      "[model]\ntarget = \"/srv/models/large\"\ndraft = \"/srv/models/small\"\n\n"
      "[speculation]\ndraft_len = 6");
  page.section("Several models");
  page.paragraph(
      "A table [model.NAME] declares a model; there may be several. [SECTION.NAME] holds for the "
      "services of that model alone, [SECTION] for all. The --id of a tokenizer, draft or target "
      "is "
      "then NAME or NAME-NUMBER. router.default_model is the model of requests that name none.");
  page.example(
      "[router]\ndefault_model = \"chat\"\n\n[model.chat]\ntarget = \"/srv/models/chat\"\ntargets "
      "= 2\n\n[model.code]\ntarget = \"/srv/models/code\"\n\n[target.code]\ndevice = "
      "\"cuda:1\"");
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
        s, [&](const char* key, const auto& value, const KeyLimit& limit, const char*) {
          KeyChoices found{std::string(section) + "." + key, {}};
          if constexpr (std::same_as<std::decay_t<decltype(value)>, bool>)
            found.choices = {"true", "false"};
          found.choices.insert(found.choices.end(), limit.choices.begin(), limit.choices.end());
          keys.push_back(std::move(found));
        });
  });
  return keys;
}

namespace {

// "key = value        # origin", as print_config() has it.
template <class T>
void print_value(std::ostream& out,
                 const std::string& section,
                 const std::string& key,
                 const T& value,
                 const std::string& origin) {
  std::string line = key + " = " + toml_of(value);
  line.resize(std::max<std::size_t>(line.size() + 2, 40), ' ');
  out << line << "# " << origin;
  if (origin == "environment") out << " " << environment_variable(section, key);
  out << "\n";
}

// Of [model.NAME] what tells it from others, and of each section what is the model's own.
void print_model(std::ostream& out, const LoadedConfig& loaded, const std::string& name) {
  Config::sections(loaded.models.at(name), [&](const char* section, const auto& s, const char*) {
    bool has_head = std::string(section) == "model";
    const std::string head = "\n[" + std::string(section) + "." + name + "]\n";
    if (has_head) out << head;
    std::decay_t<decltype(s)>::fields(
        s, [&](const char* key, const auto& value, const KeyLimit&, const char*) {
          const auto own = loaded.origin.find(std::string(section) + "." + name + "." + key);
          const bool is_own = own != loaded.origin.end();
          const bool is_always_there =
              is_each_models_own(section, key) || std::string(section) + "." + key == "model.draft";
          if (!is_own && !is_always_there) return;
          if (!has_head) out << head;
          has_head = true;
          print_value(out, section, key, value, is_own ? own->second : "default");
        });
  });
}

}  // namespace

std::string print_config(const LoadedConfig& loaded) {
  std::ostringstream out;
  out << "# "
      << (loaded.file.empty() ? "no configuration file" : "configuration file: " + loaded.file)
      << "\n";
  Config::sections(loaded.config, [&](const char* section, const auto& s, const char*) {
    out << "\n[" << section << "]\n";
    std::decay_t<decltype(s)>::fields(
        s, [&](const char* key, const auto& value, const KeyLimit&, const char*) {
          if (!loaded.models.empty() && is_each_models_own(section, key)) return;
          const auto origin = loaded.origin.find(std::string(section) + "." + key);
          print_value(out, section, key, value,
                      origin == loaded.origin.end() ? "default" : origin->second);
        });
  });
  for (const auto& [name, config] : loaded.models) print_model(out, loaded, name);
  return out.str();
}

}  // namespace foretoken
