#include "services/edge/router_thread.h"

#include <utility>

#include "common/base/log.h"

namespace foretoken::edge {
namespace {

// A router that is being restarted is back within this; who waits longer is better told.
constexpr auto kPatience = std::chrono::seconds(10);
constexpr std::size_t kMostAtOnce = 128;  // answers; then what is to be sent has its turn

}  // namespace

RouterThread::RouterThread(const BusSection& bus, OnAnswers on_answers, Duration longest_sleep)
    : on_answers_(std::move(on_answers)),
      longest_sleep_(longest_sleep),
      client_(bus, {.longest = kPatience, .say = [](const std::string& why) { log_warning(why); }}),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

RouterThread::~RouterThread() { stop(); }

void RouterThread::stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  client_.wake();
  thread_.join();
}

void RouterThread::post(wire::ClientRequest request) { give(std::move(request)); }

void RouterThread::cancel(RequestId id) { give(id); }

void RouterThread::give(Command command) {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
    if (commands_.size() > 1) return;  // the thread was woken for the first
  }
  client_.wake();
}

void RouterThread::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    client_.wait(sleeps_until());
    std::vector<Command> commands;
    {
      const std::lock_guard lock(mutex_);
      commands.swap(commands_);
    }
    std::vector<wire::ClientAnswer> answers;
    for (auto& command : commands) obey(std::move(command), answers);
    take_answers(answers);
    if (!answers.empty()) on_answers_(std::move(answers));
  }
}

// Not at all where there are commands: taking answers may have used up the wake that came with
// them.
TimePoint RouterThread::sleeps_until() {
  const std::lock_guard lock(mutex_);
  return commands_.empty() ? steady_now() + longest_sleep_ : TimePoint::min();
}

// All that is there: one turn of the HTTP thread is for many answers.
void RouterThread::take_answers(std::vector<wire::ClientAnswer>& answers) {
  while (answers.size() < kMostAtOnce) {
    auto answer = client_.next();
    if (!answer) {
      client_.wait(TimePoint::min());
      answer = client_.next();
    }
    if (!answer) return;
    if (answer->ok())
      answers.push_back(std::move(**answer));
    else
      log_warning("an answer of the router cannot be read", {{"reason", answer->error().message}});
  }
}

void RouterThread::obey(Command command, std::vector<wire::ClientAnswer>& answers) {
  if (const auto* id = std::get_if<RequestId>(&command)) return client_.cancel(*id);
  auto& request = std::get<wire::ClientRequest>(command);
  const RequestId id = request.request_id.value_or(RequestId{});
  if (const auto posted = client_.post(std::move(request)); !posted.ok())
    answers.push_back(wire::client_error(id, posted.error(), 0));
}

}  // namespace foretoken::edge
