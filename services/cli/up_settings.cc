#include "services/cli/up_settings.h"

#include <sstream>
#include <string_view>
#include <utility>

#include "common/config/models.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

constexpr std::string_view kBetween = " = ";

// Which keys of a configuration count: all, those of all models together, those of each model.
enum class Keys { kAll, kCommon, kOfModel };

bool is_among(Keys keys, const std::string& section, const std::string& key) {
  return keys == Keys::kAll || may_differ_by_model(section, key) == (keys == Keys::kOfModel);
}

// `model`: the NAME of [model.NAME], for Keys::kOfModel.
void add_settings(const Config& config, Keys keys, const std::string& model, Settings& settings) {
  std::istringstream text(config_without_origins({.config = config}));
  std::string section;
  for (std::string line; std::getline(text, line);) {
    const auto equals = line.find(kBetween);
    if (line.starts_with('[')) {
      section = line.substr(1, line.size() - 2);
    } else if (equals != std::string::npos && !line.starts_with('#')) {
      const std::string key = line.substr(0, equals);
      if (is_among(keys, section, key))
        settings[section + (model.empty() ? "." : "." + model + ".") + key] =
            line.substr(equals + kBetween.size());
    }
  }
}

}  // namespace

Settings settings_of(const LoadedConfig& loaded) {
  Settings settings;
  std::string models;
  for (const auto& [name, config] : loaded.models) {
    models += (models.empty() ? "" : ", ") + name;
    add_settings(config, Keys::kOfModel, name, settings);
  }
  settings["models"] = "[" + models + "]";
  add_settings(loaded.config, loaded.models.empty() ? Keys::kAll : Keys::kCommon, "", settings);
  settings.erase("bus.runtime_dir");
  settings.erase("bus.client");
  return settings;
}

std::string lines_of(const Settings& settings) {
  std::string text;
  for (const auto& [key, value] : settings) text += key + std::string(kBetween) + value + "\n";
  return text;
}

Settings read_settings(std::istream& lines) {
  Settings settings;
  for (std::string line; std::getline(lines, line);)
    if (const auto equals = line.find(kBetween); equals != std::string::npos)
      settings[line.substr(0, equals)] = line.substr(equals + kBetween.size());
  return settings;
}

std::string differences(const Settings& running, const Settings& given) {
  std::string text;
  for (const auto& [key, value] : running)
    if (const auto here = given.find(key); here != given.end() && here->second != value)
      text += "  " + key + ": it runs with " + value + ", not " + here->second + "\n";
  return text;
}

}  // namespace foretoken::cli
