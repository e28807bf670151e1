// metrics: what all services count, and what Grafana and Prometheus make of it.
#include <iostream>

#include "common/client/client.h"
#include "services/cli/ask.h"
#include "services/cli/metrics_pages.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {

using namespace std::chrono_literals;

Result<std::string> metrics_of(Client& client) {
  // Fails at once where no router listens.
  if (const auto status = client.status(steady_now() + 3s); !status.ok()) return status.error();
  wire::ClientRequest request;
  request.op = wire::ClientOp::kMetrics;
  auto answer = client.ask(std::move(request), steady_now() + 3s);
  if (!answer.ok()) return answer.error();
  if (auto* text = std::get_if<wire::MetricsText>(&*answer)) return std::move(text->metrics_text);
  return Error{ErrorCode::kMalformed, "the router answered with something that is not metrics"};
}

int run_metrics(const CliOptions& options) {
  if (options.metrics.grafana || options.metrics.alerts) {
    std::cout << (options.metrics.grafana ? grafana_dashboard() : alert_rules());
    return kExitOk;
  }
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  Client client(loaded->config.bus);
  const auto text = metrics_of(client);
  if (!text.ok()) {
    Error error = text.error();
    if (error.code == ErrorCode::kDeadlineExceeded) error.code = ErrorCode::kUnavailable;
    return report_error(error);
  }
  std::cout << *text;
  return kExitOk;
}

}  // namespace foretoken::cli
