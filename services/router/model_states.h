// What clients are told of the models that targets serve. Pure.
#pragma once

#include <string>
#include <vector>

#include "common/messages/client.h"

#include "services/router/pool.h"

namespace foretoken {

// By name; `default_model` is router.default_model.
std::vector<wire::ModelStatus> model_states(const Pool& pool,
                                            const std::string& default_model,
                                            TimePoint now);

}  // namespace foretoken
