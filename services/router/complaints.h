// What is wrong with a worker, as sentences for people. Pure.
#pragma once

#include <string>

#include "services/router/pool.h"

namespace foretoken {

// Why it is not used with some of the others, by name, or that it hangs; empty if all is well.
std::string complaints_about(const Worker& worker, const Pool& pool);

}  // namespace foretoken
