// run: a file of requests, asked several at a time, and a file of their answers in the same order.
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/client/client.h"
#include "common/wire/client_codec.h"
#include "services/cli/ask.h"
#include "services/cli/batch_line.h"
#include "services/cli/batch_output.h"
#include "services/cli/progress_line.h"
#include "services/cli/request_json.h"
#include "services/cli/terminal_signals.h"
#include "services/cli/verbs.h"
#include "services/cli/voice.h"

namespace foretoken::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kTurn = 100ms;  // between looks at the clock and at signals
// After Ctrl-C: for the router to have heard of it.
constexpr auto kCancelTime = 3s;
constexpr auto kShortestPause = 50ms;  // before a full router is asked again

// Where the lines of the batch are, and their ids. Lines are read again when it is their turn.
struct BatchInput {
  std::ifstream file;
  std::vector<std::streamoff> at;
  std::vector<std::size_t> numbers;  // in the file, from 1; empty lines are counted, too
  std::vector<RequestId> ids;

  std::string line(std::size_t i) {
    std::string text;
    file.clear();
    file.seekg(at[i]);
    std::getline(file, text);
    return text;
  }
};

Result<BatchInput> read_batch(const std::string& path, const Json& flags) {
  if (std::error_code none;
      std::filesystem::exists(path, none) && !std::filesystem::is_regular_file(path, none))
    return Error{ErrorCode::kConfig, path + " is no regular file; its lines are read twice"};
  BatchInput input{.file = std::ifstream(path, std::ios::binary)};
  if (!input.file)
    return Error{ErrorCode::kConfig, path + " cannot be read: " + std::strerror(errno)};
  std::map<RequestId, std::size_t> seen;
  std::streamoff at = 0;
  std::size_t number = 0;
  for (std::string line; std::getline(input.file, line);) {
    ++number;
    const std::streamoff begin =
        std::exchange(at, at + static_cast<std::streamoff>(line.size()) + 1);
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const RequestId first = batch_line_id(line, 0, flags);
    const std::size_t occurrence = seen[first]++;
    input.at.push_back(begin);
    input.numbers.push_back(number);
    input.ids.push_back(occurrence == 0 ? first : batch_line_id(line, occurrence, flags));
  }
  if (input.file.bad())
    return Error{ErrorCode::kConfig, path + " cannot be read: " + std::strerror(errno)};
  return input;
}

// What the flags say, as keys of a request.
Json flags_json(const wire::ClientRequest& flags) {
  Json json = json_of_request(flags);
  for (const char* key : {"prompt", "messages", "token_ids", "stream", "op"}) json.erase(key);
  return json;
}

// The same for the same question of one run and of those that continue it: the router then has the
// answer, or works on it. Another run of the same file asks for itself.
RequestId request_id_of(RequestId run,
                        RequestId line,
                        std::size_t choice,
                        const wire::ClientRequest& request) {
  const std::string text = wire::hex_of(run) + wire::hex_of(line) + std::to_string(choice) +
                           wire::write_client_request(request);
  return {.high = mix64(fnv1a(text)), .low = mix64(fnv1a("low " + text))};
}

class BatchRun {
 public:
  BatchRun(const CliOptions& options,
           const BusSection& bus,
           Json flags,
           BatchInput& input,
           BatchOutput& output)
      : options_(options),
        flags_(std::move(flags)),
        input_(input),
        output_(output),
        client_(bus, {.say = say_note}),
        how_{.created = seconds_since_1970(), .metrics = options.run.metrics} {}

  // Until all lines are done, or none can be.
  int run();
  OrderedJson report(Duration took) const;

 private:
  // A line that is being asked.
  struct Open {
    std::size_t index;
    BatchLine line;
    std::vector<wire::ClientReply> replies = {};
    std::size_t n_left = 0;
    TimePoint deadline = {};
  };
  struct AskedChoice {
    std::shared_ptr<Open> open;
    std::size_t choice;
  };

  static std::int64_t seconds_since_1970() {
    return std::chrono::duration_cast<std::chrono::seconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }

