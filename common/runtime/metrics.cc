#include "common/runtime/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <set>
#include <utility>
#include <vector>

#include "common/base/check.h"

namespace foretoken {
namespace {

constexpr std::string_view kPrefix = "foretoken_";

// Families that vLLM has too, with the same samples under its name.
void add_vllm_names(std::span<const MetricInfo> table,
                    std::vector<prometheus::MetricFamily>& families) {
  const std::size_t n_own = families.size();
  for (std::size_t i = 0; i < n_own; ++i) {
    const std::string_view name = std::string_view(families[i].name).substr(kPrefix.size());
    const MetricInfo* info = find_metric(table, name);
    if (info == nullptr || !info->is_in_vllm) continue;
    prometheus::MetricFamily alias = families[i];
    alias.name = "vllm:" + std::string(name);
    families.push_back(std::move(alias));
  }
}

}  // namespace

struct Metrics::Registry {
  struct Told {
    std::vector<std::uint64_t> counts;
    double sum = 0;
  };
  prometheus::Registry registry;
  Labels constant_labels;
  std::span<const MetricInfo> table;
  MetricNames names = MetricNames::kOwn;
  std::vector<std::function<void()>> lists;
  std::map<std::string, std::set<prometheus::Gauge*>, std::less<>> gauges;  // by name
  std::map<const prometheus::Histogram*, Told> told;  // of the totals, what the registry has

  template <class Builder>
  auto& family(Builder builder, MetricType type, std::string_view name) {
    const MetricInfo* info = find_metric(table, name);
    FORETOKEN_CHECK(info != nullptr && info->type == type,
                    "the metric is not in metric_table.cc, or has another type there");
    return builder.Name(std::string(kPrefix) + std::string(name))
        .Help(std::string(info->help))
        .Labels(constant_labels)
        .Register(registry);
  }
};

Metrics::Metrics(Labels constant_labels, std::span<const MetricInfo> table)
    : registry_(std::make_unique<Registry>()) {
  registry_->constant_labels = std::move(constant_labels);
  registry_->table = table;
}
Metrics::~Metrics() = default;

void Metrics::add_constant_label(const std::string& name, const std::string& value) {
  registry_->constant_labels[name] = value;
}

void Metrics::set_names(MetricNames names) { registry_->names = names; }

void Metrics::set_counter(std::string_view name, double total, const Labels& labels) {
  auto& counter =
      registry_->family(prometheus::BuildCounter(), MetricType::kCounter, name).Add(labels);
  counter.Increment(total - counter.Value());
}

void Metrics::set_gauge(std::string_view name, double value, const Labels& labels) {
  auto& gauge = registry_->family(prometheus::BuildGauge(), MetricType::kGauge, name).Add(labels);
  gauge.Set(value);
  registry_->gauges[std::string(name)].insert(&gauge);
}

void Metrics::forget_gauges(std::string_view name) {
  const auto listed = registry_->gauges.extract(std::string(name));
  if (listed.empty()) return;
  auto& family = registry_->family(prometheus::BuildGauge(), MetricType::kGauge, name);
  for (prometheus::Gauge* gauge : listed.mapped()) family.Remove(gauge);
}

// The registry adds, so it is given what has come since.
void Metrics::histogram(std::string_view name, const Histogram& total, const Labels& labels) {
  const std::vector<double> bounds(total.bounds().begin(), total.bounds().end());
  auto& metric = registry_->family(prometheus::BuildHistogram(), MetricType::kHistogram, name)
                     .Add(labels, bounds);
  Registry::Told& told = registry_->told[&metric];
  told.counts.resize(total.counts().size());
  std::vector<double> news;
  for (std::size_t i = 0; i < told.counts.size(); ++i) {
    FORETOKEN_CHECK(total.counts()[i] >= told.counts[i], "a histogram has lost observations");
    news.push_back(static_cast<double>(total.counts()[i] - told.counts[i]));
  }
  metric.ObserveMultiple(news, total.sum() - told.sum);
  told = {{total.counts().begin(), total.counts().end()}, total.sum()};
}

void Metrics::before_text(std::function<void()> list) {
  registry_->lists.push_back(std::move(list));
}

std::string Metrics::text() const {
  for (const auto& list : registry_->lists) list();
  auto families = registry_->registry.Collect();
  if (registry_->names == MetricNames::kOwnAndVllm) add_vllm_names(registry_->table, families);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace foretoken
