// The listing for programs: a JSON Schema (draft 2020-12), by which an editor completes, explains
// and checks a configuration while it is written. It judges each key by itself and refuses nothing
// that load_config() takes; what no single key can know (check.h), names that are there twice and
// 8.0 for a whole number are found by load_config() alone.
#pragma once

#include <string>

namespace foretoken {

std::string configuration_schema();

}  // namespace foretoken