  void ask_all();
  void fill();
  void start(std::size_t index);
  void post(AskedChoice asked);
  void take(const Result<wire::ClientAnswer>& answer);
  void on_error(const wire::ClientError& error);
  void on_reply(const wire::ClientReply& reply);
  void end_late();
  void ask_again();
  void fail(const std::shared_ptr<Open>& open, const Error& error);
  void write(const Open& open, const std::string& line, bool failed);
  void forget(const Open& open);
  bool heed_signals();
  std::string words() const;
  std::vector<std::size_t> failed_lines() const;

  const CliOptions& options_;
  const Json flags_;
  BatchInput& input_;
  BatchOutput& output_;
  TerminalSignals signals_;  // before the client: its threads must not take them
  Client client_;
  const BatchAnswers how_;
  std::size_t next_ = 0;
  std::unordered_map<std::string, AskedChoice> asked_;  // by request id
  std::multimap<TimePoint, AskedChoice> again_;         // refused for now: when to ask again
  std::optional<Error> stopped_;                        // what ends the run before its end
  bool interrupted_ = false;
  TimePoint started_ = steady_now();
  std::uint64_t n_answered_ = 0, n_tokens_ = 0, n_rounds_ = 0, n_accepted_ = 0;
};

void BatchRun::fill() {
  const auto most = static_cast<std::size_t>(options_.run.concurrency);
  while (!stopped_ && !interrupted_ && asked_.size() + again_.size() < most &&
         next_ < output_.n_lines()) {
    const std::size_t index = next_++;
    if (!output_.is_done(index)) start(index);
  }
}

void BatchRun::start(std::size_t index) {
  auto open = std::make_shared<Open>(
      Open{.index = index, .line = BatchLine(input_.line(index), input_.ids[index], flags_)});
  const auto& requests = open->line.requests();
  if (!requests.ok()) return fail(open, requests.error());
  open->replies.resize(requests->size());
  open->n_left = requests->size();
  open->deadline = steady_now();
  for (const auto& request : *requests)
    open->deadline = std::max(open->deadline, deadline_for(request));
  for (std::size_t choice = 0; choice < requests->size(); ++choice) post({open, choice});
}

void BatchRun::post(AskedChoice asked) {
  wire::ClientRequest request = (*asked.open->line.requests())[asked.choice];
  request.request_id =
      request_id_of(output_.run(), input_.ids[asked.open->index], asked.choice, request);
  const auto sent = client_.post(std::move(request));
  if (!sent.ok()) return fail(asked.open, sent.error());
  asked_.emplace(wire::hex_of(*sent), std::move(asked));
}

void BatchRun::take(const Result<wire::ClientAnswer>& answer) {
  if (!answer.ok()) {
    stopped_ = answer.error();
    return;
  }
  if (const auto* error = std::get_if<wire::ClientError>(&*answer)) return on_error(*error);
  if (const auto* reply = std::get_if<wire::ClientReply>(&*answer)) on_reply(*reply);
}

void BatchRun::on_error(const wire::ClientError& error) {
  const auto found = asked_.find(error.id);
  if (found == asked_.end()) return;
  AskedChoice asked = std::move(found->second);
  asked_.erase(found);
  const Error why = error_from(error);
  if (interrupted_) return;
  const Duration pause =
      std::max<Duration>(kShortestPause, std::chrono::milliseconds(error.error.retry_after_ms));
  if (error.error.retry_after_ms > 0 && steady_now() + pause < asked.open->deadline) {
    again_.emplace(steady_now() + pause, std::move(asked));
  } else if (why.code == ErrorCode::kUnavailable || why.code == ErrorCode::kDraining ||
             why.code == ErrorCode::kConfig) {
    stopped_ = why;  // no line would fare better
  } else {
    fail(asked.open, why);
  }
}

void BatchRun::on_reply(const wire::ClientReply& reply) {
  const auto found = asked_.find(reply.id);
  if (found == asked_.end()) return;
  const AskedChoice asked = std::move(found->second);
  asked_.erase(found);
  Open& open = *asked.open;
  if (reply.finish_reason == "deadline")
    return fail(asked.open,
                Error{ErrorCode::kDeadlineExceeded,
                      "the time was up after " + std::to_string(reply.usage.completion_tokens) +
                          " tokens (timeout_ms)"});
  if (reply.finish_reason == "cancelled") {
    if (interrupted_) return;
    return fail(asked.open, Error{ErrorCode::kCancelled, "another client cancelled it"});
  }
  n_tokens_ += reply.usage.completion_tokens;
  n_rounds_ += reply.metrics.speculative_decoding.num_spec_steps;
  n_accepted_ += reply.metrics.speculative_decoding.num_accepted_draft_tokens;
  open.replies[asked.choice] = reply;
  if (--open.n_left > 0) return;
  ++n_answered_;
  write(open, open.line.answer(open.replies, how_), false);
}

