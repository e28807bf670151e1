// Answers of the router -> OpenAI's response objects and their events.
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "services/edge/openai.h"
#include "services/edge/responses.h"

namespace foretoken::edge {
namespace {

OrderedJson response_usage_json(const wire::Usage& usage, std::uint32_t n_reasoning) {
  return {
      {"input_tokens", usage.prompt_tokens},
      {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}}},
      {"output_tokens", usage.completion_tokens},
      {"output_tokens_details", {{"reasoning_tokens", n_reasoning}}},
      {"total_tokens", usage.total_tokens}};
}

// Of OpenAI's closed list.
const char* failure_code(const HttpError& error) {
  return error.status == 429  ? "rate_limit_exceeded"
         : error.status < 500 ? "invalid_prompt"
                              : "server_error";
}

// The object with these members behind its own, which it has.
std::string text_with(const OrderedJson& object, std::string_view members) {
  std::string text = to_text(object);
  text.back() = ',';
  return text.append(members) += '}';
}

// An item of the output while it grows: a message, thoughts or a call.
struct OutputItem {
  enum class Kind : std::uint8_t { kMessage, kReasoning, kCall };
  Kind kind = Kind::kMessage;
  std::string id;
  std::string call_id, name;  // of a call
  std::string text;           // or the arguments
  OrderedJson logprobs = OrderedJson::array();

  OrderedJson part() const {
    if (kind == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
    return {{"type", "output_text"},
            {"text", text},
            {"annotations", OrderedJson::array()},
            {"logprobs", logprobs}};
  }
  // Of one that has just begun nothing has been said yet.
  OrderedJson json(const char* status, bool is_new = false) const {
    OrderedJson content = OrderedJson::array();
    if (!is_new) content.push_back(part());
    switch (kind) {
      case Kind::kReasoning:
        return {{"id", id},
                {"type", "reasoning"},
                {"status", status},
                {"summary", OrderedJson::array()},
                {"content", std::move(content)}};
      case Kind::kCall:
        return {{"id", id},     {"type", "function_call"}, {"status", status}, {"call_id", call_id},
                {"name", name}, {"arguments", text}};
      default:
        return {{"id", id},
                {"type", "message"},
                {"role", "assistant"},
                {"status", status},
                {"content", std::move(content)}};
    }
  }
};

class ResponsesEncoder final : public Encoder {
 public:
  ResponsesEncoder(const ResponsesOptions& ask, std::string id, std::int64_t created)
      : ask_(ask), id_(std::move(id)), created_(created), reader_(ask.rules), model_(ask.model) {}

  std::string error_body(const HttpError& error) const override { return openai_error_body(error); }
  // OpenAI's flat form and the nested one, which its own client raises; then the answer as far as
  // it came, for clients that look at that alone.
  std::string error_event(const HttpError& error) override {
    OrderedJson body = OrderedJson::parse(openai_error_body(error));
    for (const char* key : {"code", "message", "param"}) body[key] = body["error"][key];
    std::string events = begin({});
    events += event("error", body);
    return events += response_event("response.failed", failed(error));
  }

  // Written as a stream is, of which the last object is the answer.
  std::string whole(const std::vector<wire::ClientReply>& replies) override {
    finish(replies.front());
    return text_with(ended(replies.front()), ask_.echo);
  }
  std::string on_piece(std::size_t /*choice*/, const wire::ClientPiece& piece) override {
    std::string events = begin(piece.model);  // one by one: events are numbered
    return events += write(reader_.on_piece(piece), piece.logprobs);
  }
  std::string on_reply(std::size_t /*choice*/, const wire::ClientReply& reply) override {
    std::string events = begin(reply.model);
    events += finish(reply);
    const OrderedJson response = ended(reply);
    const std::string type = "response." + response["status"].get<std::string>();
    return events += response_event(type.c_str(), response);
  }
  std::string end() override { return "data: [DONE]\n\n"; }
  std::string ping() override {
    std::string events = begin({});
    if (!events.empty()) return events;
    return response_event("response.in_progress", unfinished("in_progress", "in_progress"));
  }

 private:
  using Kind = OutputItem::Kind;

