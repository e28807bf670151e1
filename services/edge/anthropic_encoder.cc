// Answers of the router -> Anthropic's bodies and events.
#include <utility>
#include <variant>

#include "services/edge/anthropic.h"
#include "services/edge/thought_signature.h"

namespace foretoken::edge {
namespace {

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

std::string message_event(const char* type, const OrderedJson& body) {
  OrderedJson whole = {{"type", type}};
  whole.update(body);
  return std::string("event: ") + type + "\ndata: " + to_text(whole) + "\n\n";
}

struct Stop {
  const char* reason;
  OrderedJson sequence;  // the text that was matched, or null
};
// `max_tokens` of the request: an answer that is cut with fewer has reached the end of the context.
Stop stop_of(const wire::ClientReply& reply,
             const std::string& finish_reason,
             std::uint32_t max_tokens) {
  if (finish_reason == "tool_calls") return {"tool_use", nullptr};
  if (const auto* text = std::get_if<std::string>(&reply.stop_reason))
    return {"stop_sequence", *text};
  if (finish_reason != "length") return {"end_turn", nullptr};
  const bool has_room = reply.usage.completion_tokens < max_tokens;
  return {has_room ? "model_context_window_exceeded" : "max_tokens", nullptr};
}

OrderedJson message_usage_json(const wire::Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"output_tokens", usage.completion_tokens},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"cache_creation_input_tokens", 0}};
}

