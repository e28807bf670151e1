#include "services/cli/batch_line.h"

#include <set>
#include <type_traits>
#include <utility>

#include "common/base/hash.h"
#include "common/client/answer_json.h"
#include "common/wire/client_codec.h"
#include "services/cli/request_json.h"

namespace foretoken::cli {
namespace {

constexpr std::string_view kOpenAiId = "batch_req_";

Error invalid(std::string message, std::string param = {}) {
  return {ErrorCode::kInvalidRequest, std::move(message), std::move(param)};
}

// Flags of speculation change the speed, and these the order or the patience.
const std::set<std::string>& keys_without_effect() {
  static const std::set<std::string> all = [] {
    std::set<std::string> keys{"timeout_ms", "priority", "tenant"};
    wire::ClientRequest any;
    wire::ClientRequest::fields(
        any, [&](const char* key, auto&, const Limit&, wire::Topic topic, const char*) {
          if (topic == wire::Topic::kSpeculation) keys.insert(key);
        });
    return keys;
  }();
  return all;
}

// What the flags say and the request does not.
Result<void> add_flags(wire::ClientRequest& request, const Json& flags) {
  Json with_prompt = flags;
  with_prompt["prompt"] = "";
  const auto said = request_of_json(with_prompt);
  if (!said.ok()) return said.error();
  wire::ClientRequest::fields(*said, [&](const char* key, const auto& value, const auto&...) {
    if (!flags.contains(key) || request.given.contains(key)) return;
    wire::ClientRequest::fields(request, [&](std::string_view other, auto& member, const auto&...) {
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::decay_t<decltype(member)>>)
        if (other == key) member = value;
    });
    request.given.insert(key);
  });
  return {};
}

// Counts and the text, without what is different each time.
OrderedJson reply_line(const wire::ClientReply& reply, const BatchAnswers& how) {
  OrderedJson line = struct_json(reply);
  for (const char* key : {"id", "done", "index", "position", "offset", "token_ends", "form"})
    line.erase(key);
  for (const char* key : {"logprobs", "prompt_logprobs", "prompt_token_ids"})
    if (line[key].empty()) line.erase(key);
  if (how.metrics) return line;
  line.erase("metrics");
  line["usage"].erase("cached_tokens");
  return line;
}

// A null counts as not given.
bool has_value(const OrderedJson& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && !found->is_null();
}

}  // namespace

RequestId batch_line_id(std::string_view line, std::size_t occurrence, const Json& flags) {
  Json with_effect = flags;
  for (const auto& key : keys_without_effect()) with_effect.erase(key);
  const std::string text = std::string(line) + "\n" + std::to_string(occurrence);
  return {.high = mix64(fnv1a(to_text(with_effect) + "\n" + text)), .low = mix64(fnv1a(text))};
}

BatchLine::BatchLine(std::string_view text, RequestId id, const Json& flags)
    : id_(id), requests_(read(text, flags)) {}

Result<std::vector<wire::ClientRequest>> BatchLine::read(std::string_view text, const Json& flags) {
  auto json = parse_json(text, {.max_bytes = wire::kMaxClientPartBytes});
  if (!json.ok()) return invalid("the line is not JSON: " + json.error().message);
  if (!json->is_object()) return invalid("the line is not a JSON object");
  OrderedJson line = OrderedJson::parse(text);
  is_openai_ = has_value(line, "body") || has_value(line, "url");
  if (const auto custom = line.find("custom_id"); custom != line.end()) {
    if (!custom->is_string() && !custom->is_null())
      return invalid("custom_id must be a text", "custom_id");
    custom_id_ = *custom;
    line.erase(custom);
  }
  if (is_openai_) return read_openai(line, flags);
  for (const char* own : {"op", "request_id", "stream"})
    if (has_value(line, own)) return invalid(std::string(own) + " has no place in a batch", own);
  for (const char* none : {"op", "request_id", "stream", "body", "url", "method"})
    if (!has_value(line, none)) line.erase(none);
  OrderedJson all = flags;
  for (const auto& [key, value] : line.items())  // a null counts as not given
    if (!value.is_null() || !all.contains(key)) all[key] = value;
  if (all.value("seed", OrderedJson()).is_null()) all["seed"] = id_.low;
  auto request = request_of_json(all);
  if (!request.ok()) return request.error();
  return std::vector<wire::ClientRequest>{std::move(*request)};
}

