#include "services/edge/generation.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "services/edge/answer_room.h"

namespace foretoken::edge {
namespace {

namespace asio = boost::asio;

HttpHeaders joined(HttpHeaders a, HttpHeaders b) {
  for (auto& each : b) a.push_back(std::move(each));
  return a;
}

// The router names its own keys; a client reads about its fields.
HttpError about_fields(HttpError error, const std::string& constraint_field) {
  if (!constraint_field.empty())
    for (const std::string_view key : kConstraintKeys)
      if (error.param == key) return about_field(std::move(error), key, constraint_field);
  return about_field(std::move(error), "token_ids", "prompt");
}

// An answer that ran out of time is no answer for a client that cannot see it. Where the room is
// too small, the call says only that it ended.
std::optional<HttpError> error_in(const wire::ClientAnswer& answer,
                                  const AnswerRoom& room,
                                  const std::string& constraint_field) {
  if (room.refusal()) return room.refusal();
  if (const auto* error = std::get_if<wire::ClientError>(&answer))
    return about_fields(http_error(*error), constraint_field);
  const auto* reply = std::get_if<wire::ClientReply>(&answer);
  if (reply != nullptr && reply->finish_reason == "deadline")
    return http_error(Error{ErrorCode::kDeadlineExceeded,
                            "the request ran out of time after " +
                                std::to_string(reply->usage.completion_tokens) + " tokens"});
  if (reply != nullptr && reply->finish_reason == "cancelled")
    return http_error(Error{ErrorCode::kCancelled, "the request was cancelled"});
  return std::nullopt;
}

// The router knows of one prompt each; where a body has several, its sentence says which.
std::optional<HttpError> error_in(const Call::Arrival& arrival,
                                  const Call& call,
                                  const AnswerRoom& room,
                                  std::size_t n_prompts,
                                  const std::string& constraint_field) {
  auto error = error_in(arrival.answer, room, constraint_field);
  if (!error || n_prompts < 2 || error->status != 400) return error;
  const std::size_t n_each = std::max<std::size_t>(1, call.ids().size() / n_prompts);
  error->message =
      "prompt entry " + std::to_string(arrival.request / n_each) + ": " + error->message;
  return error;
}

asio::awaitable<void> send_whole(HttpExchange& exchange,
                                 Call& call,
                                 const AnswerRoom& room,
                                 std::size_t n_prompts,
                                 Encoder& encoder,
                                 const GenerationRules& rules,
                                 HttpHeaders headers) {
  std::vector<wire::ClientReply> replies(call.ids().size());
  for (std::size_t n_whole = 0; n_whole < replies.size();) {
    auto arrival = co_await call.next(TimePoint::max());
    if (!arrival) co_return;
    if (rules.watch) rules.watch(arrival->request, arrival->answer);
    if (const auto error = error_in(*arrival, call, room, n_prompts, rules.constraint_field)) {
      std::vector<wire::ClientReply>().swap(replies);
      HttpReply reply{.status = encoder.error_status(*error),
                      .body = encoder.error_body(*error),
                      .headers = joined(headers, retry_headers(*error))};
      co_return co_await exchange.reply(std::move(reply));
    }
    if (auto* reply = std::get_if<wire::ClientReply>(&arrival->answer)) {
      replies[arrival->request] = std::move(*reply);
      ++n_whole;
    }
  }
  HttpReply reply{.body = encoder.whole(replies), .headers = std::move(headers)};
  std::vector<wire::ClientReply>().swap(replies);  // a client takes its time
  co_await exchange.reply(std::move(reply));
}

asio::awaitable<void> send_stream(HttpExchange& exchange,
                                  Call& call,
                                  const AnswerRoom& room,
                                  std::size_t n_prompts,
                                  Encoder& encoder,
                                  const GenerationRules& rules,
                                  HttpHeaders headers) {
  bool has_begun = false;
  TimePoint quiet_since = steady_now();  // the time of the last write
  for (std::size_t n_whole = 0; n_whole < call.ids().size();) {
    auto arrival = co_await call.next(quiet_since + rules.ping_every);
    if (!arrival && exchange.is_gone()) co_return;
    std::optional<HttpError> error;
    if (arrival && rules.watch) rules.watch(arrival->request, arrival->answer);
    if (arrival) error = error_in(*arrival, call, room, n_prompts, rules.constraint_field);
    if (error && !has_begun) {
      HttpReply reply{.status = encoder.error_status(*error),
                      .body = encoder.error_body(*error),
                      .headers = joined(headers, retry_headers(*error))};
      co_return co_await exchange.reply(std::move(reply));
    }
    // The header waits for the first answer, so that an error has its status.
    if (!std::exchange(has_begun, true)) {
      HttpHeaders first = headers;
      if (!co_await exchange.begin_stream(std::move(first))) co_return;
    }
    std::string events;
    if (error) {
      events = encoder.error_event(*error);
    } else if (arrival) {
      if (const auto* piece = std::get_if<wire::ClientPiece>(&arrival->answer)) {
        events = encoder.on_piece(arrival->request, *piece);
      } else if (const auto* reply = std::get_if<wire::ClientReply>(&arrival->answer)) {
        events = encoder.on_reply(arrival->request, *reply);
        if (++n_whole == call.ids().size()) events += encoder.end();
      }
    }
    // Pieces may have nothing for the client: thoughts that it does not want, calls behind the one.
    if (events.empty() && steady_now() >= quiet_since + rules.ping_every) events = encoder.ping();
    if (!events.empty()) {
      if (!co_await exchange.write(std::move(events))) co_return;
      quiet_since = steady_now();
    }
    if (arrival) call.let_go(*arrival);
    if (error) co_return co_await exchange.end_stream(false);
  }
  co_await exchange.end_stream(true);
}

}  // namespace

asio::awaitable<void> generate(HttpExchange& exchange,
                               Calls& calls,
                               Generation generation,
                               Encoder& encoder,
                               GenerationRules rules,
                               HttpHeaders headers) {
  if (exchange.is_gone()) co_return;  // while its route waited for something else
  for (auto& choice : generation.choices) choice.stream = generation.stream;
  rules.constraint_field = std::move(generation.constraint_field);
  AnswerRoom room(exchange, rules.max_held_bytes);
  const std::shared_ptr<Call> call = calls.start(std::move(generation.choices));
  call->hold_with([&room](std::size_t n_bytes) { return room.hold(n_bytes); });
  exchange.on_gone([&call = *call] { call.interrupt(); });
  if (generation.stream)
    co_await send_stream(exchange, *call, room, generation.n_prompts, encoder, rules,
                         std::move(headers));
  else
    co_await send_whole(exchange, *call, room, generation.n_prompts, encoder, rules,
                        std::move(headers));
  exchange.on_gone({});
}

}  // namespace foretoken::edge
