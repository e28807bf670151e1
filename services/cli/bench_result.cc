#include "services/cli/bench_result.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "common/base/hash.h"
#include "common/config/resolve.h"
#include "common/runtime/service_main.h"
#include "common/wire/client_codec.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

constexpr int kQuantiles = 100;
constexpr std::size_t kMostRecords = 2000;  // in the document

double share_of(std::uint64_t part, std::uint64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

double acceptance_length(std::uint64_t accepted, std::uint64_t rounds) {
  return rounds > 0 ? 1 + share_of(accepted, rounds) : 1;
}

std::vector<double> all_gaps(const BenchSamples& samples) {
  std::vector<double> all;
  for (const auto& record : samples.records)
    if (record.is_done) all.insert(all.end(), record.itl_ms.begin(), record.itl_ms.end());
  return all;
}

std::vector<double> token_times(const BenchSamples& samples) {
  std::vector<double> times = samples.values(&BenchRecord::tpot_ms);
  std::erase(times, 0.0);  // one token has none
  return times;
}

// The quantiles are for plots: 0, 1 ... 100 % of the values are at most so large.
OrderedJson times_json(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  OrderedJson quantiles = OrderedJson::array();
  for (int i = 0; i <= kQuantiles && !values.empty(); ++i)
    quantiles.push_back(values[(values.size() - 1) * static_cast<std::size_t>(i) / kQuantiles]);
  return {{"mean", mean(values)},
          {"median", percentile(values, 0.5)},
          {"p99", percentile(values, 0.99)},
          {"quantiles", std::move(quantiles)}};
}

OrderedJson kinds_json(const BenchSamples& samples) {
  struct Kind {
    std::uint64_t n_done = 0, tokens = 0, rounds = 0, drafted = 0, accepted = 0;
    std::vector<double> tpot_ms;
  };
  std::map<std::string, Kind> kinds;
  for (const auto& record : samples.records) {
    if (!record.is_done) continue;
    Kind& kind = kinds[record.kind];
    ++kind.n_done;
    kind.tokens += record.output_tokens;
    kind.rounds += record.rounds;
    kind.drafted += record.drafted;
    kind.accepted += record.accepted;
    if (record.tpot_ms > 0) kind.tpot_ms.push_back(record.tpot_ms);
  }
  OrderedJson document = OrderedJson::object();
  for (auto& [name, kind] : kinds)
    document[name] = {{"completed", kind.n_done},
                      {"output_tokens", kind.tokens},
                      {"median_tpot_ms", percentile(kind.tpot_ms, 0.5)},
                      {"acceptance_rate", share_of(kind.accepted, kind.drafted)},
                      {"acceptance_length", acceptance_length(kind.accepted, kind.rounds)}};
  return document;
}

OrderedJson records_json(const BenchSamples& samples) {
  OrderedJson list = OrderedJson::array();
  for (const auto& record : samples.records) {
    if (list.size() == kMostRecords) break;
    if (!record.is_done) continue;
    list.push_back({{"kind", record.kind},
                    {"at_ms", record.at_ms},
                    {"ttft_ms", record.ttft_ms},
                    {"e2el_ms", record.e2el_ms},
                    {"output_tokens", record.output_tokens}});
  }
  return list;
}

// Equal for equal answers to the same requests; null where one is missing.
OrderedJson answers_json(const BenchSamples& samples) {
  if (samples.n_failed > 0) return nullptr;
  const std::size_t n = samples.records.size() / static_cast<std::size_t>(samples.n_passes);
  std::string all;
  for (std::size_t i = 0; i < n; ++i)
    all += std::to_string(samples.records[i].answer.size()) + ":" + samples.records[i].answer;
  return wire::hex_of(fnv1a(all));
}

}  // namespace

std::uint64_t BenchSamples::n_done() const {
  return static_cast<std::uint64_t>(std::count_if(
      records.begin(), records.end(), [](const BenchRecord& record) { return record.is_done; }));
}

std::uint64_t BenchSamples::sum(std::uint64_t BenchRecord::*member) const {
  std::uint64_t total = 0;
  for (const auto& record : records) total += record.*member;
  return total;
}

std::uint64_t BenchSamples::output_tokens() const {
  std::uint64_t total = 0;
  for (const auto& record : records) total += record.output_tokens;
  return total;
}

double BenchSamples::output_throughput() const {
  return seconds > 0 ? static_cast<double>(output_tokens()) / seconds : 0;
}

std::vector<double> BenchSamples::values(double BenchRecord::*member) const {
  std::vector<double> list;
  for (const auto& record : records)
    if (record.is_done) list.push_back(record.*member);
  return list;
}

void add(BenchSamples& sum, const BenchSamples& more) {
  if (sum.first_error.empty() || (sum.n_failed == sum.n_cut_off && more.n_failed > more.n_cut_off))
    sum.first_error = more.first_error;
  sum.n_passes = (sum.records.empty() ? 0 : sum.n_passes) + more.n_passes;
  sum.records.insert(sum.records.end(), more.records.begin(), more.records.end());
  for (auto member :
       {&BenchSamples::n_failed, &BenchSamples::n_cut_off, &BenchSamples::n_asked_again})
    sum.*member += more.*member;
  sum.histogram.resize(std::max(sum.histogram.size(), more.histogram.size()));
  for (std::size_t i = 0; i < more.histogram.size(); ++i) sum.histogram[i] += more.histogram[i];
  sum.seconds += more.seconds;
}

