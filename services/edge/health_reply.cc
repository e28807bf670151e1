#include "services/edge/health_reply.h"

#include <string>
#include <utility>

#include "common/base/json.h"
#include "services/edge/http_error.h"
#include "services/edge/openai.h"

namespace foretoken::edge {

HttpReply unhealthy_reply(const WarmModels::Reason& reason, HttpHeaders headers) {
  HttpError error = http_error(Error{ErrorCode::kUnavailable, reason.sentence});
  const std::string state(name_of(reason.state));
  error.code = reason.state == UnreadyState::kDraining ? state : "model_" + state;
  Json body = Json::parse(openai_error_body(error));
  body["status"] = state;
  HttpReply reply{.status = error.status, .body = to_text(body), .headers = std::move(headers)};
  for (auto& header : retry_headers(error)) reply.headers.push_back(std::move(header));
  return reply;
}

}  // namespace foretoken::edge
