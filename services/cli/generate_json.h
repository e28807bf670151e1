// What `generate --json` prints: answers as the router gave them, each with its times and counts a
// second time as `timings`, the object that readers of llama.cpp's answers know. Pure.
#pragma once

#include <vector>

#include "common/base/json.h"
#include "common/messages/client.h"

namespace foretoken::cli {

// One answer is the document itself; several are a list in it. There is at least one.
OrderedJson generate_json(const std::vector<wire::ClientReply>& replies);

}  // namespace foretoken::cli
