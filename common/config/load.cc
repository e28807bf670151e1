#include "common/config/load.h"

#include <arpa/inet.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <type_traits>
#include <utility>

#include "common/base/host_and_port.h"
#include "common/config/check.h"
#include "common/config/models.h"
#include "common/config/resolve.h"
#include "common/config/toml_reader.h"

extern char** environ;  // NOLINT: POSIX gives it no header

namespace foretoken {
namespace {

// A value on its way into a member: typed from a file, or text from a variable or flag.
enum class Source : std::uint8_t { kFile, kEnvironment, kFlag };  // the stronger the later

struct Candidate {
  std::variant<SettingValue, std::string> value;
  std::string where;   // for messages: "file:3", "FORETOKEN_X_Y", "--set"
  std::string origin;  // for --print-config
  Source source = Source::kFile;
};

constexpr std::size_t kMaxIpcPath = sizeof(sockaddr_un::sun_path) - 1;

// "section.key" or, of one model, "section.NAME.key" -> the strongest of that name.
using Candidates = std::map<std::string, Candidate>;

// What was said, before it is checked against the sections.
struct Collected {
  Candidates candidates;
  std::map<std::string, std::string> models;     // declared ones -> "f.toml:3: [model.chat]"
  std::map<std::string, std::string> mentioned;  // by other sections

  void mention(const std::string& section, const std::string& model, const std::string& where) {
    (section == "model" ? models : mentioned)
        .try_emplace(model, where + ": [" + section + "." + model + "]");
  }
};

std::vector<std::string> split_list(std::string text) {
  std::vector<std::string> list;
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']')
    text = text.substr(1, text.size() - 2);
  for (std::size_t begin = 0; begin <= text.size() && !text.empty();) {
    const auto comma = std::min(text.find(',', begin), text.size());
    std::string item = text.substr(begin, comma - begin);
    item.erase(0, item.find_first_not_of(" \""));
    item.erase(item.find_last_not_of(" \"") + 1);
    list.push_back(std::move(item));
    begin = comma + 1;
  }
  return list;
}

// Text -> the member's type; nothing if it does not read as one.
std::optional<SettingValue> read_text(const std::string& text, const bool&) {
  if (text == "true" || text == "1") return true;
  if (text == "false" || text == "0") return false;
  return std::nullopt;
}
[[maybe_unused]] std::optional<SettingValue> read_text(const std::string& text, const double&) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') return std::nullopt;
  return value;
}
std::optional<SettingValue> read_text(const std::string& text, const std::string&) { return text; }
std::optional<SettingValue> read_text(const std::string& text, const std::vector<std::string>&) {
  return split_list(text);
}
std::optional<SettingValue> read_text(const std::string& text, const ProposerSet&) {
  return split_list(text);
}
template <std::integral T>
std::optional<SettingValue> read_text(const std::string& text, const T&) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <class T>
const char* type_words() {
  if constexpr (std::same_as<T, bool>)
    return "true or false";
  else if constexpr (std::integral<T>)
    return "a whole number";
  else if constexpr (std::floating_point<T>)
    return "a number";
  else if constexpr (std::same_as<T, std::string>)
    return "a string";
  else if constexpr (std::same_as<T, ProposerSet>)
    return "a string or a list of strings";
  else
    return "a list of strings";
}

std::string plain_number(double value) {
  if (value == static_cast<double>(static_cast<std::int64_t>(value)))
    return std::to_string(static_cast<std::int64_t>(value));
  return std::to_string(value);
}

bool is_port(const std::string& port) {
  std::uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  return port == "*" || (error == std::errc{} && end == port.data() + port.size() && number > 0);
}

bool is_numeric_address(std::string address) {
  in6_addr any{};
  if (::inet_pton(AF_INET, address.c_str(), &any) == 1) return true;
  if (address.size() > 2 && address.front() == '[' && address.back() == ']')
    address = address.substr(1, address.size() - 2);
  return ::inet_pton(AF_INET6, address.c_str(), &any) == 1;
}

