// What is made of the metrics elsewhere: a dashboard for Grafana and alert rules for Prometheus.
// Each metric of the table has a panel; the sentences of the table are the panels' descriptions.
// Pure text.
#pragma once

#include <string>

namespace foretoken::cli {

std::string grafana_dashboard();  // JSON, to be imported
std::string alert_rules();        // YAML, for rule_files

}  // namespace foretoken::cli