double percentile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1,
                         static_cast<std::size_t>(p * static_cast<double>(values.size())))];
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

OrderedJson bench_json(const BenchSamples& s, const BenchDescription& load) {
  std::uint64_t prompt_tokens = 0;
  for (const auto& record : s.records) prompt_tokens += record.prompt_tokens;
  const std::uint64_t rounds = s.sum(&BenchRecord::rounds);
  const std::uint64_t drafted = s.sum(&BenchRecord::drafted);
  const std::uint64_t accepted = s.sum(&BenchRecord::accepted);
  OrderedJson document = {
      {"schema", "foretoken.bench_serve/1"},
      {"machine", machine_description()},
      {"build", build_text()},
      {"door", load.door},
      {"model", load.model},
      {"dataset", load.dataset},
      {"num_prompts", load.n_requests},
      {"output_len", load.output_len},
      {"concurrency", load.concurrency},
      {"request_rate", load.request_rate},
      {"num_draft_tokens",
       load.num_draft_tokens < 0 ? OrderedJson() : OrderedJson(load.num_draft_tokens)},
      {"proposer", load.proposer},
      {"request", load.request},
      {"repeats", s.n_passes},
      {"completed", s.n_done()},
      {"failed", s.n_failed},
      {"cut_off", s.n_cut_off},
      {"asked_again", s.n_asked_again},
      {"duration_s", s.seconds},
      {"total_input_tokens", prompt_tokens},
      {"total_output_tokens", s.output_tokens()},
      {"request_throughput", static_cast<double>(s.n_done()) / s.seconds},
      {"output_throughput", s.output_throughput()},
      {"ttft_ms", times_json(s.values(&BenchRecord::ttft_ms))},
      {"tpot_ms", times_json(token_times(s))},
      {"itl_ms", times_json(all_gaps(s))},
      {"e2el_ms", times_json(s.values(&BenchRecord::e2el_ms))}};
  document["speculative_decoding"] = {{"acceptance_rate", share_of(accepted, drafted)},
                                      {"acceptance_length", acceptance_length(accepted, rounds)},
                                      {"drafts", rounds},
                                      {"draft_tokens", drafted},
                                      {"accepted_tokens", accepted},
                                      {"acceptance_histogram", s.histogram}};
  document["by_kind"] = kinds_json(s);
  document["answers"] = answers_json(s);
  document["requests"] = records_json(s);
  return document;
}

void print_block(const BenchSamples& s) {
  const auto line = [](const std::string& label, double value) {
    std::printf("%-40s %-10.2f\n", label.c_str(), value);
  };
  const auto count = [](const char* label, std::uint64_t value) {
    std::printf("%-40s %-10llu\n", label, static_cast<unsigned long long>(value));
  };
  std::uint64_t prompt_tokens = 0;
  for (const auto& record : s.records) prompt_tokens += record.prompt_tokens;
  std::printf("============ Serving Benchmark Result ============\n");
  count("Successful requests:", s.n_done());
  count("Failed requests:", s.n_failed);
  if (s.n_asked_again > 0) count("Asked again after a lost connection:", s.n_asked_again);
  line("Benchmark duration (s):", s.seconds);
  count("Total input tokens:", prompt_tokens);
  count("Total generated tokens:", s.output_tokens());
  line("Request throughput (req/s):", static_cast<double>(s.n_done()) / s.seconds);
  line("Output token throughput (tok/s):", s.output_throughput());
  const std::pair<std::string, std::vector<double>> groups[] = {
      {"TTFT", s.values(&BenchRecord::ttft_ms)}, {"TPOT", token_times(s)}, {"ITL", all_gaps(s)}};
  for (const auto& [name, values] : groups) {
    std::printf("---------------------- %-4s ----------------------\n", name.c_str());
    line("Mean " + name + " (ms):", mean(values));
    line("Median " + name + " (ms):", percentile(values, 0.5));
    line("P99 " + name + " (ms):", percentile(values, 0.99));
  }
  const std::uint64_t rounds = s.sum(&BenchRecord::rounds);
  const std::uint64_t drafted = s.sum(&BenchRecord::drafted);
  const std::uint64_t accepted = s.sum(&BenchRecord::accepted);
  std::printf("-------------- Speculative Decoding --------------\n");
  line("Acceptance rate (%):", 100 * share_of(accepted, drafted));
  line("Acceptance length:", acceptance_length(accepted, rounds));
  count("Drafts:", rounds);
  count("Draft tokens:", drafted);
  count("Accepted tokens:", accepted);
  // Of all rounds, the share that accepted at least so many: survival by position.
  std::uint64_t reached = rounds;
  for (std::size_t i = 1; i < s.histogram.size(); ++i) {
    reached -= std::min(reached, s.histogram[i - 1]);
    if (reached == 0) break;
    line("Position " + std::to_string(i) + " (%):", 100 * share_of(reached, rounds));
  }
  std::printf("==================================================\n");
}

}  // namespace foretoken::cli