// What a block is when it begins.
OrderedJson new_block(const AnswerEvent& event) {
  if (const auto* call = std::get_if<CallBegin>(&event))
    return {{"type", "tool_use"},
            {"id", call->id},
            {"name", call->name},
            {"input", OrderedJson::object()}};
  if (std::holds_alternative<ThinkingEvent>(event))
    return {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
  return {{"type", "text"}, {"text", ""}};
}

// The index of the alternative whose block takes an event.
std::size_t kind_of(const AnswerEvent& event) {
  return std::holds_alternative<CallArguments>(event) || std::holds_alternative<CallEnd>(event)
             ? AnswerEvent(CallBegin{}).index()
             : event.index();
}

class MessageEncoder final : public Encoder {
 public:
  MessageEncoder(const AnthropicAsk& ask, std::string id, std::string request_id)
      : model_(ask.model),
        id_("msg_" + std::move(id)),
        request_id_(std::move(request_id)),
        hides_thoughts_(ask.hides_thoughts),
        max_tokens_(ask.max_tokens),
        reader_(ask.rules) {}

  std::string error_body(const HttpError& error) const override {
    return anthropic_error_body(error, request_id_);
  }
  unsigned error_status(const HttpError& error) const override { return anthropic_status(error); }
  std::string error_event(const HttpError& error) override {
    return "event: error\ndata: " + to_text(message_error_json(error, request_id_)) + "\n\n";
  }
  std::string ping() override { return message_event("ping", OrderedJson::object()); }

  std::string whole(const std::vector<wire::ClientReply>& replies) override {
    const wire::ClientReply& reply = replies.front();
    const AnswerEvents events = reader_.on_reply(reply);
    const Stop stop = stop_of(reply, reader_.finish_reason(reply), max_tokens_);
    OrderedJson body = message(reply.model);
    body["content"] = blocks_of(events);
    body["stop_reason"] = stop.reason;
    body["stop_sequence"] = stop.sequence;
    body["usage"] = message_usage_json(reply.usage);
    return to_text(body);
  }

  std::string on_piece(std::size_t /*choice*/, const wire::ClientPiece& piece) override {
    std::string events = begin(piece.model, {.prompt_tokens = piece.prompt_tokens});
    return events + write(reader_.on_piece(piece));
  }
  std::string on_reply(std::size_t /*choice*/, const wire::ClientReply& reply) override {
    std::string events = begin(reply.model, {.prompt_tokens = reply.usage.prompt_tokens,
                                             .cached_tokens = reply.usage.cached_tokens});
    events += write(reader_.on_reply(reply));
    if (n_blocks_ == 0) events += open(TextEvent{});
    events += close();
    const Stop stop = stop_of(reply, reader_.finish_reason(reply), max_tokens_);
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
  // Before the first block. What of the prompt was cached is known at the end.
  std::string begin(const std::string& model, const wire::Usage& usage) {
    if (std::exchange(has_begun_, true)) return {};
    OrderedJson start = message(model.empty() ? model_ : model);
    start["usage"] = message_usage_json(usage);
    return message_event("message_start", {{"message", std::move(start)}});
  }

  OrderedJson blocks_of(const AnswerEvents& events) const {
    OrderedJson blocks = OrderedJson::array();
    std::size_t kind = std::variant_npos;
    std::string text;  // of the last block
    const auto finish = [&] {
      if (blocks.empty()) return;
      OrderedJson& last = blocks.back();
      if (last["type"] == "text") {
        last["text"] = text;
      } else if (last["type"] == "thinking") {
        last["thinking"] = hides_thoughts_ ? std::string() : text;
        last["signature"] = thought_signature(text);
      } else if (parse_json(text).ok()) {  // not of a call that was cut, nor of what is no JSON
        last["input"] = OrderedJson::parse(text);
      }
      text.clear();
    };
    for (const AnswerEvent& event : events.list()) {
      if (kind_of(event) != kind || std::holds_alternative<CallBegin>(event)) {
        finish();
        blocks.push_back(new_block(event));
        kind = kind_of(event);
      }
      text += text_of(event);
    }
    if (blocks.empty()) blocks.push_back(new_block(TextEvent{}));
    finish();
    return blocks;
  }
  static std::string text_of(const AnswerEvent& event) {
    if (const auto* text = std::get_if<TextEvent>(&event)) return text->text;
    if (const auto* thinking = std::get_if<ThinkingEvent>(&event)) return thinking->text;
    if (const auto* arguments = std::get_if<CallArguments>(&event)) return arguments->text;
    return {};
  }

  std::string write(const AnswerEvents& events) {
    std::string written;
    for (const AnswerEvent& event : events.list()) {
      if (kind_of(event) != kind_ || std::holds_alternative<CallBegin>(event)) {
        written += close();
        written += open(event);
      }
      if (const auto* thinking = std::get_if<ThinkingEvent>(&event)) thought_ += thinking->text;
      written += delta(event);
    }
    return written;
  }
  std::string open(const AnswerEvent& event) {
    kind_ = kind_of(event);
    return message_event("content_block_start",
                         {{"index", n_blocks_++}, {"content_block", new_block(event)}});
  }
  std::string close() {
    if (n_blocks_ == 0) return {};
    std::string written;
    if (kind_ == AnswerEvent(ThinkingEvent{}).index())
      written = block_delta({{"type", "signature_delta"},
                             {"signature", thought_signature(std::exchange(thought_, {}))}});
    return written + message_event("content_block_stop", {{"index", n_blocks_ - 1}});
  }
  std::string delta(const AnswerEvent& event) const {
    const std::string text = text_of(event);
    if (text.empty()) return {};
    if (std::holds_alternative<TextEvent>(event))
      return block_delta({{"type", "text_delta"}, {"text", text}});
    if (std::holds_alternative<CallArguments>(event))
      return block_delta({{"type", "input_json_delta"}, {"partial_json", text}});
    return hides_thoughts_ ? std::string()
                           : block_delta({{"type", "thinking_delta"}, {"thinking", text}});
  }
  std::string block_delta(OrderedJson delta) const {
    return message_event("content_block_delta",
                         {{"index", n_blocks_ - 1}, {"delta", std::move(delta)}});
  }

  const std::string model_, id_, request_id_;
  const bool hides_thoughts_;
  const std::uint32_t max_tokens_;
  AnswerReader reader_;
  bool has_begun_ = false;
  std::size_t n_blocks_ = 0;
  std::size_t kind_ = std::variant_npos;  // of the block that is open
  std::string thought_;                   // of a thinking block so far
};

}  // namespace

std::unique_ptr<Encoder> message_encoder(const AnthropicAsk& ask,
                                         std::string id,
                                         std::string request_id) {
  return std::make_unique<MessageEncoder>(ask, std::move(id), std::move(request_id));
}

Json anthropic_model(const ListedModel& model) {
  return {{"type", "model"},
          {"id", model.name},
          {"display_name", model.name},
          {"created_at", rfc3339(model.since)},
          {"lifecycle", "active"},
          {"max_input_tokens", model.max_len},
          {"max_tokens", model.max_len}};
}

Json anthropic_models(const std::vector<ListedModel>& models) {
  Json data = Json::array();
  for (const auto& model : models) data.push_back(anthropic_model(model));
  return {{"first_id", data.empty() ? Json() : data.front()["id"]},
          {"last_id", data.empty() ? Json() : data.back()["id"]},
          {"has_more", false},
          {"data", std::move(data)}};
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