// The rules of common/transport/endpoint.h, which this room must not know; here they are applied
// before anything runs.
std::optional<std::string> endpoint_problem(const std::string& text) {
  const std::string is = "is \"" + text + "\"; ";
  std::string endpoint = text;
  for (auto at = endpoint.find("{id}"); at != std::string::npos; at = endpoint.find("{id}"))
    endpoint.replace(at, 4, "1");
  const auto after = [&](std::string_view scheme) {
    return endpoint.rfind(scheme, 0) == 0 ? endpoint.substr(scheme.size()) : "";
  };
  if (!after("inproc://").empty()) return std::nullopt;
  if (const auto path = after("ipc://"); !path.empty()) {
    if (path.front() == '@')
      return is + "an abstract socket has no file permissions, give a name or a path";
    if (path.size() > kMaxIpcPath)
      return is + "its path may have at most " + std::to_string(kMaxIpcPath) + " characters";
    return std::nullopt;
  }
  if (const auto rest = after("tcp://"); !rest.empty()) {
    const auto colon = rest.rfind(':');
    if (colon == std::string::npos || !is_port(rest.substr(colon + 1)))
      return is + "after its last colon it must have a port from 1 to 65535";
    const std::string address = rest.substr(0, colon);
    if (address.find(':') != std::string::npos && !address.starts_with('['))
      return is + "its address of IPv6 must be in brackets, as in tcp://[::1]:5555";
    if (!is_numeric_address(address))
      return is +
             "its address must be given in numbers, such as 127.0.0.1: names are not looked up";
    return std::nullopt;
  }
  return is + "it must be ipc://NAME, tcp://ADDRESS:PORT or inproc://NAME";
}

// Names are not looked up, but for localhost, which is two addresses.
std::optional<std::string> listen_problem(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const auto address = host_and_port_in(text);
  if (address && (address->host == "localhost" || is_numeric_address(address->host)))
    return std::nullopt;
  return "is \"" + text +
         "\"; it must be ADDRESS:PORT with a numeric address or localhost and a port from 1 to "
         "65535, such as 127.0.0.1:8002, or \"\"";
}

std::string choices_of(const KeyLimit& limit) {
  std::string list;
  for (const auto choice : limit.choices) list += (list.empty() ? "" : ", ") + std::string(choice);
  return list;
}

// `place`: where in a list it stands.
std::optional<std::string> not_one_of(const std::string& value,
                                      const KeyLimit& limit,
                                      const std::string& place = "") {
  if (std::find(limit.choices.begin(), limit.choices.end(), value) != limit.choices.end())
    return std::nullopt;
  const std::vector<std::string> known(limit.choices.begin(), limit.choices.end());
  const auto near = nearest(value, known);
  return "\"" + value + "\"" + place + "; it must be one of: " + choices_of(limit) +
         (near ? " (did you mean \"" + *near + "\"?)" : "");
}

// A list of one is that word; the first that is wrong is named.
std::optional<std::string> not_proposers(const std::vector<std::string>& words,
                                         const KeyLimit& limit) {
  if (words.empty())
    return "is an empty list; it must have one or more of: " + choices_of(limit) +
           " (\"none\" alone is plain decoding)";
  const auto number = [&](auto word) { return std::to_string(word - words.begin() + 1); };
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (words.size() == 1) {
      const auto wrong = not_one_of(*word, limit);
      return wrong ? "is " + *wrong : std::optional<std::string>();
    }
    if (const auto wrong = not_one_of(*word, limit, " as element " + number(word)))
      return "has " + *wrong;
    if (const auto first = std::find(words.begin(), word, *word); first != word)
      return "has \"" + *word + "\" twice, as elements " + number(first) + " and " + number(word) +
             "; each may be named once";
    if (*word == name_of(ProposerKind::kNone))
      return "has \"" + *word + "\" as element " + number(word) +
             " beside others; it must stand alone";
  }
  return std::nullopt;
}

// The sentence that says what is wrong, or nothing.
template <class T>
std::optional<std::string> problem(const T& value, const KeyLimit& limit) {
  if constexpr (std::is_arithmetic_v<T> && !std::same_as<T, bool>) {
    const auto number = static_cast<double>(value);
    if (limit.kind == KeyLimit::Kind::kRange && !(number >= limit.low && number <= limit.high))
      return "is " + plain_number(number) + "; it must be from " + plain_number(limit.low) +
             " to " + plain_number(limit.high);
  } else if constexpr (std::same_as<T, std::string>) {
    if (limit.kind == KeyLimit::Kind::kOneOf)
      if (const auto wrong = not_one_of(value, limit)) return "is " + *wrong;
    if (limit.kind == KeyLimit::Kind::kMemory) {
      if (is_token_count(value)) return std::nullopt;
      if (auto bytes = memory_bytes(value, std::uint64_t{1} << 40); !bytes.ok())
        return bytes.error().message;
    }
    if (limit.kind == KeyLimit::Kind::kDevice) {
      if (auto devices = device_list_of(value); !devices.ok()) return devices.error().message;
    }
    if (limit.kind == KeyLimit::Kind::kNotEmpty && value.empty())
      return "is \"\"; it must not be empty";
    if (limit.kind == KeyLimit::Kind::kEndpoint) return endpoint_problem(value);
    if (limit.kind == KeyLimit::Kind::kListen) return listen_problem(value);
  } else if constexpr (std::same_as<T, std::vector<std::string>>) {
    if (limit.kind == KeyLimit::Kind::kEndpointList) {
      if (value.empty()) return "is an empty list; it must have at least one endpoint";
      for (const auto& text : value)
        if (auto wrong = endpoint_problem(text)) return wrong;
    }
    if (limit.kind == KeyLimit::Kind::kOneOf)
      for (const auto& text : value)
        if (const auto wrong = not_one_of(text, limit)) return "has " + *wrong;
    if (limit.kind == KeyLimit::Kind::kNotEmpty)
      if (const auto empty = std::find(value.begin(), value.end(), ""); empty != value.end())
        return "has \"\" as element " + std::to_string(empty - value.begin() + 1) +
               "; no element may be empty";
    if (limit.kind == KeyLimit::Kind::kProposers) return not_proposers(value, limit);
    if (limit.kind == KeyLimit::Kind::kWeights)
      if (auto weights = weights_of(value); !weights.ok()) return weights.error().message;
  }
  return std::nullopt;
}

