// The routes of the edge, and what holds for all of them: request ids, CORS. The work of the routes
// stands in edge_answers.cc, edge_tokens.cc, edge_models.cc and edge_state.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/config/sections.h"
#include "services/edge/access_policy.h"
#include "services/edge/asio.h"
#include "services/edge/calls.h"
#include "services/edge/generation.h"
#include "services/edge/http_error.h"
#include "services/edge/http_server.h"
#include "services/edge/router_request.h"
#include "services/edge/tracer.h"
#include "services/edge/triton.h"
#include "services/edge/warm_models.h"

namespace foretoken::edge {

// What an endpoint was asked for, and what writes the answer in its protocol.
struct HttpAsk {
  Generation generation;
  std::vector<std::string> ignored;  // fields that it does not have
  std::unique_ptr<Encoder> encoder;
};

struct EdgeOptions {
  EdgeSection section;
  std::string metrics_host = {};  // of metrics.listen; "" = none
  std::string build;
  std::shared_ptr<const Tracer> tracer = {};  // null: no traces
};

class Edge {
 public:
  // Throws FatalError for keys that cannot be read, and for an address beyond this machine without
  // any.
  Edge(boost::asio::io_context& context, Calls& calls, EdgeOptions options);

  boost::asio::awaitable<void> handle(HttpExchange& exchange);
  // At metrics.listen.
  boost::asio::awaitable<void> handle_metrics(HttpExchange& exchange);
  // An error with the headers that every reply has. The request may have been read in part.
  HttpReply error_reply(const HttpRequest& request, const HttpError& error) const;
  // Sends one token of each model through all services: /health says "loading" before the first has
  // come back. Ends when the edge drains.
  boost::asio::awaitable<void> warm_up();
  void drain() { draining_ = true; }

 private:
  using Reply = boost::asio::awaitable<void>;
  struct Route;
  static const std::vector<Route>& routes();

  boost::asio::awaitable<void> warm_up(std::string model);
  Reply dispatch(HttpExchange& exchange);
  Reply chat(HttpExchange& exchange);
  Reply completions(HttpExchange& exchange);
  Reply responses(HttpExchange& exchange);
  Reply responses_compact(HttpExchange& exchange);
  Reply responses_stored(HttpExchange& exchange);
  Reply models(HttpExchange& exchange);
  Reply model(HttpExchange& exchange);
  Reply messages(HttpExchange& exchange);
  Reply count_tokens(HttpExchange& exchange);
  Reply triton_model(HttpExchange& exchange);
  Reply triton_generate(HttpExchange& exchange);
  Reply triton_ready(HttpExchange& exchange);
  Reply triton_server(HttpExchange& exchange);
  Reply ollama(HttpExchange& exchange);
  Reply ollama_show(HttpExchange& exchange);
  Reply ollama_other(HttpExchange& exchange);
  Reply page(HttpExchange& exchange);
  Reply alive(HttpExchange& exchange);
  Reply health(HttpExchange& exchange);
  Reply live(HttpExchange& exchange);
  Reply version(HttpExchange& exchange);
  Reply props(HttpExchange& exchange);
  Reply metrics(HttpExchange& exchange);
  Reply tokenize(HttpExchange& exchange);
  Reply detokenize(HttpExchange& exchange);
  Reply tokens(HttpExchange& exchange, const char* op);

  Reply answer(HttpExchange& exchange, Result<HttpAsk> ask);
  Reply answer(HttpExchange& exchange, Result<HttpAsk> ask, RequestTrace* trace);
  Reply fail(HttpExchange& exchange, const HttpError& error);
  Reply send(HttpExchange& exchange, const Json& body);
  Reply send(HttpExchange& exchange, const Json& body, const std::vector<std::string>& ignored);
  HttpHeaders headers_for(const HttpRequest& request) const;
  Result<Json> body_of(const HttpRequest& request) const;
  Result<OrderedJson> ordered_body_of(const HttpRequest& request) const;
  boost::asio::awaitable<Result<wire::ClientAnswer>> ask(wire::ClientRequest request);
  boost::asio::awaitable<Result<wire::StatusReply>> status();
  // A request whose answer counts tokens or is their text; nothing if the client is gone.
  boost::asio::awaitable<std::optional<Result<wire::TokensReply>>> ask_tokens(
      HttpExchange& exchange, Result<TokensAsk> ask);
  // Of the biased words of a request, in their order; nothing if the client is gone.
  boost::asio::awaitable<std::optional<Result<TokenLists>>> tokens_of_words(HttpExchange& exchange,
                                                                            const TritonAsk& ask);

  boost::asio::io_context& context_;
  Calls& calls_;
  const EdgeOptions options_;
  const AccessPolicy access_;
  const std::int64_t started_;  // seconds since 1970
  WarmModels models_;
  bool draining_ = false;
};

// What the files of Edge share.
// Whether a request speaks Anthropic's protocol: by its path, or where both protocols have the path
// by the version that its clients say.
bool is_anthropic(const HttpRequest& request);
// An error as the protocol of the request says it, which is OpenAI's where the path names no other
// or is "". `headers` go with it.
HttpReply error_reply_to(const HttpRequest& request, const HttpError& error, HttpHeaders headers);
void add_ignored(const std::vector<std::string>& fields, HttpHeaders& headers);

}  // namespace foretoken::edge
