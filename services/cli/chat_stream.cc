#include "services/cli/chat_stream.h"

#include <string_view>
#include <utility>

#include "common/messages/speculation_object.h"
#include "common/wire/client_codec.h"

namespace foretoken::cli {
namespace {

// The member of this name; null if it is absent or this is no object.
const Json& json_member(const Json& object, const char* name) {
  static const Json none;
  if (!object.is_object()) return none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

std::uint32_t json_count(const Json& object, const char* name) {
  const Json& value = json_member(object, name);
  return value.is_number_unsigned() ? value.get<std::uint32_t>() : 0;
}

std::string json_text(const Json& object, const char* name) {
  const Json& value = json_member(object, name);
  return value.is_string() ? value.get<std::string>() : std::string();
}

// Names and arguments. The ids of equal calls may differ from run to run.
std::string text_of_calls(const Json& calls) {
  std::string text;
  if (!calls.is_array()) return text;
  for (const Json& call : calls) {
    const Json& function = json_member(call, "function");
    text += json_text(function, "name") + json_text(function, "arguments");
  }
  return text;
}

// All that the model wrote: thoughts, which some servers send under two names, text and calls.
std::string text_of_delta(const Json& delta) {
  std::string text = json_text(delta, "reasoning_content");
  if (text.empty()) text = json_text(delta, "reasoning");
  return text + json_text(delta, "content") + text_of_calls(json_member(delta, "tool_calls"));
}

// Of an error's body, or of an event.
ErrorCode error_code_in(std::string_view body) {
  constexpr std::pair<std::string_view, ErrorCode> kCodes[] = {
      {"deadline_exceeded", ErrorCode::kDeadlineExceeded},
      {"no_target", ErrorCode::kUnavailable},
      {"draining", ErrorCode::kDraining}};
  const auto parsed = parse_json(body);
  if (!parsed.ok()) return ErrorCode::kInternal;
  const std::string code = json_text(json_member(*parsed, "error"), "code");
  for (const auto& [name, known] : kCodes)
    if (name == code) return known;
  return ErrorCode::kInternal;
}

std::vector<std::uint32_t> histogram_of(const Json& list) {
  std::vector<std::uint32_t> histogram;
  if (!list.is_array()) return histogram;
  for (const Json& each : list)
    histogram.push_back(each.is_number_unsigned() ? each.get<std::uint32_t>() : 0);
  return histogram;
}

// vLLM's keys, where a server has them.
wire::SpeculativeDecoding speculation_of(const Json& metrics) {
  const Json& said = json_member(metrics, "speculative_decoding");
  wire::SpeculativeDecoding speculation;
  speculation.num_spec_steps = json_count(said, "num_spec_steps");
  speculation.num_draft_tokens = json_count(said, "num_draft_tokens");
  speculation.num_accepted_draft_tokens = json_count(said, "num_accepted_draft_tokens");
  speculation.acceptance_histogram = histogram_of(json_member(said, "acceptance_histogram"));
  if (const Json& all = json_member(said, "acceptance_histogram_by_draft_length"); all.is_object())
    for (const auto& [length, histogram] : all.items())
      speculation.acceptance_histogram_by_draft_length[length] = histogram_of(histogram);
  return speculation;
}

}  // namespace

Json chat_body(const wire::ClientRequest& request) {
  Json body = Json::from_msgpack(wire::write_client_request(request));
  Json speculation = Json::object();
  for (const auto& [name, key] : wire::kSpeculationMembers) {
    const auto found = body.find(std::string(key));
    if (found == body.end()) continue;
    speculation[std::string(name)] = std::move(*found);
    body.erase(found);
  }
  if (speculation.value("draft_len", Json()) == 0) speculation = {{"enabled", false}};
  if (!speculation.empty()) body["speculation"] = std::move(speculation);
  if (const auto found = body.find("prediction"); found != body.end())
    *found = {{"type", "content"}, {"content", *found}};
  // Of the client door alone. A server that gives up earlier than the client is not asked for.
  for (const char* key : {"timeout_ms", "request_id", "tenant"}) body.erase(key);
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  return body;
}

std::vector<wire::ClientAnswer> ChatStream::read(std::string_view bytes) {
  constexpr std::string_view kData = "data:";
  std::vector<wire::ClientAnswer> answers;
  while (!is_over_ && !bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    line_ += bytes.substr(0, end);
    if (end == std::string_view::npos) break;
    bytes.remove_prefix(end + 1);
    if (!line_.empty() && line_.back() == '\r') line_.pop_back();
    if (line_.starts_with(kData)) {
      std::string_view data = std::string_view(line_).substr(kData.size());
      if (data.starts_with(' ')) data.remove_prefix(1);
      read_event(data, answers);
    }
    line_.clear();
  }
  return answers;
}

void ChatStream::read_event(std::string_view data, std::vector<wire::ClientAnswer>& answers) {
  if (data == "[DONE]") return finish(answers);
  const auto event = parse_json(data);
  if (!event.ok() || !json_member(*event, "error").is_null()) {
    is_over_ = true;
    return answers.push_back(wire::client_error({}, {error_code_in(data), error_message(data)}, 0));
  }
  if (const Json& usage = json_member(*event, "usage"); usage.is_object()) {
    reply_.usage.prompt_tokens = json_count(usage, "prompt_tokens");
    reply_.usage.completion_tokens = json_count(usage, "completion_tokens");
    reply_.usage.cached_tokens =
        json_count(json_member(usage, "prompt_tokens_details"), "cached_tokens");
  }
  if (const Json& metrics = json_member(*event, "metrics"); metrics.is_object())
    reply_.metrics.speculative_decoding = speculation_of(metrics);
  const Json& choices = json_member(*event, "choices");
  if (!choices.is_array() || choices.empty()) return;
  if (std::string reason = json_text(choices.front(), "finish_reason"); !reason.empty())
    reply_.finish_reason = std::move(reason);
  // The first event of a choice has a role and no text: it is no token.
  if (std::string piece = text_of_delta(json_member(choices.front(), "delta")); !piece.empty()) {
    ++n_pieces_;
    answers.push_back(wire::ClientPiece{.id = {}, .text = std::move(piece), .token_ids = {}});
  }
}

void ChatStream::finish(std::vector<wire::ClientAnswer>& answers) {
  is_over_ = true;
  if (reply_.usage.completion_tokens == 0) reply_.usage.completion_tokens = n_pieces_;
  answers.push_back(std::move(reply_));
}

std::string error_message(std::string_view body) {
  const auto parsed = parse_json(body);
  if (parsed.ok())
    if (std::string message = json_text(json_member(*parsed, "error"), "message"); !message.empty())
      return message;
  return std::string(body.substr(0, 200));
}

Error http_failure(unsigned status, std::string_view body) {
  constexpr unsigned kGatewayTimeout = 504;
  return {status == kGatewayTimeout ? ErrorCode::kDeadlineExceeded : error_code_in(body),
          "HTTP " + std::to_string(status) + ": " + error_message(body)};
}

}  // namespace foretoken::cli
