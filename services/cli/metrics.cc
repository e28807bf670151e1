// metrics: what all services count, and what Grafana and Prometheus make of it.
#include <iostream>

#include "common/client/client.h"
#include "services/cli/ask.h"
#include "services/cli/metrics_pages.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {

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