  std::string event(const char* type, const OrderedJson& more) {
    OrderedJson body = {{"type", type}, {"sequence_number", n_events_++}};
    body.update(more);
    return event_of(type, to_text(body));
  }
  static std::string event_of(const char* type, const std::string& body) {
    return std::string("event: ") + type + "\ndata: " + body + "\n\n";
  }
  std::string response_event(const char* type, const OrderedJson& response) {
    const OrderedJson body = {{"type", type}, {"sequence_number", n_events_++}};
    return event_of(type, text_with(body, "\"response\":" + text_with(response, ask_.echo)));
  }
  // Of the item that is open.
  std::string item_event(const char* type, const OrderedJson& more) {
    OrderedJson body = {{"item_id", item_->id}, {"output_index", output_.size()}};
    if (item_->kind != Kind::kCall) body["content_index"] = 0;
    body.update(more);
    return event(type, body);
  }

  std::string begin(const std::string& model) {
    if (!model.empty()) model_ = model;
    if (std::exchange(has_begun_, true)) return {};
    const OrderedJson response = object(model_, "in_progress");
    std::string events = response_event("response.created", response);
    return events += response_event("response.in_progress", response);
  }
  // All that is left of an answer. One without any item has an empty message.
  std::string finish(const wire::ClientReply& reply) {
    std::string events = write(reader_.on_reply(reply), reply.logprobs);
    if (!item_ && output_.empty()) events += open(TextEvent{});
    if (item_ && item_->kind == Kind::kMessage) add_end_logprobs();
    const bool is_cut = reader_.finish_reason(reply) == "length";
    return events += close(is_cut ? "incomplete" : status_of_open());
  }

  std::string write(const AnswerEvents& list, const std::vector<wire::LogprobEntry>& entries) {
    if (ask_.wants_logprobs)
      for (const auto& entry : logprobs_json(entries, ask_.n_top_logprobs))
        entries_.push_back(entry);
    std::string events;
    for (const AnswerEvent& each : list.list()) {
      const bool ends = std::holds_alternative<CallEnd>(each);
      if (!ends && (!item_ || kind_of(each) != item_->kind || is_call(each))) {
        events += close(status_of_open());
        events += open(each);
      }
      if (item_) events += delta(each);
      if (ends) events += close("completed");
    }
    return events;
  }
  // A call that another item follows before its own end broke.
  const char* status_of_open() const {
    return item_ && item_->kind == Kind::kCall ? "incomplete" : "completed";
  }
  static bool is_call(const AnswerEvent& each) { return std::holds_alternative<CallBegin>(each); }
  static Kind kind_of(const AnswerEvent& each) {
    return std::holds_alternative<TextEvent>(each)       ? Kind::kMessage
           : std::holds_alternative<ThinkingEvent>(each) ? Kind::kReasoning
                                                         : Kind::kCall;
  }

