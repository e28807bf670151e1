#include "services/edge/edge.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <utility>

#include "common/base/log.h"
#include "common/client/answer_json.h"
#include "common/client/client.h"
#include "services/edge/anthropic.h"
#include "services/edge/openai.h"
#include "services/edge/triton.h"
#include "services/edge/web_page.h"

namespace foretoken::edge {
namespace {

namespace asio = boost::asio;

constexpr auto kStatusTime = std::chrono::seconds(2);
constexpr auto kWarmUpPause = std::chrono::milliseconds(250);
constexpr JsonLimits kBodyLimits{
    .max_bytes = std::size_t{1} << 20, .max_depth = 32, .max_nodes = 1'000'000};

std::int64_t seconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string_view bearer_of(const HttpRequest& request) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view authorization = request.header("authorization");
  if (authorization.starts_with(kBearer)) return authorization.substr(kBearer.size());
  return request.header("x-api-key");
}

// "http://localhost:*" takes every port of it; "*" takes all.
bool takes_origin(const std::vector<std::string>& allowed, std::string_view origin) {
  return std::any_of(allowed.begin(), allowed.end(), [&](std::string_view each) {
    if (each == "*" || each == origin) return true;
    if (!each.ends_with(":*")) return false;
    each.remove_suffix(2);
    if (!origin.starts_with(each)) return false;
    const std::string_view rest = origin.substr(each.size());
    return rest.empty() ||
           (rest.front() == ':' && std::all_of(rest.begin() + 1, rest.end(), [](unsigned char c) {
              return std::isdigit(c) != 0;
            }));
  });
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

bool is_anthropic(std::string_view path) {
  return path.find("/messages") != std::string_view::npos;
}

Json props_json(const wire::StatusReply& status, const std::string& build) {
  return {{"models", status.models},
          {"build", build},
          {"same_text_with_speculation", true},
          {"ready", status.ready},
          {"requests_active", status.requests_active},
          {"services", Json::parse(to_text(value_json(status.services)))}};
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
  return path.starts_with("/v2") ? triton_error_body(error) : openai_error_body(error);
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

Result<wire::ClientRequest> tokens_request(const Result<Json>& body, const std::string& op) {
  if (!body.ok()) return body.error();
  return read_tokens(*body, op);
}

Result<wire::ClientRequest> count_request(const Result<Json>& body) {
  if (!body.ok()) return body.error();
  return read_count(*body);
}

// A body, read by its protocol, beside what writes the answer.
Result<HttpAsk> chat_ask(const Result<Json>& body, bool strict) {
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

Result<HttpAsk> message_ask(const Result<Json>& body, bool strict, const std::string& request_id) {
  if (!body.ok()) return body.error();
  auto ask = read_messages(*body, strict);
  if (!ask.ok()) return ask.error();
  auto encoder = message_encoder(*ask, wire::hex_of(new_request_id()), request_id);
  return HttpAsk{std::move(ask->generation), std::move(ask->ignored), std::move(encoder)};
}

Result<HttpAsk> triton_ask(const Result<Json>& body, const TritonPath& path, bool strict) {
  if (!body.ok()) return body.error();
  // Names of the pipeline that clients of TensorRT-LLM ask for.
  const bool is_pipeline = path.model == "ensemble" || path.model == "tensorrt_llm_bls";
  auto ask =
      read_triton(*body, is_pipeline ? "" : path.model, path.verb == "generate_stream", strict);
  if (!ask.ok()) return ask.error();
  auto encoder = triton_encoder(*ask);
  return HttpAsk{std::move(ask->generation), std::move(ask->ignored), std::move(encoder)};
}

}  // namespace

bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  boost::system::error_code error;
  const auto address = asio::ip::make_address(host, error);
  return !error && address.is_loopback();
}

struct Edge::Route {
  std::string_view method;
  std::string_view path;  // one that ends in "/" takes everything below it
  Reply (Edge::*handler)(HttpExchange&);
  bool is_open = false;  // without a key
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
  };
  return routes;
}

Edge::Edge(asio::io_context& context, Calls& calls, EdgeOptions options)
    : context_(context),
      calls_(calls),
      options_(std::move(options)),
      keys_(options_.section.key_file.empty()
                ? ApiKeys()
                : value_or_throw(ApiKeys::read(options_.section.key_file))),
      started_(seconds_since_1970()) {
  if (keys_.empty() && !is_loopback(options_.section.host))
    throw FatalError(
        ErrorCode::kConfig,
        "edge.host " + options_.section.host +
            " is reachable from other machines and there are no keys: set edge.key_file");
}

HttpHeaders Edge::headers_for(const HttpRequest& request) const {
  HttpHeaders headers{{"x-request-id", request.id}};
  const std::string_view origin = request.header("origin");
  if (!origin.empty() && takes_origin(options_.section.cors_origins, origin)) {
    headers.emplace_back("Access-Control-Allow-Origin", std::string(origin));
    headers.emplace_back("Vary", "Origin");
    headers.emplace_back("Access-Control-Expose-Headers", "x-request-id, x-foretoken-ignored");
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
  // Clients whose base address lacks /v1, or has it where there is none.
  const std::array<std::string, 2> paths{request.path, "/v1" + request.path};
  std::string allowed;
  for (const Route& route : routes()) {
    const bool matches = std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
      return route.path.size() > 1 && route.path.ends_with('/')
                 ? path.size() > route.path.size() && path.starts_with(route.path)
                 : path == route.path;
    });
    if (!matches) continue;
    const bool is_method =
        request.method == route.method || (request.method == "HEAD" && route.method == "GET");
    if (!is_method) {
      allowed = route.method;
      continue;
    }
    if (!keys_.empty() && !route.is_open && !keys_.name_of(bearer_of(request))) {
      HttpError error = http_error(401, "this key is not one of edge.key_file");
      if (bearer_of(request).empty())
        error.message = "a key is needed: Authorization: Bearer KEY, or x-api-key";
      error.code = "invalid_api_key";
      co_return co_await fail(exchange, error);
    }
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

Edge::Reply Edge::send(HttpExchange& exchange, const Json& body, unsigned status) {
  HttpReply reply{
      .status = status, .body = to_text(body), .headers = headers_for(exchange.request())};
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

Edge::Reply Edge::answer(HttpExchange& exchange, Result<HttpAsk> ask) {
  if (!ask.ok()) {
    const HttpError error = http_error(ask.error());
    co_return co_await fail(exchange, error);
  }
  const HttpRequest& request = exchange.request();
  HttpHeaders headers = headers_for(request);
  if (is_anthropic(request.path)) headers.emplace_back("request-id", request.id);
  if (!ask->ignored.empty()) headers.emplace_back("x-foretoken-ignored", header_list(ask->ignored));
  if (const auto tenant = keys_.name_of(bearer_of(request)))
    for (auto& choice : ask->generation.choices) choice.tenant = *tenant;
  const GenerationRules rules{.ping_every = std::chrono::seconds(options_.section.ping_s)};
  co_await generate(exchange, calls_, std::move(ask->generation), *ask->encoder, rules,
                    std::move(headers));
}

Edge::Reply Edge::chat(HttpExchange& exchange) {
  const auto body = body_of(exchange.request());
  auto ask = chat_ask(body, options_.section.strict);
  co_await answer(exchange, std::move(ask));
}

Edge::Reply Edge::completions(HttpExchange& exchange) {
  const auto body = body_of(exchange.request());
  auto ask = completion_ask(body, options_.section.strict);
  co_await answer(exchange, std::move(ask));
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
  if (now.ok()) co_return co_await send(exchange, openai_models(now->models, started_));
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
  } else if (std::find(now->models.begin(), now->models.end(), name) != now->models.end()) {
    co_return co_await send(exchange, openai_model(name, started_));
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
  while (!warm_ && !draining_) {
    const auto now = co_await status();
    if (now.ok() && now->ready && !now->models.empty()) {
      wire::ClientRequest request;
      request.model = now->models.front();
      request.prompt_kind = wire::PromptKind::kText;
      request.prompt = "1";
      request.params.max_tokens = 1;
      request.given = {"prompt", "model", "max_tokens"};
      const auto call = calls_.start(std::move(request));
      const auto arrival = co_await call->next(TimePoint::max());
      warm_ = arrival && std::holds_alternative<wire::ClientReply>(arrival->answer);
      if (warm_) log_info("a token has gone through all services");
    }
    pause.expires_after(kWarmUpPause);
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
  }
}

Edge::Reply Edge::health(HttpExchange& exchange) {
  const auto now = co_await status();
  const bool is_ready = warm_ && !draining_ && now.ok() && now->ready;
  if (is_ready) co_return co_await live(exchange);
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

asio::awaitable<std::optional<Result<wire::TokensReply>>> Edge::ask_tokens(
    HttpExchange& exchange, Result<wire::ClientRequest> request) {
  using Outcome = std::optional<Result<wire::TokensReply>>;
  if (!request.ok()) co_return Outcome(request.error());
  const auto call = calls_.start(std::move(*request));
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
  const auto body = body_of(exchange.request());
  auto request = tokens_request(body, op);
  const auto reply = co_await ask_tokens(exchange, std::move(request));
  if (!reply) co_return;
  if (reply->ok()) {
    const Json answer = tokens_json(**reply, op);
    co_return co_await send(exchange, answer);
  }
  const HttpError error = http_error(reply->error());
  co_await fail(exchange, error);
}

Edge::Reply Edge::messages(HttpExchange& exchange) {
  const auto body = body_of(exchange.request());
  auto ask = message_ask(body, options_.section.strict, exchange.request().id);
  co_await answer(exchange, std::move(ask));
}

Edge::Reply Edge::count_tokens(HttpExchange& exchange) {
  const auto body = body_of(exchange.request());
  auto request = count_request(body);
  const auto reply = co_await ask_tokens(exchange, std::move(request));
  if (!reply) co_return;
  if (reply->ok()) {
    const Json answer = {{"input_tokens", (*reply)->n_tokens}};
    co_return co_await send(exchange, answer);
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
  auto ask = triton_ask(body, path, options_.section.strict);
  co_await answer(exchange, std::move(ask));
}

Edge::Reply Edge::triton_model(HttpExchange& exchange) {
  const TritonPath path = triton_path(exchange.request().path);
  const auto now = co_await status();
  HttpError error;
  if (!now.ok()) {
    error = http_error(now.error());
  } else if (std::find(now->models.begin(), now->models.end(), path.model) == now->models.end()) {
    error =
        http_error(400, "unknown model \"" + path.model + "\"; there is " + joined(now->models));
  } else if (path.verb == "ready") {
    HttpReply reply{
        .status = now->ready ? 200u : 400u, .body = {}, .headers = headers_for(exchange.request())};
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

Edge::Reply Edge::page(HttpExchange& exchange) {
  HttpReply reply{.body = std::string(page_html()),
                  .content_type = "text/html; charset=utf-8",
                  .headers = headers_for(exchange.request())};
  reply.headers.emplace_back("Content-Security-Policy", page_policy(page_html()));
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
