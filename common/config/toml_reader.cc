#include "common/config/toml_reader.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <toml.hpp>

namespace foretoken {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1}
                                      << 20;  // a hundred keys; anything larger is not our file
constexpr std::size_t kMaxBrackets = 16;  // a list within an inline table within a list is three
constexpr std::size_t kMaxKeyParts = 16;  // section.key is two

// Just past the string that opens at `at`. One that is not closed reaches the end of its line or of
// the text: toml11 refuses it where it opens and reads no further.
std::size_t past_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const std::string three(3, quote);
  const bool multi_line = text.substr(at, 3) == three;
  const auto close = std::string_view(three).substr(0, multi_line ? 3 : 1);
  for (at += close.size(); at < text.size(); ++at) {
    if (text.substr(at, close.size()) == close) {
      at += close.size();
      // Its last characters may be one or two quotes.
      for (int n = 0; n < 2 && multi_line && at < text.size() && text[at] == quote; ++n) ++at;
      return at;
    }
    if (text[at] == '\n' && !multi_line) return at;
    if (text[at] == '\\' && quote == '"') ++at;
  }
  return text.size();
}

// toml11 calls itself for each bracket and each part of a key, and a file of nothing else would
// overflow the stack. The sentence that refuses it, before toml11 sees it; brackets and dots within
// strings and comments do not count. What is not TOML for another reason is left to toml11.
std::optional<std::string> too_deep(const std::string& file, std::string_view text) {
  std::size_t brackets = 0;
  std::size_t parts = 1;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      at = past_string(text, at);
      continue;
    }
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (c == '[' || c == '{') ++brackets;
    if ((c == ']' || c == '}') && brackets > 0) --brackets;
    // Values have dots too, 1.5 and 07:32:00.5, one each: no need to tell them from keys.
    if (c == '.') ++parts;
    if (std::string_view("=,[]{}\n").find(c) != std::string_view::npos) parts = 1;
    if (brackets > kMaxBrackets || parts > kMaxKeyParts) {
      const auto before = text.substr(0, at);
      return file + ":" + std::to_string(1 + std::count(before.begin(), before.end(), '\n')) +
             (brackets > kMaxBrackets
                  ? ": brackets nested more than " + std::to_string(kMaxBrackets) + " deep"
                  : ": a key of more than " + std::to_string(kMaxKeyParts) + " parts");
    }
    ++at;
  }
  return std::nullopt;
}

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

}  // namespace

TomlFile read_toml(const std::string& file) {
  TomlFile out;
  // Opening one succeeds and reads as if it were empty.
  if (std::filesystem::is_directory(file)) {
    out.errors.push_back(file + ": is a folder, not a file");
    return out;
  }
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) {
    // An empty file sets failbit on the copy; it is a legal configuration that changes nothing.
    if (in.is_open() && in.peek() == std::ifstream::traits_type::eof() && text.str().empty() &&
        std::ifstream(file).good())
      return out;
    out.errors.push_back(file + ": cannot be read");
    return out;
  }
  if (text.str().size() > kMaxFileBytes) {
    out.errors.push_back(file + ": larger than 1 MiB");
    return out;
  }
  if (auto refusal = too_deep(file, text.str())) {
    out.errors.push_back(std::move(*refusal));
    return out;
  }
  try {
    std::istringstream source(text.str());
    const toml::value root = toml::parse(source, file);
    for (const auto& [section, table] : root.as_table()) {
      if (!table.is_table()) {
        out.errors.push_back(at(file, table) + ": " + section + " stands outside a [section]");
        continue;
      }
      for (const auto& [key, value] : table.as_table()) {
        auto setting = plain(value);
        if (setting)
          out.settings.push_back({section, key, std::move(*setting), at(file, value)});
        else
          out.errors.push_back(at(file, value) + ": " + section + "." + key +
                               " must be a boolean, a number, a string or a list of strings");
      }
    }
  } catch (const std::exception& error) {
    out.errors.push_back(syntax_error(file, error.what()));
  }
  return out;
}

}  // namespace foretoken
