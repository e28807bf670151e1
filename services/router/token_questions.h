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
#include "common/base/ids.h"
#include "common/wire/client.h"
#include "common/wire/messages.h"
#include "services/router/pool.h"
#include "services/router/request_table.h"

namespace foretoken {

struct TokenQuestionRules {
  std::size_t max_open = 256;
  std::size_t max_bytes = std::size_t{64} << 20;  // of prompts and tokens, all together
  Duration patience = std::chrono::seconds(10);  // or what the client says, if that is less
  std::string default_model;  // router.default_model: of questions that name none
  // Then it is asked again, of another if any; and each time it waits twice as long.
  Duration silence = std::chrono::milliseconds(500);
};

class TokenQuestions {
 public:
  explicit TokenQuestions(Pool& pool, const TokenQuestionRules& rules = {})
      : rules_(rules), pool_(pool) {}

  // `own` is the id under which the tokenizer is asked: clients may choose equal ones.
  void submit(const Peer& peer,
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
  void client_gone(const Peer& peer);
  // It cannot be asked. Nothing happens if there is no such question.
  void give_up(RequestId own, const Error& error, Actions& out);
  // A question counts on this tokenizer, or on whichever there is.
  bool needs(WorkerId worker) const;
  // All that are open end with `error`, at once.
  void fail_all(const Error& error, std::uint32_t retry_after_ms, Actions& out);
  // Returns when it wants to be called again.
  TimePoint tick(TimePoint now, Actions& out);
  std::size_t size() const { return open_.size(); }

 private:
  struct Question {
    Peer peer;
    RequestId id;
    wire::ClientRequest request;
    TimePoint until{};
    TimePoint again{};
    Duration interval{};
    std::optional<WorkerId> tokenizer;
  };
  using Entry = std::pair<const RequestId, Question>;

  void ask(Entry& entry, TimePoint now, Actions& out);
  void erase(std::map<RequestId, Question>::iterator it);
  void answer(RequestId own, wire::ClientAnswer answer, Actions& out);
  Result<std::optional<WorkerId>> choose(Question& question, TimePoint now) const;

  TokenQuestionRules rules_;
  Pool& pool_;
  std::map<RequestId, Question> open_;
  std::size_t bytes_ = 0;  // of all of them
};

}  // namespace foretoken
