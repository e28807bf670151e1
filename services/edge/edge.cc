#include "services/edge/edge.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "common/base/log.h"
#include "common/client/answer_json.h"
#include "common/client/client.h"
#include "services/edge/anthropic.h"
#include "services/edge/ollama.h"
#include "services/edge/openai.h"
#include "services/edge/responses.h"
#include "services/edge/triton.h"
#include "services/edge/web_page.h"

namespace foretoken::edge {
namespace {

namespace asio = boost::asio;

constexpr auto kStatusTime = std::chrono::seconds(2);
constexpr Duration kWarmUpPause = std::chrono::milliseconds(250);
constexpr Duration kLatePause = std::chrono::seconds(5);  // once a model has answered
constexpr const char* kLockedState =
    "<p>The state of the services takes a key: <code>curl -H 'Authorization: Bearer "
    "KEY'</code>.</p>";
constexpr JsonLimits kBodyLimits{
    .max_bytes = std::size_t{1} << 20, .max_depth = 32, .max_nodes = 1'000'000};

std::int64_t nanoseconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::int64_t seconds_since_1970() { return nanoseconds_since_1970() / 1'000'000'000; }

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

bool is_anthropic(std::string_view path) {
  return path.ends_with("/messages") || path.ends_with("/messages/count_tokens");
}

// The model that a name means; null: none that takes requests now.
const wire::ModelStatus* model_named(const Result<wire::StatusReply>& status,
                                     const std::string& name) {
  if (!status.ok()) return nullptr;
  const auto is_meant = [&](const wire::ModelStatus& model) {
    return model.n_targets > 0 &&
           (model.name == name || (model.is_default && name == "default") ||
            std::find(model.aliases.begin(), model.aliases.end(), name) != model.aliases.end());
  };
  const auto& models = status->model_states;
  const auto found = std::find_if(models.begin(), models.end(), is_meant);
  return found == models.end() ? nullptr : &*found;
}

Json default_model_of(const wire::StatusReply& status) {
  for (const auto& model : status.model_states)
    if (model.is_default) return model.name;
  return nullptr;
}

void add_ignored(const std::vector<std::string>& fields, HttpHeaders& headers) {
  if (!fields.empty()) headers.emplace_back("x-foretoken-ignored", header_list(fields));
}

std::vector<std::string> ignored_of(const Result<TokensAsk>& ask) {
  return ask.ok() ? ask->ignored : std::vector<std::string>();
}

Json props_json(const wire::StatusReply& status, const std::string& build) {
  return {{"models", status.models},
          {"default_model", default_model_of(status)},
          {"model_states", Json(value_json(status.model_states))},
          {"build", build},
          {"same_text_with_speculation", true},
          {"ready", status.ready},
          {"requests_active", status.requests_active},
          {"services", Json(value_json(status.services))}};
}

Json triton_model_json(const std::string& name) {
  return {{"name", name},
          {"versions", {"1"}},
          {"platform", "foretoken"},
          {"inputs", {{{"name", "text_input"}, {"datatype", "BYTES"}, {"shape", {1}}}}},
          {"outputs", {{{"name", "text_output"}, {"datatype", "BYTES"}, {"shape", {1}}}}}};
}

Json tokens_json(const wire::TokensReply& reply, std::string_view op) {
  if (op == "detokenize") return {{"prompt", reply.text}};
  return {{"tokens", reply.token_ids}, {"count", reply.n_tokens}};
}

// What follows stands in functions of its own and not in the coroutines: g++ 12 evaluates both
// sides of a conditional there if they make temporaries.

std::string error_body_of(std::string_view path, const HttpError& error) {
  const bool is_plain = path.starts_with("/v2") || path.starts_with("/api/");
  return is_plain ? triton_error_body(error) : openai_error_body(error);
}

// Anthropic's clients say which version of its protocol they speak.
Json models_json(const HttpRequest& request, const wire::StatusReply& now, std::int64_t since) {
  if (request.header("anthropic-version").empty()) return openai_models(now.model_states, since);
  std::vector<ServedModel> models;
  for (const auto& model : now.model_states) {
    if (model.n_targets == 0) continue;
    models.push_back({model.name, model.max_model_len, since});
    for (const auto& alias : model.aliases) models.push_back({alias, model.max_model_len, since});
  }
  return anthropic_models(models);
}

Result<ShowAsk> show_ask(const Result<Json>& body, bool strict) {
  if (!body.ok()) return body.error();
  return read_show(*body, strict);
}

Result<Json> shown_model(const Result<ShowAsk>& ask,
                         const Result<wire::StatusReply>& now,
                         std::int64_t since) {
  if (!ask.ok()) return ask.error();
  if (!now.ok()) return now.error();
  return ollama_show(*now, ask->model, since);
}

Json ollama_body(const std::string& path, const wire::StatusReply& now, std::int64_t since) {
  if (path == "/api/tags") return ollama_tags(now, since);
  if (path == "/api/ps") return ollama_ps(now, since);
  return {{"version", kOllamaVersion}};
}

// A browser says so; programs that look for Ollama do not.
bool wants_html(const HttpRequest& request) {
  return request.header("accept").find("text/html") != std::string_view::npos;
}

HttpError no_route(const HttpRequest& request, const std::string& allowed) {
  return allowed.empty()
             ? http_error(404, "no such endpoint: " + request.method + " " + request.path)
             : http_error(405, request.path + " takes " + allowed + ", not " + request.method);
}

HttpError no_triton_verb(const TritonPath& path, const std::string& asked) {
  return path.verb == "infer"
             ? http_error(400, "tensors are not taken here; send text_input to /v2/models/" +
                                   path.model + "/generate")
             : http_error(404, "no such endpoint: " + asked);
}

Result<std::string> metrics_in(const Result<wire::ClientAnswer>& answer) {
  if (!answer.ok()) return answer.error();
  if (const auto* text = std::get_if<wire::MetricsText>(&*answer)) return text->metrics_text;
  return Error{ErrorCode::kInternal, "the router answered with no metrics"};
}

HttpError loading(const Result<wire::StatusReply>& status) {
  HttpError error =
      http_error(Error{ErrorCode::kUnavailable,
                       status.ok() ? "the models are being loaded" : status.error().message});
  error.code = "model_loading";
  return error;
}

// Names the models that cannot answer beside those that can.
Json healthy(const std::vector<std::string>& not_ready) {
  Json body = {{"status", "ok"}};
  if (!not_ready.empty()) body["not_ready"] = not_ready;
  return body;
}

wire::ClientRequest one_token_of(const std::string& model) {
  wire::ClientRequest request;
  request.model = model;
  request.prompt_kind = wire::PromptKind::kText;
  request.prompt = "1";
  request.params.max_tokens = 1;
  request.given = {"prompt", "model", "max_tokens"};
  return request;
}

Result<TokensAsk> tokens_ask(const Result<OrderedJson>& body, const std::string& op, bool strict) {
  if (!body.ok()) return body.error();
  return read_tokens(*body, op, strict);
}

Result<TokensAsk> count_ask(const Result<OrderedJson>& body, bool strict) {
  if (!body.ok()) return body.error();
  return read_count(*body, strict);
}

// The client finds its trace by the header.
std::unique_ptr<RequestTrace> begin_trace(HttpExchange& exchange, const Tracer* tracer) {
  auto trace = tracer == nullptr ? nullptr : tracer->begin(exchange.request());
  if (trace) exchange.add_header("traceparent", write_traceparent(trace->context()));
  return trace;
}

GenerationRules rules_of(const EdgeSection& section, RequestTrace* trace) {
  GenerationRules rules{.ping_every = std::chrono::seconds(section.ping_s)};
  if (trace != nullptr)
    rules.watch = [trace](std::size_t choice, const wire::ClientAnswer& answer) {
      trace->on_answer(choice, answer);
    };
  return rules;
}

// A body, read by its protocol, beside what writes the answer.
Result<HttpAsk> chat_ask(const Result<OrderedJson>& body, bool strict) {
  if (!body.ok()) return body.error();
  auto ask = read_chat(*body, strict);
  if (!ask.ok()) return ask.error();
  auto encoder = chat_encoder(*ask, wire::hex_of(new_request_id()), seconds_since_1970());
  return HttpAsk{std::move(ask->generation), std::move(ask->ignored), std::move(encoder)};
}

Result<HttpAsk> completion_ask(const Result<Json>& body, bool strict) {
  if (!body.ok()) return body.error();
  auto ask = read_completion(*body, strict);
  if (!ask.ok()) return ask.error();
  auto encoder = completion_encoder(*ask, wire::hex_of(new_request_id()), seconds_since_1970());
  return HttpAsk{std::move(ask->generation), std::move(ask->ignored), std::move(encoder)};
}

Result<HttpAsk> message_ask(const Result<OrderedJson>& body,
                            bool strict,
                            const std::string& request_id) {
  if (!body.ok()) return body.error();
  auto ask = read_messages(*body, strict);
  if (!ask.ok()) return ask.error();
  auto encoder = message_encoder(*ask, wire::hex_of(new_request_id()), request_id);
  return HttpAsk{std::move(ask->generation), std::move(ask->ignored), std::move(encoder)};
}

Result<HttpAsk> responses_ask(const Result<OrderedJson>& body, bool strict) {
  if (!body.ok()) return body.error();
  auto ask = read_responses(*body, strict);
  if (!ask.ok()) return ask.error();
  auto encoder = responses_encoder(*ask, wire::hex_of(new_request_id()), seconds_since_1970());
  return HttpAsk{std::move(ask->generation), std::move(ask->ignored), std::move(encoder)};
}

std::optional<HttpError> memory_error(const Result<OrderedJson>& body) {
  if (!body.ok()) return std::nullopt;
  return needs_memory(*body);
}

Result<TritonAsk> triton_ask(const Result<Json>& body,
                             const TritonPath& path,
                             const EdgeSection& section) {
  if (!body.ok()) return body.error();
  // Names of the pipeline that clients of TensorRT-LLM ask for.
  const bool is_pipeline = path.model == "ensemble" || path.model == "tensorrt_llm_bls";
  return read_triton(*body, is_pipeline ? "" : path.model,
                     {.stream = path.verb == "generate_stream",
                      .strict = section.strict,
                      .excludes_input = section.triton_exclude_input});
}

Result<HttpAsk> complete(Result<TritonAsk> ask, const Result<TokenLists>& tokens) {
  if (!ask.ok()) return ask.error();
  if (!tokens.ok()) return tokens.error();
  if (!tokens->empty()) {
    const auto done = add_biases(ask->biased_words, *tokens, ask->generation.choices);
    if (!done.ok()) return done.error();
  }
  auto encoder = triton_encoder(*ask, nanoseconds_since_1970());
  return HttpAsk{std::move(ask->generation), std::move(ask->ignored), std::move(encoder)};
}

std::vector<wire::ClientRequest> questions_of(const TritonAsk& ask, const std::string& tenant) {
  std::vector<wire::ClientRequest> questions;
  for (const BiasedWord& word : ask.biased_words) {
    questions.push_back(tokens_of_word(word, ask.model));
    questions.back().tenant = tenant;
  }
  return questions;
}

// The answer to one of several questions; false ends them.
bool take_tokens(Call::Arrival arrival, Result<TokenLists>& lists) {
  if (auto* tokens = std::get_if<wire::TokensReply>(&arrival.answer)) {
    (*lists)[arrival.request] = std::move(tokens->token_ids);
    return true;
  }
  const auto* error = std::get_if<wire::ClientError>(&arrival.answer);
  lists = error != nullptr ? error_from(*error)
                           : Error{ErrorCode::kInternal, "the router sent no tokens"};
  return false;
}

}  // namespace

struct Edge::Route {
  std::string_view method;  // "" = any
  std::string_view path;    // one that ends in "/" takes everything below it
  Reply (Edge::*handler)(HttpExchange&);
  bool is_open = false;  // without a key
  bool is_ollama = false;
};

const std::vector<Edge::Route>& Edge::routes() {
  static const std::vector<Route> routes{
      {"POST", "/v1/chat/completions", &Edge::chat},
      {"POST", "/v1/completions", &Edge::completions},
      {"GET", "/v1/models", &Edge::models},
      {"GET", "/v1/models/", &Edge::model},
      {"POST", "/tokenize", &Edge::tokenize},
      {"POST", "/detokenize", &Edge::detokenize},
      {"POST", "/v1/messages", &Edge::messages},
      {"POST", "/v1/messages/count_tokens", &Edge::count_tokens},
      {"POST", "/v1/responses", &Edge::responses},
      {"POST", "/v1/responses/compact", &Edge::responses_compact},
      {"", "/v1/responses/", &Edge::responses_stored},
      {"POST", "/v2/models/", &Edge::triton_generate},
      {"GET", "/v2/models/", &Edge::triton_model},
      {"GET", "/v2", &Edge::triton_server},
      {"GET", "/v2/health/live", &Edge::alive, true},
      {"GET", "/v2/health/ready", &Edge::triton_ready, true},
      {"GET", "/health", &Edge::health, true},
      {"GET", "/live", &Edge::live, true},
      {"GET", "/", &Edge::page, true},
      {"GET", "/version", &Edge::version},
      {"GET", "/props", &Edge::props},
      {"GET", "/metrics", &Edge::metrics},
      {.method = "GET", .path = "/api/version", .handler = &Edge::ollama, .is_ollama = true},
      {.method = "GET", .path = "/api/tags", .handler = &Edge::ollama, .is_ollama = true},
      {.method = "GET", .path = "/api/ps", .handler = &Edge::ollama, .is_ollama = true},
      {.method = "POST", .path = "/api/show", .handler = &Edge::ollama_show, .is_ollama = true},
      {.method = "", .path = "/api/", .handler = &Edge::ollama_other, .is_ollama = true},
  };
  return routes;
}

Edge::Edge(asio::io_context& context, Calls& calls, EdgeOptions options)
    : context_(context),
      calls_(calls),
      options_(std::move(options)),
      door_(options_.section),
      started_(seconds_since_1970()) {}

HttpHeaders Edge::headers_for(const HttpRequest& request) const {
  HttpHeaders headers{{"x-request-id", request.id}};
  const std::string_view origin = request.header("origin");
  if (!origin.empty() && door_.takes_origin(origin)) {
    headers.emplace_back("Access-Control-Allow-Origin", std::string(origin));
    headers.emplace_back("Vary", "Origin");
    headers.emplace_back("Access-Control-Expose-Headers",
                         "x-request-id, x-foretoken-ignored, traceparent");
  }
  return headers;
}

Edge::Reply Edge::handle(HttpExchange& exchange) {
  const HttpRequest& request = exchange.request();
  if (request.method == "OPTIONS") {
    HttpReply reply{.status = 204, .headers = headers_for(request)};
    reply.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    // A * does not cover Authorization: what is asked for is named.
    std::string asked(request.header("access-control-request-headers"));
    if (asked.empty()) asked = "Authorization, Content-Type";
    reply.headers.emplace_back("Access-Control-Allow-Headers", asked);
    reply.headers.emplace_back("Access-Control-Max-Age", "600");
    co_return co_await exchange.reply(std::move(reply));
  }
  bool failed = false;
  try {
    co_await dispatch(exchange);
  } catch (const Json::exception& error) {
    log_error("a request could not be handled", {{"path", request.path}, {"what", error.what()}});
    failed = true;
  }
  if (failed) {
    const HttpError error = http_error(500, "internal error");
    co_await fail(exchange, error);
  }
}

Edge::Reply Edge::dispatch(HttpExchange& exchange) {
  const HttpRequest& request = exchange.request();
  // Of clients whose base address lacks /v1 too.
  const std::array<std::string, 2> paths{request.path, "/v1" + request.path};
  std::string allowed;
  for (const Route& route : routes()) {
    const bool matches = std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
      return route.path.size() > 1 && route.path.ends_with('/')
                 ? path.size() > route.path.size() && path.starts_with(route.path)
                 : path == route.path;
    });
    if (!matches || (route.is_ollama && !options_.section.ollama)) continue;
    const bool is_method = route.method.empty() || request.method == route.method ||
                           (request.method == "HEAD" && route.method == "GET");
    if (!is_method) {
      allowed = route.method;
      continue;
    }
    if (const auto refused = door_.refusal(request, route.is_open))
      co_return co_await fail(exchange, *refused);
    co_return co_await (this->*route.handler)(exchange);
  }
  const HttpError error = no_route(request, allowed);
  co_await fail(exchange, error);
}

