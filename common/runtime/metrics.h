// Counters, gauges and histograms named foretoken_..., as Prometheus text. A service lists its
// metrics each time the text is built, one line a metric: `metrics.counter("draft_steps_total",
// now.n_steps)`; type and sentence stand in metric_table.h. Core rooms list nothing: services list
// what core calls return. One thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/base/histogram.h"
#include "common/runtime/metric_table.h"

namespace foretoken {

using Labels = std::map<std::string, std::string>;

// Other names that a text has too.
enum class MetricNames : std::uint8_t { kOwn, kOwnAndVllm };

class Metrics {
 public:
  // `table` has every metric that is listed, and is borrowed.
  explicit Metrics(Labels constant_labels = {}, std::span<const MetricInfo> table = metric_table());
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Of every metric that is listed from now on; say it before the first.
  void add_constant_label(const std::string& name, const std::string& value);
  void set_names(MetricNames names);

  // `name` without the prefix: "spec_decode_num_drafts_total". The same name and labels are the
  // same metric. A counter is given its total since start; a smaller one than before is ignored.
  template <class Number>
  void counter(std::string_view name, Number total, const Labels& labels = {}) {
    set_counter(name, static_cast<double>(total), labels);
  }
  template <class Number>
  void gauge(std::string_view name, Number value, const Labels& labels = {}) {
    set_gauge(name, static_cast<double>(value), labels);
  }
  // The gauges of this name are those that are listed after it: what is not there any more has no
  // value, and not its last one.
  void forget_gauges(std::string_view name);
  // All that was observed since start.
  void histogram(std::string_view name, const Histogram& total, const Labels& labels = {});
  // `list` is called by each text(), for figures that are no service's. It must own what it reads.
  void before_text(std::function<void()> list);
  std::string text() const;

 private:
  void set_counter(std::string_view name, double total, const Labels& labels);
  void set_gauge(std::string_view name, double value, const Labels& labels);

  struct Registry;
  std::unique_ptr<Registry> registry_;
};

}  // namespace foretoken