void BatchRun::forget(const Open& open) {
  std::erase_if(asked_, [&](const auto& each) {
    if (each.second.open->index != open.index) return false;
    if (const auto id = wire::request_id_from_hex(each.first)) client_.cancel(*id);
    return true;
  });
  std::erase_if(again_, [&](const auto& each) { return each.second.open->index == open.index; });
}

void BatchRun::fail(const std::shared_ptr<Open>& open, const Error& error) {
  forget(*open);
  write(*open, open->line.failure(error), true);
}

void BatchRun::write(const Open& open, const std::string& line, bool failed) {
  if (output_.is_done(open.index)) return;  // another of its answers failed
  if (const auto done = output_.add(open.index, line, failed); !done.ok()) stopped_ = done.error();
}

// The router ends requests at their time. This is for one that does not.
void BatchRun::end_late() {
  const TimePoint now = steady_now();
  for (;;) {
    const auto late = std::find_if(asked_.begin(), asked_.end(), [&](const auto& each) {
      return each.second.open->deadline < now;
    });
    if (late == asked_.end()) return;
    const auto open = late->second.open;
    fail(open,
         Error{ErrorCode::kDeadlineExceeded, "no answer from " + client_.endpoint() + " in time"});
  }
}

void BatchRun::ask_again() {
  while (!again_.empty() && again_.begin()->first <= steady_now()) {
    AskedChoice asked = std::move(again_.begin()->second);
    again_.erase(again_.begin());
    post(std::move(asked));
  }
}

// False after a second Ctrl-C.
bool BatchRun::heed_signals() {
  while (const auto signal = signals_.next()) {
    if (*signal == SIGTSTP || *signal == SIGQUIT) {
      signals_.obey(*signal);
    } else if (*signal == SIGINT || *signal == SIGTERM || *signal == SIGHUP) {
      if (std::exchange(interrupted_, true)) return false;
      again_.clear();
      for (const auto& [id, asked] : asked_)
        if (const auto known = wire::request_id_from_hex(id)) client_.cancel(*known);
    }
  }
  return true;
}

std::string BatchRun::words() const {
  const double seconds = std::chrono::duration<double>(steady_now() - started_).count();
  std::string text;
  if (output_.n_failed() > 0) text += std::to_string(output_.n_failed()) + " failed  ";
  text += plain_number(static_cast<double>(n_tokens_) / std::max(seconds, 0.001)) + " tok/s";
  const auto n_left = output_.n_lines() - output_.n_done();
  if (n_answered_ > 0)
    text += "  " +
            duration_text(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(
                seconds / static_cast<double>(n_answered_) * static_cast<double>(n_left)))) +
            " left";
  return text;
}

void BatchRun::ask_all() {
  started_ = steady_now();
  ProgressLine progress(ProgressLine::kind_here(options_.output.quiet), output_.n_lines(),
                        output_.n_done());
  TimePoint give_up = TimePoint::max();
  for (;;) {
    fill();
    if (stopped_ || (asked_.empty() && again_.empty()) || steady_now() > give_up) break;
    client_.wait(steady_now() + kTurn);
    while (const auto answer = client_.next()) take(*answer);
    end_late();
    ask_again();
    if (!heed_signals()) break;
    if (interrupted_) give_up = std::min(give_up, steady_now() + kCancelTime);
    progress.show(output_.n_done(), words(), steady_now());
  }
}

int BatchRun::run() {
  if (const auto found = find_router(client_); !found.ok()) return report_error(found.error());
  ask_all();
  if (stopped_) return report_error(*stopped_);
  if (interrupted_) return kExitInterrupted;
  return output_.n_done() == output_.n_lines() ? kExitOk : kExitFailed;
}