Edge::Reply Edge::fail(HttpExchange& exchange, const HttpError& error) {
  HttpReply reply{.status = error.status, .body = {}, .headers = headers_for(exchange.request())};
  const std::string& path = exchange.request().path;
  if (is_anthropic(path)) {
    reply.status = anthropic_status(error);
    reply.body = anthropic_error_body(error, exchange.request().id);
    reply.headers.emplace_back("request-id", exchange.request().id);
  } else {
    reply.body = error_body_of(path, error);
  }
  for (auto& header : retry_headers(error)) reply.headers.push_back(std::move(header));
  co_await exchange.reply(std::move(reply));
}

Edge::Reply Edge::send(HttpExchange& exchange, const Json& body) {
  HttpReply reply{.body = to_text(body), .headers = headers_for(exchange.request())};
  co_await exchange.reply(std::move(reply));
}

Edge::Reply Edge::send(HttpExchange& exchange,
                       const Json& body,
                       const std::vector<std::string>& ignored) {
  HttpReply reply{.body = to_text(body), .headers = headers_for(exchange.request())};
  add_ignored(ignored, reply.headers);
  co_await exchange.reply(std::move(reply));
}

Result<Json> Edge::body_of(const HttpRequest& request) const {
  auto body = parse_json(request.body, kBodyLimits);
  if (!body.ok())
    return Error{ErrorCode::kMalformed, "the body is no JSON: " + body.error().message};
  if (!body->is_object())
    return Error{ErrorCode::kInvalidRequest, "the body must be a JSON object"};
  return body;
}

