#include "services/edge/anthropic.h"

#include <algorithm>
#include <utility>

#include "services/edge/router_request.h"

namespace foretoken::edge {
namespace {

using enum FieldUse;

constexpr BodyField kMessageFields[] = {
    {"model", kHonoured, "model", "a served name; another is 404"},
    {"messages", kHonoured, "",
     "roles user, assistant, system; content: a text, or blocks of type text"},
    {"system", kHonoured, "",
     "a text, or blocks of type text; lines of x-anthropic-billing-header are left out"},
    {"max_tokens", kHonoured, "max_tokens", "required"},
    {"stop_sequences", kHonoured, "stop", "at most 16 of 256 bytes"},
    {"temperature", kHonoured, "temperature"},
    {"top_p", kHonoured, "top_p"},
    {"top_k", kHonoured, "top_k"},
    {"stream", kHonoured, "", "server-sent events"},
    {"speculation", kHonoured, "", "of Foretoken: enabled, draft_len, proposer, adaptive"},
    {"seed", kHonoured, "seed", "of Foretoken: same answer with or without speculation"},
    {"tools", kRefused},
    {"tool_choice", kHonoured, "", "{\"type\": \"none\"}; others are refused"},
    {"thinking", kHonoured, "", "{\"type\": \"disabled\"}; others are refused"},
    {"output_config", kRefused},
    {"metadata", kIgnored},
    {"cache_control", kIgnored, "", "prefixes are found by their tokens"},
    {"context_management", kIgnored},
    {"service_tier", kIgnored},
    {"speed", kIgnored},
    {"container", kIgnored},
    {"diagnostics", kIgnored},
};

// A client writes here what changes with every request, at the head of the prompt: no prefix of it
// would ever be found again.
constexpr std::string_view kBillingLine = "x-anthropic-billing-header:";

// A text, or blocks of type text, joined by `between`.
Result<std::string> text_of(const Json& content,
                            const std::string& where,
                            std::string_view between) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array())
    return invalid_value(where + " must be a text or a list of blocks", where);
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const Json& block = content[i];
    const std::string place = where + "." + std::to_string(i);
    if (!block.is_object()) return invalid_value(place + " is no block", place);
    const Json type = block.value("type", Json());
    if (type == "redacted_thinking") continue;
    if (type != "text" || !block.value("text", Json()).is_string())
      return Error{ErrorCode::kUnsupportedParameter,
                   place + " is a block of type " + to_text(type) + "; only text is read", place};
    text += (i > 0 ? std::string(between) : "") + block["text"].get<std::string>();
  }
  return text;
}

std::string without_billing(const std::string& system) {
  std::string kept;
  for (std::size_t at = 0; at < system.size();) {
    const std::size_t end = std::min(system.find('\n', at), system.size() - 1) + 1;
    const std::string_view line = std::string_view(system).substr(at, end - at);
    if (!line.starts_with(kBillingLine)) kept += line;
    at = end;
  }
  return kept;
}

Result<Json> messages_of(const Json& body) {
  Json messages = Json::array();
  if (const Json system = body.value("system", Json()); !system.is_null()) {
    const auto text = text_of(system, "system", "\n");
    if (!text.ok()) return text.error();
    if (std::string kept = without_billing(*text); !kept.empty())
      messages.push_back({{"role", "system"}, {"content", std::move(kept)}});
  }
  const Json given = body.value("messages", Json());
  if (!given.is_array() || given.empty())
    return Error{ErrorCode::kInvalidRequest, "messages must be a list that is not empty",
                 "messages"};
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string where = "messages." + std::to_string(i);
    if (!given[i].is_object()) return invalid_value(where + " is no message", where);
    const Json role = given[i].value("role", Json());
    if (role != "user" && role != "assistant" && role != "system")
      return invalid_value(
          where + ".role is " + to_text(role) + "; it must be user, assistant or system",
          where + ".role");
    const auto text = text_of(given[i].value("content", Json()), where + ".content", "");
    if (!text.ok()) return text.error();
    messages.push_back({{"role", role}, {"content", *text}});
  }
  if (messages.back()["role"] == "assistant")
    return Error{
        ErrorCode::kUnsupportedParameter,
        "the last message is the assistant's; an answer that continues it is not supported",
        "messages"};
  return messages;
}

Result<void> check_options(const Json& body) {
  for (const auto& [name, allowed] :
       {std::pair{"tool_choice", "none"}, std::pair{"thinking", "disabled"}}) {
    const Json option = body.value(name, Json());
    if (option.is_null()) continue;
    if (!option.is_object() || option.value("type", Json()) != allowed)
      return Error{
          ErrorCode::kUnsupportedParameter,
          std::string(name) + " is not supported; it may be {\"type\": \"" + allowed + "\"}", name};
  }
  return {};
}

OrderedJson message_error_json(const HttpError& error, const std::string& request_id) {
  const unsigned status = anthropic_status(error);
  const char* type = status == 401   ? "authentication_error"
                     : status == 403 ? "permission_error"
                     : status == 404 ? "not_found_error"
                     : status == 429 ? "rate_limit_error"
                     : status == 504 ? "timeout_error"
                     : status == 529 ? "overloaded_error"
                     : status < 500  ? "invalid_request_error"
                                     : "api_error";
  return {{"type", "error"},
          {"error", {{"type", type}, {"message", error.message}}},
          {"request_id", request_id}};
}

