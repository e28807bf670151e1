#include "services/edge/edge.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <utility>

#include "common/base/log.h"
#include "common/client/client.h"
#include "services/edge/anthropic.h"
#include "services/edge/openai.h"

namespace foretoken::edge {
namespace {

namespace asio = boost::asio;

constexpr auto kStatusTime = std::chrono::seconds(2);

JsonLimits body_limits(const EdgeSection& section) {
  return {.max_bytes = std::size_t{section.max_body_mib} << 20,
          .max_depth = 32,
          .max_nodes = 1'000'000,
          .max_keys = kMaxOrderedKeys};
}

// What follows stands in functions of its own and not in the coroutines: g++ 12 evaluates both
// sides of a conditional there if they make temporaries.

std::string error_body_of(std::string_view path, const HttpError& error) {
  const bool is_plain = path.starts_with("/v2") || path.starts_with("/api/");
  return is_plain ? triton_error_body(error) : openai_error_body(error);
}

// `why`: the key that takes the path away; empty if none does.
HttpError no_route(const HttpRequest& request,
                   const std::string& allowed,
                   const std::string& why = {}) {
  return allowed.empty()
             ? http_error(404, "no such endpoint: " + request.method + " " + request.path + why)
             : http_error(405, request.path + " takes " + allowed + ", not " + request.method);
}

// Of a request at metrics.listen that asks for something else.
std::optional<HttpError> no_scrape(const HttpRequest& request) {
  const bool is_read = request.method == "GET" || request.method == "HEAD";
  if (request.path == "/metrics" && is_read) return std::nullopt;
  return no_route(request, request.path == "/metrics" ? "GET" : "");
}

}  // namespace

bool is_anthropic(const HttpRequest& request) {
  const std::string_view path = request.path;
  if (path.ends_with("/messages") || path.ends_with("/messages/count_tokens")) return true;
  const bool has_models = path == "/v1/models" || path == "/models" ||
                          path.starts_with("/v1/models/") || path.starts_with("/models/");
  return has_models && !request.header("anthropic-version").empty();
}

HttpReply error_reply_to(const HttpRequest& request, const HttpError& error, HttpHeaders headers) {
  HttpReply reply{.status = error.status, .body = {}, .headers = std::move(headers)};
  if (is_anthropic(request)) {
    reply.status = anthropic_status(error);
    reply.body = anthropic_error_body(error, request.id);
    reply.headers.emplace_back("request-id", request.id);
  } else {
    reply.body = error_body_of(request.path, error);
  }
  for (auto& header : retry_headers(error)) reply.headers.push_back(std::move(header));
  return reply;
}

void add_ignored(const std::vector<std::string>& fields, HttpHeaders& headers) {
  if (fields.empty()) return;
  const std::string list = header_list(fields);
  log(LogLevel::kDebug, "a request has fields that are ignored", {{"fields", list}});
  headers.emplace_back("x-foretoken-ignored", list);
}

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
      {"GET", "/api/hello", &Edge::alive, true},  // Claude's clients try it first
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
      access_(options_.section, options_.metrics_host),
      started_(std::time(nullptr)) {}

HttpHeaders Edge::headers_for(const HttpRequest& request) const {
  HttpHeaders headers{{"x-request-id", request.id}};
  const std::string_view origin = request.header("origin");
  if (!origin.empty() && access_.takes_origin(origin)) {
    headers.emplace_back("Access-Control-Allow-Origin", std::string(origin));
    headers.emplace_back("Vary", "Origin");
    headers.emplace_back("Access-Control-Expose-Headers",
                         "x-request-id, x-foretoken-ignored, traceparent, request-id, retry-after, "
                         "retry-after-ms, x-should-retry");
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
  co_await dispatch(exchange);
}

Edge::Reply Edge::dispatch(HttpExchange& exchange) {
  const HttpRequest& request = exchange.request();
  // Of clients whose base address lacks /v1 too.
  const std::array<std::string, 2> paths{request.path, "/v1" + request.path};
  std::string allowed, why;
  for (const Route& route : routes()) {
    const bool matches = std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
      return route.path.size() > 1 && route.path.ends_with('/')
                 ? path.size() > route.path.size() && path.starts_with(route.path)
                 : path == route.path;
    });
    if (!matches) continue;
    if (route.is_ollama && !options_.section.ollama) {
      why = " (edge.ollama is false)";
      continue;
    }
    const bool is_method = route.method.empty() || request.method == route.method ||
                           (request.method == "HEAD" && route.method == "GET");
    if (!is_method) {
      allowed = route.method;
      continue;
    }
    if (const auto refused = access_.refusal(request, route.is_open))
      co_return co_await fail(exchange, *refused);
    co_return co_await (this->*route.handler)(exchange);
  }
  const HttpError error = no_route(request, allowed, why);
  co_await fail(exchange, error);
}

Edge::Reply Edge::handle_metrics(HttpExchange& exchange) {
  const HttpRequest& request = exchange.request();
  if (const auto error = no_scrape(request)) co_return co_await fail(exchange, *error);
  if (const auto refused = access_.metrics_refusal(request))
    co_return co_await fail(exchange, *refused);
  co_await metrics(exchange);
}

HttpReply Edge::error_reply(const HttpRequest& request, const HttpError& error) const {
  return error_reply_to(request, error, headers_for(request));
}

Edge::Reply Edge::fail(HttpExchange& exchange, const HttpError& error) {
  HttpReply reply = error_reply(exchange.request(), error);
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
  auto body = parse_json(request.body, body_limits(options_.section));
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

}  // namespace foretoken::edge