  std::string open(const AnswerEvent& each) {
    const Kind kind = kind_of(each);
    const char* prefix = kind == Kind::kMessage ? "msg_" : kind == Kind::kReasoning ? "rs_" : "fc_";
    item_ = OutputItem{.kind = kind, .id = prefix + id_ + std::to_string(output_.size())};
    if (const auto* call = std::get_if<CallBegin>(&each))
      item_->call_id = call->id, item_->name = call->name;
    std::string events =
        event("response.output_item.added",
              {{"output_index", output_.size()}, {"item", item_->json("in_progress", true)}});
    if (kind != Kind::kCall)
      events += item_event("response.content_part.added", {{"part", item_->part()}});
    return events;
  }
  std::string delta(const AnswerEvent& each) {
    if (const auto* text = std::get_if<TextEvent>(&each)) {
      const OrderedJson logprobs = logprobs_of(*text);
      item_->text += text->text;
      for (const auto& entry : logprobs) item_->logprobs.push_back(entry);
      return item_event("response.output_text.delta",
                        {{"delta", text->text}, {"logprobs", logprobs}});
    }
    const auto* thinking = std::get_if<ThinkingEvent>(&each);
    const auto* arguments = std::get_if<CallArguments>(&each);
    if (thinking == nullptr && arguments == nullptr) return {};
    const std::string& added = thinking != nullptr ? thinking->text : arguments->text;
    item_->text += added;
    return item_event(thinking != nullptr ? "response.reasoning_text.delta"
                                          : "response.function_call_arguments.delta",
                      {{"delta", added}});
  }
  // Where a target left entries out, all behind them are missing.
  OrderedJson logprobs_of(const TextEvent& text) {
    OrderedJson list = OrderedJson::array();
    for (const std::uint32_t token : text.tokens) {
      if (token >= entries_.size()) break;
      list.push_back(std::move(entries_[token]));
      n_of_texts_ = token + 1;
    }
    return list;
  }
  // The token that ends an answer has no text; its entry is of the message that it ends.
  void add_end_logprobs() {
    for (; n_of_texts_ < entries_.size(); ++n_of_texts_)
      item_->logprobs.push_back(std::move(entries_[n_of_texts_]));
  }
  std::string close(const char* status) {
    if (!item_) return {};
    std::string events;
    if (item_->kind == Kind::kCall) {
      events = item_event("response.function_call_arguments.done",
                          {{"name", item_->name}, {"arguments", item_->text}});
    } else if (item_->kind == Kind::kReasoning) {
      events = item_event("response.reasoning_text.done", {{"text", item_->text}});
      events += item_event("response.content_part.done", {{"part", item_->part()}});
    } else {
      events = item_event("response.output_text.done",
                          {{"text", item_->text}, {"logprobs", item_->logprobs}});
      events += item_event("response.content_part.done", {{"part", item_->part()}});
    }
    OrderedJson item = item_->json(status);
    events +=
        event("response.output_item.done", {{"output_index", output_.size()}, {"item", item}});
    output_.push_back(std::move(item));
    item_.reset();
    return events;
  }

  // But for what it repeats of the request as text.
  OrderedJson object(const std::string& model, const char* status) const {
    return {{"id", "resp_" + id_},    {"object", "response"},
            {"created_at", created_}, {"completed_at", nullptr},
            {"status", status},       {"incomplete_details", nullptr},
            {"model", model},         {"previous_response_id", nullptr},
            {"output", output_},      {"error", nullptr},
            {"usage", nullptr},       {"temperature", ask_.temperature},
            {"top_p", ask_.top_p}};
  }
  // As far as it came, with the item that is open: OpenAI's client for Node puts it in the place of
  // all that it has gathered.
  OrderedJson unfinished(const char* status, const char* item_status) const {
    OrderedJson body = object(model_, status);
    if (item_) body["output"].push_back(item_->json(item_status));
    return body;
  }
  OrderedJson failed(const HttpError& error) const {
    OrderedJson body = unfinished("failed", "incomplete");
    body["error"] = {{"code", failure_code(error)}, {"message", error.message}};
    return body;
  }
  OrderedJson ended(const wire::ClientReply& reply) const {
    const bool is_cut = reader_.finish_reason(reply) == "length";
    OrderedJson body = object(reply.model, is_cut ? "incomplete" : "completed");
    const double took_ms = reply.metrics.time_to_first_token_ms + reply.metrics.generation_time_ms;
    body["completed_at"] = created_ + static_cast<std::int64_t>(std::ceil(took_ms / 1e3));
    if (is_cut) body["incomplete_details"] = {{"reason", "max_output_tokens"}};
    body["usage"] = response_usage_json(reply.usage, reader_.n_reasoning_tokens());
    body["metrics"] = metrics_json(reply);
    return body;
  }

  const ResponsesOptions ask_;  // without the requests, which are at the router
  const std::string id_;
  const std::int64_t created_;
  AnswerReader reader_;
  std::string model_;                          // as asked for until a piece names it
  OrderedJson output_ = OrderedJson::array();  // items that are whole
  std::optional<OutputItem> item_;             // the one that grows
  std::vector<OrderedJson> entries_;           // log-probabilities of all tokens
  std::size_t n_of_texts_ = 0;                 // tokens up to the last one that has a text
  std::uint64_t n_events_ = 0;
  bool has_begun_ = false;
};

}  // namespace

std::unique_ptr<Encoder> responses_encoder(const ResponsesAsk& ask,
                                           std::string id,
                                           std::int64_t created) {
  return std::make_unique<ResponsesEncoder>(ask, std::move(id), created);
}

}  // namespace foretoken::edge
