#include "services/edge/request_trace.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "common/base/json.h"

namespace foretoken::edge {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{64} << 10;  // of a prompt or an answer

std::int64_t wall_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::int64_t nanoseconds(double ms) { return std::llround(std::max(0.0, ms) * 1e6); }

// Few of them: a name of a model in the path is not one.
std::string route_of(const std::string& path) {
  constexpr std::string_view kTriton = "/v2/models/";
  if (!path.starts_with(kTriton)) return path.starts_with("/v") ? path : "/v1" + path;
  const std::size_t verb = path.rfind('/');
  return std::string(kTriton) + "{model}" + path.substr(std::max(verb, kTriton.size() - 1));
}

void add(Span& span, TraceKey key, AttributeValue value) {
  span.attributes.push_back({key, std::move(value)});
}

// In place: g++ 12 takes a moved variant's unused members for uninitialized ones that are used.
void add_count(std::vector<Attribute>& attributes, TraceKey key, std::uint64_t n) {
  Attribute& added = attributes.emplace_back();
  added.key = key;
  added.value = static_cast<std::int64_t>(n);
}

void add_count(Span& span, TraceKey key, std::uint64_t n) { add_count(span.attributes, key, n); }

// What the request gave; defaults are the model's and are left out.
void add_request(Span& span, const wire::ClientRequest& request) {
  const SamplingParams& p = request.params;
  const auto is_given = [&](std::string_view key) { return request.given.contains(key); };
  if (!request.model.empty()) add(span, TraceKey::kRequestModel, request.model);
  if (is_given("max_tokens") && p.max_tokens != ~std::uint32_t{0})
    add_count(span, TraceKey::kMaxTokens, p.max_tokens);
  if (is_given("temperature")) add(span, TraceKey::kTemperature, shortest(p.temperature));
  if (is_given("top_p")) add(span, TraceKey::kTopP, shortest(p.top_p));
  if (is_given("top_k")) add_count(span, TraceKey::kTopK, p.top_k);
  if (is_given("seed")) add(span, TraceKey::kSeed, static_cast<std::int64_t>(p.seed));
  if (!request.stop.empty()) add(span, TraceKey::kStopSequences, request.stop);
  if (is_given("frequency_penalty"))
    add(span, TraceKey::kFrequencyPenalty, shortest(p.frequency_penalty));
  if (is_given("presence_penalty"))
    add(span, TraceKey::kPresencePenalty, shortest(p.presence_penalty));
}

OrderedJson message_json(const std::string& role, const std::string& text) {
  OrderedJson part = {{"type", "text"}, {"content", text.substr(0, kMaxTextBytes)}};
  OrderedJson message = OrderedJson::object();
  message["role"] = role;
  message["parts"] = OrderedJson::array({std::move(part)});
  return message;
}

std::string prompt_text(const wire::ClientRequest& request) {
  OrderedJson messages = OrderedJson::array();
  for (const auto& message : request.messages)
    messages.push_back(message_json(message.role, message.content));
  if (request.messages.empty()) messages.push_back(message_json("user", request.prompt));
  return to_text(messages);
}

}  // namespace

void RequestTrace::Events::add(SpanEvent event) {
  if (n_++ % stride_ != 0) return;
  if (taken.size() == kMost) {
    std::vector<SpanEvent> half;
    for (std::size_t i = 0; i < taken.size(); i += 2) half.push_back(std::move(taken[i]));
    taken = std::move(half);
    stride_ *= 2;
    if ((n_ - 1) % stride_ != 0) return;
  }
  taken.push_back(std::move(event));
}

RequestTrace::RequestTrace(const HttpRequest& request,
                           const TraceContext& context,
                           SpanId parent,
                           bool captures_text,
                           Sink sink)
    : context_(context),
      captures_text_(captures_text),
      sink_(std::move(sink)),
      begin_ns_(wall_ns()),
      began_(steady_now()) {
  const std::string route = route_of(request.path);
  request_ = {.context = context,
              .parent = parent,
              .has_remote_parent = parent != 0,
              .name = request.method + " " + route,
              .kind = SpanKind::kServer,
              .begin_ns = begin_ns_};
  add(request_, TraceKey::kHttpMethod, request.method);
  add(request_, TraceKey::kHttpRoute, route);
  add(request_, TraceKey::kUrlPath, request.path);
  add(request_, TraceKey::kUrlScheme, std::string("http"));
  add(request_, TraceKey::kRequestId, request.id);
  if (const auto agent = request.header("user-agent"); !agent.empty())
    add(request_, TraceKey::kUserAgent, std::string(agent));
}

std::int64_t RequestTrace::now_ns() const {
  return begin_ns_ +
         std::chrono::duration_cast<std::chrono::nanoseconds>(steady_now() - began_).count();
}

Span RequestTrace::child_of(const TraceContext& parent,
                            const std::string& name,
                            std::int64_t begin) const {
  TraceContext own = parent;
  own.span = new_span_id();
  return {.context = own, .parent = parent.span, .name = name, .begin_ns = begin};
}

