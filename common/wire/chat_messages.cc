#include <utility>

#include "common/base/json.h"
#include "common/wire/client_codec.h"

namespace foretoken::wire {

std::string messages_json(std::span<const ChatMessage> messages) {
  OrderedJson all = OrderedJson::array();
  for (const auto& message : messages) {
    OrderedJson one = {{"role", message.role}, {"content", message.content}};
    const OrderedJson extra =
        message.extra.text.empty() ? OrderedJson::object() : OrderedJson::parse(message.extra.text);
    for (const auto& [name, value] : extra.items())
      if (name != "role" && name != "content") one[name] = value;
    all.push_back(std::move(one));
  }
  return to_text(all);
}

std::string variables_json(const ClientRequest& request) {
  const std::string& given = request.chat_template_kwargs.text;
  if (request.tools.text.empty()) return given;
  OrderedJson all = given.empty() ? OrderedJson::object() : OrderedJson::parse(given);
  all["tools"] = OrderedJson::parse(request.tools.text);
  return to_text(all);
}

ToolChoice tool_choice_of(const ClientRequest& request) {
  return request.tools.text.empty() ? ToolChoice::kNone : request.tool_choice;
}

std::optional<std::string> problem_of(const JsonList& list) {
  const auto value = parse_json(list.text, {.max_keys = kMaxOrderedKeys});
  if (!value.ok()) return "is no JSON: " + value.error().message;
  if (!value->is_array()) return "must be a JSON list";
  return std::nullopt;
}

std::optional<std::string> problem_of(const JsonObject& object) {
  const auto value = parse_json(object.text, {.max_keys = kMaxOrderedKeys});
  if (!value.ok()) return "is no JSON: " + value.error().message;
  if (!value->is_object()) return "must be a JSON object";
  return std::nullopt;
}

}  // namespace foretoken::wire
