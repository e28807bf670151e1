// The listing for people: --print-config, configs/foretoken.toml, docs/reference/configuration.md.
#pragma once

#include <string>

#include "common/config/load.h"

namespace foretoken {

std::string default_config_toml();  // every key with its default and sentence
std::string configuration_page();   // markdown reference
std::string print_config(
    const LoadedConfig& loaded);  // every value with its origin, itself valid TOML

}  // namespace foretoken
