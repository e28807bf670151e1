// generate, chat: clients for people.
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "common/base/json.h"
#include "common/config/resolve.h"
#include "common/wire/msgpack_reader.h"
#include "services/cli/client.h"
#include "services/cli/reply_json.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

using std::chrono::milliseconds;

TimePoint deadline_for(const wire::ClientRequest& request) {
  // A little more than the server's own deadline, so that its answer about it arrives.
  return std::chrono::steady_clock::now() + milliseconds(request.timeout_ms) + milliseconds(1000);
}

void print_summary(const wire::ClientReply& reply) {
  const auto& m = reply.metrics;
  const auto& s = m.speculative_decoding;
  std::cerr << "[" << reply.usage.completion_tokens << " tokens, " << static_cast<int>(m.tokens_per_second) << " tok/s, "
            << reply.finish_reason;
  if (s.num_draft_tokens > 0)
    std::cerr << "; " << s.proposer << ": " << static_cast<int>(100 * s.draft_acceptance_rate) << " % of "
              << s.num_draft_tokens << " accepted, " << s.mean_acceptance_length << " tokens a round";
  if (!s.fallback_reason.empty()) std::cerr << "; not speculative: " << s.fallback_reason;
  std::cerr << "]\n";
}

// The socket takes a request for a router that is not there, and an answer may take minutes: ask first who is there.
Result<void> find_router(Client& client) {
  if (client.status(std::chrono::steady_clock::now() + std::chrono::seconds(5)).ok()) return {};
  return Error{ErrorCode::kUnavailable, "no router answers at " + client.endpoint()};
}

constexpr const char* kChatHelp =
    "/help            this\n/clear           forget the conversation\n/system TEXT     set the system message\n"
    "/spec on|off     speculation; the text is the same\n/quit            end (also Ctrl-D)\n";

}  // namespace

int run_generate(const CliOptions& options) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  auto request = request_from(options.request);
  if (!request.ok()) return report_error(request.error());
  std::string prompt = options.request.prompt;
  if (prompt.empty() && ::isatty(0) == 0) prompt = read_all_of_stdin();
  if (prompt.empty()) return report_error({ErrorCode::kInvalidValue, "there is no prompt", "prompt"});
  // JSON for the chat template would quietly replace the bytes.
  if (!wire::is_utf8(prompt) || !wire::is_utf8(options.request.system))
    return report_error({ErrorCode::kInvalidValue, "the prompt or the system message is not valid UTF-8"});
  if (options.request.raw) {
    if (!options.request.system.empty())
      return report_error({ErrorCode::kInvalidValue, "--raw takes no chat template, so --system has no place", "--system"});
    request->prompt_kind = wire::PromptKind::kText;
    request->prompt = prompt;
  } else {
    request->prompt_kind = wire::PromptKind::kMessages;
    request->messages_json = chat_messages(options.request.system, prompt);
  }
  request->stream = !options.request.no_stream && !options.output.json;
  Client client(loaded->config.bus);
  if (const auto found = find_router(client); !found.ok()) return report_error(found.error());
  const TimePoint deadline = deadline_for(*request);
  const auto reply = client.generate(std::move(*request), deadline,
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
  Client client(loaded->config.bus);
  OrderedJson history = OrderedJson::array();
  std::string system = options.request.system;
  bool speculate = true;
  const bool interactive = ::isatty(0) != 0;
  if (const auto found = find_router(client); !found.ok()) return report_error(found.error());
  if (interactive) std::cerr << "Talk to the model. /help shows commands, Ctrl-D ends.\n";
  for (std::string line;;) {
    if (interactive) std::cerr << "> " << std::flush;
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    if (line == "/quit") break;
    if (line == "/help") {
      std::cerr << kChatHelp;
      continue;
    }
    if (line == "/clear") {
      history = OrderedJson::array();
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
    OrderedJson messages = OrderedJson::array();
    if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
    for (const auto& message : history) messages.push_back(message);
    messages.push_back({{"role", "user"}, {"content", line}});
    wire::ClientRequest request = *base;
    request.prompt_kind = wire::PromptKind::kMessages;
    request.messages_json = to_text(messages);
    request.stream = true;
    if (!speculate) request.num_draft_tokens = 0;
    std::string answer;
    const TimePoint deadline = deadline_for(request);
    const auto reply = client.generate(std::move(request), deadline, [&](const wire::ClientPiece& piece) {
      answer += piece.text;
      std::cout << piece.text << std::flush;
    });
    if (!reply.ok()) {
      const int code = report_error(reply.error());
      if (reply.error().code == ErrorCode::kUnavailable) return code;
      continue;
    }
    std::cout << reply->text << std::endl;
    answer += reply->text;
    history.push_back({{"role", "user"}, {"content", line}});
    history.push_back({{"role", "assistant"}, {"content", answer}});
    if (!options.output.quiet && interactive) print_summary(*reply);
  }
  return kExitOk;
}

}  // namespace foretoken::cli