Result<std::vector<wire::ClientRequest>> BatchLine::read_openai(const OrderedJson& line,
                                                                const Json& flags) {
  if (line.value("method", OrderedJson("POST")) != "POST")
    return invalid("method must be POST", "method");
  const OrderedJson url = line.value("url", OrderedJson());
  is_chat_ = url == "/v1/chat/completions";
  if (!is_chat_ && url != "/v1/completions")
    return invalid("url must be /v1/chat/completions or /v1/completions", "url");
  OrderedJson body = line.value("body", OrderedJson());
  if (!body.is_object()) return invalid("body must be an object", "body");
  if (body.value("stream", OrderedJson()) == true)
    return invalid("stream has no place in a batch", "stream");
  if (edge::is_no_seed(Json(body.value("seed", OrderedJson()))))
    body["seed"] = flags.value("seed", Json(id_.low));
  // The configuration of an edge, whose default the limits are, has no part in a batch.
  const edge::BodyRules rules{.max_choices = edge::kMostChoices};
  auto ask = is_chat_ ? edge::read_chat(body, rules) : edge::read_completion(body, rules);
  if (!ask.ok()) return ask.error();
  ask_ = std::move(*ask);
  std::vector<wire::ClientRequest> requests = ask_.generation.choices;
  for (auto& request : requests)
    if (const auto done = add_flags(request, flags); !done.ok()) return done.error();
  return requests;
}

OrderedJson BatchLine::openai_line(unsigned status, const std::string& body) const {
  OrderedJson line = {{"id", std::string(kOpenAiId) + wire::hex_of(id_)},
                      {"custom_id", custom_id_},
                      {"response",
                       {{"status_code", status},
                        {"request_id", wire::hex_of(id_)},
                        {"body", OrderedJson::parse(body)}}},
                      {"error", nullptr}};
  if (!ask_.ignored.empty()) line["ignored"] = ask_.ignored;
  return line;
}

std::string BatchLine::answer(const std::vector<wire::ClientReply>& replies,
                              const BatchAnswers& how) const {
  if (is_openai_) {
    const std::string id = wire::hex_of(id_);
    const auto encoder = is_chat_ ? edge::chat_encoder(ask_, id, how.created)
                                  : edge::completion_encoder(ask_, id, how.created);
    return to_text(openai_line(200, encoder->whole(replies)));
  }
  OrderedJson line = {{"id", wire::hex_of(id_)}};
  if (!custom_id_.is_null()) line["custom_id"] = custom_id_;
  line.update(reply_line(replies.front(), how));
  return to_text(line);
}

std::string BatchLine::failure(const Error& error) const {
  if (is_openai_) {
    const edge::HttpError http = edge::http_error(error);
    return to_text(openai_line(http.status, edge::openai_error_body(http)));
  }
  OrderedJson line = {{"id", wire::hex_of(id_)}};
  if (!custom_id_.is_null()) line["custom_id"] = custom_id_;
  line["error"] = {{"code", error_code_name(error.code)}, {"message", error.message}};
  if (!error.param.empty()) line["error"]["param"] = error.param;
  return to_text(line);
}

std::optional<AnswerHead> read_answer_head(std::string_view line) {
  const auto json = parse_json(line);
  if (!json.ok() || !json->is_object()) return {};
  const Json id = json->value("id", Json());
  if (!id.is_string()) return {};
  std::string_view hex = id.get_ref<const std::string&>();
  const bool is_openai = hex.starts_with(kOpenAiId);
  if (is_openai) hex.remove_prefix(kOpenAiId.size());
  const auto read = wire::request_id_from_hex(hex);
  if (!read) return {};
  if (!is_openai) return AnswerHead{*read, json->contains("error")};
  const Json response = json->value("response", Json());
  return AnswerHead{*read, !response.is_object() || response.value("status_code", Json()) != 200};
}

}  // namespace foretoken::cli
