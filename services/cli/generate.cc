// generate, chat: clients for people.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include "common/base/json.h"
#include "common/client/answer_json.h"
#include "common/client/client.h"
#include "common/config/resolve.h"
#include "common/wire/msgpack_reader.h"
#include "services/cli/chat_input.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

using std::chrono::milliseconds;

TimePoint deadline_for(const wire::ClientRequest& request) {
  // A little more than the server's own deadline, so that its answer about it arrives.
  return steady_now() + milliseconds(request.timeout_ms) + milliseconds(1000);
}

void print_summary(const wire::ClientReply& reply) {
  const auto& m = reply.metrics;
  const auto& s = m.speculative_decoding;
  std::cerr << "[" << reply.usage.completion_tokens << " tokens, "
            << static_cast<int>(m.tokens_per_second) << " tok/s, " << reply.finish_reason;
  if (s.num_draft_tokens > 0)
    std::cerr << "; " << s.proposer << ": " << static_cast<int>(100 * s.draft_acceptance_rate)
              << " % of " << s.num_draft_tokens << " accepted, " << s.mean_acceptance_length
              << " tokens a round";
  if (!s.fallback_reason.empty()) std::cerr << "; not speculative: " << s.fallback_reason;
  std::cerr << "]\n";
}

// The socket takes a request for a router that is not there, and an answer may take minutes: ask
// first who is there.
Result<void> find_router(Client& client) {
  const auto status = client.status(steady_now() + std::chrono::seconds(5));
  if (status.ok()) return {};
  return client.unreachable(status.error());
}

constexpr const char* kChatHelp =
    "/help            this\n/clear           forget the conversation\n/system TEXT     set the "
    "system message\n"
    "/spec on|off     speculation; the text is the same\n/quit            end (also Ctrl-D)\n"
    "Ctrl-C           stops an answer; twice in a row ends\n";

// How long after a cancellation the end of the answer may take.
constexpr auto kCancelPatience = std::chrono::seconds(3);

struct ChatAnswer {
  Result<wire::ClientReply> reply;
  std::string text;  // all of it, pieces and end
  bool interrupted = false;
};

// Streams one answer to stdout. Ctrl-C cancels the request at the router; a second one does not
// wait for that to be heard.
ChatAnswer answer_of(Client& client, wire::ClientRequest request, ChatInput& input) {
  const Error late{ErrorCode::kDeadlineExceeded,
                   "no answer from " + client.endpoint() + " in time"};
  TimePoint deadline = deadline_for(request);
  const auto sent = client.send(std::move(request), deadline);
  ChatAnswer answer{.reply = late, .text = {}};
  if (!sent.ok()) return answer.reply = sent.error(), answer;
  const std::string id = wire::hex_of(*sent);
  while (steady_now() < deadline) {
    const auto received = client.receive(std::min(deadline, steady_now() + milliseconds(50)));
    if (input.interrupted()) {
      if (answer.interrupted)
        return client.forget(*sent), answer.reply = Error{ErrorCode::kCancelled, "interrupted"},
                                     answer;
      answer.interrupted = true;
      wire::ClientRequest cancel;
      cancel.op = wire::ClientOp::kCancel;
      cancel.request_id = *sent;
      deadline = std::min(deadline, steady_now() + kCancelPatience);
      (void)client.send(std::move(cancel), deadline);
    }
    if (!received) continue;
    if (!received->ok()) return answer.reply = received->error(), answer;
    if (answer_id(**received) != id) continue;
    if (const auto* error = std::get_if<wire::ClientError>(&**received))
      return answer.reply = error_from(*error), answer;
    if (const auto* piece = std::get_if<wire::ClientPiece>(&**received)) {
      answer.text += piece->text;
      std::cout << piece->text << std::flush;
    } else if (const auto* reply = std::get_if<wire::ClientReply>(&**received)) {
      answer.text += reply->text;
      std::cout << reply->text << std::flush;
      answer.reply = *reply;
      return answer;
    }
  }
  client.forget(*sent);
  return answer;
}

}  // namespace