// Read twice: the strict reader keeps no order of keys.
Result<OrderedJson> Edge::ordered_body_of(const HttpRequest& request) const {
  const auto body = body_of(request);
  if (!body.ok()) return body.error();
  return OrderedJson::parse(request.body);
}

Edge::Reply Edge::answer(HttpExchange& exchange, Result<HttpAsk> ask) {
  const auto trace = begin_trace(exchange, options_.tracer.get());
  co_await answer(exchange, std::move(ask), trace.get());
  if (trace) trace->end(exchange.status(), exchange.is_gone());
}

Edge::Reply Edge::answer(HttpExchange& exchange, Result<HttpAsk> ask, RequestTrace* trace) {
  if (!ask.ok()) {
    const HttpError error = http_error(ask.error());
    co_return co_await fail(exchange, error);
  }
  const HttpRequest& request = exchange.request();
  HttpHeaders headers = headers_for(request);
  if (is_anthropic(request.path)) headers.emplace_back("request-id", request.id);
  add_ignored(ask->ignored, headers);
  const std::string tenant = door_.tenant_of(request);
  for (auto& choice : ask->generation.choices) choice.tenant = tenant;
  if (trace != nullptr) trace->ask(ask->generation);
  const GenerationRules rules = rules_of(options_.section, trace);
  co_await generate(exchange, calls_, std::move(ask->generation), *ask->encoder, rules,
                    std::move(headers));
}

