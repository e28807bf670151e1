// Clients' questions for tokens or text alone (op tokenize, detokenize): each goes to one tokenizer
// of the model's vocabulary and ends in one answer or one error. Pure, as the request table is:
// events come in with the time, actions go out. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/fair_queue.h"
#include "common/base/ids.h"
#include "common/messages/client.h"
#include "common/messages/messages.h"
#include "services/router/pool.h"
#include "services/router/request.h"
#include "services/router/retry.h"

namespace foretoken {

struct TokenQuestionRules {
  // Of all clients. One client may hold as many questions and bytes as are still free.
  std::size_t max_open = 512;
  std::size_t max_bytes = std::size_t{96} << 20;
  // Of these, as many of one client are at a tokenizer; its others wait here.
  std::size_t max_asked = 4;
  std::size_t max_asked_bytes = std::size_t{2} << 20;  // one question may be larger
  // For the first sign of a tokenizer, or what the client says, if that is less. A question that
  // waits in a queue has the time of a request.
  Duration patience = std::chrono::seconds(10);
  Duration timeout = std::chrono::seconds(600);
  std::string default_model;  // router.default_model: of questions that name none
  std::string only_model;     // as in RequestRules
  // Then it is asked again, of another if any; and each time it waits twice as long, from the
  // beginning after a sign of a tokenizer.
  Silence silence;
};

class TokenQuestions {
 public:
  explicit TokenQuestions(Pool& pool, const TokenQuestionRules& rules = {})
      : rules_(rules), pool_(pool) {}

  // `own` is the id under which the tokenizer is asked: clients may choose equal ones. Flows take
  // turns.
  void submit(const Peer& peer,
              FlowId flow,
              RequestId id,
              RequestId own,
              wire::ClientRequest request,
              TimePoint now,
              Actions& out);
  // Asked of this worker.
  bool is_mine(WorkerId from, RequestId own) const {
    const auto it = open_.find(own);
    return it != open_.end() && it->second.tokenizer == from;
  }
  // From a tokenizer, about a question that is_mine.
  void on_message(RequestId own, const wire::Message& message, TimePoint now, Actions& out);
  void worker_lost(WorkerId worker, TimePoint now, Actions& out);
  void client_gone(const Peer& peer, TimePoint now, Actions& out);
  // It cannot be asked. Nothing happens if there is no such question.
  void give_up(RequestId own, const Error& error, TimePoint now, Actions& out);
  // A question counts on this tokenizer: it is there, or would be placed there now.
  bool needs(WorkerId worker, TimePoint now) const;
  // All that are open end with `error`, at once.
  void fail_all(const Error& error, std::uint32_t retry_after_ms, Actions& out);
  // Returns when it wants to be called again.
  TimePoint tick(TimePoint now, Actions& out);
  std::size_t size() const { return open_.size(); }

 private:
  struct Question {
    Peer peer;
    RequestId id;
    FlowId flow = 0;
    std::size_t bytes = 0;
    wire::ClientRequest request;
    TimePoint until{};     // for an answer
    TimePoint patience{};  // for a sign that a tokenizer has it
    TimePoint again{};
    Duration interval{};
    bool asked = false;  // it waits no more for its client's turn
    bool acknowledged = false;
    std::optional<WorkerId> tokenizer;
  };
  struct FlowQuestions {
    std::size_t open = 0, bytes = 0;
    std::size_t asked = 0, asked_bytes = 0;
  };
  using Entry = std::pair<const RequestId, Question>;

  void ask(Entry& entry, TimePoint now, Actions& out);
  void ask_next(TimePoint now, Actions& out);
  void erase(std::map<RequestId, Question>::iterator it);
  void answer(RequestId own, wire::ClientAnswer answer, Actions& out);
  void forget_at_tokenizer(const Entry& entry, Actions& out) const;
  static TimePoint due(const Question& question);
  // Nothing: it is not known yet.
  Result<std::optional<std::string>> model_of(const Question& question, TimePoint now) const;
  // Nothing: no tokenizer of that model is there.
  Result<std::optional<WorkerId>> place(const std::string& model,
                                        std::optional<WorkerId> not_this,
                                        TimePoint now) const;
  Result<std::optional<WorkerId>> choose(Question& question, TimePoint now) const;

  TokenQuestionRules rules_;
  Pool& pool_;
  std::map<RequestId, Question> open_;
  std::map<FlowId, FlowQuestions> held_;
  FairQueue waiting_;
  std::size_t bytes_ = 0;  // of all of them
};

}  // namespace foretoken