// Nothing when it does not fit the member's type. Whole numbers may stand for fractional ones,
// never the reverse.
template <class T>
std::optional<T> convert(const SettingValue& value) {
  if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    const auto* number = std::get_if<std::int64_t>(&value);
    if (number == nullptr || !std::in_range<T>(*number)) return std::nullopt;
    return static_cast<T>(*number);
  } else {
    if constexpr (std::same_as<T, double>)
      if (const auto* number = std::get_if<std::int64_t>(&value))
        return static_cast<double>(*number);
    const auto* same = std::get_if<T>(&value);
    return same == nullptr ? std::nullopt : std::optional<T>(*same);
  }
}

// What a member is judged by before it has its type: for proposers the words themselves.
template <class T>
using Judged =
    std::conditional_t<std::same_as<T, ProposerSet>, std::vector<std::string>, std::decay_t<T>>;

template <class T>
std::optional<Judged<T>> judged(const SettingValue& value) {
  if constexpr (std::same_as<T, ProposerSet>)
    if (const auto* word = std::get_if<std::string>(&value)) return std::vector{*word};
  return convert<Judged<T>>(value);
}

template <class T>
void put(T& member, T&& value) {
  member = std::move(value);
}
void put(ProposerSet& member, const std::vector<std::string>& words) {
  member = {};
  for (const auto& word : words)
    if (const auto kind = value_named<ProposerKind>(word)) member.add(*kind);
}

class Applier {
 public:
  // For the model of this name; "" = for all.
  Applier(const Candidates& candidates, std::string model, LoadedConfig& out)
      : candidates_(candidates), model_(std::move(model)), out_(out) {}

  template <class Section>
  void operator()(const char* section, Section& s, const char*) {
    Section::fields(s, [&](const char* key, auto& member, const KeyLimit& limit, const char*) {
      const std::string name = std::string(section) + "." + key;
      const Candidate* for_all = find(name);
      if (model_.empty()) {
        out_.origin[name] = "default";
        if (for_all != nullptr) assign(name, *for_all, member, limit);
        return;
      }
      const std::string own_name = std::string(section) + "." + model_ + "." + key;
      const Candidate* own = find(own_name);
      if (own != nullptr && (for_all == nullptr || own->source >= for_all->source))
        assign(own_name, *own, member, limit);
      else if (for_all != nullptr)
        copy(*for_all, member, limit);
    });
  }

 private:
  const Candidate* find(const std::string& name) const {
    const auto found = candidates_.find(name);
    return found == candidates_.end() ? nullptr : &found->second;
  }

  template <class T>
  static std::optional<SettingValue> value_of(const Candidate& candidate, const T& member) {
    if (const auto* text = std::get_if<std::string>(&candidate.value))
      return read_text(*text, member);
    return std::get<SettingValue>(candidate.value);
  }

  // What holds for all has been checked, and its errors were said, before.
  template <class T>
  static void copy(const Candidate& candidate, T& member, const KeyLimit& limit) {
    const auto value = value_of(candidate, member);
    auto typed = value ? judged<T>(*value) : std::nullopt;
    if (typed && !problem(*typed, limit)) put(member, std::move(*typed));
  }

