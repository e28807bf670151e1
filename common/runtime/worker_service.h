// What tokenizer, draft and target owe the router, whatever else they do (docs/protocol.md,
// "Registration" and "Leaving"): they register, send heartbeats with their load, answer
// METRICS_REQUEST, and drain. A derived class has what is its own: its messages, its work, its
// load and its listing of metrics. It uses no engine and no request. Work thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/runtime/metrics.h"
#include "common/runtime/router_connection.h"
#include "common/runtime/service.h"
#include "common/wire/codec.h"

namespace foretoken {

class WorkerService : public Service {
 public:
  void start(Bus& bus) final;
  void on_message(Delivery delivery) final;
  void on_dropped(const Peer& peer, Ticket ticket) final;
  TimePoint on_turn(TimePoint now) final;
  void drain(TimePoint deadline) final;
  bool drained() const final;

 protected:
  struct Duties {
    std::string router;  // endpoint
    Duration heartbeat;
    // So long before the time of a drain is over it leaves, whatever waits; or at the end of the
    // turn that runs then.
    Duration last_words;
  };
  WorkerService(const Duties& duties,
                const wire::Hello& hello,
                wire::Speaker& speaker,
                Metrics& metrics)
      : duties_(duties), metrics_(metrics), router_(speaker, hello, duties.heartbeat) {
    if (!hello.model_name.empty()) metrics.add_constant_label("model_name", hello.model_name);
  }

  Bus& bus() const { return *bus_; }
  RouterConnection& router() { return router_; }
  const RouterConnection& router() const { return router_; }
  void count_malformed() { ++n_malformed_; }
  bool is_draining() const { return drain_until_.has_value(); }

 private:
  // At start: binds and connects what is its own, and completes the hello.
  virtual void open(Bus& /*bus*/, wire::Hello& /*hello*/) {}
  // A message of the router; false: not one for this kind of worker.
  virtual bool on_router_message(const wire::Header& header, wire::Message& message) = 0;
  // Another incarnation of the router: what the former one asked for is not wanted any more.
  virtual void on_new_router() {}
  // What comes over its own sockets, and the tickets of what was lost there.
  virtual void on_peer_message(const Delivery& /*from*/, const wire::Header&, wire::Message&) {}
  virtual void on_peer_dropped(const Peer& /*peer*/, Ticket /*ticket*/) {}
  // Bytes that are no message.
  virtual void on_malformed(const Peer& /*peer*/) { count_malformed(); }
  // A turn of its own work; returns when it wants the next.
  virtual TimePoint work(TimePoint now) = 0;
  // While it drains, before its time is over: whether it has to stay.
  virtual bool has_to_stay() const { return router_.is_needed(); }
  // Just before its goodbye to the router: what is unfinished, and peers that have to know.
  virtual void leave() {}
  // Its part of a heartbeat; `dropped_total`: beyond what is malformed or the router did not get.
  virtual wire::Heartbeat own_load() const = 0;
  // Its last passes, if it runs a model.
  virtual wire::Passes passes() const { return {}; }
  // One line a metric.
  virtual void list_metrics(Metrics& metrics) = 0;

  void send_due(TimePoint now);
  void leave_if_drained(TimePoint now);
  wire::Heartbeat load() const;
  void list_model();
  std::string metrics_text();

  const Duties duties_;
  Metrics& metrics_;
  RouterConnection router_;
  Bus* bus_ = nullptr;
  std::uint64_t n_malformed_ = 0;
  std::optional<TimePoint> drain_until_;
  bool has_left_ = false;
};

}  // namespace foretoken
