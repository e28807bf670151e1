// Counters, gauges and histograms named foretoken_..., as Prometheus text. A service lists its
// metrics each time the text is built, one line a metric, as configuration lists its keys:
// `metrics.counter("draft_steps_total", now.n_steps, "Batched passes.")`. Core rooms list nothing:
// services list what core calls return. May be used from any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace prometheus {
class Histogram;
}  // namespace prometheus

namespace foretoken {

using Labels = std::map<std::string, std::string>;

// A handle: cheap to copy, lives as long as its Metrics.
class Histogram {
 public:
  explicit Histogram(prometheus::Histogram* histogram = nullptr) : histogram_(histogram) {}
  void observe(double value);

 private:
  prometheus::Histogram* histogram_;
};

class Metrics {
 public:
  explicit Metrics(Labels constant_labels = {});
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // `name` without the prefix: "spec_decode_num_drafts_total". The same name and labels are the
  // same metric. A counter is given its total since start; a smaller one than before is ignored.
  template <class Number>
  void counter(const std::string& name,
               Number total,
               const std::string& help,
               const Labels& labels = {}) {
    set_counter(name, static_cast<double>(total), help, labels);
  }
  template <class Number>
  void gauge(const std::string& name,
             Number value,
             const std::string& help,
             const Labels& labels = {}) {
    set_gauge(name, static_cast<double>(value), help, labels);
  }
  Histogram histogram(const std::string& name,
                      const std::string& help,
                      const std::vector<double>& buckets,
                      const Labels& labels = {});
  // `list` is called by each text(), for figures that are no service's. It must own what it reads.
  void before_text(std::function<void()> list);
  std::string text() const;

 private:
  void set_counter(const std::string& name,
                   double total,
                   const std::string& help,
                   const Labels& labels);
  void set_gauge(const std::string& name,
                 double value,
                 const std::string& help,
                 const Labels& labels);

  struct Registry;
  std::unique_ptr<Registry> registry_;
};

// 0.1 ms ... 2560 s: fine below a millisecond, where tokens live, then the usual steps.
const std::vector<double>& latency_buckets();

}  // namespace foretoken
