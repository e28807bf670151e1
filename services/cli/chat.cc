// chat: a conversation at the terminal.
#include <algorithm>
#include <array>
#include <iostream>
#include <string_view>
#include <utility>

#include "common/client/client.h"
#include "common/wire/msgpack_reader.h"
#include "services/cli/ask.h"
#include "services/cli/chat_input.h"
#include "services/cli/conversation.h"
#include "services/cli/verbs.h"
#include "services/cli/voice.h"

namespace foretoken::cli {
namespace {

// How long after a cancellation the end of the answer may take.
constexpr auto kCancelPatience = std::chrono::seconds(3);

struct ChatAnswer {
  Result<wire::ClientReply> reply;
  std::string text = {};  // all of it, pieces and end
  bool interrupted = false;
};

// Streams one answer to stdout. Ctrl-C cancels the request at the router; a second one does not
// wait for the answer's end.
ChatAnswer answer_of(Client& client, wire::ClientRequest request, ChatInput& input) {
  ChatAnswer answer{.reply = Error{ErrorCode::kDeadlineExceeded,
                                   "no answer from " + client.endpoint() + " in time"}};
  TimePoint deadline = deadline_for(request);
  const auto sent = client.send(std::move(request), deadline);
  if (!sent.ok()) return answer.reply = sent.error(), answer;
  const std::string id = wire::hex_of(*sent);
  while (steady_now() < deadline) {
    const auto received =
        client.receive(std::min(deadline, steady_now() + std::chrono::milliseconds(50)));
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
      std::cout << for_stdout(piece->text) << std::flush;
    } else if (const auto* reply = std::get_if<wire::ClientReply>(&**received)) {
      answer.text += reply->text;
      std::cout << for_stdout(reply->text) << std::flush;
      answer.reply = *reply;
      return answer;
    }
  }
  client.forget(*sent);
  return answer;
}

class Chat {
 public:
  Chat(const CliOptions& options, const wire::ClientRequest& flags, const BusSection& bus)
      : options_(options),
        conversation_(flags, options.request.system),
        input_(options.no_history ? "" : chat_history_file(), complete),
        client_(bus, {.say = say_note}) {}

  int run();

 private:
  // Of a line that begins with "/": what follows its first word.
  using Handler = void (Chat::*)(const std::string& rest);
  struct Command {
    std::string_view name, takes, does;
    Handler handler;
  };
  static const std::array<Command, 9> kCommands;
  static std::vector<std::string> complete(const std::string& before);

  void help(const std::string&);
  void clear(const std::string&) { conversation_.clear(); }
  void system(const std::string& text) { conversation_.set_system(text); }
  void spec(const std::string& word);
  void set(const std::string& words);
  void save(const std::string& file);
  void load(const std::string& file);
  void quit(const std::string&) { exit_code_ = kExitOk; }

  void obey(const std::string& entry);
  void ask(const std::string& entry);
  void on_interrupt();
  static void say(const Result<void>& done);

