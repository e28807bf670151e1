// The routes that say how the edge and the services are: health, properties, metrics, the page.
#include "services/edge/edge.h"

#include <chrono>
#include <utility>

#include "common/base/log.h"
#include "common/client/answer_json.h"
#include "common/client/client.h"
#include "services/edge/health_reply.h"
#include "services/edge/web_page.h"

namespace foretoken::edge {
namespace {

namespace asio = boost::asio;

constexpr Duration kWarmUpPause = std::chrono::milliseconds(250);
constexpr Duration kLatePause = std::chrono::seconds(5);  // once a model has answered
constexpr const char* kLockedState =
    "<p>The state of the services takes a key: <code>curl -H 'Authorization: Bearer "
    "KEY'</code>.</p>";

Json default_model_of(const wire::StatusReply& status) {
  for (const auto& model : status.model_states)
    if (model.is_default) return model.name;
  return nullptr;
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

// What follows stands in functions of its own and not in the coroutines: g++ 12 evaluates both
// sides of a conditional there if they make temporaries.

// What stands at "/" in place of the page; "" = the page. A browser says what it wants; programs
// that look for Ollama do not.
std::string words_for_page(const EdgeSection& section, const HttpRequest& request) {
  const bool wants_html = request.header("accept").find("text/html") != std::string_view::npos;
  if (section.ollama && !(section.web_ui && wants_html)) return "Ollama is running";
  return section.web_ui ? "" : "Foretoken is running";
}

Result<std::string> metrics_in(const Result<wire::ClientAnswer>& answer) {
  if (!answer.ok()) return answer.error();
  if (const auto* text = std::get_if<wire::MetricsText>(&*answer)) return text->metrics_text;
  return Error{ErrorCode::kInternal, "the router answered with no metrics"};
}

WarmModels::Reason why_not_healthy(const Result<wire::StatusReply>& status,
                                   const WarmModels& models,
                                   bool is_draining) {
  if (is_draining) return {UnreadyState::kDraining, "the edge is about to stop"};
  if (!status.ok()) return {.sentence = status.error().message};
  return models.why_not_ready(*status);
}

// Names the models that cannot answer beside those that can.
Json healthy(const std::vector<std::string>& not_ready) {
  Json body = {{"status", "ok"}};
  if (!not_ready.empty()) body["not_ready"] = not_ready;
  return body;
}

}  // namespace

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
  if (models_.note(model, arrival ? &arrival->answer : nullptr))
    log_info("a token has gone through all services", {{"model", model}});
}

Edge::Reply Edge::health(HttpExchange& exchange) {
  const auto now = co_await status();
  if (!draining_ && now.ok() && models_.is_ready(*now)) {
    const Json body = healthy(models_.not_ready(*now));
    co_return co_await send(exchange, body);
  }
  const WarmModels::Reason reason = why_not_healthy(now, models_, draining_);
  HttpReply reply = unhealthy_reply(reason, headers_for(exchange.request()));
  co_await exchange.reply(std::move(reply));
}

Edge::Reply Edge::triton_ready(HttpExchange& exchange) { co_await health(exchange); }

// 200 with nothing in it: what Triton's clients and load balancers look at.
Edge::Reply Edge::alive(HttpExchange& exchange) {
  HttpReply reply{.status = 200, .body = {}, .headers = headers_for(exchange.request())};
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

Edge::Reply Edge::page(HttpExchange& exchange) {
  std::string words = words_for_page(options_.section, exchange.request());
  if (!words.empty()) {
    HttpReply reply{.body = std::move(words),
                    .content_type = "text/plain; charset=utf-8",
                    .headers = headers_for(exchange.request())};
    co_return co_await exchange.reply(std::move(reply));
  }
  static const std::string policy = page_policy(page_html());
  // The state of the services is for those who may ask for it: the page itself is open.
  std::string state = kLockedState;
  if (access_.knows(exchange.request())) {
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

}  // namespace foretoken::edge