std::string message_event(const char* type, OrderedJson body) {
  OrderedJson whole = {{"type", type}};
  whole.update(body);
  return std::string("event: ") + type + "\ndata: " + to_text(whole) + "\n\n";
}

struct Stop {
  const char* reason;
  OrderedJson sequence;  // the text that was matched, or null
};
Stop stop_of(const wire::ClientReply& reply) {
  if (const auto* text = std::get_if<std::string>(&reply.stop_reason))
    return {"stop_sequence", *text};
  return {reply.finish_reason == "length" ? "max_tokens" : "end_turn", nullptr};
}

OrderedJson message_usage_json(const wire::Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"output_tokens", usage.completion_tokens},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"cache_creation_input_tokens", 0}};
}

class MessageEncoder final : public Encoder {
 public:
  MessageEncoder(std::string model, std::string id, std::string request_id)
      : model_(std::move(model)), id_("msg_" + std::move(id)), request_id_(std::move(request_id)) {}

  std::string error_body(const HttpError& error) const override {
    return anthropic_error_body(error, request_id_);
  }
  std::string error_event(const HttpError& error) const override {
    return "event: error\ndata: " + to_text(message_error_json(error, request_id_)) + "\n\n";
  }
  std::string ping() const override { return message_event("ping", OrderedJson::object()); }

  std::string whole(const std::vector<wire::ClientReply>& replies) override {
    const wire::ClientReply& reply = replies.front();
    const Stop stop = stop_of(reply);
    OrderedJson body = message(reply.model);
    body["content"] = OrderedJson::array({{{"type", "text"}, {"text", reply.text}}});
    body["stop_reason"] = stop.reason;
    body["stop_sequence"] = stop.sequence;
    body["usage"] = message_usage_json(reply.usage);
    return to_text(body);
  }

  std::string on_piece(std::size_t /*choice*/, const wire::ClientPiece& piece) override {
    return begin() + delta(piece.text);
  }
  std::string on_reply(std::size_t /*choice*/, const wire::ClientReply& reply) override {
    const Stop stop = stop_of(reply);
    std::string events = begin() + delta(reply.text);
    events += message_event("content_block_stop", {{"index", 0}});
    events +=
        message_event("message_delta",
                      {{"delta", {{"stop_reason", stop.reason}, {"stop_sequence", stop.sequence}}},
                       {"usage", message_usage_json(reply.usage)}});
    return events + message_event("message_stop", OrderedJson::object());
  }
  std::string end() override { return {}; }

 private:
  OrderedJson message(const std::string& model) const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", model},
            {"content", OrderedJson::array()},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr}};
  }
  // Before the first text. The counts are known at the end.
  std::string begin() {
    if (std::exchange(has_begun_, true)) return {};
    OrderedJson start = message(model_);
    start["usage"] = message_usage_json({});
    return message_event("message_start", {{"message", std::move(start)}}) +
           message_event("content_block_start",
                         {{"index", 0}, {"content_block", {{"type", "text"}, {"text", ""}}}});
  }
  static std::string delta(const std::string& text) {
    if (text.empty()) return {};
    return message_event("content_block_delta",
                         {{"index", 0}, {"delta", {{"type", "text_delta"}, {"text", text}}}});
  }

  std::string model_, id_, request_id_;
  bool has_begun_ = false;
};

}  // namespace

std::span<const BodyField> message_fields() { return kMessageFields; }

Result<AnthropicAsk> read_messages(const Json& body, bool strict) {
  if (const auto good = check_options(body); !good.ok()) return good.error();
  auto sorted = sort_fields(body, kMessageFields, strict);
  if (!sorted.ok()) return sorted.error();
  AnthropicAsk ask;
  ask.ignored = std::move(sorted->ignored);
  Json request = std::move(sorted->request);
  if (!request.contains("max_tokens"))
    return Error{ErrorCode::kInvalidRequest, "max_tokens is required", "max_tokens"};
  const auto stream = flag(body, "stream");
  if (!stream.ok()) return stream.error();
  ask.generation.stream = *stream;
  if (const auto done = read_speculation(body, request); !done.ok()) return done.error();
  auto messages = messages_of(body);
  if (!messages.ok()) return messages.error();
  request["messages"] = std::move(*messages);
  auto whole = router_request(request, kMessageFields);
  if (!whole.ok()) return whole.error();
  ask.model = whole->model;
  ask.generation.choices.push_back(std::move(*whole));
  return ask;
}

Result<wire::ClientRequest> read_count(const Json& body) {
  Json request = {{"op", "tokenize"}};
  if (const Json model = body.value("model", Json()); !model.is_null()) request["model"] = model;
  auto messages = messages_of(body);
  if (!messages.ok()) return messages.error();
  request["messages"] = std::move(*messages);
  return router_request(request, kMessageFields);
}

std::unique_ptr<Encoder> message_encoder(const AnthropicAsk& ask,
                                         std::string id,
                                         std::string request_id) {
  return std::make_unique<MessageEncoder>(ask.model, std::move(id), std::move(request_id));
}

std::string anthropic_error_body(const HttpError& error, const std::string& request_id) {
  return to_text(message_error_json(error, request_id));
}

unsigned anthropic_status(const HttpError& error) {
  return error.status == 503 || (error.status == 429 && error.code == "rate_limit_exceeded")
             ? 529
             : error.status;
}

}  // namespace foretoken::edge
