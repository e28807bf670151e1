#include "services/edge/router_request.h"

#include <string>
#include <utility>

#include "common/client/client.h"
#include "common/wire/client_codec.h"

namespace foretoken::edge {
namespace {

// The router names its own keys; a client reads about its fields.
std::string param_of(const std::string& key, std::span<const BodyField> fields) {
  if (key == "num_draft_tokens") return "speculation.draft_len";
  if (key == "proposer" || key == "acceptance" || key == "adaptive") return "speculation." + key;
  const std::string field = field_of(key, fields);
  return field == "token_ids" ? "prompt" : field;
}

}  // namespace

Error invalid_value(std::string message, std::string param) {
  return {ErrorCode::kInvalidValue, std::move(message), std::move(param)};
}

Result<bool> flag(const Json& body, const char* name, bool otherwise) {
  const auto found = body.find(name);
  if (found == body.end() || found->is_null()) return otherwise;
  if (!found->is_boolean())
    return invalid_value(std::string(name) + " must be true or false", name);
  return found->get<bool>();
}

const Json* given(const Json& body, const char* name) {
  const auto found = body.find(name);
  return found == body.end() || found->is_null() ? nullptr : &*found;
}

Result<std::int64_t> number(const Json& body,
                            const char* name,
                            const Limit& limit,
                            std::int64_t otherwise) {
  const Json* value = given(body, name);
  if (value == nullptr) return otherwise;
  if (value->is_number_integer()) {
    if (limit.is_off(value->get<double>())) return static_cast<std::int64_t>(limit.low);
    if (limit.contains(value->get<double>())) return value->get<std::int64_t>();
  }
  return invalid_value(std::string(name) + " is " + to_text(*value) + "; it must be " +
                           (limit.low < limit.high ? "an integer " : "") + range_text(limit),
                       name);
}

const OrderedJson& member(const OrderedJson& object, const char* name) {
  static const OrderedJson none;
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found == object.end() ? none : *found;
}

std::string text_or_empty(const OrderedJson& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

Result<void> read_speculation(const Json& body, Json& request) {
  const Json* speculation = given(body, "speculation");
  if (speculation == nullptr) return {};
  if (!speculation->is_object())
    return invalid_value("speculation must be an object", "speculation");
  for (const auto& [name, value] : speculation->items()) {
    if (value.is_null() || name == "report") continue;
    if (name == "enabled") {
      if (!value.is_boolean())
        return invalid_value("speculation.enabled must be true or false", "speculation.enabled");
      if (!value.get<bool>()) request["num_draft_tokens"] = 0;
    } else if (name == "draft_len") {
      if (request.value("num_draft_tokens", Json()) != 0) request["num_draft_tokens"] = value;
    } else if (name == "proposer" || name == "acceptance" || name == "adaptive") {
      request[name] = value;
    } else {
      return Error{ErrorCode::kUnsupportedParameter,
                   "speculation has no field " + name +
                       "; it has enabled, draft_len, proposer, adaptive and acceptance",
                   "speculation." + name};
    }
  }
  return {};
}

Result<wire::ClientRequest> router_request(const Json& request, std::span<const BodyField> fields) {
  const auto packed = Json::to_msgpack(request);
  auto outcome =
      wire::read_client_request({reinterpret_cast<const char*>(packed.data()), packed.size()});
  if (outcome.request.ok()) return std::move(outcome.request);
  Error error = outcome.request.error();
  if (error.code == ErrorCode::kMalformed) error.code = ErrorCode::kInvalidRequest;
  const std::string field = param_of(error.param, fields);
  if (field != error.param && error.message.starts_with(error.param))
    error.message = field + error.message.substr(error.param.size());
  error.param = field;
  return error;
}

Result<std::vector<wire::ClientRequest>> router_requests(Json request,
                                                         std::size_t n,
                                                         std::span<const BodyField> fields) {
  if (n > 1 && !request.contains("seed")) request["seed"] = new_request_id().low;
  std::vector<wire::ClientRequest> requests;
  for (std::size_t choice = 0; choice < n; ++choice) {
    if (choice > 0) request["choice"] = choice;
    auto whole = router_request(request, fields);
    if (!whole.ok()) return whole.error();
    requests.push_back(std::move(*whole));
  }
  return requests;
}

}  // namespace foretoken::edge
