// The routes whose answers a model writes.
#include "services/edge/edge.h"

#include <chrono>
#include <memory>
#include <utility>

#include "common/client/client.h"
#include "services/edge/anthropic.h"
#include "services/edge/model_named.h"
#include "services/edge/openai.h"
#include "services/edge/responses.h"

namespace foretoken::edge {
namespace {

namespace asio = boost::asio;

std::int64_t nanoseconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::int64_t seconds_since_1970() { return nanoseconds_since_1970() / 1'000'000'000; }

// What follows stands in functions of its own and not in the coroutines: g++ 12 evaluates both
// sides of a conditional there if they make temporaries.

HttpError no_triton_verb(const TritonPath& path, const std::string& asked) {
  return path.verb == "infer"
             ? http_error(400, "tensors are not taken here; send text_input to /v2/models/" +
                                   path.model + "/generate")
             : http_error(404, "no such endpoint: " + asked);
}

// The client finds its trace by the header.
std::unique_ptr<RequestTrace> begin_trace(HttpExchange& exchange, const Tracer* tracer) {
  auto trace = tracer == nullptr ? nullptr : tracer->begin(exchange.request());
  if (trace) exchange.add_header("traceparent", write_traceparent(trace->context()));
  return trace;
}

GenerationRules rules_of(const EdgeSection& section, RequestTrace* trace) {
  GenerationRules rules{.ping_every = std::chrono::seconds(section.ping_s),
                        .max_held_bytes = std::size_t{section.max_bodies_mib} << 20};
  if (trace != nullptr)
    rules.watch = [trace](std::size_t choice, const wire::ClientAnswer& answer) {
      trace->on_answer(choice, answer);
    };
  return rules;
}

BodyRules body_rules(const EdgeSection& section) {
  return {.strict = section.strict,
          .max_choices = section.max_choices,
          .max_request_bytes = std::size_t{section.max_bodies_mib} << 20};
}

// A body, read by its protocol, beside what writes the answer. The JSON is gone when that begins:
// it takes several times the memory of its text, and an answer takes its time.
Result<HttpAsk> chat_ask(const Result<OrderedJson>& body, const BodyRules& rules) {
  if (!body.ok()) return body.error();
  auto ask = read_chat(*body, rules);
  if (!ask.ok()) return ask.error();
  auto encoder = chat_encoder(*ask, wire::hex_of(new_request_id()), seconds_since_1970());
  return HttpAsk{std::move(ask->generation), std::move(ask->ignored), std::move(encoder)};
}

Result<HttpAsk> completion_ask(const Result<OrderedJson>& body, const BodyRules& rules) {
  if (!body.ok()) return body.error();
  auto ask = read_completion(*body, rules);
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

Result<ResponsesAsk> responses_ask(const Result<OrderedJson>& body, bool strict) {
  if (!body.ok()) return body.error();
  return read_responses(*body, strict);
}

bool lacks_sampling(const ResponsesAsk& ask) {
  const auto& given = ask.generation.choices.front().given;
  return !given.contains("temperature") || !given.contains("top_p");
}

Result<HttpAsk> http_ask(Result<ResponsesAsk> ask) {
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
  return read_triton(*body, model_meant_by(path),
                     {.stream = path.verb == "generate_stream",
                      .excludes_input = section.triton_exclude_input,
                      .body = body_rules(section)});
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
  const std::size_t n_bytes = bytes_of(ask->generation.choices);
  const std::size_t max_bytes = body_rules(options_.section).max_request_bytes;
  if (n_bytes > max_bytes) {
    const HttpError error = http_error(too_large(max_bytes));
    co_return co_await fail(exchange, error);
  }
  if (!exchange.replace_body(n_bytes)) {
    const HttpError error = overloaded_error();
    co_return co_await fail(exchange, error);
  }
  const HttpRequest& request = exchange.request();
  HttpHeaders headers = headers_for(request);
  if (is_anthropic(request)) headers.emplace_back("request-id", request.id);
  add_ignored(ask->ignored, headers);
  const std::string tenant = access_.tenant_of(request);
  for (auto& choice : ask->generation.choices) choice.tenant = tenant;
  if (trace != nullptr) trace->ask(ask->generation);
  const GenerationRules rules = rules_of(options_.section, trace);
  co_await generate(exchange, calls_, std::move(ask->generation), *ask->encoder, rules,
                    std::move(headers));
}

Edge::Reply Edge::chat(HttpExchange& exchange) {
  auto ask = chat_ask(ordered_body_of(exchange.request()), body_rules(options_.section));
  co_await answer(exchange, std::move(ask));
}

Edge::Reply Edge::completions(HttpExchange& exchange) {
  auto ask = completion_ask(ordered_body_of(exchange.request()), body_rules(options_.section));
  co_await answer(exchange, std::move(ask));
}

Edge::Reply Edge::responses(HttpExchange& exchange) {
  auto body = std::make_unique<const Result<OrderedJson>>(ordered_body_of(exchange.request()));
  if (const auto error = memory_error(*body)) co_return co_await fail(exchange, *error);
  auto ask = responses_ask(*body, options_.section.strict);
  body.reset();
  if (ask.ok() && lacks_sampling(*ask)) {
    const auto now = co_await status();
    const std::string name = name_or_default(ask->model);
    if (const auto* model = model_named(now, name)) repeat_defaults(model->sampling, *ask);
  }
  auto whole = http_ask(std::move(ask));
  co_await answer(exchange, std::move(whole));
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

Edge::Reply Edge::messages(HttpExchange& exchange) {
  auto ask = message_ask(ordered_body_of(exchange.request()), options_.section.strict,
                         exchange.request().id);
  co_await answer(exchange, std::move(ask));
}

Edge::Reply Edge::triton_generate(HttpExchange& exchange) {
  const TritonPath path = triton_path(exchange.request().path);
  if (path.verb != "generate" && path.verb != "generate_stream") {
    const HttpError error = no_triton_verb(path, exchange.request().path);
    co_return co_await fail(exchange, error);
  }
  auto ask = triton_ask(body_of(exchange.request()), path, options_.section);
  std::optional<Result<TokenLists>> tokens = TokenLists();
  if (ask.ok() && !ask->biased_words.empty()) tokens = co_await tokens_of_words(exchange, *ask);
  if (!tokens) co_return;
  auto whole = complete(std::move(ask), *tokens);
  co_await answer(exchange, std::move(whole));
}

asio::awaitable<std::optional<Result<TokenLists>>> Edge::tokens_of_words(HttpExchange& exchange,
                                                                         const TritonAsk& ask) {
  auto questions = questions_of(ask, access_.tenant_of(exchange.request()));
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

}  // namespace foretoken::edge
