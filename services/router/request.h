// One request of this router: a state machine from its first map to its one reply or one error.
// Pure: events come in with the time, messages to workers and answers to its client go out as
// actions. What was lost is asked for again after a silence, so nothing here depends on a message
// arriving. What each event does in each state stands in a table in docs/protocol.md;
// request_states_test holds it. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/messages/client.h"
#include "common/messages/messages.h"
#include "common/transport/transport.h"
#include "services/router/answer.h"
#include "services/router/model_tally.h"
#include "services/router/placement.h"
#include "services/router/pool.h"
#include "services/router/request_rules.h"
#include "services/router/retry.h"
#include "services/router/target_places.h"

namespace foretoken {

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
  bool is_accepted = false;  // of a request that was accepted, not a refusal or a question
  std::uint32_t series = 0;  // which answer: the router numbers them, also where one begins anew
};

using Action = std::variant<ToWorker, ToClient>;
using Actions = std::vector<Action>;

struct RequestCounters {
  std::uint64_t accepted = 0, refused = 0, replied = 0, failed = 0, cancelled = 0, joined = 0,
                replayed = 0, migrated = 0, stale = 0, prompt_tokens = 0, tokens = 0, rounds = 0,
                drafted = 0, guessed_right = 0;
};

// What all requests of a router share.
struct RequestContext {
  const RequestRules& rules;
  Pool& pool;
  TargetPlaces& places;
  RequestCounters& counters;
  ModelTallies& tallies;
  std::uint32_t n_series = 0;  // answers that were begun, or begun anew
  bool draining = false;       // no request comes any more: these may use targets that drain
};

class Request {
 public:
  enum class State : std::uint8_t {
    kEncoding,  // a tokenizer has it, or it waits for one
    kPlacing,   // waits for a target, or for others before it
    kRunning,   // a target works on it
    kFlushing,  // all tokens are here; the last text is not
    kCounting,  // a stop string cut it; the target's counts are awaited for a moment
  };

  // A checked request of `peer`. `content` is a hash of all that was asked. Borrows the context.
  Request(RequestContext& context,
          RequestId id,
          const Peer& peer,
          wire::ClientRequest asked,
          std::uint64_t content,
          TimePoint now);

  // The model is settled once: a request that names none means what it would mean when it came, or
  // as soon as all services have registered. An error: there is no such model.
  Result<void> settle_model(TimePoint now);
  void begin(TimePoint now, Actions& out) { encode(now, out); }

  // From its client. It asks again, maybe on another connection: it gets the answer from the
  // beginning.
  void join(const Peer& peer, Actions& out);
  // Ends it with what there is.
  void cut_short(FinishReason reason, TimePoint now, Actions& out) { reply(reason, now, out); }
  void fail(const Error& error, std::uint32_t retry_after_ms, Actions& out);
  // Ends it without an answer.
  void end(CloseReason reason, Actions& out);

  // From workers, whether they still work for it or not.
  void on_message(WorkerId from, wire::Message message, TimePoint now, Actions& out);
  void worker_lost(WorkerId worker, TimePoint now, Actions& out);
  // A worker has come or changed.
  void workers_changed(TimePoint now, Actions& out);
  bool waits_for_worker() const;

  // A target for one that waits in TargetPlaces.
  void start_at(WorkerId target, TimePoint now, Actions& out);
  TargetNeed need() const;
  // It counts on this worker: it is there, or would be placed there now.
  bool needs(const Worker& worker) const;

  // Its prompt has waited for long at a tokenizer: one that has nothing to encode may have it.
  bool may_move_prompt(TimePoint now) const;
  void move_prompt(std::optional<WorkerId> idle_tokenizer, TimePoint now, Actions& out);
  const wire::Fingerprints& encoding() const { return prompt_.encoding; }

  // Deadlines, silences: to be called at due(), and harmless before.
  void tick(TimePoint now, Actions& out);
  TimePoint due(TimePoint now) const;

  RequestId id() const { return id_; }
  State state() const { return state_; }
  bool waits_for_target() const { return state_ == State::kEncoding || state_ == State::kPlacing; }
  // The name of its model, of those served; empty: it is none of them, or not settled yet. Never
  // the word of a client, for there are any number of those.
  std::string model_among(std::span<const wire::Hello* const> served) const;
  const wire::ClientRequest& asked() const { return asked_; }
  const Peer& peer() const { return peer_; }
  std::uint32_t series() const { return series_; }
  FlowId flow() const { return flow_; }
  std::uint64_t content() const { return content_; }
  TimePoint arrived() const { return arrived_; }
  std::optional<WorkerId> tokenizer() const { return tokenizer_; }
  std::optional<WorkerId> target() const { return target_; }

  bool has_ended() const { return has_ended_; }
  // Of one that has ended: its whole reply, for a client that asks again.
  const std::optional<wire::ClientReply>& final_reply() const { return final_reply_; }

