#include "services/cli/metric_samples.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace foretoken::cli {
namespace {

constexpr std::string_view kPrefix = "foretoken_";

std::optional<double> number_of(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// `rest` begins behind the quote that opens a label's value, and is left behind the one that
// closes it.
std::optional<std::string> quoted_value(std::string_view& rest) {
  std::string value;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    if (rest[i] == '"') {
      rest.remove_prefix(i + 1);
      return value;
    }
    if (rest[i] == '\\' && i + 1 < rest.size()) {
      ++i;
      value += rest[i] == 'n' ? '\n' : rest[i];
    } else {
      value += rest[i];
    }
  }
  return std::nullopt;
}

// name{label="value",...} number
std::optional<MetricSample> sample_of(std::string_view line) {
  MetricSample sample;
  const std::size_t end = line.find_first_of("{ ");
  if (end == std::string_view::npos || end == 0 || line.starts_with('#')) return std::nullopt;
  sample.name = line.substr(0, end);
  line.remove_prefix(end);
  if (line.starts_with('{')) {
    line.remove_prefix(1);
    while (!line.starts_with('}')) {
      const std::size_t equals = line.find("=\"");
      if (equals == std::string_view::npos) return std::nullopt;
      const std::string label(line.substr(0, equals));
      line.remove_prefix(equals + 2);
      auto value = quoted_value(line);
      if (!value) return std::nullopt;
      sample.labels[label] = std::move(*value);
      if (line.starts_with(',')) line.remove_prefix(1);
    }
    line.remove_prefix(1);
  }
  if (!line.starts_with(' ')) return std::nullopt;
  line.remove_prefix(1);
  const auto value = number_of(line.substr(0, line.find(' ')));
  if (!value) return std::nullopt;
  sample.value = *value;
  return sample;
}

bool is_of(const MetricSample& sample, const Choice& choice, std::string_view suffix = {}) {
  std::string_view name = sample.name;
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  if (!name.ends_with(suffix) || name.substr(0, name.size() - suffix.size()) != choice.name)
    return false;
  return std::all_of(choice.labels.begin(), choice.labels.end(), [&](const auto& label) {
    const auto found = sample.labels.find(label.first);
    return found != sample.labels.end() && found->second == label.second;
  });
}

double sum_of(const std::vector<MetricSample>& samples,
              const Choice& choice,
              std::string_view suffix) {
  double sum = 0;
  for (const auto& sample : samples)
    if (is_of(sample, choice, suffix)) sum += sample.value;
  return sum;
}

// By number where both are numbers, as positions are.
bool comes_before(const std::string& a, const std::string& b) {
  const auto x = number_of(a), y = number_of(b);
  return x && y ? *x < *y : a < b;
}

}  // namespace

std::vector<MetricSample> read_samples(std::string_view text) {
  std::vector<MetricSample> samples;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (auto sample = sample_of(text.substr(0, end))) samples.push_back(std::move(*sample));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return samples;
}

bool has_sample(const std::vector<MetricSample>& samples, const Choice& choice) {
  return std::any_of(samples.begin(), samples.end(),
                     [&](const MetricSample& sample) { return is_of(sample, choice, {}); });
}

double sum_of(const std::vector<MetricSample>& samples, const Choice& choice) {
  return sum_of(samples, choice, {});
}

Growth::Growth(const std::vector<MetricSample>& before, const std::vector<MetricSample>& now) {
  std::map<std::pair<std::string, std::map<std::string, std::string>>, double> earlier;
  std::set<std::string> services;
  const auto service_of = [](const MetricSample& sample) {
    const auto found = sample.labels.find("service");
    return found == sample.labels.end() ? std::string() : found->second;
  };
  for (const auto& sample : before) {
    earlier[{sample.name, sample.labels}] = sample.value;
    services.insert(service_of(sample));
  }
  for (const auto& sample : now) {
    if (!services.contains(service_of(sample))) continue;
    const auto found = earlier.find({sample.name, sample.labels});
    const double from = found == earlier.end() || found->second > sample.value ? 0 : found->second;
    grown_.push_back({sample.name, sample.labels, sample.value - from});
  }
}

std::vector<std::pair<std::string, double>> Growth::by(const std::string& label,
                                                       const Choice& choice) const {
  std::map<std::string, double, decltype(&comes_before)> sums(&comes_before);
  for (const auto& sample : grown_)
    if (const auto found = sample.labels.find(label);
        found != sample.labels.end() && is_of(sample, choice))
      sums[found->second] += sample.value;
  return {sums.begin(), sums.end()};
}

std::optional<double> Growth::mean(const Choice& histogram) const {
  const double n = sum_of(grown_, histogram, "_count");
  if (n <= 0) return std::nullopt;
  return sum_of(grown_, histogram, "_sum") / n;
}

std::optional<double> Growth::quantile(double share, const Choice& histogram) const {
  std::map<double, double> buckets;  // upper bound -> observations up to it
  for (const auto& sample : grown_) {
    if (!is_of(sample, histogram, "_bucket")) continue;
    const auto bound = sample.labels.find("le");
    const auto upper = bound == sample.labels.end() ? std::nullopt : number_of(bound->second);
    if (upper) buckets[*upper] += sample.value;
  }
  if (buckets.empty() || buckets.rbegin()->second <= 0) return std::nullopt;
  const double rank = share * buckets.rbegin()->second;
  double lower = 0, below = 0;
  for (const auto& [upper, upto] : buckets) {
    if (upto >= rank && upto > below) {
      if (upper == std::numeric_limits<double>::infinity()) return lower;
      return lower + (upper - lower) * (rank - below) / (upto - below);
    }
    if (upper != std::numeric_limits<double>::infinity()) lower = upper;
    below = upto;
  }
  return lower;
}

}  // namespace foretoken::cli
