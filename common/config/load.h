// File, environment and flags -> Config, or every error at once. Flag (--set
// speculation.draft_len=6) beats variable (FORETOKEN_SPECULATION_DRAFT_LEN) beats file beats
// default; and within one of these, what names a model (speculation.NAME.draft_len) beats what does
// not. Reads files and the environment; called once, at start.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/nearest.h"
#include "common/config/sections.h"

namespace foretoken {

struct ConfigSources {
  std::optional<std::string> file;  // --config; nothing = the usual places, see find_config_file()
  // All variables; only FORETOKEN_SECTION_KEY of known sections are read.
  std::map<std::string, std::string> environment;
  std::vector<std::string> settings;  // "section.key=value", as on the command line
};

struct LoadedConfig {
  Config config;  // with declared models: what holds for all of them
  // By the NAME of [model.NAME]: what the services of that model read. Empty: the one of [model].
  std::map<std::string, Config> models;
  std::string file;  // the one read, empty if none
  // "speculation.draft_len" -> "flag", "environment", "file:LINE" or "default"; and
  // "speculation.NAME.draft_len", if the value of that model is its own.
  std::map<std::string, std::string> origin;
  // One sentence each, with file and line where there is one; empty = good.
  std::vector<std::string> errors;
};

LoadedConfig load_config(const ConfigSources& sources);
// --config's default: $FORETOKEN_CONFIG, $XDG_CONFIG_HOME/foretoken/foretoken.toml (or ~/.config),
// /etc/foretoken/foretoken.toml.
std::optional<std::string> find_config_file(const std::map<std::string, std::string>& environment);
std::map<std::string, std::string> process_environment();
// "FORETOKEN_SPECULATION_DRAFT_LEN"; with an empty key, what the variables of the section begin
// with.
std::string environment_variable(const std::string& section, const std::string& key);

}  // namespace foretoken
