// Which of the models of a status a name of a request means.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/messages/client.h"

namespace foretoken::edge {

// "default" is the default model's, too. Null: none that takes requests now.
const wire::ModelStatus* model_named(const wire::StatusReply& status, const std::string& name);
const wire::ModelStatus* model_named(const Result<wire::StatusReply>& status,
                                     const std::string& name);
// The name that a request means which names this model, or none.
std::string name_or_default(const std::string& model);
// Its name and the aliases that are names of their own, without those that stand for many.
std::vector<std::string> listed_names(const wire::ModelStatus& model);

}  // namespace foretoken::edge
