// The routes that count tokens, and turn texts into tokens and back.
#include "services/edge/edge.h"

#include <utility>

#include "common/client/client.h"
#include "services/edge/anthropic.h"
#include "services/edge/model_named.h"
#include "services/edge/openai.h"

namespace foretoken::edge {
namespace {

namespace asio = boost::asio;

std::vector<std::string> ignored_of(const Result<TokensAsk>& ask) {
  return ask.ok() ? ask->ignored : std::vector<std::string>();
}

std::string model_of(const Result<TokensAsk>& ask) {
  return ask.ok() ? name_or_default(ask->request.model) : std::string();
}

Json tokens_json(const wire::TokensReply& reply, std::string_view op) {
  if (op == "detokenize") return {{"prompt", reply.text}};
  return {{"tokens", reply.token_ids}, {"count", reply.n_tokens}};
}

Result<TokensAsk> tokens_ask(const Result<OrderedJson>& body, const std::string& op, bool strict) {
  if (!body.ok()) return body.error();
  return read_tokens(*body, op, strict);
}

// The tokenizer names the router's keys.
HttpError tokens_error(const Error& error, std::string_view op) {
  const HttpError http = http_error(error);
  return op == "detokenize" ? about_field(http, "token_ids", "tokens") : http;
}

Result<TokensAsk> count_ask(const Result<OrderedJson>& body, bool strict) {
  if (!body.ok()) return body.error();
  return read_count(*body, strict);
}

}  // namespace

asio::awaitable<std::optional<Result<wire::TokensReply>>> Edge::ask_tokens(HttpExchange& exchange,
                                                                           Result<TokensAsk> ask) {
  using Outcome = std::optional<Result<wire::TokensReply>>;
  if (!ask.ok()) co_return Outcome(ask.error());
  ask->request.tenant = access_.tenant_of(exchange.request());
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

// {"model", "prompt" or "messages", ...} -> {"tokens", "count", "max_model_len"}, as vLLM
// has them. The last one is left out where the router does not say it.
Edge::Reply Edge::tokenize(HttpExchange& exchange) { co_await tokens(exchange, "tokenize"); }

// {"model", "tokens"} -> {"prompt"}.
Edge::Reply Edge::detokenize(HttpExchange& exchange) { co_await tokens(exchange, "detokenize"); }

Edge::Reply Edge::tokens(HttpExchange& exchange, const char* op) {
  const auto body = ordered_body_of(exchange.request());
  auto ask = tokens_ask(body, op, options_.section.strict);
  const auto ignored = ignored_of(ask);
  const std::string name = model_of(ask);
  const auto reply = co_await ask_tokens(exchange, std::move(ask));
  if (!reply) co_return;
  if (reply->ok()) {
    Json answer = tokens_json(**reply, op);
    if (std::string_view(op) == "tokenize") {
      const auto now = co_await status();
      if (const auto* model = model_named(now, name))
        answer["max_model_len"] = model->max_model_len;
    }
    co_return co_await send(exchange, answer, ignored);
  }
  const HttpError error = tokens_error(reply->error(), op);
  co_await fail(exchange, error);
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

}  // namespace foretoken::edge
