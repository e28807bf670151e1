#include "services/edge/edge_service.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/host_and_port.h"
#include "common/base/log.h"
#include "common/config/load.h"
#include "common/config/models.h"
#include "common/config/resolve.h"
#include "common/runtime/process.h"
#include "common/runtime/service_main.h"
#include "services/edge/http_error.h"

namespace foretoken::edge {
namespace {

// How long one turn runs the loop: signals, heartbeats and the drain are looked at in between.
constexpr auto kTurn = std::chrono::milliseconds(50);
constexpr auto kLastWords = std::chrono::milliseconds(250);

wire::Hello hello_of(const std::string& name) {
  return {.role = wire::Role::kEdge,
          .name = name,
          .build = build_text(),
          .pid = static_cast<std::uint64_t>(::getpid())};
}

CallLimits call_limits(const LoadedConfig& loaded) {
  return {.of_models = request_limits(loaded),
          .of_all = most_requests(loaded),
          .default_model = loaded.config.router.default_model,
          .timeout = std::chrono::seconds(loaded.config.limits.request_timeout_s)};
}

// Of a request that no route has seen. `body_key`: what sets the limit of its body; "" = nothing.
HttpError early_error(unsigned status, const std::string& why, const char* body_key) {
  if (status == 503) return overloaded_error();
  const bool has_key = status == 413 && *body_key != '\0';
  return http_error(status, has_key ? why + " (" + body_key + ")" : why);
}

std::string host_of(const std::optional<HostAndPort>& address) {
  return address ? address->host : "";
}

// Who scrapes has no body, and clients at edge.max_connections do not keep it out.
HttpLimits metrics_limits() {
  HttpLimits limits;
  limits.max_connections = 64;
  limits.max_body_bytes = 1024;
  return limits;
}

// What the configuration says and cannot be ends the start; what the environment says, which is
// often that of a whole machine, is named in the log.
TracerOptions traces_of(const EdgeSection& section) {
  auto options = tracer_options(section.traces_endpoint, process_environment());
  if (options.ok()) return std::move(*options);
  if (options.error().message.starts_with("edge."))
    throw FatalError(ErrorCode::kConfig, options.error().message);
  log_warning("no traces are sent", {{"reason", options.error().message}});
  return {};
}

}  // namespace

EdgeService::EdgeService(const LoadedConfig& loaded,
                         const std::string& name,
                         wire::Speaker& speaker,
                         Metrics& metrics)
    : WorkerService({router_endpoint(loaded.config.bus),
                     std::chrono::milliseconds(loaded.config.bus.heartbeat_ms), kLastWords},
                    hello_of(name),
                    speaker,
                    metrics),
      options_{.section = loaded.config.edge,
               .metrics_host = host_of(host_and_port_in(loaded.config.metrics.listen)),
               .build = build_text()},
      metrics_address_(host_and_port_in(loaded.config.metrics.listen)),
      traces_(traces_of(loaded.config.edge)),
      bus_(loaded.config.bus),
      call_limits_(call_limits(loaded)),
      context_(std::make_unique<boost::asio::io_context>(1)) {}

EdgeService::~EdgeService() { on_end(); }

void EdgeService::open(Bus& /*bus*/, wire::Hello& hello) {
  if (traces_.collector) {
    exporter_.emplace(ExporterOptions{.collector = *traces_.collector,
                                      .headers = traces_.headers,
                                      .resource = traces_.resource,
                                      .version = options_.build});
    options_.tracer = std::make_shared<const Tracer>(
        traces_, [this](std::vector<Span> spans) { exporter_->give(std::move(spans)); });
    log_info("traces enabled",
             {{"endpoint", traces_.collector->host + ":" + traces_.collector->port}});
  }
  calls_.emplace(*context_, bus_, call_limits_);
  edge_.emplace(*context_, *calls_, options_);
  HttpLimits limits;
  limits.max_connections = options_.section.max_connections;
  limits.max_body_bytes = std::size_t{options_.section.max_body_mib} << 20;
  limits.max_held_bytes = std::size_t{options_.section.max_bodies_mib} << 20;
  server_.emplace(
      *context_, limits, [this](HttpExchange& exchange) { return edge_->handle(exchange); },
      [this](const HttpRequest& request, unsigned status, const std::string& why) {
        return edge_->error_reply(request, early_error(status, why, "edge.max_body_mib"));
      });
  const std::uint16_t port =
      server_->listen(options_.section.host, static_cast<std::uint16_t>(options_.section.port));
  hello.endpoint = "http://" + host_and_port(options_.section.host, std::to_string(port));
  log_info("listening for HTTP", {{"address", hello.endpoint}});
  if (metrics_address_) listen_for_metrics(*metrics_address_);
  boost::asio::co_spawn(*context_, edge_->warm_up(), boost::asio::detached);
}

void EdgeService::listen_for_metrics(const HostAndPort& address) {
  metrics_server_.emplace(
      *context_, metrics_limits(),
      [this](HttpExchange& exchange) { return edge_->handle_metrics(exchange); },
      [this](const HttpRequest& request, unsigned status, const std::string& why) {
        return edge_->error_reply(request, early_error(status, why, ""));
      });
  metrics_server_->listen(address.host, address.port);
  log_info("listening for scrapes of metrics",
           {{"address",
             "http://" + host_and_port(address.host, std::to_string(address.port)) + "/metrics"}});
}

TimePoint EdgeService::work(TimePoint now) {
  if (is_draining()) {
    edge_->drain();
    server_->drain();
    if (metrics_server_) metrics_server_->drain();
  }
  context_->run_until(now + kTurn);
  return now;
}

bool EdgeService::has_to_stay() const { return n_exchanges() > 0; }

HttpCounters EdgeService::http_counters() const {
  HttpCounters all = server_->counters();
  if (metrics_server_) all += metrics_server_->counters();
  return all;
}

std::size_t EdgeService::n_connections() const {
  return server_->n_connections() + (metrics_server_ ? metrics_server_->n_connections() : 0);
}

std::size_t EdgeService::n_exchanges() const {
  return server_->n_exchanges() + (metrics_server_ ? metrics_server_->n_exchanges() : 0);
}

void EdgeService::on_end() {
  if (calls_) calls_->stop();
  context_.reset();
  if (exporter_) exporter_->stop();
}

wire::Heartbeat EdgeService::own_load() const {
  return {.active = static_cast<std::uint32_t>(n_exchanges()), .rss_bytes = resident_bytes()};
}

void EdgeService::list_metrics(Metrics& metrics) {
  const HttpCounters now = http_counters();
  metrics.gauge("http_connections", n_connections());
  metrics.gauge("http_requests_running", n_exchanges());
  metrics.counter("http_connections_total", now.accepted);
  metrics.counter("http_connections_refused_total", now.turned_away);
  metrics.counter("http_requests_total", now.requests);
  metrics.counter("http_malformed_total", now.malformed);
  metrics.counter("http_timeouts_total", now.timed_out);
  metrics.counter("http_abandoned_total", now.abandoned);
  metrics.counter("http_overloaded_total", now.overloaded);
  metrics.gauge("http_body_bytes", server_->n_held_bytes());
  const SpanCounts spans = exporter_ ? exporter_->counts() : SpanCounts{};
  metrics.counter("trace_spans_total", spans.sent, {{"outcome", "sent"}});
  metrics.counter("trace_spans_total", spans.dropped, {{"outcome", "dropped"}});
  metrics.counter("trace_spans_total", spans.refused, {{"outcome", "refused"}});
}

std::string EdgeService::status() const {
  if (!server_) return "starting";
  return std::to_string(n_connections()) + " connections, " + std::to_string(n_exchanges()) +
         " requests";
}

}  // namespace foretoken::edge