// By their numbers in the file.
std::vector<std::size_t> BatchRun::failed_lines() const {
  std::vector<std::size_t> lines;
  for (std::size_t i = 0; i < output_.n_lines(); ++i)
    if (output_.has_failed(i)) lines.push_back(input_.numbers[i]);
  return lines;
}

OrderedJson BatchRun::report(Duration took) const {
  const double seconds = std::chrono::duration<double>(took).count();
  return {{"schema", "foretoken.run/1"},
          {"lines", output_.n_lines()},
          {"done", output_.n_done()},
          {"failed", output_.n_failed()},
          {"failed_lines", failed_lines()},
          {"answered_now", n_answered_},
          {"seconds", seconds},
          {"output_tokens", n_tokens_},
          {"output_throughput", static_cast<double>(n_tokens_) / std::max(seconds, 0.001)},
          {"tokens_per_round",
           n_rounds_ == 0 ? 1.0
                          : 1 + static_cast<double>(n_accepted_) / static_cast<double>(n_rounds_)},
          {"out", options_.run.out}};
}

// "lines 2, 3, 5, 8, 9 ..."
std::string list_of_lines(const OrderedJson& numbers) {
  constexpr std::size_t kMost = 5;
  std::string text = numbers.size() == 1 ? "line" : "lines";
  for (std::size_t i = 0; i < std::min(kMost, numbers.size()); ++i)
    text += (i == 0 ? " " : ", ") + to_text(numbers[i]);
  return numbers.size() > kMost ? text + " ..." : text;
}

void say_end(const OrderedJson& report, const CliOptions& options, int code) {
  if (options.output.json) std::cout << to_text(report, 2) << "\n";
  if (options.output.quiet) return;
  const auto n_failed = report["failed"].get<std::size_t>();
  std::cerr << report["done"] << " of " << report["lines"] << " lines done";
  if (n_failed > 0)
    std::cerr << ", " << n_failed << " of them failed (" << list_of_lines(report["failed_lines"])
              << ")";
  std::cerr << "; now " << report["answered_now"];
  if (report["answered_now"] != 0)
    std::cerr << " in " << plain_number(report["seconds"].get<double>()) << " s, "
              << plain_number(report["output_throughput"].get<double>()) << " tok/s, "
              << plain_number(report["tokens_per_round"].get<double>()) << " tokens a round";
  std::cerr << "\n";
  if (code != kExitOk)
    std::cerr << "  the same command goes on where this one ended\n";
  else if (n_failed > 0)
    std::cerr << "  their errors are in " << options.run.out
              << "; the same command with --retry-failed asks them again\n";
}

// prompts.jsonl -> prompts.answers.jsonl
std::string usual_output(const std::string& file) {
  constexpr std::string_view kEnd = ".jsonl";
  const bool ends = file.size() > kEnd.size() && file.ends_with(kEnd);
  return file.substr(0, file.size() - (ends ? kEnd.size() : 0)) + ".answers.jsonl";
}

}  // namespace

int run_run(const CliOptions& options) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  const auto flags = request_from(options.request);
  if (!flags.ok()) return report_error(flags.error());
  CliOptions all = options;
  if (all.run.out.empty()) all.run.out = usual_output(options.run.file);
  const Json keys = flags_json(*flags);
  auto input = read_batch(options.run.file, keys);
  if (!input.ok()) return report_error(input.error());
  auto output = BatchOutput::open(
      all.run.out, input->ids,
      options.run.retry_failed ? BatchOutput::Failed::kAskAgain : BatchOutput::Failed::kKeep);
  if (!output.ok()) return report_error(output.error());
  if (output->n_strange() > 0)
    say_note(std::to_string(output->n_strange()) + " answers of " + all.run.out +
             " are to lines that " + options.run.file +
             " has not, or with other flags, and are left out");
  const TimePoint begin = steady_now();
  BatchRun run(all, loaded->config.bus, keys, *input, *output);
  int code = output->n_done() == output->n_lines() ? kExitOk : run.run();
  if (code == kExitOk)
    if (const auto done = output->finish(); !done.ok()) code = report_error(done.error());
  say_end(run.report(steady_now() - begin), all, code);
  return code == kExitOk && output->n_failed() > 0 ? kExitFailed : code;
}

}  // namespace foretoken::cli