Edge::Reply Edge::chat(HttpExchange& exchange) {
  const auto body = ordered_body_of(exchange.request());
  auto ask = chat_ask(body, options_.section.strict);
  co_await answer(exchange, std::move(ask));
}

Edge::Reply Edge::completions(HttpExchange& exchange) {
  const auto body = body_of(exchange.request());
  auto ask = completion_ask(body, options_.section.strict);
  co_await answer(exchange, std::move(ask));
}

Edge::Reply Edge::responses(HttpExchange& exchange) {
  const auto body = ordered_body_of(exchange.request());
  if (const auto error = memory_error(body)) co_return co_await fail(exchange, *error);
  auto ask = responses_ask(body, options_.section.strict);
  co_await answer(exchange, std::move(ask));
}

Edge::Reply Edge::responses_compact(HttpExchange& exchange) {
  const HttpError error =
      http_error(400, "responses are not compacted here: nothing is kept between requests");
  co_await fail(exchange, error);
}

Edge::Reply Edge::responses_stored(HttpExchange& exchange) {
  const HttpError error = http_error(404, "no response is kept here");
  co_await fail(exchange, error);
}

asio::awaitable<Result<wire::ClientAnswer>> Edge::ask(wire::ClientRequest request) {
  const auto call = calls_.start(std::move(request));
  auto arrival = co_await call->next(steady_now() + kStatusTime);
  if (!arrival) co_return Error{ErrorCode::kUnavailable, "the router does not answer"};
  if (const auto* error = std::get_if<wire::ClientError>(&arrival->answer))
    co_return error_from(*error);
  co_return std::move(arrival->answer);
}

