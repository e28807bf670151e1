#include "common/config/toml_reader.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <toml.hpp>

namespace foretoken {
namespace {

// toml11 calls itself for each part of a key and each bracket that is open, on a stack of 8 MiB. A
// part takes 2 bytes of a file and 100 bytes of stack: the size of a file bounds that. A bracket
// takes 1 byte and 1.4 to 2.5 KiB (14 KiB with sanitizers), so brackets are counted, those in
// strings and comments too. Our own example has 7 KiB and 14 brackets.
constexpr std::size_t kMaxFileBytes = std::size_t{64} << 10;
constexpr std::ptrdiff_t kMaxBrackets = 256;

std::string at(const std::string& file, const toml::value& value) {
  return file + ":" + std::to_string(value.location().line());
}

std::optional<SettingValue> plain(const toml::value& value) {
  if (value.is_boolean()) return SettingValue(value.as_boolean());
  if (value.is_integer()) return SettingValue(value.as_integer());
  if (value.is_floating()) return SettingValue(value.as_floating());
  if (value.is_string()) return SettingValue(value.as_string().str);
  if (!value.is_array()) return std::nullopt;
  std::vector<std::string> list;
  for (const auto& element : value.as_array()) {
    if (!element.is_string()) return std::nullopt;
    list.push_back(element.as_string().str);
  }
  return SettingValue(std::move(list));
}

// What is wrong with a value that is no plain one.
std::string not_plain(const toml::value& value) {
  const std::string must_be = "must be a boolean, a number, a string or a list of strings";
  if (!value.is_array()) return must_be;
  const auto& elements = value.as_array();
  const auto first = std::find_if_not(elements.begin(), elements.end(),
                                      [](const toml::value& each) { return each.is_string(); });
  std::ostringstream type;
  type << first->type();
  return must_be + ", and its element " + std::to_string(first - elements.begin() + 1) +
         " is of type " + type.str();
}

// toml11 draws the place over several lines; its first holds the sentence, the one with "-->" the
// file.
std::string syntax_error(const std::string& file, const std::string& what) {
  std::istringstream lines(what);
  std::string sentence;
  std::string number;
  for (std::string line; std::getline(lines, line);) {
    if (sentence.empty()) sentence = line;
    const auto bar = line.find('|');
    if (number.empty() && bar != std::string::npos &&
        line.find_first_not_of(" 0123456789") == bar) {
      std::istringstream(line.substr(0, bar)) >> number;
    }
  }
  if (const auto bracket = sentence.find("] "); bracket != std::string::npos)
    sentence = sentence.substr(bracket + 2);
  return file + ":" + (number.empty() ? "1" : number) + ": not TOML: " + sentence;
}

// The keys of [section], or of [section.model].
void read_table(const std::string& file,
                const std::string& section,
                const std::string& model,
                const toml::value& table,
                TomlFile& out) {
  const std::string name = section + "." + (model.empty() ? "" : model + ".");
  for (const auto& [key, value] : table.as_table()) {
    if (model.empty() && value.is_table()) {
      out.tables.push_back({section, key, at(file, value), value.as_table().empty()});
      read_table(file, section, key, value, out);
    } else if (auto setting = plain(value)) {
      out.settings.push_back({section, model, key, std::move(*setting), at(file, value)});
    } else {
      out.errors.push_back(at(file, value) + ": " + name + key + " " + not_plain(value));
    }
  }
}

}  // namespace

TomlFile read_toml(const std::string& file) {
  TomlFile out;
  // Opening one succeeds and reads as if it were empty. What cannot be looked at cannot be opened.
  std::error_code unreadable;
  if (std::filesystem::is_directory(file, unreadable)) {
    out.errors.push_back(file + ": is a folder, not a file");
    return out;
  }
  std::ifstream in(file, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.is_open() || in.bad()) {
    out.errors.push_back(file + ": cannot be read");
    return out;
  }
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kMaxFileBytes) {
    out.errors.push_back(file + ": larger than 64 KiB");
    return out;
  }
  const auto n_brackets = std::ranges::count_if(text, [](char c) { return c == '[' || c == '{'; });
  if (n_brackets > kMaxBrackets) {
    out.errors.push_back(file + ": has " + std::to_string(n_brackets) +
                         " opening brackets; the limit is " + std::to_string(kMaxBrackets));
    return out;
  }
  try {
    std::istringstream source(text);
    const toml::value root = toml::parse(source, file);
    for (const auto& [section, table] : root.as_table()) {
      if (!table.is_table()) {
        out.errors.push_back(at(file, table) + ": " + section + " stands outside a [section]");
        continue;
      }
      if (table.as_table().empty()) out.empty_sections.push_back({section, at(file, table)});
      read_table(file, section, "", table, out);
    }
  } catch (const std::exception& error) {
    out.errors.push_back(syntax_error(file, error.what()));
  }
  return out;
}

}  // namespace foretoken
