// The router as a service: front door for clients, registry of workers, and the hands of the
// request table. It decodes, asks table and pool, and sends what they say; it decides nothing
// itself. Work thread only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/rare_warning.h"
#include "common/config/load.h"
#include "common/config/sections.h"
#include "common/messages/client.h"
#include "common/messages/limits.h"
#include "common/runtime/metrics.h"
#include "common/runtime/service.h"
#include "common/wire/codec.h"
#include "services/router/metrics_questions.h"
#include "services/router/pairing.h"
#include "services/router/pool.h"
#include "services/router/request_table.h"
#include "services/router/router_options.h"
#include "services/router/status_replies.h"
#include "services/router/token_questions.h"

namespace foretoken {

class RouterService final : public Service {
 public:
  RouterService(const RouterServiceOptions& options, wire::Speaker& speaker, Metrics& metrics);

  void start(Bus& bus) override;
  void on_message(Delivery delivery) override;
  void on_undelivered(const Peer& peer, Ticket ticket) override;
  void on_dropped(const Peer& peer, Ticket ticket) override;
  TimePoint on_turn(TimePoint now) override;
  void drain(TimePoint deadline) override;
  bool drained() const override;
  std::string status() const override;

  const RequestTable& table() const { return table_; }
  const Pool& pool() const { return pool_; }
  const std::string& client_endpoint() const { return client_endpoint_; }

 private:
  // clients
  void on_client(const Peer& peer, const Frames& frames, TimePoint now);
  void answer(const Peer& peer, RequestId id, wire::ClientAnswer answer);
  void send_answer(const ToClient& to);
  void ask_metrics(const MetricsQuestion& question, TimePoint now);
  RequestId new_id();

  // workers
  void on_unreadable(const Error& error, TimePoint now);
  void on_worker(const Delivery& delivery, TimePoint now);
  void on_hello(const Delivery& delivery,
                const wire::Header& header,
                const wire::Hello& hello,
                TimePoint now);
  void lost(const Worker& worker, const std::string& why, TimePoint now);
  void gone(const Worker& worker, const std::string& why, TimePoint now);
  void probe_silent();
  void pair_all();
  void send_worker(WorkerId worker, RequestId request, const wire::Message& message);
  void reply_to(const Peer& peer, const wire::Message& message);
  bool is_needed(const Worker& worker, TimePoint now) const;
  bool has_finished() const;
  void leave_if_drained(TimePoint now);

  void act(const Actions& actions);
  std::string own_metrics();
  void list_models();
  void list_services();

  RouterServiceOptions options_;
  wire::Speaker& speaker_;
  Metrics& metrics_;
  Pool pool_;
  RequestTable table_;
  TokenQuestions token_questions_;
  MetricsQuestions metrics_questions_;
  StatusReplies statuses_;
  Pairing pairing_;
  // Services that were lost, longer than the pool has them: until one of that role and name is here
  // again, or the lost one says goodbye.
  std::map<std::pair<wire::Role, std::string>, WorkerId> lost_;
  Bus* bus_ = nullptr;
  SocketId client_socket_ = 0;
  std::string client_endpoint_;
  SocketId worker_socket_ = 0;
  TimePoint started_{};
  TimePoint next_pairing_{};
  bool draining_ = false;
  std::optional<TimePoint> finished_at_;  // of one that drains: when it said goodbye
  TimePoint drain_deadline_{};
  std::uint64_t n_ids_ = 0;
  RareWarning other_versions_{std::chrono::minutes(1)};  // messages of workers
  RareWarning slow_clients_{std::chrono::minutes(1)};    // requests ended for their clients
  std::uint64_t malformed_ = 0, stale_ = 0, dropped_ = 0, bad_requests_ = 0;
};

}  // namespace foretoken
