// The flags of a request: one for each key of its listing (common/messages/client.h), so that a new
// parameter has its flag at once.
#pragma once

#include <CLI/CLI.hpp>
#include <set>
#include <string_view>

#include "common/messages/client.h"

namespace foretoken::cli {

// Adds them to `sub`, all but those of the keys in `without`. `request` gets what the flags say and
// must live as long as `sub`.
void add_request_flags(CLI::App* sub,
                       wire::ClientRequest& request,
                       const std::set<std::string_view>& without);

}  // namespace foretoken::cli
