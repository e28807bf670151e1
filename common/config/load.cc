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

#include "common/config/resolve.h"
#include "common/config/toml_reader.h"

extern char** environ;  // NOLINT: POSIX gives it no header

namespace foretoken {
namespace {

// A value on its way into a member: typed from a file, or text from a variable or flag.
struct Candidate {
  std::variant<SettingValue, std::string> value;
  std::string where;   // for messages: "file:3", "FORETOKEN_X_Y", "--set"
  std::string origin;  // for --print-config
};

constexpr std::size_t kMaxIpcPath = sizeof(sockaddr_un::sun_path) - 1;

using Candidates = std::map<std::string, Candidate>;  // "section.key" -> the strongest

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
    if (!is_numeric_address(rest.substr(0, colon)))
      return is +
             "its address must be given in numbers, such as 127.0.0.1: names are not looked up";
    return std::nullopt;
  }
  return is + "it must be ipc://NAME, tcp://ADDRESS:PORT or inproc://NAME";
}

std::optional<std::string> not_one_of(const std::string& value, const Constraint& constraint) {
  if (std::find(constraint.choices.begin(), constraint.choices.end(), value) !=
      constraint.choices.end())
    return std::nullopt;
  std::string list;
  std::vector<std::string> known;
  for (const auto choice : constraint.choices) {
    list += (list.empty() ? "" : ", ") + std::string(choice);
    known.emplace_back(choice);
  }
  const auto near = nearest(value, known);
  return "\"" + value + "\"; it must be one of: " + list +
         (near ? " (did you mean \"" + *near + "\"?)" : "");
}

