// The routes that say which models there are, in the words of each protocol.
#include "services/edge/edge.h"

#include <algorithm>
#include <utility>

#include "services/edge/anthropic.h"
#include "services/edge/model_named.h"
#include "services/edge/ollama.h"
#include "services/edge/openai.h"

namespace foretoken::edge {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// What follows stands in functions of its own and not in the coroutines: g++ 12 evaluates both
// sides of a conditional there if they make temporaries.

Json triton_model_json(const std::string& name) {
  return {{"name", name},
          {"versions", {"1"}},
          {"platform", "foretoken"},
          {"inputs", {{{"name", "text_input"}, {"datatype", "BYTES"}, {"shape", {1}}}}},
          {"outputs", {{{"name", "text_output"}, {"datatype", "BYTES"}, {"shape", {1}}}}}};
}

Json models_json(const HttpRequest& request, const wire::StatusReply& now, std::int64_t since) {
  if (!is_anthropic(request)) return openai_models(now.model_states, since);
  std::vector<ListedModel> models;
  for (const auto& model : now.model_states) {
    if (model.n_targets == 0) continue;
    for (const auto& name : listed_names(model))
      models.push_back({name, model.max_model_len, since});
  }
  return anthropic_models(models);
}

Json one_model_json(const HttpRequest& request,
                    const std::string& name,
                    const wire::ModelStatus& model,
                    std::int64_t since) {
  if (!is_anthropic(request)) return openai_model(name, model, since);
  return anthropic_model({name, model.max_model_len, since});
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

}  // namespace

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
    const Json body = one_model_json(exchange.request(), name, *model, started_);
    co_return co_await send(exchange, body);
  } else {
    error =
        http_error(Error{ErrorCode::kModelNotFound,
                         "no model \"" + name + "\"; there is " + joined(now->models), "model"});
  }
  co_await fail(exchange, error);
}

Edge::Reply Edge::triton_model(HttpExchange& exchange) {
  const TritonPath path = triton_path(exchange.request().path);
  const auto now = co_await status();
  const wire::ModelStatus* model = model_named(now, model_meant_by(path));
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

}  // namespace foretoken::edge
