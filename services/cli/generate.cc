// generate: one prompt, one answer, or several answers to it.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include "common/base/json.h"
#include "common/client/client.h"
#include "common/wire/msgpack_reader.h"
#include "services/cli/ask.h"
#include "services/cli/generate_json.h"
#include "services/cli/request_json.h"
#include "services/cli/verbs.h"
#include "services/cli/voice.h"

namespace foretoken::cli {
namespace {

Error refused(const char* flag, std::string sentence) {
  return {ErrorCode::kInvalidValue, std::move(sentence), flag};
}

// The prompt: token ids, messages of a file, or text with or without the chat template.
Result<void> add_prompt(const RequestOptions& options, wire::ClientRequest& request) {
  const bool has_ids = !request.token_ids.empty(), has_messages = !options.messages_file.empty();
  const bool has_text = !options.prompt.empty();
  if (has_ids + has_messages + has_text > 1)
    return refused("prompt", "a prompt, --messages and --token-ids exclude one another");
  if ((has_ids || has_messages) && (options.raw || !options.system.empty()))
    return refused(options.raw ? "--raw" : "--system",
                   "--raw and --system are for a prompt that is text");
  if (has_ids) {
    request.prompt_kind = wire::PromptKind::kTokens;
    return {};
  }
  if (has_messages) {
    auto messages = read_messages(options.messages_file);
    if (!messages.ok()) return messages.error();
    request.prompt_kind = wire::PromptKind::kMessages;
    request.messages = std::move(*messages);
    return {};
  }
  std::string prompt = options.prompt;
  if (!has_text && ::isatty(0) == 0) prompt = read_all_of_stdin();
  if (prompt.empty()) return refused("prompt", "there is no prompt");
  // JSON for the chat template would quietly replace the bytes.
  if (!wire::is_utf8(prompt) || !wire::is_utf8(options.system))
    return Error{ErrorCode::kInvalidValue, "the prompt or the system message is not valid UTF-8"};
  if (options.raw && !options.system.empty())
    return refused("--system", "--raw takes no chat template, so --system has no place");
  if (options.raw) {
    request.prompt_kind = wire::PromptKind::kText;
    request.prompt = std::move(prompt);
  } else {
    request.prompt_kind = wire::PromptKind::kMessages;
    request.messages = chat_messages(options.system, prompt);
  }
  return {};
}

// n answers are n requests with one seed, as over HTTP.
std::vector<wire::ClientRequest> choices_of(wire::ClientRequest request) {
  const std::uint32_t n = std::exchange(request.n, 1);
  if (n > 1 && !request.given.contains("seed")) {
    request.params.seed = new_request_id().low;
    request.given.insert("seed");
  }
  std::vector<wire::ClientRequest> all(n, request);
  for (std::uint32_t i = 1; i < n; ++i) all[i].params.choice += i;
  return all;
}

// Whole answers, in order. The first error ends the rest.
Result<std::vector<wire::ClientReply>> ask_all(Client& client,
                                               std::vector<wire::ClientRequest> requests,
                                               TimePoint deadline) {
  std::vector<std::string> ids;
  for (auto& request : requests) {
    const auto sent = client.send(std::move(request), deadline);
    if (!sent.ok()) return sent.error();
    ids.push_back(wire::hex_of(*sent));
  }
  std::vector<wire::ClientReply> replies(ids.size());
  for (std::size_t n_left = ids.size(); n_left > 0;) {
    auto answer = client.receive(deadline);
    if (!answer)
      return Error{ErrorCode::kDeadlineExceeded,
                   "no answer from " + client.endpoint() + " in time"};
    if (!answer->ok()) return answer->error();
    const auto id = std::find(ids.begin(), ids.end(), answer_id(**answer));
    if (id == ids.end()) continue;
    if (const auto* error = std::get_if<wire::ClientError>(&**answer)) return error_from(*error);
    if (auto* reply = std::get_if<wire::ClientReply>(&**answer)) {
      replies[static_cast<std::size_t>(id - ids.begin())] = std::move(*reply);
      --n_left;
    }
  }
  return replies;
}

void print_logprobs(const wire::ClientReply& reply) {
  if (!reply.prompt_logprobs.empty())
    std::cout << for_stdout("\nprompt:\n" + logprob_table(reply.prompt_logprobs));
  if (!reply.logprobs.empty())
    std::cout << for_stdout("\nanswer:\n" + logprob_table(reply.logprobs));
}

// What a person and a script should know of the end.
int end_of(const std::vector<wire::ClientReply>& replies, const CliOptions& options) {
  const auto late = std::count_if(replies.begin(), replies.end(), [](const auto& reply) {
    return reply.finish_reason == "deadline";
  });
  if (late == 0) return kExitOk;
  std::cerr << "note: the time was up after " << options.request.timeout_s
            << " s (--timeout): the text ends before its end\n";
  return kExitDeadline;
}

// Of a stream, the last part: pieces are printed, and their log-probabilities kept here.
Result<wire::ClientReply> stream_one(Client& client,
                                     wire::ClientRequest request,
                                     TimePoint deadline) {
  std::vector<wire::LogprobEntry> logprobs, prompt_logprobs;
  const auto add = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  auto reply = client.generate(std::move(request), deadline, [&](const wire::ClientPiece& piece) {
    add(logprobs, piece.logprobs);
    add(prompt_logprobs, piece.prompt_logprobs);
    std::cout << for_stdout(piece.text) << std::flush;
  });
  if (!reply.ok()) return reply;
  std::cout << for_stdout(reply->text) << std::endl;
  add(logprobs, reply->logprobs);
  add(prompt_logprobs, reply->prompt_logprobs);
  reply->logprobs = std::move(logprobs);
  reply->prompt_logprobs = std::move(prompt_logprobs);
  return reply;
}

}  // namespace

int run_generate(const CliOptions& options) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  auto request = request_from(options.request);
  if (!request.ok()) return report_error(request.error());
  if (const auto good = add_prompt(options.request, *request); !good.ok())
    return report_error(good.error());
  Client client(loaded->config.bus, {.say = say_note});
  if (const auto found = find_router(client); !found.ok()) return report_error(found.error());
  const TimePoint deadline = deadline_for(*request);
  request->stream = !options.request.no_stream && !options.output.json && request->n == 1;
  const bool is_stream = request->stream;
  std::vector<wire::ClientReply> replies;
  if (is_stream) {
    auto reply = stream_one(client, std::move(*request), deadline);
    if (!reply.ok()) return report_error(reply.error());
    replies.push_back(std::move(*reply));
  } else {
    auto all = ask_all(client, choices_of(std::move(*request)), deadline);
    if (!all.ok()) return report_error(all.error());
    replies = std::move(*all);
  }
  for (const auto& reply : replies) say_times(reply);
  if (options.output.json) {
    std::cout << to_text(generate_json(replies), 2) << "\n";
    return end_of(replies, options);
  }
  for (std::size_t i = 0; i < replies.size(); ++i) {
    if (replies.size() > 1)
      std::cout << (i == 0 ? "" : "\n") << "answer " << i + 1 << " of " << replies.size() << ":\n";
    if (!is_stream) std::cout << for_stdout(replies[i].text) << "\n";
    print_logprobs(replies[i]);
    std::cout << std::flush;
    if (!options.output.quiet && (stderr_is_terminal() || is_verbose()))
      std::cerr << painted_err("[" + summary_of(replies[i]) + "]", Paint::kFaint) << "\n";
  }
  return end_of(replies, options);
}

}  // namespace foretoken::cli
