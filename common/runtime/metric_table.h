// Every metric there is: name, type, labels, which service has it, one sentence, and
// whether vLLM has it. What services list, docs/reference/metrics.md and `foretoken metrics
// --grafana` come from this table. No metric has the id of a request as a label.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace foretoken {

enum class MetricType : std::uint8_t { kCounter, kGauge, kHistogram };

struct MetricInfo {
  std::string_view name;  // behind "foretoken_"
  MetricType type;
  std::string_view services;  // "router, target"
  std::string_view labels;    // beside `service` and `model_name`
  std::string_view help;
  // vLLM has the same figure, as vllm:NAME; exported so, too, where metrics.compat says so.
  bool is_in_vllm = false;
};

std::span<const MetricInfo> metric_table();
// Null: there is none of that name.
const MetricInfo* find_metric(std::span<const MetricInfo> table, std::string_view name);

}  // namespace foretoken
