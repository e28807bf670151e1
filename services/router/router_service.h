// The router as a service: front door for clients, registry of workers, and the hands of the
// request table. It decodes, asks table and pool, and sends what they say; it decides nothing
// itself. Work thread only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/config/load.h"
#include "common/config/sections.h"
#include "common/messages/client.h"
#include "common/messages/limits.h"
#include "common/runtime/metrics.h"
#include "common/runtime/service.h"
#include "common/wire/codec.h"
#include "services/router/pool.h"
#include "services/router/request_table.h"
#include "services/router/token_questions.h"

namespace foretoken {

struct RouterServiceOptions {
  std::string client;  // endpoint for clients
  std::string router;  // endpoint for workers
  std::string name = "router-0";
  std::string build;
  Duration heartbeat = std::chrono::milliseconds(250);  // eight missed = gone
  std::size_t max_answer_bytes = wire::kMaxAnswerBytes;
  RequestRules rules;
};

// For how long a router that was just started waits for services that run, before it decides what
// they serve.
Duration registration_time(const std::string& router, Duration heartbeat);

RouterServiceOptions router_options(const LoadedConfig& loaded, const std::string& name);

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
  wire::StatusReply status_reply(RequestId id, TimePoint now) const;
  const wire::StatusReply& recent_status(RequestId id, TimePoint now);
  enum class Asked : std::uint8_t { kMetrics, kPasses };
  void ask_metrics(const Peer& peer, RequestId id, Asked what, TimePoint now);
  void finish_metrics(RequestId id);
  RequestId new_id();

  // workers
  void on_worker(const Delivery& delivery, TimePoint now);
  void on_hello(const Delivery& delivery,
                const wire::Header& header,
                const wire::Hello& hello,
                TimePoint now);
  void remember_refused(WorkerId id,
                        const wire::Hello& hello,
                        const std::string& reason,
                        TimePoint now);
  void gone(const Worker& worker, const std::string& why, TimePoint now);
  void probe_silent();
  void pair_all();
  std::string complaints_about(const Worker& worker) const;
  void send_worker(WorkerId worker, RequestId request, const wire::Message& message);
  void reply_to(const Peer& peer, const wire::Message& message);
  bool is_needed(const Worker& worker, TimePoint now) const;
  bool has_finished() const;
  void leave_if_drained(TimePoint now);

  void act(const Actions& actions);
  std::string own_metrics();
  void list_models();

  struct MetricsQuestion {
    Peer peer;
    RequestId asked;  // the client's id; two clients may have chosen the same
    TimePoint until{};
    std::set<WorkerId> awaited = {};
    Asked what = Asked::kMetrics;
    std::vector<std::string> texts = {};
    std::vector<wire::ServicePasses> passes = {};
  };
  RouterServiceOptions options_;
  wire::Speaker& speaker_;
  Metrics& metrics_;
  Pool pool_;
  RequestTable table_;
  TokenQuestions token_questions_;
  Bus* bus_ = nullptr;
  SocketId client_socket_ = 0;
  std::string client_endpoint_;
  wire::StatusReply status_;  // the last that was made
  TimePoint status_moment_{};
  int n_statuses_ = 0;
  SocketId worker_socket_ = 0;
  TimePoint started_{};
  TimePoint next_pairing_{};
  bool draining_ = false;
  std::optional<TimePoint> finished_at_;  // of one that drains: when it said goodbye
  TimePoint drain_deadline_{};
  std::uint64_t n_ids_ = 0;
  std::map<RequestId, MetricsQuestion> questions_;
  std::set<std::string> complained_;  // pairs refused by name, logged once
  struct Refused {
    wire::Hello hello;
    std::string reason;
    TimePoint at{};
  };
  std::map<WorkerId, Refused> refused_;  // for people: those that asked in the last while
  std::uint64_t malformed_ = 0, stale_ = 0, dropped_ = 0, bad_requests_ = 0;
};

}  // namespace foretoken
