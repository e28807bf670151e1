// The samples of a Prometheus text, and how they grew between two of them. Pure.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace foretoken::cli {

struct MetricSample {
  std::string name;  // "foretoken_requests_total"
  std::map<std::string, std::string> labels;
  double value = 0;
};

// Lines that are no samples are left out.
std::vector<MetricSample> read_samples(std::string_view text);

// Samples to be added: those of this name that have all these labels.
struct Choice {
  std::string_view name;  // without "foretoken_"
  std::map<std::string, std::string> labels = {};
};

// False where no service counts this.
bool has_sample(const std::vector<MetricSample>& samples, const Choice& choice);

// Sum of the samples of a choice as they are: for gauges.
double sum_of(const std::vector<MetricSample>& samples, const Choice& choice);

// What was counted between two texts. A counter that is smaller than before began anew; what a
// service counted before its first text is not in it.
class Growth {
 public:
  Growth(const std::vector<MetricSample>& before, const std::vector<MetricSample>& now);

  double of(const Choice& choice) const { return sum_of(grown_, choice); }
  // Growth by the values of one label, as numbers where they are some: "0", "1", "2", "10".
  std::vector<std::pair<std::string, double>> by(const std::string& label,
                                                 const Choice& choice) const;
  // Of a histogram: the mean, and the value below which this share of the observations lies,
  // by linear interpolation within a bucket. Nothing: there was no observation.
  std::optional<double> mean(const Choice& histogram) const;
  std::optional<double> quantile(double share, const Choice& histogram) const;

 private:
  std::vector<MetricSample> grown_;
};

}  // namespace foretoken::cli
