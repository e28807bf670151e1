#include "services/edge/http_error.h"

#include <algorithm>

#include "common/client/client.h"

namespace foretoken::edge {
namespace {

constexpr const char* kInvalid = "invalid_request_error";
constexpr const char* kServer = "server_error";
constexpr std::uint32_t kOverloadedMs = 1000;  // until a large request is worth sending again

struct Mapping {
  ErrorCode from;
  unsigned status;
  const char* type;
  const char* code;
};
constexpr Mapping kMappings[] = {
    {ErrorCode::kInvalidRequest, 400, kInvalid, ""},
    {ErrorCode::kMalformed, 400, kInvalid, "invalid_json"},
    {ErrorCode::kInvalidValue, 400, kInvalid, "invalid_value"},
    {ErrorCode::kUnsupportedParameter, 400, kInvalid, "unsupported_parameter"},
    {ErrorCode::kContextLengthExceeded, 400, kInvalid, "context_length_exceeded"},
    {ErrorCode::kModelNotFound, 404, kInvalid, "model_not_found"},
    {ErrorCode::kNotFound, 404, kInvalid, ""},
    {ErrorCode::kQueueFull, 429, "rate_limit_error", "rate_limit_exceeded"},
    {ErrorCode::kDeadlineExceeded, 504, kServer, "deadline_exceeded"},
    {ErrorCode::kUnavailable, 503, kServer, "no_target"},
    {ErrorCode::kDraining, 503, kServer, "draining"},
    {ErrorCode::kOutOfMemory, 503, kServer, "out_of_memory"},
    {ErrorCode::kConfig, 503, kServer, "no_target"},
};

}  // namespace

HttpError http_error(const Error& error, std::uint32_t retry_after_ms) {
  HttpError http{.type = kServer,
                 .message = error.message,
                 .param = error.param,
                 .retry_after_ms = retry_after_ms};
  for (const Mapping& mapping : kMappings)
    if (mapping.from == error.code)
      http.status = mapping.status, http.type = mapping.type, http.code = mapping.code;
  if ((http.status == 429 || http.status == 503) && http.retry_after_ms == 0)
    http.retry_after_ms = 1000;
  return http;
}

HttpError http_error(const wire::ClientError& error) {
  return http_error(error_from(error), error.error.retry_after_ms);
}

HttpError http_error(unsigned status, const std::string& message) {
  return {.status = status,
          .type = status < 500 ? kInvalid : kServer,
          .code = {},
          .message = message,
          .param = {}};
}

HttpError about_field(HttpError error, std::string_view key, std::string_view field) {
  if (error.param != key) return error;
  if (error.message.starts_with(key)) error.message.replace(0, key.size(), field);
  error.param = field;
  return error;
}

HttpError overloaded_error() {
  HttpError error =
      http_error(503, "too many large requests at a time; this one has room again in a moment");
  error.code = "overloaded";
  error.retry_after_ms = kOverloadedMs;
  return error;
}

HttpHeaders retry_headers(const HttpError& error) {
  if (error.retry_after_ms > 0) {
    const std::uint32_t seconds = std::clamp((error.retry_after_ms + 999) / 1000, 1u, 60u);
    return {{"Retry-After", std::to_string(seconds)},
            {"retry-after-ms", std::to_string(error.retry_after_ms)}};
  }
  if (error.status >= 500) return {{"x-should-retry", "false"}};
  return {};
}

}  // namespace foretoken::edge
