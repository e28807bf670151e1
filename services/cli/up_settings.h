// The settings of a system, as `up` leaves them for a later `up` and `down` of its runtime folder.
// Opens no file.
#pragma once

#include <istream>
#include <map>
#include <string>

#include "common/config/load.h"

namespace foretoken::cli {

// "edge.port", or with declared models "target.chat.threads" for what may differ by model -> its
// value as a file would hold it. Every value in force, default or not: wherever each comes from,
// equal systems have equal ones. Without the runtime folder and the client's address: they say
// which system is meant, and there are several words for one.
using Settings = std::map<std::string, std::string>;
Settings settings_of(const LoadedConfig& loaded);

// A setting a line, and the settings of such lines.
std::string lines_of(const Settings& settings);
Settings read_settings(std::istream& lines);

// One line for each setting that the running system was started with otherwise; keys that only one
// of two versions of the program has do not count.
std::string differences(const Settings& running, const Settings& given);

}  // namespace foretoken::cli
