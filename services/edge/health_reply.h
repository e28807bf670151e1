// The reply of GET /health while no request can be served. Pure.
#pragma once

#include "services/edge/http_types.h"
#include "services/edge/warm_models.h"

namespace foretoken::edge {

// 503 in OpenAI's form, with the reason's state as `status` beside the error. The error's code is
// "draining", or the state behind "model_". `headers`: those that every reply has.
HttpReply unhealthy_reply(const WarmModels::Reason& reason, HttpHeaders headers);

}  // namespace foretoken::edge