asio::awaitable<Result<wire::StatusReply>> Edge::status() {
  wire::ClientRequest question;
  question.op = wire::ClientOp::kStatus;
  auto answer = co_await ask(std::move(question));
  if (!answer.ok()) co_return answer.error();
  if (auto* status = std::get_if<wire::StatusReply>(&*answer)) co_return std::move(*status);
  co_return Error{ErrorCode::kInternal, "the router answered with something that is not a status"};
}

Edge::Reply Edge::models(HttpExchange& exchange) {
  const auto now = co_await status();
  if (now.ok()) {
    const Json list = models_json(exchange.request(), *now, started_);
    co_return co_await send(exchange, list);
  }
  const HttpError error = http_error(now.error());
  co_await fail(exchange, error);
}

Edge::Reply Edge::model(HttpExchange& exchange) {
  const std::string& path = exchange.request().path;
  const std::string name = path.substr(path.find("models/") + 7);
  const auto now = co_await status();
  HttpError error;
  if (!now.ok()) {
    error = http_error(now.error());
  } else if (const auto* model = model_named(now, name); model != nullptr) {
    const Json body = openai_model(name, *model, started_);
    co_return co_await send(exchange, body);
  } else {
    error =
        http_error(Error{ErrorCode::kModelNotFound,
                         "no model \"" + name + "\"; there is " + joined(now->models), "model"});
  }
  co_await fail(exchange, error);
}

