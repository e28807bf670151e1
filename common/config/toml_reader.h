// The one door to toml11: a file's keys as plain settings with their lines. Uses no sections.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "common/base/result.h"

namespace foretoken {

using SettingValue =
    std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>>;

struct Setting {
  std::string section;
  std::string model;  // of [section.model]; "" = of [section]
  std::string key;
  SettingValue value;
  std::string where;  // "foretoken.toml:12"
};

// [section.model], with or without keys.
struct ModelTable {
  std::string section;
  std::string model;
  std::string where;
  bool is_empty = false;
};

// [section] without keys.
struct EmptySection {
  std::string section;
  std::string where;
};

struct TomlFile {
  std::vector<Setting> settings;
  std::vector<ModelTable> tables;
  std::vector<EmptySection> empty_sections;
  std::vector<std::string> errors;  // "foretoken.toml:12: ..."
};

TomlFile read_toml(const std::string& file);

}  // namespace foretoken
