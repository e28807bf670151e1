#include "services/router/router_service.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/runtime/outbox.h"
#include "common/wire/client_codec.h"
#include "services/router/complaints.h"

namespace foretoken {
namespace {

constexpr Duration kPairAgain = std::chrono::seconds(2);
constexpr Duration kListenAgain = std::chrono::milliseconds(250);  // while services register
constexpr std::uint32_t kAskAgainMs = 1000;
// A draft that drains is used a little longer while requests run: if everything is being stopped,
// this router gets its signal within that time, and then the draft serves on until they have ended.
constexpr Duration kDraftGrace = std::chrono::seconds(1);
constexpr std::size_t kMaxLost = 256;  // services that the metrics show as lost for longer
// For how long a router that drains waits for clients to read their last answers.
constexpr Duration kClientsRead = std::chrono::seconds(3);
// What waits for a client that takes nothing: pieces, which come without end, for less long than
// what ends a request.
constexpr Duration kPiecePatience = std::chrono::seconds(10);
constexpr Duration kEndPatience = std::chrono::seconds(30);

Error leaving() {
  return {ErrorCode::kDraining, "this router is about to stop and takes no new requests"};
}

// The messages of an answer are a series under the id of its request: a stream with a hole is worse
// than none. An error stands for itself, as it may say that the series has one. The reserve is for
// what ends a request that was accepted: what is refused needs no more than a client's own room.
Posting posting_of(const ToClient& to) {
  const Ticket ticket{to.request.high, to.request.low, to.series};
  const Room room = to.is_accepted ? Room::kReserved : Room::kShared;
  const auto part_at = [](std::uint32_t offset) {
    return offset == 0 || offset == wire::kNoPosition ? Part::kFirst : Part::kNext;
  };
  if (const auto* piece = std::get_if<wire::ClientPiece>(&to.answer))
    return {.ticket = ticket, .patience = kPiecePatience, .part = part_at(piece->offset)};
  if (const auto* reply = std::get_if<wire::ClientReply>(&to.answer))
    return {
        .ticket = ticket, .patience = kEndPatience, .part = part_at(reply->offset), .room = room};
  if (std::holds_alternative<wire::StatusReply>(to.answer)) return {.patience = kPiecePatience};
  // It takes the place of the pieces before it, should these be lost later.
  if (to.series != 0) return {.ticket = ticket, .patience = kEndPatience, .room = room};
  return {.patience = kEndPatience, .room = room};
}

Error too_slow() {
  return {
      ErrorCode::kCancelled,
      "the client reads its pieces too slowly: at most " +
          std::to_string(kClientLimits.of_one >> 20) + " MiB wait for it, " +
          std::to_string(kClientLimits.of_one_taking >> 20) + " MiB while it takes some, " +
          std::to_string(kClientLimits.of_all >> 20) +
          " MiB for all clients together, and for at most " +
          std::to_string(std::chrono::duration_cast<std::chrono::seconds>(kPiecePatience).count()) +
          " s while it takes none"};
}

Error too_large(std::size_t n_bytes, std::size_t limit) {
  return {ErrorCode::kInternal, "the answer has " + std::to_string(n_bytes) +
                                    " bytes; the limit is " + std::to_string(limit) +
                                    ": ask for fewer tokens or log-probabilities, or with stream"};
}

}  // namespace

RouterService::RouterService(const RouterServiceOptions& options,
                             wire::Speaker& speaker,
                             Metrics& metrics)
    : options_(options),
      speaker_(speaker),
      metrics_(metrics),
      pool_(options.heartbeat),
      table_(options.rules, pool_),
      token_questions_(pool_,
                       {.timeout = options.rules.timeout,
                        .default_model = options.rules.default_model,
                        .only_model = options.rules.only_model}),
      metrics_questions_(pool_),
      statuses_(options_, pool_, table_) {}

void RouterService::start(Bus& bus) {
  bus_ = &bus;
  started_ = bus.now();
  worker_socket_ = bus.bind(options_.router, Door::kInternal);
  client_socket_ = bus.bind(options_.client, Door::kClient);
  client_endpoint_ = bus.endpoint(client_socket_);  // once: it asks the socket thread and waits
  table_.begin(bus.now());
  log_info("taking clients and workers",
           {{"client", bus.endpoint(client_socket_)}, {"router", bus.endpoint(worker_socket_)}});
}

void RouterService::on_message(Delivery delivery) {
  const TimePoint now = bus_->now();
  if (delivery.peer.socket == client_socket_) return on_client(delivery.peer, delivery.frames, now);
  on_worker(delivery, now);
}

void RouterService::on_undelivered(const Peer& peer, Ticket) {
  const TimePoint now = bus_->now();
  if (peer.socket == client_socket_) {
    Actions actions;
    table_.client_gone(peer, now, actions);
    token_questions_.client_gone(peer, now, actions);
    return act(actions);
  }
  // That connection is gone. A running worker reconnects and sends HELLO within one heartbeat.
  if (const Worker* found = pool_.find(peer)) {
    const Worker worker = *found;
    pool_.lose(worker.id);
    lost(worker, "its connection is gone", now);
  }
}

// The rest of the answer was lost with it, or will be: an error instead. An answer that has begun
// anew since, here or on another connection, goes on.
void RouterService::on_dropped(const Peer& peer, Ticket ticket) {
  if (peer.socket != client_socket_ || ticket == Ticket{}) return void(++dropped_);
  const TimePoint now = bus_->now();
  const RequestId id{ticket.high, ticket.low};
  if (table_.has_ended_since(id, ticket.series)) return;
  const auto series = table_.series_at(id, peer);
  if (!series)
    return send_answer({.peer = peer,
                        .request = id,
                        .answer = wire::client_error(id, too_slow(), 0),
                        .is_accepted = true});
  if (*series != ticket.series) return;
  const Error error = too_slow();
  if (const auto n = slow_clients_.count(now))
    log_warning("a request is ended: its client reads too slowly",
                {{"request", wire::hex_of(id)}, {"since_start", *n}, {"reason", error.message}});
  Actions actions;
  table_.give_up(id, error, now, actions);
  act(actions);
}

// ---- clients

RequestId RouterService::new_id() {
  const std::uint64_t key = speaker_.incarnation().value;
  ++n_ids_;
  return {seed_of({key, n_ids_}), seed_of({n_ids_, ~key})};
}

void RouterService::on_client(const Peer& peer, const Frames& frames, TimePoint now) {
  if (frames.size() != 1) {
    ++bad_requests_;
    const std::string found =
        std::to_string(frames.size()) + (frames.size() < kMaxParts ? "" : " or more");
    return answer(
        peer, {},
        wire::client_error(
            {}, {ErrorCode::kInvalidRequest, "a request is one frame; this one has " + found}, 0));
  }
  auto outcome = wire::read_client_request(frames[0]);
  const RequestId id = outcome.request_id     ? *outcome.request_id
                       : outcome.request.ok() ? new_id()
                                              : RequestId{};  // an error without one says so
  const auto refuse = [&](const Error& error, std::uint32_t retry_after_ms) {
    ++bad_requests_;
    answer(peer, id, wire::client_error(id, error, retry_after_ms));
  };
  if (!outcome.request.ok()) return refuse(outcome.request.error(), 0);
  wire::ClientRequest& request = *outcome.request;
  Actions actions;
  switch (request.op) {
    case wire::ClientOp::kStatus:
      return answer(
          peer, id,
          statuses_.recent(
              id, {.client_endpoint = client_endpoint_, .started = started_, .draining = draining_},
              now));
    case wire::ClientOp::kMetrics:
      return ask_metrics({peer, id, MetricsAsked::kMetrics}, now);
    case wire::ClientOp::kPasses:
      return ask_metrics({peer, id, MetricsAsked::kPasses}, now);
    case wire::ClientOp::kCancel:
      if (!outcome.request_id)
        return refuse(
            {ErrorCode::kInvalidValue, "which request? request_id is missing", "request_id"}, 0);
      table_.cancel(peer, id, now, actions);
      return act(actions);
    case wire::ClientOp::kTokenize:
    case wire::ClientOp::kDetokenize: {
      if (draining_) return answer(peer, id, wire::client_error(id, leaving(), kAskAgainMs));
      const FlowId flow = flow_of(request.tenant, peer);
      token_questions_.submit(peer, flow, id, new_id(), std::move(request), now, actions);
      return act(actions);
    }
    case wire::ClientOp::kGenerate:
      break;
  }
  if (request.stream && peer.takes_one)
    return refuse({ErrorCode::kInvalidValue,
                   "a REQ socket takes one answer; use a DEALER for stream", "stream"},
                  0);
  if (draining_ && !table_.knows(id)) {
    table_.count_refused();
    return answer(peer, id, wire::client_error(id, leaving(), kAskAgainMs));
  }
  // Of everything the client said: two requests under one id are the same if this is equal.
  table_.submit(peer, id, std::move(request), fnv1a(frames[0]), now, actions);
  act(actions);
}

void RouterService::answer(const Peer& peer, RequestId id, wire::ClientAnswer reply) {
  send_answer({.peer = peer, .request = id, .answer = std::move(reply)});
}

void RouterService::send_answer(const ToClient& to) {
  Bytes bytes = wire::write_client_answer(to.answer);
  if (bytes.size() > options_.max_answer_bytes &&
      !std::holds_alternative<wire::ClientError>(to.answer))
    return send_answer({.peer = to.peer,
                        .request = to.request,
                        .answer = wire::client_error(
                            to.request, too_large(bytes.size(), options_.max_answer_bytes), 0),
                        .is_accepted = to.is_accepted,
                        .series = to.series});
  bus_->send(to.peer, {std::move(bytes)}, posting_of(to));
}

// ---- metrics of all services

void RouterService::ask_metrics(const MetricsQuestion& question, TimePoint now) {
  const bool is_answered = question.what == MetricsAsked::kMetrics && metrics_questions_.has_room();
  Actions actions;
  metrics_questions_.submit(question, new_id(), is_answered ? own_metrics() : std::string(), now,
                            actions);
  act(actions);
}

std::string RouterService::own_metrics() {
  const RequestTable::Counters& now = table_.counters();
  metrics_.gauge("router_requests", table_.size());
  metrics_.counter("requests_total", now.accepted);
  metrics_.counter("request_errors_total", now.failed);
  metrics_.counter("request_refused_total", now.refused);
  metrics_.counter("request_cancelled_total", now.cancelled);
  metrics_.counter("request_joined_total", now.joined);
  metrics_.counter("request_migrations_total", now.migrated);
  metrics_.counter("stream_replays_total", now.replayed);
  metrics_.counter("router_stale_total", now.stale);
  metrics_.counter("frames_dropped_total", malformed_ + stale_ + dropped_);
  metrics_.counter("bad_requests_total", bad_requests_);
  list_models();
  list_services();
  return metrics_.text();
}

void RouterService::list_services() {
  std::map<std::pair<wire::Role, std::string>, bool> is_up;
  for (const auto& [service, worker] : lost_) is_up[service] = false;
  for (const Worker* worker : pool_.all())
    is_up[{worker->hello.role, worker->hello.name}] |= worker->state != wire::WorkerState::kGone;
  metrics_.forget_gauges("peer_up");
  for (const auto& [service, up] : is_up)
    metrics_.gauge("peer_up", up ? 1 : 0,
                   {{"role", std::string(name_of(service.first))}, {"peer", service.second}});
}

// A model that has a target is there with zeros before its first request. Those that some wait for
// are there from then on: a gauge that is listed no more would keep its last value.
void RouterService::list_models() {
  for (const Worker* target : pool_.alive(wire::Role::kTarget))
    table_.expect_model(target->hello.model_name);
  auto n_waiting = table_.n_waiting_by_model(bus_->now());
  for (const auto& [name, n] : n_waiting)
    if (!name.empty()) table_.expect_model(name);
  metrics_.gauge("num_requests_waiting", n_waiting[""], {{"model_name", ""}});
  for (const auto& [name, tally] : table_.tallies()) {
    const Labels model{{"model_name", name}};
    metrics_.gauge("num_requests_waiting", n_waiting[name], model);
    metrics_.histogram("time_to_first_token_seconds", tally.first_token, model);
    metrics_.histogram("inter_token_latency_seconds", tally.inter_token, model);
    metrics_.histogram("e2e_request_latency_seconds", tally.whole_answer, model);
    metrics_.histogram("request_queue_time_seconds", tally.queueing, model);
    metrics_.histogram("request_prompt_tokens", tally.prompt_tokens, model);
    metrics_.histogram("request_generation_tokens", tally.answer_tokens, model);
    for (std::size_t i = 0; i < tally.n_ended.size(); ++i)
      metrics_.counter("request_success_total", tally.n_ended[i],
                       {{"model_name", name}, {"finished_reason", std::string(kFinishNames[i])}});
  }
}

// ---- workers

// Greetings are said again anyway: they do not wait.
void RouterService::reply_to(const Peer& peer, const wire::Message& message) {
  auto frames = wire::try_encode(speaker_, {}, message);
  if (!frames.ok()) return void(++dropped_);
  bus_->send(peer, std::move(frames).value(), {});
}

// A worker of another major version is not answered: neither side can read the other.
void RouterService::on_unreadable(const Error& error, TimePoint now) {
  ++malformed_;
  if (error.code != ErrorCode::kIncompatible) return;
  if (const auto n = other_versions_.count(now))
    log_warning("refused a worker", {{"reason", error.message}, {"since_start", *n}});
}

void RouterService::on_worker(const Delivery& delivery, TimePoint now) {
  const Peer& peer = delivery.peer;
  auto incoming = wire::decode(delivery.frames);
  if (!incoming.ok()) return on_unreadable(incoming.error(), now);
  const wire::Header& header = incoming->header;
  wire::Message& message = incoming->message;
  if (const auto* hello = std::get_if<wire::Hello>(&message))
    return on_hello(delivery, header, *hello, now);
  // Where connections have keys, a worker speaks with the key it said hello with.
  if (const Worker* named = pool_.find(header.sender); named != nullptr &&
                                                       named->state != wire::WorkerState::kGone &&
                                                       named->user != delivery.user) {
    ++stale_;
    return;
  }
  if (const auto* beat = std::get_if<wire::Heartbeat>(&message)) {
    const Worker* worker = pool_.find(header.sender);
    const bool was_ready = worker != nullptr && worker->state == wire::WorkerState::kReady;
    const bool known = pool_.heartbeat(header, peer, *beat, now);
    const bool needed = known && is_needed(*pool_.find(header.sender), now);
    reply_to(peer,
             wire::HeartbeatReply{.echo_us = beat->sent_us, .known = known, .needed = needed});
    if (known && was_ready != !beat->draining) pair_all();
    return;
  }
  const Worker* worker = pool_.find_sender(header, now);
  if (worker == nullptr) {
    ++stale_;
    if (std::holds_alternative<wire::Goodbye>(message))
      std::erase_if(lost_, [&](const auto& each) { return each.second == header.sender; });
    else
      reply_to(peer, wire::HeartbeatReply{.known = false});
    return;
  }
  if (std::holds_alternative<wire::Goodbye>(message)) {
    const Worker copy = *worker;
    pool_.end(header.sender, header.incarnation);
    return gone(copy, "it said goodbye", now);
  }
  if (const auto* lost = std::get_if<wire::DraftLost>(&message)) {
    log_warning(
        "a target gets no answers from a draft",
        {{"target", worker->hello.name}, {"draft", lost->draft.value}, {"reason", lost->reason}});
    return;
  }
  Actions actions;
  if (auto* reply = std::get_if<wire::MetricsReply>(&message)) {
    metrics_questions_.on_reply(*worker, header.request, std::move(*reply), actions);
    return act(actions);
  }
  if (token_questions_.is_mine(header.sender, header.request)) {
    token_questions_.on_message(header.request, message, now, actions);
    return act(actions);
  }
  table_.on_message(header.sender, header.request, std::move(message), now, actions);
  act(actions);
}

void RouterService::on_hello(const Delivery& delivery,
                             const wire::Header& header,
                             const wire::Hello& hello,
                             TimePoint now) {
  const Worker* before = pool_.find(header.sender);
  const std::optional<Worker> former = before == nullptr ? std::nullopt : std::optional(*before);
  const Peer& peer = delivery.peer;
  // Who a peer is follows from its key, where there is one, and not from what it says.
  const bool is_itself =
      delivery.user.empty() || delivery.user == std::string(name_of(hello.role)) + ":" + hello.name;
  const bool is_anothers =
      former && former->state != wire::WorkerState::kGone && former->user != delivery.user;
  const Pool::Arrival arrival =
      is_itself && !is_anothers
          ? pool_.hello(header, peer, hello, now)
          : Pool::Arrival{.code = ErrorCode::kIncompatible,
                          .message = hello.name + " spoke with the key of \"" + delivery.user +
                                     "\" (bus.curve_peers)"};
  wire::HelloReply reply{
      .accepted = arrival.accepted,
      .code = arrival.code,
      .message = arrival.message,
      .heartbeat_ms = static_cast<std::uint32_t>(
          std::chrono::duration_cast<std::chrono::milliseconds>(options_.heartbeat).count())};
  if (!arrival.accepted) {
    log_warning("refused a worker", {{"worker", hello.name}, {"reason", arrival.message}});
    statuses_.remember_refused(header.sender, hello, arrival.message, now);
    return reply_to(peer, reply);
  }
  pool_.find(header.sender)->user = delivery.user;
  lost_.erase({hello.role, hello.name});
  reply.message = complaints_about(*pool_.find(header.sender), pool_);
  reply_to(peer, reply);
  if (arrival.replaced) gone(*former, "a new process of its name replaced it", now);
  if (!arrival.is_new) return;
  log_info("worker joined",
           {{"worker", hello.name}, {"model", hello.model_name}, {"endpoint", hello.endpoint}});
  pair_all();
  Actions actions;
  table_.workers_changed(now, actions);
  act(actions);
}

// Sending to a killed process fails at once; its silence is noticed much later.
void RouterService::probe_silent() {
  for (const Peer& peer : pool_.to_probe()) reply_to(peer, wire::HeartbeatReply{.needed = true});
}

void RouterService::lost(const Worker& worker, const std::string& why, TimePoint now) {
  if (lost_.size() < kMaxLost) lost_[{worker.hello.role, worker.hello.name}] = worker.id;
  gone(worker, why, now);
}

// Unassigns its peers and moves its requests.
void RouterService::gone(const Worker& worker, const std::string& why, TimePoint now) {
  log_warning("worker gone", {{"worker", worker.hello.name}, {"reason", why}});
  bus_->forget(worker.peer);
  Actions actions;
  if (worker.hello.role == wire::Role::kDraft) Pairing::unassign(pool_, worker, why, actions);
  metrics_questions_.worker_lost(worker.id, actions);
  table_.worker_lost(worker.id, now, actions);
  token_questions_.worker_lost(worker.id, now, actions);
  act(actions);
}

void RouterService::pair_all() {
  const TimePoint now = bus_->now();
  std::vector<const Worker*> needed;
  for (const Worker* draft : pool_.alive(wire::Role::kDraft))
    if (is_needed(*draft, now)) needed.push_back(draft);
  Actions actions;
  pairing_.pair_all(pool_, needed, actions);
  act(actions);
  next_pairing_ = now + kPairAgain;
}

// One that drains may end as soon as this is false.
bool RouterService::is_needed(const Worker& worker, TimePoint now) const {
  if (worker.state != wire::WorkerState::kDraining) return true;
  switch (worker.hello.role) {
    case wire::Role::kTokenizer:
      return table_.needs(worker) || token_questions_.needs(worker.id, now);
    case wire::Role::kEdge:
      return false;
    case wire::Role::kDraft:
      return table_.size() > 0 && (draining_ || now - worker.draining_since < kDraftGrace);
    default:
      return table_.needs(worker);
  }
}

void RouterService::send_worker(WorkerId id, RequestId request, const wire::Message& message) {
  const Worker* worker = pool_.find(id);
  if (worker == nullptr || worker->state == wire::WorkerState::kGone) return;
  auto frames = wire::try_encode(speaker_, request, message);
  if (!frames.ok()) {  // asked again it would be as large
    ++dropped_;
    const TimePoint now = bus_->now();
    Actions actions;
    token_questions_.give_up(request, frames.error(), now, actions);
    table_.give_up(request, frames.error(), now, actions);
    return act(actions);
  }
  // What is lost is asked for again after a silence; a worker that is gone is missed by its
  // heartbeats.
  bus_->send(worker->peer, std::move(frames).value(), {.patience = kAsLongAsItTakes});
}

void RouterService::act(const Actions& actions) {
  for (const Action& action : actions) {
    if (const auto* worker = std::get_if<ToWorker>(&action))
      send_worker(worker->worker, worker->request, worker->message);
    else
      send_answer(std::get<ToClient>(action));
  }
}

// ---- time

TimePoint RouterService::on_turn(TimePoint now) {
  pool_.count_silence(bus_->received_until());
  for (const Pool::Loss& loss : pool_.expire(now)) lost(loss.worker, loss.why, now);
  probe_silent();
  Actions actions;
  TimePoint due = std::min(table_.tick(now, actions), token_questions_.tick(now, actions));
  due = std::min(due, metrics_questions_.tick(now, actions));
  act(actions);
  if (now >= next_pairing_) pair_all();
  due = std::min({due, next_pairing_, now + pool_.until_next_check()});
  if (!pool_.all_here()) due = std::min(due, now + kListenAgain);
  if (draining_) {
    if (now + std::chrono::milliseconds(500) >= drain_deadline_ &&
        table_.size() + token_questions_.size() > 0) {
      Actions last;
      table_.fail_all(
          {ErrorCode::kDraining, "the router stops; ask again under the same request_id"}, now,
          last);
      token_questions_.fail_all(leaving(), kAskAgainMs, last);
      act(last);
    }
    due = std::min(due, now + std::chrono::milliseconds(20));
  }
  leave_if_drained(now);
  return due;
}

void RouterService::drain(TimePoint deadline) {
  draining_ = true;
  drain_deadline_ = deadline;
  const TimePoint now = bus_->now();
  Actions actions;
  table_.begin_drain(now, actions);
  act(actions);
  leave_if_drained(now);
}

// Every request and question has its end, and the workers have every message.
bool RouterService::has_finished() const {
  return table_.size() == 0 && token_questions_.size() == 0 && bus_->n_waiting(worker_socket_) == 0;
}

// Workers that drain wait for this; others look for the next router anyway.
void RouterService::leave_if_drained(TimePoint now) {
  if (!draining_ || finished_at_ || !has_finished()) return;
  finished_at_ = now;
  for (const Worker* worker : pool_.all())
    if (worker->state != wire::WorkerState::kGone)
      reply_to(worker->peer, wire::Goodbye{.reason = "drained"});
}

// A client that does not read delays the exit by at most kClientsRead.
bool RouterService::drained() const {
  return finished_at_ && has_finished() &&
         (bus_->n_waiting(client_socket_) == 0 || bus_->now() >= *finished_at_ + kClientsRead);
}

std::string RouterService::status() const {
  return std::to_string(table_.size()) + " requests, " +
         std::to_string(pool_.ready(wire::Role::kTarget).size()) + " targets, " +
         std::to_string(pool_.ready(wire::Role::kDraft).size()) + " drafts";
}

}  // namespace foretoken
