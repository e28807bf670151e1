// What `up` can do with CURVE keys. All its services read one configuration and so share one key,
// while a key has one name and one role: enough for a client door on the network, too little for
// services that join over TCP. Reads the two files.
#pragma once

#include <optional>

#include "common/base/result.h"
#include "common/config/load.h"

namespace foretoken::cli {

// What speaks against starting with these keys, before any service is started; nothing if they will
// do, or there are none.
std::optional<Error> key_trouble(const LoadedConfig& loaded);

}  // namespace foretoken::cli
