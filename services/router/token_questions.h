// Clients' questions for tokens or text alone (op tokenize, detokenize): each goes to one tokenizer
// of the model's vocabulary and ends in one answer or one error. Pure, as the request table is:
// events come in with the time, actions go out. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
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
  Duration patience = std::chrono::seconds(10);  // or what the client says, if that is less
  Duration silence = std::chrono::milliseconds(500);  // then it is asked again, of another if any
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
  bool is_mine(RequestId own) const { return open_.contains(own); }
  // From a tokenizer, about a question that is_mine.
  void on_message(RequestId own, const wire::Message& message, TimePoint now, Actions& out);
  void worker_lost(WorkerId worker, TimePoint now, Actions& out);
  void client_gone(const Peer& peer);
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
    std::optional<WorkerId> tokenizer;
  };
  using Entry = std::pair<const RequestId, Question>;

  void ask(Entry& entry, TimePoint now, Actions& out);
  void answer(RequestId own, wire::ClientAnswer answer, Actions& out);
  Result<std::optional<WorkerId>> choose(const Question& question) const;

  TokenQuestionRules rules_;
  Pool& pool_;
  std::map<RequestId, Question> open_;
};

}  // namespace foretoken
