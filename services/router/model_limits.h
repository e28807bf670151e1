// What only the model can tell about a request: how it is sampled where the request does not say,
// and whether it fits. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "common/base/result.h"
#include "common/base/sampling_params.h"
#include "common/messages/client.h"
#include "common/messages/messages.h"

namespace foretoken {

// The key of the request that held the prompt.
std::string prompt_key(const wire::ClientRequest& request);

// The parameters of the request at a target of this model, with the model's defaults, for a prompt
// of n_prompt tokens. An error: the context or the vocabulary is too small for it.
Result<SamplingParams> params_at(const wire::Hello& target,
                                 const wire::ClientRequest& request,
                                 std::size_t n_prompt);

}  // namespace foretoken
