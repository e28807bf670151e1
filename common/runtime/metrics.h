// Counters, gauges and histograms named foretoken_..., as Prometheus text. Handles are cheap to
// copy, live as long as their Metrics and may be used from any thread. Core rooms count nothing:
// services count what core calls return.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace foretoken {

using Labels = std::map<std::string, std::string>;

class Counter {
 public:
  explicit Counter(prometheus::Counter* counter = nullptr) : counter_(counter) {}
  void add(double by = 1);

 private:
  prometheus::Counter* counter_;
};

class Gauge {
 public:
  explicit Gauge(prometheus::Gauge* gauge = nullptr) : gauge_(gauge) {}
  void set(double to);

 private:
  prometheus::Gauge* gauge_;
};

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

  // `name` without the prefix: "spec_decode_num_drafts_total". The same name and labels give the
  // same counter.
  Counter counter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge gauge(const std::string& name, const std::string& help, const Labels& labels = {});
  Histogram histogram(const std::string& name,
                      const std::string& help,
                      const std::vector<double>& buckets,
                      const Labels& labels = {});
  // `refresh` is called before each text(): counts what others keep. It must own what it reads.
  void before_text(std::function<void()> refresh);
  std::string text() const;

 private:
  struct Registry;
  std::unique_ptr<Registry> registry_;
};

// 0.1 ms ... 2560 s: fine below a millisecond, where tokens live, then the usual steps.
const std::vector<double>& latency_buckets();

}  // namespace foretoken
