// What --host says: where the router of a system elsewhere takes clients.
#pragma once

#include <string>

#include "common/base/result.h"

namespace foretoken::cli {

enum class Names { kLookUp, kRefuse };

// "10.0.0.1", "gpu1", "gpu1:5655", "[::1]:5555", "tcp://...", "ipc://PATH" -> an endpoint with a
// numeric address, of port 5555 if it says none. To look a name up may take seconds. The error
// blames --host.
Result<std::string> endpoint_of_host(const std::string& host, Names names = Names::kLookUp);

}  // namespace foretoken::cli