asio::awaitable<void> Edge::warm_up() {
  asio::steady_timer pause(context_);
  boost::system::error_code error;
  while (!draining_) {
    const auto now = co_await status();
    if (now.ok()) {
      for (const std::string& model : models_.to_ask(*now))
        asio::co_spawn(context_, warm_up(model), asio::detached);
    }
    pause.expires_after(now.ok() && models_.is_ready(*now) ? kLatePause : kWarmUpPause);
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
  }
}

asio::awaitable<void> Edge::warm_up(std::string model) {
  const auto call = calls_.start(one_token_of(model));
  const auto arrival = co_await call->next(TimePoint::max());
  const bool has_answered = arrival && std::holds_alternative<wire::ClientReply>(arrival->answer);
  models_.note(model, has_answered);
  if (has_answered) log_info("a token has gone through all services", {{"model", model}});
}

Edge::Reply Edge::health(HttpExchange& exchange) {
  const auto now = co_await status();
  if (!draining_ && now.ok() && models_.is_ready(*now)) {
    const Json body = healthy(models_.not_ready(*now));
    co_return co_await send(exchange, body);
  }
  HttpError error = loading(now);
  if (draining_) error.message = "the edge is about to stop", error.code = "draining";
  Json body = Json::parse(openai_error_body(error));
  body["status"] = draining_ ? "draining" : "loading";
  HttpReply reply{.status = 503, .body = to_text(body), .headers = headers_for(exchange.request())};
  for (auto& header : retry_headers(error)) reply.headers.push_back(std::move(header));
  co_await exchange.reply(std::move(reply));
}

Edge::Reply Edge::live(HttpExchange& exchange) {
  const Json body = {{"status", "ok"}};
  co_await send(exchange, body);
}

Edge::Reply Edge::version(HttpExchange& exchange) {
  const Json body = {{"version", options_.build}};
  co_await send(exchange, body);
}

Edge::Reply Edge::props(HttpExchange& exchange) {
  const auto now = co_await status();
  if (!now.ok()) {
    const HttpError error = http_error(now.error());
    co_return co_await fail(exchange, error);
  }
  const Json body = props_json(*now, options_.build);
  co_await send(exchange, body);
}

