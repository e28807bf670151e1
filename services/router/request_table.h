// The requests of this router, each a state machine from its first map to its one reply or one
// error. Pure: events come in with the time, messages to workers and answers to clients go out as
// actions; the router service moves them. Whatever was lost is asked for again after a silence
// (docs/protocol.md), so nothing here depends on a message arriving. What each event does in each
// state stands in a table there; request_states_test holds it. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/fair_queue.h"
#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/messages/client.h"
#include "common/messages/messages.h"
#include "common/transport/transport.h"
#include "services/router/finished_replies.h"
#include "services/router/placement.h"
#include "services/router/pool.h"
#include "services/router/request_row.h"

namespace foretoken {

struct RequestRules {
  std::size_t max_requests = 272;     // limits.max_running + limits.max_waiting
  std::size_t max_per_client = 1024;  // unanswered requests of one connection
  FinishedReplies::Limits finished;
  std::string default_model;  // router.default_model: of requests that name none
  std::uint32_t default_draft_len = 4;
  std::uint32_t max_migrations = 3;
  Duration timeout = std::chrono::seconds(600);  // limits.request_timeout_s
  Duration silence =
      std::chrono::milliseconds(500);  // then a worker is asked again, more and more rarely
  Duration longest_silence = std::chrono::seconds(4);
  // A prompt that has waited for so long at a tokenizer goes to another that has nothing to encode.
  Duration encode_patience = std::chrono::seconds(4);
  Duration stats_patience =
      std::chrono::milliseconds(250);  // after a stop string: for the target's last counts
  Duration deadline_grace =
      std::chrono::milliseconds(500);  // the target ends a late request itself; then we do
  Duration first_placement = std::chrono::seconds(15);  // for services that are still starting
  // After begin(): which models are served is not known yet. A request waits if that matters to it.
  Duration registration{};
  Duration stalled_client = std::chrono::seconds(30);
  std::map<std::string, double> tenant_weights;  // limits.tenant_weights; 1 where none is said
};

// To a worker.
struct ToWorker {
  WorkerId worker;
  RequestId request;
  wire::Message message;
};

// To a client: a piece of text, or the one answer that ends the request.
struct ToClient {
  Peer peer;
  RequestId request;
  wire::ClientAnswer answer;
};

using Action = std::variant<ToWorker, ToClient>;
using Actions = std::vector<Action>;

// A seed for a request that brought none: the same at every router, so that a retry gives the same
// text.
std::uint64_t seed_of(RequestId id);

// Whose a request is: its tenant's, or without one its connection's.
FlowId flow_of(const std::string& tenant, const Peer& peer);

// How long a worker that has taken a question, behind so many others, may be silent about it.
Duration silence_behind(std::uint32_t n_waiting, Duration silence);

// How long to wait before a question is asked again that was last asked after `before`: twice as
// long.
Duration longer_silence(Duration before, Duration silence, Duration longest);

class RequestTable {
 public:
  // Borrows the pool: it places requests there and counts them in n_placed.
  RequestTable(const RequestRules& rules, Pool& pool)
      : rules_(rules), pool_(pool), finished_(rules.finished) {}

  // The router starts to listen now.
  void begin(TimePoint now) { pool_.begin(now, rules_.registration); }
  // A checked request under its id. `content` is a hash of all that was asked: the same id with
  // other content is an error, until a while after the end of the first. With the same content it
  // joins the one that runs, gets the finished reply again, or else (cancelled, failed, late) runs
  // anew, to the same text.
  void submit(const Peer& peer,
              RequestId id,
              wire::ClientRequest request,
              std::uint64_t content,
              TimePoint now,
              Actions& out);
  // `by` asks that a request end; it is answered, too, unless the request is its own.
  void cancel(const Peer& by, RequestId id, TimePoint now, Actions& out);
  // A client's connection is gone: what it waited for is cancelled without an answer.
  void client_gone(const Peer& peer, TimePoint now, Actions& out);
  // Ends a running request with this error.
  void give_up(RequestId id, const Error& error, TimePoint now, Actions& out);
  // A piece could not be handed over: what it carried goes out with later text.
  void undo_delivery(RequestId id, const wire::ClientPiece& piece, TimePoint now);

  // Whatever a registered worker sends about a request.
  void on_message(WorkerId from, RequestId id, wire::Message message, TimePoint now, Actions& out);
  // A life ended or was lost: its work moves. Call before the pool forgets nothing more than its
  // state.
  void worker_lost(WorkerId id, TimePoint now, Actions& out);
  // Someone came or changed: requests may have waited for it.
  void workers_changed(TimePoint now, Actions& out);
  // No request comes any more: those that are here may be placed on targets that drain.
  void begin_drain(TimePoint now, Actions& out);
  // A request here counts on this worker: it is there, or would be placed there now.
  bool needs(const Worker& worker) const;

