// Which of the models of a status a name of a request means.
#pragma once

#include <string>

#include "common/base/result.h"
#include "common/messages/client.h"

namespace foretoken::edge {

// "default" is the default model's, too. Null: none that takes requests now.
const wire::ModelStatus* model_named(const Result<wire::StatusReply>& status,
                                     const std::string& name);

}  // namespace foretoken::edge