  template <class T>
  void assign(const std::string& name,
              const Candidate& candidate,
              T& member,
              const KeyLimit& limit) {
    const std::optional<SettingValue> value = value_of(candidate, member);
    const std::string start = candidate.where + ": " + name + " ";
    auto typed = value ? judged<T>(*value) : std::nullopt;
    if constexpr (std::integral<T> && !std::same_as<T, bool>) {
      // A number that does not even fit the member is out of range, not of the wrong type.
      if (value && !typed && std::holds_alternative<std::int64_t>(*value)) {
        const auto wide = std::get<std::int64_t>(*value);
        out_.errors.push_back(
            start + problem(wide, limit).value_or("is " + std::to_string(wide) + ", out of range"));
        return;
      }
    }
    if (!typed) {
      constexpr bool is_one = std::same_as<T, std::string>;
      out_.errors.push_back(start + "must be " + type_words<T>() +
                            (limit.choices.empty() ? ""
                             : is_one              ? ", one of: " + choices_of(limit)
                                                   : ", each one of: " + choices_of(limit)));
    } else if (auto wrong = problem(*typed, limit)) {
      out_.errors.push_back(start + *wrong);
    } else {
      put(member, std::move(*typed));
      out_.origin[name] = candidate.origin;
    }
  }

  const Candidates& candidates_;
  std::string model_;
  LoadedConfig& out_;
};

using Names = std::map<std::string, std::vector<std::string>>;  // section -> keys

Names known_names() {
  Names names;
  Config example;
  Config::sections(example, [&](const char* section, auto& s, const char*) {
    auto& keys = names[section];
    std::decay_t<decltype(s)>::fields(
        s, [&](const char* key, auto&, const KeyLimit&, const char*) { keys.emplace_back(key); });
  });
  return names;
}

std::vector<std::string> keys_of(const Names& names) {
  std::vector<std::string> list;
  for (const auto& [section, keys] : names) list.push_back(section);
  return list;
}

// Says so if the section or key does not exist, naming the nearest that does.
std::optional<std::string> unknown(const Names& names,
                                   const std::string& section,
                                   const std::string& key) {
  const auto hint = [](const std::optional<std::string>& near) {
    return near ? " (did you mean " + *near + "?)" : std::string();
  };
  const auto found = names.find(section);
  if (found == names.end())
    return "unknown section [" + section + "]" + hint(nearest(section, keys_of(names)));
  if (std::find(found->second.begin(), found->second.end(), key) != found->second.end())
    return std::nullopt;
  auto near = nearest(key, found->second);
  if (near) near = section + "." + *near;
  for (auto other = names.begin(); !near && other != names.end(); ++other)
    if (std::find(other->second.begin(), other->second.end(), key) != other->second.end())
      near = other->first + "." + key;
  return "unknown key " + section + "." + key + hint(near);
}

// "draft_len" of [speculation], or of [speculation.model].
struct Place {
  std::string section, model, key;
};

// Keeps a value, or says why there is no such key.
void take(const Place& place,
          const Names& names,
          Candidate candidate,
          Collected& all,
          std::vector<std::string>& errors) {
  const auto& [section, model, key] = place;
  const auto wrong = [&](const std::string& why) {
    errors.push_back(candidate.where + ": " + why);
  };
  if (auto why = unknown(names, section, key)) return wrong(*why);
  if (!model.empty() && !may_differ_by_model(section, key))
    return wrong(section + "." + key + " holds for all models: it cannot stand in [" + section +
                 "." + model + "]");
  const std::string name = section + "." + (model.empty() ? "" : model + ".") + key;
  if (!model.empty()) all.mention(section, model, candidate.where);
  all.candidates[name] = std::move(candidate);
}

void collect_file(const std::string& file, const Names& names, Collected& all, LoadedConfig& out) {
  TomlFile toml = read_toml(file);
  out.file = file;
  out.errors.insert(out.errors.end(), toml.errors.begin(), toml.errors.end());
  const auto is_key = [&](const std::string& section, const std::string& word) {
    const auto keys = names.find(section);
    return keys != names.end() &&
           std::find(keys->second.begin(), keys->second.end(), word) != keys->second.end();
  };
  for (const EmptySection& empty : toml.empty_sections)
    if (!names.contains(empty.section))
      out.errors.push_back(empty.where + ": " + *unknown(names, empty.section, ""));
  for (const ModelTable& table : toml.tables) {  // one may be empty
    if (is_key(table.section, table.model))
      out.errors.push_back(table.where + ": " + table.section + "." + table.model +
                           " must be a boolean, a number, a string or a list of strings");
    else if (names.contains(table.section))
      all.mention(table.section, table.model, table.where);
    else if (table.is_empty)
      out.errors.push_back(table.where + ": " + *unknown(names, table.section, ""));
  }
  for (auto& setting : toml.settings)
    if (!is_key(setting.section, setting.model))
      take({setting.section, setting.model, setting.key}, names,
           {std::move(setting.value), setting.where, setting.where, Source::kFile}, all,
           out.errors);
}

