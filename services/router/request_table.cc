#include "services/router/request_table.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/wire/client_codec.h"
#include "services/router/placement.h"

namespace foretoken {
namespace {

constexpr std::size_t kKeptFree = 16;  // one of so many requests is kept for flows that have few

// A connection, whichever of its questions this is.
Peer connection_of(const Peer& peer) { return {.socket = peer.socket, .routing = peer.routing}; }

}  // namespace

RequestTable::RequestTable(const RequestRules& rules, Pool& pool)
    : rules_(rules),
      places_(pool),
      context_{.rules = rules_,
               .pool = pool,
               .places = places_,
               .counters = counters_,
               .tallies = tallies_},
      finished_(rules.finished) {}

// ---- events

// An event of one request: takes it out if that ended it. False: there is none.
template <class Event>
bool RequestTable::apply(RequestId id, TimePoint now, const Event& event) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return false;
  Entry& entry = it->second;
  event(entry.request);
  if (!entry.request.has_ended()) {
    if (const TimePoint due = entry.request.due(now); due < entry.due) set_due(entry, due);
    return true;
  }
  remove(entry, now);
  due_.erase({entry.due, id});
  requests_.erase(it);
  return true;
}

void RequestTable::set_due(Entry& entry, TimePoint due) {
  due_.erase({entry.due, entry.request.id()});
  entry.due = due;
  due_.insert({due, entry.request.id()});
}

void RequestTable::remove(const Entry& entry, TimePoint now) {
  const Request& request = entry.request;
  if (const auto& reply = request.final_reply())
    finished_.keep(request.id(), request.content(), *reply, now);
  finished_.end(request.id(), request.content(), request.series(), now);
  held_.at(entry.limit).remove(request.flow());
}