Edge::Reply Edge::metrics(HttpExchange& exchange) {
  wire::ClientRequest question;
  question.op = wire::ClientOp::kMetrics;
  const auto answer = co_await ask(std::move(question));
  const auto text = metrics_in(answer);
  if (!text.ok()) {
    const HttpError error = http_error(text.error());
    co_return co_await fail(exchange, error);
  }
  HttpReply reply{.body = *text,
                  .content_type = "text/plain; version=0.0.4; charset=utf-8",
                  .headers = headers_for(exchange.request())};
  co_await exchange.reply(std::move(reply));
}

asio::awaitable<std::optional<Result<wire::TokensReply>>> Edge::ask_tokens(HttpExchange& exchange,
                                                                           Result<TokensAsk> ask) {
  using Outcome = std::optional<Result<wire::TokensReply>>;
  if (!ask.ok()) co_return Outcome(ask.error());
  ask->request.tenant = door_.tenant_of(exchange.request());
  const auto call = calls_.start(std::move(ask->request));
  exchange.on_gone([&call = *call] { call.interrupt(); });
  const auto arrival = co_await call->next(TimePoint::max());
  exchange.on_gone({});
  if (!arrival) co_return std::nullopt;
  if (const auto* reply = std::get_if<wire::TokensReply>(&arrival->answer))
    co_return Outcome(*reply);
  const auto* error = std::get_if<wire::ClientError>(&arrival->answer);
  if (error != nullptr) co_return Outcome(error_from(*error));
  co_return Outcome(Error{ErrorCode::kInternal, "the router sent no tokens"});
}

// {"model", "prompt" or "messages", ...} -> {"tokens", "count"}, as vLLM has them.
Edge::Reply Edge::tokenize(HttpExchange& exchange) { co_await tokens(exchange, "tokenize"); }

// {"model", "tokens"} -> {"prompt"}.
Edge::Reply Edge::detokenize(HttpExchange& exchange) { co_await tokens(exchange, "detokenize"); }

Edge::Reply Edge::tokens(HttpExchange& exchange, const char* op) {
  const auto body = ordered_body_of(exchange.request());
  auto ask = tokens_ask(body, op, options_.section.strict);
  const auto ignored = ignored_of(ask);
  const auto reply = co_await ask_tokens(exchange, std::move(ask));
  if (!reply) co_return;
  if (reply->ok()) {
    const Json answer = tokens_json(**reply, op);
    co_return co_await send(exchange, answer, ignored);
  }
  const HttpError error = http_error(reply->error());
  co_await fail(exchange, error);
}

Edge::Reply Edge::messages(HttpExchange& exchange) {
  const auto body = ordered_body_of(exchange.request());
  auto ask = message_ask(body, options_.section.strict, exchange.request().id);
  co_await answer(exchange, std::move(ask));
}

Edge::Reply Edge::count_tokens(HttpExchange& exchange) {
  const auto body = ordered_body_of(exchange.request());
  auto ask = count_ask(body, options_.section.strict);
  const auto ignored = ignored_of(ask);
  const auto reply = co_await ask_tokens(exchange, std::move(ask));
  if (!reply) co_return;
  if (reply->ok()) {
    const Json answer = {{"input_tokens", (*reply)->n_tokens}};
    co_return co_await send(exchange, answer, ignored);
  }
  const HttpError error = http_error(reply->error());
  co_await fail(exchange, error);
}

Edge::Reply Edge::triton_generate(HttpExchange& exchange) {
  const TritonPath path = triton_path(exchange.request().path);
  if (path.verb != "generate" && path.verb != "generate_stream") {
    const HttpError error = no_triton_verb(path, exchange.request().path);
    co_return co_await fail(exchange, error);
  }
  const auto body = body_of(exchange.request());
  auto ask = triton_ask(body, path, options_.section);
  std::optional<Result<TokenLists>> tokens = TokenLists();
  if (ask.ok() && !ask->biased_words.empty()) tokens = co_await tokens_of_words(exchange, *ask);
  if (!tokens) co_return;
  auto whole = complete(std::move(ask), *tokens);
  co_await answer(exchange, std::move(whole));
}