void collect_environment(const std::map<std::string, std::string>& environment,
                         const Names& names,
                         Collected& all,
                         LoadedConfig& out) {
  for (const auto& [section, keys] : names) {
    const std::string prefix = environment_variable(section, "");
    for (const auto& [variable, value] : environment) {
      if (variable.rfind(prefix, 0) != 0) continue;
      std::string key = variable.substr(prefix.size());
      std::transform(key.begin(), key.end(), key.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      take({section, "", key}, names, {value, variable, "environment", Source::kEnvironment}, all,
           out.errors);
    }
  }
}

void collect_flags(const std::vector<std::string>& settings,
                   const Names& names,
                   Collected& all,
                   LoadedConfig& out) {
  for (const auto& text : settings) {
    const auto equals = text.find('=');
    const auto dot = text.find('.');
    if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
      out.errors.push_back("--set " + text + ": must be section.key=value");
      continue;
    }
    const std::string name = text.substr(0, equals);
    const auto last = name.rfind('.');
    const Place place{name.substr(0, dot), last == dot ? "" : name.substr(dot + 1, last - dot - 1),
                      name.substr(last + 1)};
    take(place, names, {text.substr(equals + 1), "--set " + name, "flag", Source::kFlag}, all,
         out.errors);
  }
}

// The Config of each declared model.
void apply_models(const Collected& all, LoadedConfig& out) {
  for (const auto& [name, where] : all.mentioned)
    if (!all.models.contains(name)) {
      std::vector<std::string> known;
      for (const auto& [model, place] : all.models) known.push_back(model);
      const auto near = nearest(name, known);
      out.errors.push_back(where + " is for a model, and there is no [model." + name + "]" +
                           (near ? " (did you mean " + *near + "?)" : ""));
    }
  for (const auto& [name, candidate] : all.candidates) {
    const auto dot = name.find('.');
    if (all.models.empty() || name.rfind('.') != dot ||
        !is_each_models_own(name.substr(0, dot), name.substr(dot + 1)))
      continue;
    const std::string& first = all.models.begin()->first;
    out.errors.push_back(candidate.where + ": " + name +
                         " is what each model has for itself, and there is [model." + first +
                         "]: it must be said of one model, as model." + first + name.substr(dot));
  }
  for (const auto& [name, where] : all.models) {
    if (const auto why = why_no_model_name(name); !why.empty())
      out.errors.push_back(where + " is no name of a model: " + why);
    Config& config = out.models[name];
    Config::sections(config, Applier(all.candidates, name, out));
    if (config.model.name.empty()) config.model.name = name;
    // The demo draft belongs to the demo target.
    if (config.model.target != "demo" && !all.candidates.contains("model.draft") &&
        !all.candidates.contains("model." + name + ".draft"))
      config.model.draft.clear();
  }
}

}  // namespace

std::string environment_variable(const std::string& section, const std::string& key) {
  std::string name = "FORETOKEN_" + section + "_" + key;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

LoadedConfig load_config(const ConfigSources& sources) {
  LoadedConfig out;
  const Names names = known_names();
  Collected all;
  const auto file = sources.file ? sources.file : find_config_file(sources.environment);
  if (file) collect_file(*file, names, all, out);
  collect_environment(sources.environment, names, all, out);
  collect_flags(sources.settings, names, all, out);
  Config::sections(out.config, Applier(all.candidates, "", out));
  apply_models(all, out);
  if (out.errors.empty()) check_together(out, out.errors);
  return out;
}

std::optional<std::string> find_config_file(const std::map<std::string, std::string>& environment) {
  const auto variable = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  // A file that was named must be there: a missing one is an error, not a reason for defaults.
  if (const auto named = variable("FORETOKEN_CONFIG"); !named.empty()) return named;
  std::vector<std::string> places;
  if (const auto xdg = variable("XDG_CONFIG_HOME"); !xdg.empty())
    places.push_back(xdg + "/foretoken/foretoken.toml");
  else if (const auto home = variable("HOME"); !home.empty())
    places.push_back(home + "/.config/foretoken/foretoken.toml");
  places.emplace_back("/etc/foretoken/foretoken.toml");
  for (const auto& place : places) {
    std::error_code ignored;
    if (std::filesystem::exists(place, ignored)) return place;
  }
  return std::nullopt;
}

std::map<std::string, std::string> process_environment() {
  std::map<std::string, std::string> all;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (const auto equals = text.find('='); equals != std::string::npos)
      all[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return all;
}

}  // namespace foretoken
