// The edge's connection to the router, on a thread of its own: requests of the HTTP thread out,
// answers back. The HTTP thread never waits for a socket of ZeroMQ.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "common/client/client.h"

namespace foretoken::edge {

class RouterThread {
 public:
  // Called on the router thread.
  using OnAnswers = std::function<void(std::vector<wire::ClientAnswer> answers)>;

  // Throws FatalError. `longest_sleep`: without an answer, a command or a lost connection.
  RouterThread(const BusSection& bus,
               OnAnswers on_answers,
               Duration longest_sleep = std::chrono::seconds(1));
  ~RouterThread();
  RouterThread(const RouterThread&) = delete;
  RouterThread& operator=(const RouterThread&) = delete;

  // No answer comes after it has returned.
  void stop();
  // From any thread. The request has an id; each ends in one last answer.
  void post(wire::ClientRequest request);
  void cancel(RequestId id);

 private:
  using Command = std::variant<wire::ClientRequest, RequestId>;
  void run(const std::stop_token& stop);
  TimePoint sleeps_until();
  void take_answers(std::vector<wire::ClientAnswer>& answers);
  void obey(Command command, std::vector<wire::ClientAnswer>& answers);
  void give(Command command);

  OnAnswers on_answers_;
  const Duration longest_sleep_;
  Client client_;  // the thread's own, but for wake()
  std::mutex mutex_;
  std::vector<Command> commands_;
  std::jthread thread_;
};

}  // namespace foretoken::edge
