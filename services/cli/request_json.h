// A request written as JSON: its keys are those of a client's map, and so are its checks.
#pragma once

#include <string>

#include "common/base/json.h"
#include "common/base/result.h"
#include "common/messages/client.h"

namespace foretoken::cli {

// Ordered, as a chat template shows tools to the model in the order of their keys.
Result<wire::ClientRequest> request_of_json(const OrderedJson& request);
// Without what is as it is by default and was not given.
Json json_of_request(const wire::ClientRequest& request);

// [{"role", "content"}, ...] as the text of a file; "-" is standard input. The error names the
// file.
Result<std::vector<wire::ChatMessage>> read_messages(const std::string& file);

}  // namespace foretoken::cli