int run_generate(const CliOptions& options) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  auto request = request_from(options.request);
  if (!request.ok()) return report_error(request.error());
  std::string prompt = options.request.prompt;
  if (prompt.empty() && ::isatty(0) == 0) prompt = read_all_of_stdin();
  if (prompt.empty())
    return report_error({ErrorCode::kInvalidValue, "there is no prompt", "prompt"});
  // JSON for the chat template would quietly replace the bytes.
  if (!wire::is_utf8(prompt) || !wire::is_utf8(options.request.system))
    return report_error(
        {ErrorCode::kInvalidValue, "the prompt or the system message is not valid UTF-8"});
  if (options.request.raw) {
    if (!options.request.system.empty())
      return report_error({ErrorCode::kInvalidValue,
                           "--raw takes no chat template, so --system has no place", "--system"});
    request->prompt_kind = wire::PromptKind::kText;
    request->prompt = prompt;
  } else {
    request->prompt_kind = wire::PromptKind::kMessages;
    request->messages = chat_messages(options.request.system, prompt);
  }
  request->stream = !options.request.no_stream && !options.output.json;
  Client client(loaded->config.bus, {.say = say_note});
  if (const auto found = find_router(client); !found.ok()) return report_error(found.error());
  const TimePoint deadline = deadline_for(*request);
  const auto reply = client.generate(
      std::move(*request), deadline,
      [](const wire::ClientPiece& piece) { std::cout << piece.text << std::flush; });
  if (!reply.ok()) return report_error(reply.error());
  // The text so far is printed, but a script must see that the time was up before the end.
  const int exit_code = reply->finish_reason == "deadline" ? kExitDeadline : kExitOk;
  if (options.output.json) {
    std::cout << to_text(reply_json(*reply), 2) << "\n";
    return exit_code;
  }
  std::cout << reply->text << std::endl;
  if (!options.output.quiet && stderr_is_terminal()) print_summary(*reply);
  return exit_code;
}

int run_chat(const CliOptions& options) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  const auto base = request_from(options.request);
  if (!base.ok()) return report_error(base.error());
  const bool interactive = ::isatty(0) != 0;
  ChatInput input(interactive);  // before the client: its threads must not take the signal either
  Client client(loaded->config.bus, {.say = say_note});
  std::vector<wire::ChatMessage> history;
  std::string system = options.request.system;
  bool speculate = true, interrupted_before = false;
  if (const auto found = find_router(client); !found.ok()) return report_error(found.error());
  if (interactive) std::cerr << "Talk to the model. /help shows commands, Ctrl-D ends.\n";
  for (std::string line;;) {
    if (interactive) std::cerr << "> " << std::flush;
    const ChatInput::What what = input.next_line(line);
    if (what == ChatInput::What::kEnd) break;
    if (what == ChatInput::What::kInterrupt) {
      std::cerr << "\n";
      if (std::exchange(interrupted_before, true)) return kExitInterrupted;
      std::cerr << "^D ends, and so does a second ^C\n";
      continue;
    }
    interrupted_before = false;
    if (line.empty()) continue;
    if (line == "/quit") break;
    if (line == "/help") {
      std::cerr << kChatHelp;
      continue;
    }
    if (line == "/clear") {
      history.clear();
      continue;
    }
    if (line == "/system" || line.starts_with("/system ")) {
      system = line.substr(std::min<std::size_t>(line.size(), 8));  // nothing = none
      continue;
    }
    if (line == "/spec on" || line == "/spec off") {
      speculate = line == "/spec on";
      continue;
    }
    if (line.starts_with("/")) {
      std::cerr << "no command " << line << "; /help shows them\n";
      continue;
    }
    if (!wire::is_utf8(line) || !wire::is_utf8(system)) {
      std::cerr << "error: the line or the system message is not valid UTF-8\n";
      continue;
    }
    wire::ClientRequest request = *base;
    request.prompt_kind = wire::PromptKind::kMessages;
    if (!system.empty()) request.messages.push_back({"system", system});
    request.messages.insert(request.messages.end(), history.begin(), history.end());
    request.messages.push_back({"user", line});
    request.stream = true;
    if (!speculate) request.num_draft_tokens = 0;
    ChatAnswer answer = answer_of(client, std::move(request), input);
    interrupted_before = answer.interrupted;
    if (!answer.reply.ok()) {
      std::cout << std::flush;
      if (answer.interrupted && answer.reply.error().code == ErrorCode::kCancelled)
        return std::cerr << "\n", kExitInterrupted;
      const int code = report_error(answer.reply.error());
      if (answer.reply.error().code == ErrorCode::kUnavailable) return code;
      continue;
    }
    std::cout << std::endl;
    // What was said of an answer that was stopped is part of the conversation.
    if (answer.interrupted && answer.text.empty()) continue;
    history.push_back({"user", line});
    history.push_back({"assistant", answer.text});
    if (!options.output.quiet && interactive) print_summary(*answer.reply);
  }
  return kExitOk;
}

}  // namespace foretoken::cli
