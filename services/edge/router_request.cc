#include "services/edge/router_request.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>

#include "common/client/client.h"
#include "common/messages/speculation_object.h"
#include "common/wire/client_codec.h"

namespace foretoken::edge {
namespace {

// "enabled, draft_len, proposer, adaptive, acceptance"
std::string members_text() {
  std::string text = "enabled";
  for (const auto& member : wire::kSpeculationMembers) text += ", " + std::string(member.name);
  return text;
}

// The router names its own keys; a client reads about its fields.
std::string param_of(const std::string& key, std::span<const BodyField> fields) {
  const bool has_field = std::any_of(fields.begin(), fields.end(),
                                     [&](const BodyField& field) { return field.key == key; });
  for (const auto& member : wire::kSpeculationMembers)
    if (member.key == key && !has_field) return "speculation." + std::string(member.name);
  const std::string field = field_of(key, fields);
  return field == "token_ids" ? "prompt" : field;
}

// What a member of a request takes beside its own size.
std::size_t bytes_in(const std::string& text) { return text.size(); }
std::size_t bytes_in(const wire::JsonList& list) { return list.text.size(); }
std::size_t bytes_in(const wire::JsonObject& object) { return object.text.size(); }
std::size_t bytes_in(const wire::ChatMessage& message) {
  return message.role.size() + message.content.size() + message.extra.text.size();
}
template <class T>
std::size_t bytes_in(const std::vector<T>& list);
template <class T>
std::size_t bytes_in(const T&) {
  return 0;
}
template <class T>
std::size_t bytes_in(const std::vector<T>& list) {
  std::size_t bytes = list.size() * sizeof(T);
  if constexpr (!std::is_trivially_copyable_v<T>)
    for (const T& each : list) bytes += bytes_in(each);
  return bytes;
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

Result<void> check_object(const OrderedJson& value, const std::string& name) {
  if (value.is_null() || value.is_object()) return {};
  return invalid_value(name + " is " + to_text(value) + "; it must be an object", name);
}

Result<void> read_speculation(const Json& body, Json& request) {
  const Json* speculation = given(body, "speculation");
  if (speculation == nullptr) return {};
  if (!speculation->is_object())
    return invalid_value("speculation must be an object", "speculation");
  for (const auto& [name, value] : speculation->items()) {
    if (value.is_null() || name == "report" || name == "enabled") continue;
    const auto member =
        std::find_if(std::begin(wire::kSpeculationMembers), std::end(wire::kSpeculationMembers),
                     [&, &name = name](const auto& each) { return each.name == name; });
    if (member == std::end(wire::kSpeculationMembers))
      return Error{ErrorCode::kUnsupportedParameter,
                   "speculation has no field " + name + "; it has " + members_text(),
                   "speculation." + name};
    request[std::string(member->key)] = value;
  }
  const Json* enabled = given(*speculation, "enabled");
  if (enabled == nullptr) return {};
  if (!enabled->is_boolean())
    return invalid_value("speculation.enabled must be true or false", "speculation.enabled");
  if (!enabled->get<bool>()) request["num_draft_tokens"] = 0;
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

Result<std::size_t> n_choices(const Json& body, const char* name, const BodyRules& rules) {
  const auto n = number(body, name, from_to(1, static_cast<double>(rules.max_choices)), 1);
  if (n.ok()) return static_cast<std::size_t>(*n);
  Error error = n.error();
  error.message += " (edge.max_choices)";
  return error;
}

Error too_large(std::size_t max_request_bytes) {
  return {
      ErrorCode::kInvalidValue,
      "this body becomes more than " + std::to_string(max_request_bytes >> 20) +
          " MiB of requests (edge.max_bodies_mib): each answer to each prompt has a copy of all "
          "that they share; ask for less in one body"};
}

std::size_t bytes_of(std::span<const wire::ClientRequest> requests) {
  std::size_t bytes = 0;
  for (const wire::ClientRequest& request : requests) {
    bytes += sizeof request;
    wire::ClientRequest::fields(request, [&](const char*, const auto& member, const auto&...) {
      bytes += bytes_in(member);
    });
  }
  return bytes;
}

Result<std::vector<wire::ClientRequest>> router_requests(const WantedAnswers& wanted,
                                                         std::span<const BodyField> fields,
                                                         const BodyRules& rules) {
  std::vector<wire::ClientRequest> requests;
  std::size_t n_bytes = 0;
  for (const Json& prompt : wanted.prompts) {
    Json request = wanted.shared;
    request.update(prompt);
    if (wanted.n > 1 && !request.contains("seed")) request["seed"] = new_request_id().low;
    for (std::size_t choice = 0; choice < wanted.n; ++choice) {
      if (choice > 0) request["choice"] = choice;
      auto whole = router_request(request, fields);
      if (!whole.ok()) return whole.error();
      n_bytes += bytes_of({&*whole, 1});
      if (n_bytes > rules.max_request_bytes) return too_large(rules.max_request_bytes);
      requests.push_back(std::move(*whole));
    }
  }
  return requests;
}

}  // namespace foretoken::edge
