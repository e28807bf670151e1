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
  std::vector<std::function<void()>> refreshers;
};

void Counter::add(double by) {
  if (counter_ != nullptr) counter_->Increment(by);
}
void Gauge::set(double to) {
  if (gauge_ != nullptr) gauge_->Set(to);
}
void Histogram::observe(double value) {
  if (histogram_ != nullptr) histogram_->Observe(value);
}

Metrics::Metrics(Labels constant_labels) : registry_(std::make_unique<Registry>()) {
  registry_->constant_labels = std::move(constant_labels);
}
Metrics::~Metrics() = default;

Counter Metrics::counter(const std::string& name, const std::string& help, const Labels& labels) {
  auto& family = prometheus::BuildCounter()
                     .Name("foretoken_" + name)
                     .Help(help)
                     .Labels(registry_->constant_labels)
                     .Register(registry_->registry);
  return Counter(&family.Add(labels));
}

Gauge Metrics::gauge(const std::string& name, const std::string& help, const Labels& labels) {
  auto& family = prometheus::BuildGauge()
                     .Name("foretoken_" + name)
                     .Help(help)
                     .Labels(registry_->constant_labels)
                     .Register(registry_->registry);
  return Gauge(&family.Add(labels));
}

Histogram Metrics::histogram(const std::string& name,
                             const std::string& help,
                             const std::vector<double>& buckets,
                             const Labels& labels) {
  auto& family = prometheus::BuildHistogram()
                     .Name("foretoken_" + name)
                     .Help(help)
                     .Labels(registry_->constant_labels)
                     .Register(registry_->registry);
  return Histogram(&family.Add(labels, buckets));
}

void Metrics::before_text(std::function<void()> refresh) {
  registry_->refreshers.push_back(std::move(refresh));
}

std::string Metrics::text() const {
  for (const auto& refresh : registry_->refreshers) refresh();
  return prometheus::TextSerializer().Serialize(registry_->registry.Collect());
}

const std::vector<double>& latency_buckets() {
  static const std::vector<double> buckets{
      0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25,
      0.5,    0.75,    1,      2.5,   5,      7.5,   10,   20,   40,   80,   160,  640, 2560};
  return buckets;
}

}  // namespace foretoken