// The sentence that says what is wrong, or nothing.
template <class T>
std::optional<std::string> problem(const T& value, const Constraint& constraint) {
  if constexpr (std::is_arithmetic_v<T> && !std::same_as<T, bool>) {
    const auto number = static_cast<double>(value);
    if (constraint.kind == Constraint::Kind::kRange &&
        !(number >= constraint.low && number <= constraint.high))
      return "is " + plain_number(number) + "; it must be from " + plain_number(constraint.low) +
             " to " + plain_number(constraint.high);
  } else if constexpr (std::same_as<T, std::string>) {
    if (constraint.kind == Constraint::Kind::kOneOf)
      if (const auto wrong = not_one_of(value, constraint)) return "is " + *wrong;
    if (constraint.kind == Constraint::Kind::kMemory) {
      if (is_token_count(value)) return std::nullopt;
      if (auto bytes = memory_bytes(value, std::uint64_t{1} << 40); !bytes.ok())
        return bytes.error().message;
    }
    if (constraint.kind == Constraint::Kind::kDevice) {
      if (auto devices = device_list_of(value); !devices.ok()) return devices.error().message;
    }
    if (constraint.kind == Constraint::Kind::kEndpoint) return endpoint_problem(value);
  } else if constexpr (std::same_as<T, std::vector<std::string>>) {
    if (constraint.kind == Constraint::Kind::kEndpointList) {
      if (value.empty()) return "is an empty list";
      for (const auto& text : value)
        if (auto wrong = endpoint_problem(text)) return wrong;
    }
    if (constraint.kind == Constraint::Kind::kOneOf)
      for (const auto& text : value)
        if (const auto wrong = not_one_of(text, constraint)) return "has " + *wrong;
    if (constraint.kind == Constraint::Kind::kWeights)
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

class Applier {
 public:
  Applier(const Candidates& candidates, LoadedConfig& out) : candidates_(candidates), out_(out) {}

  template <class Section>
  void operator()(const char* section, Section& s, const char*) {
    Section::fields(s,
                    [&](const char* key, auto& member, const Constraint& constraint, const char*) {
                      const std::string name = std::string(section) + "." + key;
                      out_.origin[name] = "default";
                      const auto found = candidates_.find(name);
                      if (found != candidates_.end())
                        assign(name, found->second, member, constraint);
                    });
  }

 private:
  template <class T>
  void assign(const std::string& name,
              const Candidate& candidate,
              T& member,
              const Constraint& constraint) {
    std::optional<SettingValue> value;
    if (const auto* text = std::get_if<std::string>(&candidate.value))
      value = read_text(*text, member);
    else
      value = std::get<SettingValue>(candidate.value);
    const std::string start = candidate.where + ": " + name + " ";
    std::optional<T> typed = value ? convert<T>(*value) : std::nullopt;
    if constexpr (std::integral<T> && !std::same_as<T, bool>) {
      // A number that does not even fit the member is out of range, not of the wrong type.
      if (value && !typed && std::holds_alternative<std::int64_t>(*value)) {
        const auto wide = std::get<std::int64_t>(*value);
        out_.errors.push_back(
            start +
            problem(wide, constraint).value_or("is " + std::to_string(wide) + ", out of range"));
        return;
      }
    }
    if (!typed) {
      out_.errors.push_back(start + "must be " + type_words<T>());
    } else if (auto wrong = problem(*typed, constraint)) {
      out_.errors.push_back(start + *wrong);
    } else {
      member = std::move(*typed);
      out_.origin[name] = candidate.origin;
    }
  }

  const Candidates& candidates_;
  LoadedConfig& out_;
};

using Names = std::map<std::string, std::vector<std::string>>;  // section -> keys

Names known_names() {
  Names names;
  Config example;
  Config::sections(example, [&](const char* section, auto& s, const char*) {
    auto& keys = names[section];
    std::decay_t<decltype(s)>::fields(
        s, [&](const char* key, auto&, const Constraint&, const char*) { keys.emplace_back(key); });
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

void collect_file(const std::string& file,
                  const Names& names,
                  Candidates& candidates,
                  LoadedConfig& out) {
  TomlFile toml = read_toml(file);
  out.file = file;
  out.errors.insert(out.errors.end(), toml.errors.begin(), toml.errors.end());
  for (auto& setting : toml.settings) {
    if (auto wrong = unknown(names, setting.section, setting.key))
      out.errors.push_back(setting.where + ": " + *wrong);
    else
      candidates[setting.section + "." + setting.key] = {std::move(setting.value), setting.where,
                                                         setting.where};
  }
}

void collect_environment(const std::map<std::string, std::string>& environment,
                         const Names& names,
                         Candidates& candidates,
                         LoadedConfig& out) {
  for (const auto& [section, keys] : names) {
    const std::string prefix = environment_variable(section, "");
    for (const auto& [variable, value] : environment) {
      if (variable.rfind(prefix, 0) != 0) continue;
      std::string key = variable.substr(prefix.size());
      std::transform(key.begin(), key.end(), key.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      if (auto wrong = unknown(names, section, key))
        out.errors.push_back(variable + ": " + *wrong);
      else
        candidates[section + "." + key] = {value, variable, "environment"};
    }
  }
}

void collect_flags(const std::vector<std::string>& settings,
                   const Names& names,
                   Candidates& candidates,
                   LoadedConfig& out) {
  for (const auto& text : settings) {
    const auto equals = text.find('=');
    const auto dot = text.find('.');
    if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
      out.errors.push_back("--set " + text + ": must be section.key=value");
      continue;
    }
    const std::string section = text.substr(0, dot);
    const std::string key = text.substr(dot + 1, equals - dot - 1);
    if (auto wrong = unknown(names, section, key))
      out.errors.push_back("--set " + text + ": " + *wrong);
    else
      candidates[section + "." + key] = {text.substr(equals + 1), "--set " + section + "." + key,
                                         "flag"};
  }
}

// What no single key can know.
void check_together(const Config& c, std::vector<std::string>& errors) {
  if (c.speculation.ngram_min > c.speculation.ngram_max)
    errors.push_back("speculation.ngram_min is " + std::to_string(c.speculation.ngram_min) +
                     ", above speculation.ngram_max, " + std::to_string(c.speculation.ngram_max));
  if (c.limits.max_batch_rows < c.limits.max_running)
    errors.push_back("limits.max_batch_rows is " + std::to_string(c.limits.max_batch_rows) +
                     ", below limits.max_running, " + std::to_string(c.limits.max_running) +
                     ": each sequence needs a row");
  if (c.model.max_model_len == 1)
    errors.push_back(
        "model.max_model_len is 1: there is no room for an answer; 0 is what the model allows");
  if (c.model.target.empty()) errors.push_back("model.target is empty: there is nothing to serve");
  // A list serves the ranks of each host; how many those are is known when they are started, by
  // hostfile or by Slurm.
  const auto each_its_device = [&](const std::string& section, const auto& s) {
    const auto devices = device_list_of(s.device);
    if (!devices.ok() || devices->numbers.empty()) return;
    const std::size_t n = devices->numbers.size();
    if (n > s.tensor_parallel)
      errors.push_back(section + ".device is \"" + s.device + "\", " + std::to_string(n) +
                       (n == 1 ? " device" : " devices") + ", and " + section +
                       ".tensor_parallel is " + std::to_string(s.tensor_parallel) +
                       ": each rank takes one");
  };
  const auto sums_on_a_device = [&](const std::string& section, const auto& s) {
    if (s.device == "cpu" && (s.rank_sums == "one_shot" || s.rank_sums == "nccl"))
      errors.push_back(section + ".rank_sums is \"" + s.rank_sums + "\", and " + section +
                       ".device is cpu: there ranks add in host memory");
  };
  const auto records_alone = [&](const std::string& section, const auto& s) {
    if (s.record == "on" && s.tensor_parallel > 1)
      errors.push_back(section + ".record is \"on\", and " + section + ".tensor_parallel is " +
                       std::to_string(s.tensor_parallel) +
                       ": passes of several ranks are not recorded");
  };
  sums_on_a_device("target", c.target);
  sums_on_a_device("draft", c.draft);
  records_alone("target", c.target);
  records_alone("draft", c.draft);
  each_its_device("target", c.target);
  each_its_device("draft", c.draft);
  if (!c.bus.curve_secret.empty() && c.bus.curve_peers.empty())
    errors.push_back(
        "bus.curve_secret is set and bus.curve_peers is not: every peer would be refused");
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
  Candidates candidates;
  const auto file = sources.file ? sources.file : find_config_file(sources.environment);
  if (file) collect_file(*file, names, candidates, out);
  collect_environment(sources.environment, names, candidates, out);
  collect_flags(sources.settings, names, candidates, out);
  Config::sections(out.config, Applier(candidates, out));
  if (out.errors.empty()) check_together(out.config, out.errors);
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