  const CliOptions& options_;
  Conversation conversation_;
  ChatInput input_;  // before the client: its threads must not take the signals either
  Client client_;
  bool interrupted_before_ = false;
  std::optional<int> exit_code_;  // once it is over
};

constexpr std::array<Chat::Command, 9> Chat::kCommands{{
    {"/help", "", "show this help", &Chat::help},
    {"/clear", "", "forget the conversation", &Chat::clear},
    {"/system", "[TEXT]", "set the system message; none without TEXT", &Chat::system},
    {"/set", "[KEY [VALUE]]",
     "set a key of the request, such as temperature 0.5; without VALUE as by default; alone: show",
     &Chat::set},
    {"/spec", "on|off", "speculation; the text is the same", &Chat::spec},
    {"/save", "FILE", "write the conversation, as JSON", &Chat::save},
    {"/load", "FILE", "go on with a saved one", &Chat::load},
    {"/quit", "", "end (also Ctrl-D)", &Chat::quit},
    {"/exit", "", "the same as /quit", &Chat::quit},
}};

std::vector<std::string> Chat::complete(const std::string& before) {
  constexpr std::string_view kSet = "/set ";
  std::vector<std::string> all;
  if (before.starts_with(kSet)) {
    for (const auto& key : Conversation::keys()) all.push_back(std::string(kSet) + key + " ");
  } else if (before.starts_with('/')) {
    for (const auto& command : kCommands)
      all.push_back(std::string(command.name) + (command.takes.empty() ? "" : " "));
  }
  std::erase_if(all, [&](const std::string& each) { return !each.starts_with(before); });
  return all;
}

void Chat::help(const std::string&) {
  for (const auto& [name, takes, does, handler] : kCommands) {
    const std::string head = std::string(name) + " " + std::string(takes);
    std::cerr << head << std::string(head.size() < 20 ? 20 - head.size() : 1, ' ') << does << "\n";
  }
  std::cerr << "Several lines: \"\"\" before and after them, or \\ at the end of a line, or "
               "Alt-Enter, or paste them.\n"
               "Ctrl-C stops an answer; twice in a row it ends the chat. Ctrl-R searches what was "
               "typed before.\n";
}

void Chat::say(const Result<void>& done) {
  if (!done.ok()) std::cerr << "error: " << done.error().message << "\n";
}

void Chat::spec(const std::string& word) {
  if (word == "on")
    say(conversation_.unset("num_draft_tokens"));
  else if (word == "off")
    say(conversation_.set("num_draft_tokens", "0"));
  else
    std::cerr << "error: /spec takes on or off\n";
}

void Chat::set(const std::string& words) {
  const auto space = words.find_first_of(" \n");
  const std::string key = words.substr(0, space);
  if (key.empty()) {
    for (const auto& [name, value] : conversation_.settings().items())
      std::cerr << name << " " << to_text(value) << "\n";
  } else if (space == std::string::npos) {
    say(conversation_.unset(key));
  } else {
    say(conversation_.set(key, words.substr(space + 1)));
  }
}

void Chat::save(const std::string& file) {
  if (file.empty()) return say(Error{ErrorCode::kInvalidValue, "/save needs the name of a file"});
  const auto done = conversation_.save(file);
  if (done.ok()) std::cerr << "saved to " << file << "\n";
  say(done);
}

void Chat::load(const std::string& file) {
  if (file.empty()) return say(Error{ErrorCode::kInvalidValue, "/load needs the name of a file"});
  say(conversation_.load(file));
}

void Chat::obey(const std::string& entry) {
  const auto end = entry.find_first_of(" \n");
  const std::string name = entry.substr(0, end);
  const auto rest = entry.find_first_not_of(' ', end == std::string::npos ? entry.size() : end);
  const auto command = std::find_if(kCommands.begin(), kCommands.end(),
                                    [&](const Command& each) { return each.name == name; });
  if (command == kCommands.end()) {
    std::cerr << "error: no command " << name << "; /help shows them\n";
    return;
  }
  (this->*command->handler)(rest == std::string::npos ? "" : entry.substr(rest));
}

void Chat::ask(const std::string& entry) {
  ChatAnswer answer = answer_of(client_, conversation_.request_for(entry), input_);
  interrupted_before_ = answer.interrupted;
  if (!answer.reply.ok()) {
    const Error& error = answer.reply.error();
    if (!answer.text.empty()) std::cout << std::endl;
    if (answer.interrupted && error.code == ErrorCode::kCancelled) {
      std::cerr << "\n";
      exit_code_ = kExitInterrupted;
      return;
    }
    const int code = report_error(error);
    if (error.code == ErrorCode::kUnavailable) exit_code_ = code;
    if (error.code == ErrorCode::kContextLengthExceeded)
      std::cerr << "  try: /clear, which begins a new conversation\n";
    return;
  }
  std::cout << std::endl;
  // What was said of an answer that was stopped is part of the conversation.
  if (answer.interrupted && answer.text.empty()) return;
  conversation_.add("user", entry);
  conversation_.add("assistant", answer.text);
  if (answer.reply->finish_reason == "deadline")
    std::cerr << "note: the time was up (--timeout, /set timeout_ms): the answer ends before its "
                 "end\n";
  if (!options_.output.quiet && input_.at_terminal())
    std::cerr << painted_err("[" + summary_of(*answer.reply) + "]", Paint::kFaint) << "\n";
  say_times(*answer.reply);
}

void Chat::on_interrupt() {
  std::cerr << "\n";
  if (std::exchange(interrupted_before_, true))
    exit_code_ = kExitInterrupted;
  else
    std::cerr << "^D ends, and so does a second ^C\n";
}

int Chat::run() {
  if (const auto found = find_router(client_); !found.ok()) return report_error(found.error());
  if (input_.at_terminal())
    std::cerr << "Talk to the model. /help shows what else can be said, Ctrl-D ends.\n";
  for (std::string entry; !exit_code_;) {
    const auto what = input_.next_entry(entry);
    if (what == ChatInput::What::kEnd) return kExitOk;
    if (what == ChatInput::What::kInterrupt) {
      on_interrupt();
      continue;
    }
    interrupted_before_ = false;
    if (!wire::is_utf8(entry))
      std::cerr << "error: what was typed is not valid UTF-8\n";
    else if (what == ChatInput::What::kEntry && entry.starts_with('/'))
      obey(entry);
    else if (entry.find_first_not_of(" \t\n") != std::string::npos)
      ask(entry);
  }
  return *exit_code_;
}

}  // namespace

int run_chat(const CliOptions& options) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  const auto flags = request_from(options.request);
  if (!flags.ok()) return report_error(flags.error());
  if (!wire::is_utf8(options.request.system))
    return report_error({ErrorCode::kInvalidValue, "the system message is not valid UTF-8"});
  return Chat(options, *flags, loaded->config.bus).run();
}

}  // namespace foretoken::cli
