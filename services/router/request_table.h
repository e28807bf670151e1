// The requests of this router by id, and when each is due next: which are admitted, which get what
// event, what becomes of one that has ended. Pure: events come in with the time, messages to
// workers and answers to clients go out as actions; the router service moves them. What a request
// does is in request.h. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/grammar/requested_grammar.h"
#include "common/messages/client.h"
#include "common/messages/messages.h"
#include "common/transport/transport.h"
#include "services/router/finished_replies.h"
#include "services/router/pool.h"
#include "services/router/request.h"
#include "services/router/request_rules.h"
#include "services/router/target_places.h"

namespace foretoken {

class RequestTable {
 public:
  // Borrows the pool: requests are placed there and counted in n_placed.
  RequestTable(const RequestRules& rules, Pool& pool);

  // The router starts to listen now.
  void begin(TimePoint now) { context_.pool.begin(now, rules_.registration); }
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

  // Whatever a registered worker sends about a request.
  void on_message(WorkerId from, RequestId id, wire::Message message, TimePoint now, Actions& out);
  // An incarnation ended or was lost: its requests move. The pool must still have the worker, in
  // its new state.
  void worker_lost(WorkerId id, TimePoint now, Actions& out);
  // A worker came or changed: requests may have waited for it.
  void workers_changed(TimePoint now, Actions& out);
  // No request comes any more: those that are here may be placed on targets that drain.
  void begin_drain(TimePoint now, Actions& out);
  // A request here counts on this worker: it is there, or would be placed there now.
  bool needs(const Worker& worker) const;

  // Deadlines, silences. Returns when it wants to be called again; cheap before that time.
  TimePoint tick(TimePoint now, Actions& out);
  // All that runs ends with `error`, at once.
  void fail_all(const Error& error, TimePoint now, Actions& out);

  std::size_t size() const { return requests_.size(); }
  std::size_t n_waiting() const;  // without a target yet
  // The same by the name of the model that is served; "" of those whose model is not known yet.
  // Only models that some wait for are in it.
  std::map<std::string, std::size_t> n_waiting_by_model(TimePoint now) const;
  bool contains(RequestId id) const { return requests_.contains(id); }
  // Of a request that runs, and whose answer goes to this connection: which answer that is.
  std::optional<std::uint32_t> series_at(RequestId id, const Peer& peer) const;
  // True if the request has ended and its end was sent in a later series than `series`: a report
  // about `series` then needs no answer.
  bool has_ended_since(RequestId id, std::uint32_t series) const;
  // Running, or answered a short while ago.
  bool knows(RequestId id) const { return contains(id) || finished_.has(id); }

  using Counters = RequestCounters;
  const Counters& counters() const { return counters_; }
  // A request was refused before submit().
  void count_refused() { ++counters_.refused; }
  const ModelTallies& tallies() const { return tallies_; }
  // A model whose metrics are there before its first request.
  void expect_model(const std::string& name) { tallies_.try_emplace(name); }

 private:
  struct Entry {
    Request request;
    const RequestLimit* limit;  // of its model, that it counts against; null: it has none
    TimePoint due;
  };
  // Requests that count against one limit.
  struct Held {
    std::size_t n = 0;
    std::unordered_map<FlowId, std::size_t> of_flow;
    void add(FlowId flow);
    void remove(FlowId flow);
    // Why there is no room for one more of this flow; empty: there is. `model`, of which `keys` set
    // the limit, is empty for all models.
    std::string why_full(FlowId flow,
                         std::size_t most,
                         const std::string& model,
                         const std::string& keys) const;
  };
  // Why a new request of this flow cannot be taken; empty: it can.
  std::string why_full(FlowId flow, const RequestLimit* limit) const;
  void answer_error(
      const Peer& peer, RequestId id, const Error& error, std::uint32_t retry_ms, Actions& out);
  void join(Request& request, const Peer& peer, Actions& out);
  template <class Event>
  bool apply(RequestId id, TimePoint now, const Event& event);
  // The ids of those that fit, in order: equal histories give equal messages.
  std::vector<RequestId> ids_of(const std::function<bool(const Request&)>& fits) const;
  void remove(const Entry& entry, TimePoint now);
  void set_due(Entry& entry, TimePoint due);
  TimePoint next_due() const;
  void give_places(TimePoint now, Actions& out);
  std::optional<WorkerId> idle_tokenizer(const Request& request) const;

  RequestRules rules_;
  GrammarChecker grammars_;
  RequestCounters counters_;
  ModelTallies tallies_;
  TargetPlaces places_;
  RequestContext context_;  // of the four above and the pool
  std::unordered_map<RequestId, Entry> requests_;
  std::set<std::pair<TimePoint, RequestId>> due_;
  TimePoint places_due_ = TimePoint::max();  // to be looked at again, while requests wait
  FinishedReplies finished_;
  std::map<const RequestLimit*, Held> held_;  // null: of models that are not declared
};

}  // namespace foretoken
