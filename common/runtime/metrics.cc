#include "common/runtime/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace foretoken {

struct Metrics::Registry {
  prometheus::Registry registry;
  Labels constant_labels;
  std::vector<std::function<void()>> lists;

  template <class Builder, class... More>
  auto& metric(Builder builder,
               const std::string& name,
               const std::string& help,
               const Labels& labels,
               const More&... more) {
    return builder.Name("foretoken_" + name)
        .Help(help)
        .Labels(constant_labels)
        .Register(registry)
        .Add(labels, more...);
  }
};

void Histogram::observe(double value) {
  if (histogram_ != nullptr) histogram_->Observe(value);
}

Metrics::Metrics(Labels constant_labels) : registry_(std::make_unique<Registry>()) {
  registry_->constant_labels = std::move(constant_labels);
}
Metrics::~Metrics() = default;

void Metrics::set_counter(const std::string& name,
                          double total,
                          const std::string& help,
                          const Labels& labels) {
  auto& counter = registry_->metric(prometheus::BuildCounter(), name, help, labels);
  counter.Increment(total - counter.Value());
}

void Metrics::set_gauge(const std::string& name,
                        double value,
                        const std::string& help,
                        const Labels& labels) {
  registry_->metric(prometheus::BuildGauge(), name, help, labels).Set(value);
}

Histogram Metrics::histogram(const std::string& name,
                             const std::string& help,
                             const std::vector<double>& buckets,
                             const Labels& labels) {
  return Histogram(&registry_->metric(prometheus::BuildHistogram(), name, help, labels, buckets));
}

void Metrics::before_text(std::function<void()> list) {
  registry_->lists.push_back(std::move(list));
}

std::string Metrics::text() const {
  for (const auto& list : registry_->lists) list();
  return prometheus::TextSerializer().Serialize(registry_->registry.Collect());
}

const std::vector<double>& latency_buckets() {
  static const std::vector<double> buckets{
      0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25,
      0.5,    0.75,    1,      2.5,   5,      7.5,   10,   20,   40,   80,   160,  640, 2560};
  return buckets;
}

}  // namespace foretoken