asio::awaitable<std::optional<Result<TokenLists>>> Edge::tokens_of_words(HttpExchange& exchange,
                                                                         const TritonAsk& ask) {
  auto questions = questions_of(ask, door_.tenant_of(exchange.request()));
  std::optional<Result<TokenLists>> lists = TokenLists(questions.size());
  const auto call = calls_.start(std::move(questions));
  exchange.on_gone([&call = *call] { call.interrupt(); });
  for (std::size_t i = 0; i < call->ids().size(); ++i) {
    auto arrival = co_await call->next(TimePoint::max());
    if (!arrival) lists.reset();
    if (!arrival || !take_tokens(std::move(*arrival), *lists)) break;
  }
  exchange.on_gone({});
  co_return lists;
}

Edge::Reply Edge::triton_model(HttpExchange& exchange) {
  const TritonPath path = triton_path(exchange.request().path);
  const auto now = co_await status();
  const wire::ModelStatus* model = model_named(now, path.model);
  HttpError error;
  if (!now.ok()) {
    error = http_error(now.error());
  } else if (model == nullptr) {
    error =
        http_error(400, "unknown model \"" + path.model + "\"; there is " + joined(now->models));
  } else if (path.verb == "ready") {
    HttpReply reply{.status = model->ready ? 200u : 400u,
                    .body = {},
                    .headers = headers_for(exchange.request())};
    co_return co_await exchange.reply(std::move(reply));
  } else if (path.verb.empty()) {
    const Json body = triton_model_json(path.model);
    co_return co_await send(exchange, body);
  } else {
    error = http_error(404, "no such endpoint: " + exchange.request().path);
  }
  co_await fail(exchange, error);
}

Edge::Reply Edge::triton_server(HttpExchange& exchange) {
  const Json body = {
      {"name", "foretoken"}, {"version", options_.build}, {"extensions", {"generate"}}};
  co_await send(exchange, body);
}

Edge::Reply Edge::triton_ready(HttpExchange& exchange) { co_await health(exchange); }

Edge::Reply Edge::ollama(HttpExchange& exchange) {
  const std::string& path = exchange.request().path;
  const auto now = co_await status();
  if (!now.ok()) {
    const HttpError error = http_error(now.error());
    co_return co_await fail(exchange, error);
  }
  const Json body = ollama_body(path, *now, started_);
  co_await send(exchange, body);
}

Edge::Reply Edge::ollama_show(HttpExchange& exchange) {
  const auto body = body_of(exchange.request());
  const auto ask = show_ask(body, options_.section.strict);
  const auto now = co_await status();
  const auto shown = shown_model(ask, now, started_);
  if (!shown.ok()) {
    const HttpError error = http_error(shown.error());
    co_return co_await fail(exchange, error);
  }
  co_await send(exchange, *shown, ask->ignored);
}

Edge::Reply Edge::ollama_other(HttpExchange& exchange) {
  const HttpError error = http_error(
      501, exchange.request().path + " is not here; models are asked at /v1/chat/completions");
  co_await fail(exchange, error);
}

Edge::Reply Edge::page(HttpExchange& exchange) {
  if (options_.section.ollama && !wants_html(exchange.request())) {
    HttpReply words{.body = "Ollama is running",
                    .content_type = "text/plain; charset=utf-8",
                    .headers = headers_for(exchange.request())};
    co_return co_await exchange.reply(std::move(words));
  }
  static const std::string policy = page_policy(page_html());
  // The state of the services is for those who may ask for it: the page itself is open.
  std::string state = kLockedState;
  if (door_.knows(exchange.request())) {
    const auto now = co_await status();
    state = status_html(now);
  }
  HttpReply reply{.body = page_with(page_html(), state),
                  .content_type = "text/html; charset=utf-8",
                  .headers = headers_for(exchange.request())};
  reply.headers.emplace_back("Content-Security-Policy", policy);
  reply.headers.emplace_back("X-Content-Type-Options", "nosniff");
  reply.headers.emplace_back("Referrer-Policy", "no-referrer");
  co_await exchange.reply(std::move(reply));
}

// 200 with nothing in it: what Triton's clients and load balancers look at.
Edge::Reply Edge::alive(HttpExchange& exchange) {
  HttpReply reply{.status = 200, .body = {}, .headers = headers_for(exchange.request())};
  co_await exchange.reply(std::move(reply));
}

}  // namespace foretoken::edge
