#include "common/runtime/worker_service.h"

#include <algorithm>
#include <utility>

#include "common/wire/client_codec.h"

namespace foretoken {

void WorkerService::start(Bus& bus) {
  bus_ = &bus;
  open(bus, router_.hello());
  router_.start(bus, duties_.router);
}

void WorkerService::on_message(Delivery delivery) {
  auto incoming = wire::decode(delivery.frames);
  if (!incoming.ok()) return on_malformed(delivery.peer);
  const wire::Header& header = incoming->header;
  wire::Message& message = incoming->message;
  if (delivery.peer.socket != router_.socket()) return on_peer_message(delivery, header, message);
  switch (router_.on_message(header, message)) {
    case RouterConnection::Event::kHandled:
      return;
    case RouterConnection::Event::kNewRouter:
      return on_new_router();
    case RouterConnection::Event::kNotMine:
      break;
  }
  if (const auto* request = std::get_if<wire::MetricsRequest>(&message)) {
    wire::MetricsReply reply;
    if (request->passes)
      reply.passes = passes();
    else
      reply.text = metrics_text();
    return router_.send(header.request, std::move(reply));
  }
  if (!on_router_message(header, message)) count_malformed();
}

void WorkerService::on_dropped(const Peer& peer, Ticket ticket) {
  if (peer.socket == router_.socket()) return router_.on_dropped();
  on_peer_dropped(peer, ticket);
}

// A hello or heartbeat that is due leaves before the work, which may take long: the time of a drain
// may be over after it.
TimePoint WorkerService::on_turn(TimePoint now) {
  send_due(now);
  const TimePoint due = work(now);
  leave_if_drained(bus_->now());
  return std::min(due, router_.due());
}

void WorkerService::send_due(TimePoint now) {
  router_.turn(now, [this] { return load(); });
}

void WorkerService::drain(TimePoint deadline) {
  drain_until_ = deadline;
  router_.beat_soon();
  const TimePoint now = bus_->now();
  send_due(now);
  leave_if_drained(now);
}

void WorkerService::leave_if_drained(TimePoint now) {
  if (!drain_until_ || has_left_) return;
  if (has_to_stay() && now < *drain_until_ - duties_.last_words) return;
  leave();
  router_.goodbye("drained");
  has_left_ = true;
}

bool WorkerService::drained() const {
  return has_left_ && (!router_.has_router() || router_.n_waiting() == 0);
}

wire::Heartbeat WorkerService::load() const {
  wire::Heartbeat load = own_load();
  load.draining = drain_until_.has_value();
  load.state = name_of(load.draining ? wire::WorkerState::kDraining : wire::WorkerState::kReady);
  load.dropped_total += n_malformed_ + router_.n_dropped();
  return load;
}

// Services of one model that differ in its fingerprints do not give the same text.
void WorkerService::list_model() {
  const wire::Hello& hello = router_.hello();
  if (hello.fingerprints.model == 0) return;  // it runs none
  metrics_.gauge("model_info", 1,
                 {{"fingerprint", wire::hex_of(hello.fingerprints.model)},
                  {"numerics", wire::hex_of(hello.fingerprints.numerics)},
                  {"max_model_len", std::to_string(hello.max_model_len)},
                  {"vocab_size", std::to_string(hello.vocab_size)}});
}

std::string WorkerService::metrics_text() {
  list_metrics(metrics_);
  list_model();
  metrics_.counter("frames_dropped_total", load().dropped_total);
  return metrics_.text();
}

}  // namespace foretoken