 private:
  // request_encoding.cc: at a tokenizer, its prompt first and then its text.
  void encode(TimePoint now, Actions& out);
  void encode_at(std::optional<WorkerId> tokenizer, Actions& out);
  bool prompt_may_move() const;
  void on_tokenizer(wire::Message message, TimePoint now, Actions& out);
  void on_prompt_taken(Duration pause, TimePoint now);
  void on_encoded(wire::Encoded encoded, TimePoint now, Actions& out);
  std::vector<TokenId> end_tokens() const;
  bool continues_text() const;
  void decode(TimePoint now, Actions& out);
  void replay(TimePoint now, Actions& out);
  Answer::TokenEnds ends_of_tokenizer() const;
  void on_text(const wire::Text& text, TimePoint now, Actions& out);
  void on_stop_string(const wire::Text& text, TimePoint now, Actions& out);

  // request_running.cc: at a target.
  void place(TimePoint now, Actions& out);
  std::size_t most_tokens(TimePoint now) const;
  void place_at_once(TimePoint now, Actions& out);
  bool is_for(const Worker& target, TimePoint now, Actions& out);
  Duration tokens_interval() const;
  void open(TimePoint now, Actions& out);
  void migrate(TimePoint now, Actions& out);
  void on_target(wire::Message message, TimePoint now, Actions& out);
  void on_failed_target(const wire::Failed& failed, TimePoint now, Actions& out);
  void on_tokens(const wire::Tokens& tokens, TimePoint now, Actions& out);
  void on_done(wire::Done done, TimePoint now, Actions& out);

  // request_timing.cc: what becomes of it as time passes.
  TimePoint last_moment() const;
  bool has_no_answer_yet() const;
  bool has_taker() const;
  bool may_return() const;
  void end_late(TimePoint now, Actions& out);
  void settle_early_model(TimePoint now, Actions& out);
  void give_up_unplaced(TimePoint now, Actions& out);
  void ask_silent_worker(TimePoint now, Actions& out);

  // request.cc: its model, its client, its workers.
  std::string not_served(const std::vector<const wire::Hello*>& models) const;
  bool has_target_of_model() const;
  void deliver(Actions& out);
  void send_client(wire::ClientAnswer answer, Actions& out) const;
  void reply(std::optional<FinishReason> cut_short, TimePoint now, Actions& out);
  void tally_answer(const wire::ClientReply& whole, FinishReason reason, TimePoint now);
  void assign_tokenizer(std::optional<WorkerId> to);
  void assign_target(std::optional<WorkerId> to);

  RequestContext& context_;
  const RequestId id_;
  const std::uint64_t content_;
  wire::ClientRequest asked_;
  Peer peer_;
  FlowId flow_;  // whose it is: places are taken in turn
  State state_ = State::kEncoding;
  TimePoint arrived_, waiting_since_, deadline_;
  // Before all services had registered: its model is settled when they have.
  bool came_early_;
  std::optional<TimePoint> counting_until_;

  std::optional<WorkerId> tokenizer_, target_;
  Incarnation tokenizer_process_, target_process_;  // that count it in Worker::n_placed
  Retry tokenizer_retry_, target_retry_;
  struct Prompt {
    wire::Fingerprints encoding;          // vocabulary and text of the tokenizer it needs
    bool is_taken = false;                // the tokenizer has said that it has the prompt
    bool was_moved = false;               // since then, to one that was idle: once is enough
    std::optional<TimePoint> moves_from;  // when that may be
    wire::Encoded encoded;                // tokens, bad words, prediction
    Duration took{};                      // from the arrival of the request until they were here
  } prompt_;
  struct Placing {
    std::optional<wire::Hello> first;  // the target that began it: where else it may go on
    std::vector<WorkerId> refused_by;  // since it was last placed or told to wait
    std::optional<wire::Busy> refusal;
    std::uint32_t n_migrations = 0;
    bool has_started = false;  // the target has shown tokens since it was given the request
    std::optional<TimePoint> waits_since;  // for a place
    Duration waited{};                     // before that
  } placing_;
  struct Stream {
    std::uint32_t n_sent = 0;  // tokens of the answer that the tokenizer was sent in this run
    bool final_sent = false, final_confirmed = false;
  } stream_;
  Answer answer_;
  ModelTally* tally_ = nullptr;  // of the model of the target that began it, once there is one
  std::uint32_t series_;

  bool has_ended_ = false;
  std::optional<wire::ClientReply> final_reply_;
};

// A seed for a request that brought none: the same at every router, so that a retry gives the same
// text.
std::uint64_t seed_of(RequestId id);

// Whose a request is: its tenant's, or without one its connection's.
FlowId flow_of(const std::string& tenant, const Peer& peer);

// How long a worker that has taken a question, behind so many others, may be silent about it.
Duration silence_behind(std::uint32_t n_waiting, Duration silence);

}  // namespace foretoken
