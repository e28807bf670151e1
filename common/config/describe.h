// The listing for people: --print-config, configs/foretoken.toml, docs/reference/configuration.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/config/load.h"

namespace foretoken {

std::string default_config_toml();  // every key with its default and sentence
std::string configuration_page();   // markdown reference
std::string configuration_manual(std::string_view release);  // foretoken.toml(5), in roff
std::string print_config(
    const LoadedConfig& loaded);  // every value with its origin, itself valid TOML

// For completion: "speculation.proposer" and what it may be, where that is a short list.
struct KeyChoices {
  std::string key;
  std::vector<std::string> choices;
};
std::vector<KeyChoices> keys_with_choices();

}  // namespace foretoken