std::vector<RequestId> RequestTable::ids_of(const std::function<bool(const Request&)>& fits) const {
  std::vector<RequestId> ids;
  for (const auto& [id, entry] : requests_)
    if (fits(entry.request)) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

void RequestTable::give_places(TimePoint now, Actions& out) {
  const auto need_of = [&](RequestId id) { return requests_.at(id).request.need(); };
  while (const auto given = places_.next(need_of))
    apply(given->id, now, [&](Request& request) { request.start_at(given->target, now, out); });
  places_due_ =
      places_.is_empty() ? TimePoint::max() : std::min(places_due_, now + rules_.silence.first);
}

// ---- from clients

void RequestTable::answer_error(
    const Peer& peer, RequestId id, const Error& error, std::uint32_t retry_ms, Actions& out) {
  out.push_back(ToClient{peer, id, wire::client_error(id, error, retry_ms)});
}

void RequestTable::Held::add(FlowId flow) {
  ++n;
  ++of_flow[flow];
}

void RequestTable::Held::remove(FlowId flow) {
  --n;
  if (const auto it = of_flow.find(flow); --it->second == 0) of_flow.erase(it);
}

std::string RequestTable::Held::why_full(FlowId flow,
                                         std::size_t most,
                                         const std::string& model,
                                         const std::string& keys) const {
  const std::string holds = "the router holds " + std::to_string(n) + " requests" +
                            (model.empty() ? "" : " for model " + model);
  if (n >= most) return holds + "; the limit is " + keys;
  const auto found = of_flow.find(flow);
  const std::size_t kept_free = most / kKeptFree;
  if (found != of_flow.end() && found->second >= kept_free && kept_free > 0 &&
      n + kept_free >= most)
    return holds + ", " + std::to_string(found->second) +
           " of this tenant or connection; the last " + std::to_string(kept_free) + " of " + keys +
           " are for others";
  return {};
}

std::string RequestTable::why_full(FlowId flow, const RequestLimit* limit) const {
  const auto held = held_.find(limit);
  if (held == held_.end()) return {};
  if (limit == nullptr) {
    const std::string of_all = rules_.model_limits.empty() ? "" : " of all models";
    return held->second.why_full(flow, rules_.max_requests, {},
                                 "limits.max_running + limits.max_waiting" + of_all);
  }
  const std::string section = "limits." + limit->model + ".";
  return held->second.why_full(flow, limit->most, limit->model,
                               section + "max_running + " + section + "max_waiting");
}

void RequestTable::submit(const Peer& peer,
                          RequestId id,
                          wire::ClientRequest asked,
                          std::uint64_t content,
                          TimePoint now,
                          Actions& out) {
  const auto refuse = [&](const Error& error, std::uint32_t retry_ms) {
    ++counters_.refused;
    answer_error(peer, id, error, retry_ms, out);
  };
  if (asked.model == kDefaultModel) asked.model.clear();
  finished_.forget_old(now);
  const auto running = requests_.find(id);
  // One id means one request: what workers still send for the first could otherwise be taken for
  // the second, even if the first was cancelled or failed.
  const std::uint64_t earlier = running != requests_.end()
                                    ? running->second.request.content()
                                    : finished_.content_of(id).value_or(content);
  if (earlier != content)
    return refuse({ErrorCode::kInvalidValue,
                   "request_id was used for another request within the last minute", "request_id"},
                  0);
  if (running != requests_.end()) return join(running->second.request, peer, out);
  if (auto finished = finished_.find(id)) {
    ++counters_.joined;
    finished_.sent_again(id, ++context_.n_series);
    out.push_back(ToClient{.peer = peer,
                           .request = id,
                           .answer = std::move(*finished),
                           .is_accepted = true,
                           .series = context_.n_series});
    return;
  }
  const FlowId flow = flow_of(asked.tenant, peer);
  Request request(context_, id, peer, std::move(asked), content, now);
  if (auto settled = request.settle_model(now); !settled.ok()) return refuse(settled.error(), 0);
  const RequestLimit* limit = request_limit_of(rules_.model_limits, request.asked().model);
  if (auto full = why_full(flow, limit); !full.empty())
    return refuse({ErrorCode::kQueueFull, std::move(full)}, 1000);
  if (auto readable = grammars_.check(request.asked().params); !readable.ok())
    return refuse(readable.error(), 0);
  held_[limit].add(flow);
  ++counters_.accepted;
  requests_.emplace(id, Entry{std::move(request), limit, TimePoint::max()});
  apply(id, now, [&](Request& accepted) { accepted.begin(now, out); });
}

void RequestTable::join(Request& request, const Peer& peer, Actions& out) {
  ++counters_.joined;
  request.join(peer, out);
}

void RequestTable::cancel(const Peer& by, RequestId id, TimePoint now, Actions& out) {
  bool is_own = false;
  const bool found = apply(id, now, [&](Request& request) {
    is_own = request.peer() == by;
    ++counters_.cancelled;
    request.cut_short(FinishReason::kCancelled, now, out);
  });
  if (!found)
    return answer_error(
        by, id, {ErrorCode::kNotFound, "no request with this id is running", "request_id"}, 0, out);
  if (!is_own)
    out.push_back(
        ToClient{by, id, wire::ClientReply{.id = wire::hex_of(id), .finish_reason = "cancelled"}});
  give_places(now, out);
}

void RequestTable::client_gone(const Peer& peer, TimePoint now, Actions& out) {
  const auto is_theirs = [&](const Request& request) {
    return connection_of(request.peer()) == connection_of(peer);
  };
  for (const RequestId id : ids_of(is_theirs))
    apply(id, now, [&](Request& request) {
      ++counters_.cancelled;
      request.end(CloseReason::kCancelled, out);
    });
  give_places(now, out);
}

std::optional<std::uint32_t> RequestTable::series_at(RequestId id, const Peer& peer) const {
  const auto at = requests_.find(id);
  if (at == requests_.end() || connection_of(at->second.request.peer()) != connection_of(peer))
    return std::nullopt;
  return at->second.request.series();
}

bool RequestTable::has_ended_since(RequestId id, std::uint32_t series) const {
  return !contains(id) && series != 0 && finished_.series_of(id).value_or(series) != series;
}

void RequestTable::give_up(RequestId id, const Error& error, TimePoint now, Actions& out) {
  apply(id, now, [&](Request& request) { request.fail(error, 0, out); });
  give_places(now, out);
}

// ---- from workers

void RequestTable::on_message(
    WorkerId from, RequestId id, wire::Message message, TimePoint now, Actions& out) {
  const bool is_of_target =
      std::holds_alternative<wire::Tokens>(message) || std::holds_alternative<wire::Done>(message);
  const bool found = apply(
      id, now, [&](Request& request) { request.on_message(from, std::move(message), now, out); });
  if (!found) {
    ++counters_.stale;
    // A sequence that is not waited for: its CLOSE was lost.
    if (is_of_target)
      out.push_back(ToWorker{from, id, wire::Close{.reason = CloseReason::kFinished}});
  }
  give_places(now, out);
}

void RequestTable::worker_lost(WorkerId worker, TimePoint now, Actions& out) {
  const auto is_there = [&](const Request& request) {
    return request.tokenizer() == worker || request.target() == worker;
  };
  for (const RequestId id : ids_of(is_there))
    apply(id, now, [&](Request& request) { request.worker_lost(worker, now, out); });
  give_places(now, out);
}

void RequestTable::workers_changed(TimePoint now, Actions& out) {
  auto waiting = ids_of([](const Request& request) { return request.waits_for_worker(); });
  std::stable_sort(waiting.begin(), waiting.end(), [&](RequestId a, RequestId b) {
    return requests_.at(a).request.arrived() < requests_.at(b).request.arrived();
  });
  for (const RequestId id : waiting)
    apply(id, now, [&](Request& request) { request.workers_changed(now, out); });
  places_.look_again();
  give_places(now, out);
}

void RequestTable::begin_drain(TimePoint now, Actions& out) {
  context_.draining = true;
  workers_changed(now, out);
}

bool RequestTable::needs(const Worker& worker) const {
  return std::any_of(requests_.begin(), requests_.end(),
                     [&](const auto& entry) { return entry.second.request.needs(worker); });
}

// ---- time

TimePoint RequestTable::tick(TimePoint now, Actions& out) {
  if (now < next_due()) return next_due();
  std::vector<RequestId> ids;
  for (auto it = due_.begin(); it != due_.end() && it->first <= now; ++it)
    ids.push_back(it->second);
  for (const RequestId id : ids) {
    set_due(requests_.at(id), TimePoint::max());
    apply(id, now, [&](Request& request) {
      if (request.may_move_prompt(now)) request.move_prompt(idle_tokenizer(request), now, out);
      request.tick(now, out);
    });
  }
  if (places_due_ <= now) {
    places_due_ = TimePoint::max();
    places_.look_again();  // heartbeats may have said that there is room
  }
  give_places(now, out);
  finished_.forget_old(now);
  return next_due();
}

TimePoint RequestTable::next_due() const {
  return due_.empty() ? places_due_ : std::min(places_due_, due_.begin()->first);
}

// Another tokenizer than the request's that would do and encodes nothing, neither by its last
// heartbeat nor by what it was given since.
std::optional<WorkerId> RequestTable::idle_tokenizer(const Request& request) const {
  auto idle = context_.pool.ready(wire::Role::kTokenizer);
  std::erase_if(idle, [&](const Worker* tokenizer) {
    return tokenizer->id == request.tokenizer() || tokenizer->load.queued > 0 ||
           std::any_of(requests_.begin(), requests_.end(), [&](const auto& other) {
             const Request& one = other.second.request;
             return one.state() == Request::State::kEncoding && one.tokenizer() == tokenizer->id;
           });
  });
  return place_tokenizer(idle, request.encoding(), std::nullopt);
}

void RequestTable::fail_all(const Error& error, TimePoint now, Actions& out) {
  for (const RequestId id : ids_of([](const Request&) { return true; }))
    apply(id, now, [&](Request& request) { request.fail(error, 1000, out); });
}

std::size_t RequestTable::n_waiting() const {
  return static_cast<std::size_t>(
      std::count_if(requests_.begin(), requests_.end(),
                    [](const auto& entry) { return entry.second.request.waits_for_target(); }));
}

std::map<std::string, std::size_t> RequestTable::n_waiting_by_model(TimePoint now) const {
  // Those that are there before those that were: an alias may have passed on.
  std::vector<const wire::Hello*> served;
  for (const Worker* target : context_.pool.alive(wire::Role::kTarget))
    served.push_back(&target->hello);
  for (const wire::Hello* model : context_.pool.models(now)) served.push_back(model);
  std::map<std::string, std::size_t> counts;
  for (const auto& [id, entry] : requests_)
    if (entry.request.waits_for_target()) ++counts[entry.request.model_among(served)];
  return counts;
}

}  // namespace foretoken
