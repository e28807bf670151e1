// The edge as a service: the runtime gives it a life (signals, readiness, watchdog, drain), it
// registers at the router as every service does, and each of its turns runs the loop of HTTP for a
// while. Its requests go another way, that of any client (router_thread.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/base/host_and_port.h"
#include "common/config/load.h"
#include "common/runtime/metrics.h"
#include "common/runtime/worker_service.h"
#include "services/edge/asio.h"
#include "services/edge/edge.h"
#include "services/edge/span_exporter.h"
#include "services/edge/tracer.h"

namespace foretoken::edge {

class EdgeService final : public WorkerService {
 public:
  // Throws FatalError for an address beyond this machine without keys.
  EdgeService(const LoadedConfig& loaded,
              const std::string& name,
              wire::Speaker& speaker,
              Metrics& metrics);
  ~EdgeService() override;

  void on_end() override;
  std::string status() const override;

 private:
  void open(Bus& bus, wire::Hello& hello) override;
  bool on_router_message(const wire::Header&, wire::Message&) override { return false; }
  TimePoint work(TimePoint now) override;
  bool has_to_stay() const override;
  wire::Heartbeat own_load() const override;
  void list_metrics(Metrics& metrics) override;
  void listen_for_metrics(const HostAndPort& address);
  // Of both addresses.
  HttpCounters http_counters() const;
  std::size_t n_connections() const;
  std::size_t n_exchanges() const;

  EdgeOptions options_;
  const std::optional<HostAndPort> metrics_address_;
  const TracerOptions traces_;
  const BusSection bus_;
  const CallLimits call_limits_;
  // What a coroutine uses outlives the context, which ends the coroutines.
  std::optional<SpanExporter> exporter_;
  std::optional<Calls> calls_;
  std::optional<Edge> edge_;
  std::optional<HttpServer> server_, metrics_server_;
  std::unique_ptr<boost::asio::io_context> context_;
};

}  // namespace foretoken::edge