void RequestTrace::ask(const Generation& generation) {
  const std::int64_t now = now_ns();
  for (std::size_t i = 0; i < generation.choices.size(); ++i) {
    const wire::ClientRequest& request = generation.choices[i];
    const bool is_chat = request.prompt_kind == wire::PromptKind::kMessages;
    const std::string operation = is_chat ? "chat" : "text_completion";
    const std::string blank = request.model.empty() ? "" : " ";
    Choice choice{.span = child_of(context_, operation + blank + request.model, now)};
    add(choice.span, TraceKey::kOperation, operation);
    add(choice.span, TraceKey::kProvider, std::string("foretoken"));
    add_request(choice.span, request);
    if (generation.choices.size() > 1) {
      add_count(choice.span, TraceKey::kChoiceCount, generation.choices.size());
      add_count(choice.span, TraceKey::kChoice, i);
    }
    if (captures_text_) add(choice.span, TraceKey::kInputMessages, prompt_text(request));
    choices_.push_back(std::move(choice));
  }
}

void RequestTrace::on_answer(std::size_t choice, const wire::ClientAnswer& answer) {
  if (choice >= choices_.size()) return;
  Choice& of = choices_[choice];
  if (const auto* piece = std::get_if<wire::ClientPiece>(&answer)) return on_piece(of, *piece);
  of.is_over = true;
  of.span.end_ns = now_ns();
  if (const auto* reply = std::get_if<wire::ClientReply>(&answer)) on_reply(of, *reply);
  if (const auto* error = std::get_if<wire::ClientError>(&answer)) on_error(of, *error);
}

void RequestTrace::on_piece(Choice& choice, const wire::ClientPiece& piece) {
  if (captures_text_ && choice.text.size() < kMaxTextBytes) choice.text += piece.text;
  SpanEvent event{.name = "tokens", .at_ns = now_ns()};
  add_count(event.attributes, TraceKey::kTokens, piece.token_ids.size());
  add_count(event.attributes, TraceKey::kAccepted, piece.accepted);
  choice.events.add(std::move(event));
}

void RequestTrace::on_reply(Choice& choice, const wire::ClientReply& reply) {
  Span& span = choice.span;
  add(span, TraceKey::kResponseId, reply.id);
  add(span, TraceKey::kResponseModel, reply.model);
  add(span, TraceKey::kFinishReasons, std::vector<std::string>{reply.finish_reason});
  add_count(span, TraceKey::kInputTokens, reply.usage.prompt_tokens);
  add_count(span, TraceKey::kOutputTokens, reply.usage.completion_tokens);
  add_count(span, TraceKey::kCachedTokens, reply.usage.cached_tokens);
  const wire::SpeculativeDecoding& spec = reply.metrics.speculative_decoding;
  add_count(span, TraceKey::kDrafted, spec.num_draft_tokens);
  add_count(span, TraceKey::kAccepted, spec.num_accepted_draft_tokens);
  add_count(span, TraceKey::kRounds, spec.num_spec_steps);
  add(span, TraceKey::kProposer, spec.proposer);
  if (captures_text_) {
    choice.text += reply.text;
    add(span, TraceKey::kOutputMessages,
        to_text(OrderedJson::array({message_json("assistant", choice.text)})));
  }
  add_parts(choice, reply.metrics);
}

// The times are the router's and the target's, laid end to end from the moment when the request
// left for the router.
void RequestTrace::add_parts(Choice& choice, const wire::ReplyMetrics& metrics) {
  const auto end_at = [&](std::int64_t at) { return std::min(at, choice.span.end_ns); };
  const std::int64_t begin = choice.span.begin_ns;
  const std::int64_t encoded = end_at(begin + nanoseconds(metrics.tokenize_time_ms));
  const std::int64_t begun = end_at(encoded + nanoseconds(metrics.queue_time_ms));
  const bool has_tokens = metrics.time_to_first_token_ms > 0;
  const std::int64_t first =
      has_tokens ? std::max(begun, end_at(begin + nanoseconds(metrics.time_to_first_token_ms)))
                 : begun;
  const auto part = [&](const char* name, std::int64_t from, std::int64_t to) -> Span& {
    parts_.push_back(child_of(choice.span.context, name, from));
    parts_.back().end_ns = to;
    return parts_.back();
  };
  part("tokenize", begin, encoded);
  part("queue", encoded, begun);
  if (!has_tokens) return;
  part("prefill", begun, first);
  Span& decode = part("decode", first, end_at(first + nanoseconds(metrics.generation_time_ms)));
  decode.events = std::move(choice.events.taken);
}

void RequestTrace::on_error(Choice& choice, const wire::ClientError& error) {
  add(choice.span, TraceKey::kErrorType, error.error.code);
  choice.span.has_failed = true;
  choice.span.failure = error.error.message;
}

void RequestTrace::end(unsigned status, bool is_gone) {
  request_.end_ns = now_ns();
  if (status != 0) add_count(request_, TraceKey::kHttpStatus, status);
  if (is_gone) {
    add(request_, TraceKey::kErrorType, std::string("abandoned"));
  } else if (status >= 400) {
    add(request_, TraceKey::kErrorType, std::to_string(status));
  }
  request_.has_failed = status >= 500;  // what a client did wrong is no failure of the server
  std::vector<Span> spans;
  spans.push_back(std::move(request_));
  for (Choice& choice : choices_) {
    if (!choice.is_over) {
      choice.span.end_ns = spans.front().end_ns;
      add(choice.span, TraceKey::kErrorType, std::string("abandoned"));
    }
    spans.push_back(std::move(choice.span));
  }
  std::move(parts_.begin(), parts_.end(), std::back_inserter(spans));
  sink_(std::move(spans));
}

}  // namespace foretoken::edge
