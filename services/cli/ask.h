// What generate, chat and run share: the check for a router, timeouts, and the summary line of an
// answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/client/client.h"

namespace foretoken::cli {

// A little more than the server's own deadline, so that its answer about it arrives.
TimePoint deadline_for(const wire::ClientRequest& request);

// The socket takes a request for a router that is not there, and an answer may take minutes: ask
// first whether there is one.
Result<void> find_router(Client& client);

// The answer to a question whose only good answer is a Reply; an Error by the patience.
template <class Reply>
Result<Reply> ask_for(Client& client, wire::ClientRequest question, Duration patience) {
  const std::string op(wire::name_of(question.op));
  auto answer = client.ask(std::move(question), steady_now() + patience);
  if (!answer.ok()) return answer.error();
  if (auto* reply = std::get_if<Reply>(&*answer)) return std::move(*reply);
  return Error{ErrorCode::kMalformed, "the router's answer to " + op + " is of another kind"};
}

// The Prometheus text of all services.
Result<std::string> metrics_of(Client& client);

// The ids of a text, as the tokenizer of the model makes them.
Result<std::vector<TokenId>> tokens_of(Client& client,
                                       const std::string& text,
                                       const std::string& model);

// Why a reply is no whole answer to a request for so many tokens: its time was up, or it was
// cancelled.
std::optional<Error> cut_off(const wire::ClientReply& reply, std::uint32_t max_tokens);

// With --verbose, what took how long of an answer.
void say_times(const wire::ClientReply& reply);
// "24 tokens, 412 tok/s, stop; draft: 18 of 21 guesses right, 6.7 tokens a round"
std::string summary_of(const wire::ClientReply& reply);
// A number for people: one decimal below 100, none above.
std::string plain_number(double value);

// A table of them for people: the token, its probability, and the likeliest ones.
std::string logprob_table(const std::vector<wire::LogprobEntry>& entries);

// Text of a model on its way to a terminal, which takes control characters for commands: all but
// ends of lines and tabs become U+FFFD. To a pipe or a file the text goes as it is.
std::string for_stdout(std::string_view text);

}  // namespace foretoken::cli