  // Deadlines, silences. Returns when it wants to be called again; cheap before that time.
  TimePoint tick(TimePoint now, Actions& out);
  // All that runs ends with `error`, at once.
  void fail_all(const Error& error, TimePoint now, Actions& out);

  std::size_t size() const { return rows_.size(); }
  std::size_t n_waiting() const;  // without a target yet
  bool contains(RequestId id) const { return rows_.contains(id); }
  // Running, or answered a short while ago.
  bool knows(RequestId id) const { return rows_.contains(id) || finished_.has(id); }

  struct Counters {
    std::uint64_t accepted = 0, refused = 0, replied = 0, failed = 0, cancelled = 0, joined = 0,
                  replayed = 0, migrated = 0, stale = 0, prompt_tokens = 0, tokens = 0, rounds = 0,
                  drafted = 0, guessed_right = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  using Row = RequestRow;
  using Phase = RequestPhase;

  void join(RequestId id, Row& row, const Peer& peer, Actions& out);
  void encode(RequestId id, Row& row, TimePoint now, Actions& out);
  void encode_at(RequestId id, Row& row, std::optional<WorkerId> tokenizer, Actions& out);
  std::optional<WorkerId> idle_tokenizer(const Row& row) const;
  void place(RequestId id, Row& row, TimePoint now, Actions& out);
  void place_at_once(RequestId id, Row& row, TimePoint now, Actions& out);
  void start_at(RequestId id, Row& row, WorkerId target, TimePoint now, Actions& out);
  void fill_room(TimePoint now, Actions& out);
  bool is_for(RequestId id, Row& row, const wire::Hello& target, TimePoint now, Actions& out);
  bool has_taker(RequestId id, const Row& row) const;
  std::vector<const Worker*> targets_with_room() const;
  double weight_of(const std::string& tenant) const;
  bool has_room_for(const Worker& target, FlowId flow) const;
  Need need_of(const Row& row) const;
  void open(RequestId id, Row& row, TimePoint now, Actions& out);
  void decode(RequestId id, Row& row, TimePoint now, Actions& out);
  void replay(RequestId id, Row& row, TimePoint now, Actions& out);
  void deliver(RequestId id, Row& row, Actions& out);
  void migrate(RequestId id, Row& row, TimePoint now, Actions& out);
  std::optional<WorkerId> choose_target(const Row& row) const;
  static Result<SamplingParams> params_at(const Row& row, const wire::Hello& target);
  bool has_target(const Row& row) const;
  bool may_return(const Row& row) const;
  // The model is settled once: a request that names none means what it would mean when it came, or
  // as soon as all services have registered.
  Result<void> settle_model(Row& row, TimePoint now) const;
  std::string not_served(const Row& row, std::span<const wire::Hello* const> models) const;

  void hear(WorkerId from, RequestId id, wire::Message message, TimePoint now, Actions& out);
  void on_encoded(RequestId id, Row& row, wire::Encoded encoded, TimePoint now, Actions& out);
  void on_tokens(RequestId id, Row& row, const wire::Tokens& tokens, TimePoint now, Actions& out);
  void on_done(RequestId id, Row& row, wire::Done done, TimePoint now, Actions& out);
  void on_text(RequestId id, Row& row, const wire::Text& text, TimePoint now, Actions& out);
  void on_busy(RequestId id, Row& row, wire::Busy busy, TimePoint now, Actions& out);
  void on_stop_string(RequestId id, Row& row, const wire::Text& text, TimePoint now, Actions& out);
  void tick_row(RequestId id, Row& row, TimePoint now, Actions& out);

  void assign_tokenizer(Row& row, std::optional<WorkerId> to);
  void assign_target(Row& row, std::optional<WorkerId> to);
  void ask(Retry& retry, TimePoint now);
  void ask_again(Retry& retry, TimePoint now);
  void suspect_loss(Retry& retry, TimePoint now);
  void wake_at(TimePoint when) { next_due_ = std::min(next_due_, when); }

  // The end of a request: exactly one of these per row.
  void reply(RequestId id, TimePoint now, std::optional<FinishReason> cut_short, Actions& out);
  void fail(
      RequestId id, const Error& error, std::uint32_t retry_after_ms, TimePoint now, Actions& out);
  void drop(RequestId id, CloseReason reason, TimePoint now, Actions& out);

  RequestRules rules_;
  Pool& pool_;
  std::unordered_map<RequestId, Row> rows_;
  FinishedReplies finished_;
  FairQueue in_order_;  // those that wait for a place
  struct AtTarget {
    std::uint32_t n = 0;
    std::unordered_map<FlowId, std::uint32_t> of_flow;
  };
  std::unordered_map<WorkerId, AtTarget> working_;  // requests that a target runs or queues
  bool room_ = false;                               // a place may have become free
  std::unordered_map<FlowId, std::size_t> per_flow_;
  std::map<Peer, std::size_t> per_client_;
  TimePoint next_due_ = TimePoint::max();
  bool draining_ = false;
  Counters counters_;
};

}  // namespace foretoken
