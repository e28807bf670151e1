#include "services/cli/bench_result.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ranges>
#include <system_error>
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
constexpr std::size_t kMostGuesses = 4096;  // of a round, of any server

double share_of(std::uint64_t part, std::uint64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

double acceptance_length(std::uint64_t accepted, std::uint64_t rounds) {
  return 1 + share_of(accepted, rounds);
}

// "4", the key of a map; 0 for anything else.
std::size_t parsed_length(std::string_view text) {
  std::size_t length = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  const bool is_number = error == std::errc{} && end == text.data() + text.size();
  return is_number && length <= kMostGuesses ? length : 0;
}

double percentile_of_sorted(const std::vector<double>& values, double p) {
  if (values.empty()) return 0;
  const double at = p * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], at - static_cast<double>(below));
}

// The quantiles are for plots: the percentiles 0, 1 ... 100.
OrderedJson times_json(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  OrderedJson quantiles = OrderedJson::array();
  for (int i = 0; i <= kQuantiles && !values.empty(); ++i)
    quantiles.push_back(percentile_of_sorted(values, static_cast<double>(i) / kQuantiles));
  return {{"mean", mean(values)},
          {"median", percentile_of_sorted(values, 0.5)},
          {"p99", percentile_of_sorted(values, 0.99)},
          {"quantiles", std::move(quantiles)}};
}

OrderedJson positions_json(const std::vector<PositionTally>& positions) {
  OrderedJson list = OrderedJson::array();
  for (const PositionTally& at : positions)
    list.push_back({{"guessed", at.guessed}, {"accepted", at.accepted}});
  return list;
}

OrderedJson kinds_json(const BenchSamples& samples) {
  OrderedJson document = OrderedJson::object();
  for (const auto& [name, kind] : tally_kinds(samples))
    document[name] = {{"completed", kind.n_done},
                      {"output_tokens", kind.tokens},
                      {"median_tpot_ms", percentile(kind.tpot_ms, 0.5)},
                      {"acceptance_rate", kind.acceptance_rate()},
                      {"acceptance_length", kind.acceptance_length()},
                      {"acceptance_by_position", positions_json(kind.by_position)}};
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

OrderedJson goodput_json(const BenchSamples& samples, const LatencyGoals& goals) {
  const std::uint64_t n = n_good(samples, goals);
  const auto most = [](const std::optional<double>& ms) {
    return ms ? OrderedJson(*ms) : OrderedJson();
  };
  return {{"max_ttft_ms", most(goals.ttft_ms)},
          {"max_tpot_ms", most(goals.tpot_ms)},
          {"max_e2el_ms", most(goals.e2el_ms)},
          {"good_requests", n},
          {"request_goodput", samples.a_second(static_cast<double>(n))}};
}

void add(std::vector<PositionTally>& sum, const std::vector<PositionTally>& more) {
  sum.resize(std::max(sum.size(), more.size()));
  for (std::size_t i = 0; i < more.size(); ++i) {
    sum[i].guessed += more[i].guessed;
    sum[i].accepted += more[i].accepted;
  }
}

// Of the same services in all passes, or of none: a sum that lacks a pass would be taken for one
// that has it.
void add_processor_seconds(BenchSamples& sum, const BenchSamples& more) {
  const bool is_first = sum.records.empty();
  const bool is_same = std::ranges::equal(std::views::keys(sum.processor_seconds),
                                          std::views::keys(more.processor_seconds));
  if (!is_first && !is_same) return sum.processor_seconds.clear();
  for (const auto& [service, seconds] : more.processor_seconds)
    sum.processor_seconds[service] += seconds;
}

}  // namespace

bool LatencyGoals::met_by(const BenchRecord& record) const {
  const auto holds = [](const std::optional<double>& most, double value) {
    return !most || value <= *most;
  };
  return record.is_done && holds(ttft_ms, record.ttft_ms) && holds(tpot_ms, record.tpot_ms) &&
         holds(e2el_ms, record.e2el_ms);
}

std::uint64_t n_good(const BenchSamples& samples, const LatencyGoals& goals) {
  return static_cast<std::uint64_t>(
      std::count_if(samples.records.begin(), samples.records.end(),
                    [&](const BenchRecord& record) { return goals.met_by(record); }));
}

std::vector<PositionTally> tally_positions(const wire::SpeculativeDecoding& speculation) {
  std::vector<PositionTally> positions;
  // Rounds with so many guesses, of which so many stood: each guess up to the first wrong one.
  const auto count = [&](std::size_t n_guessed, std::size_t n_accepted, std::uint64_t n_rounds) {
    positions.resize(std::max({positions.size(), n_guessed, n_accepted}));
    for (std::size_t i = 0; i < n_guessed; ++i) positions[i].guessed += n_rounds;
    for (std::size_t i = 0; i < n_accepted; ++i) positions[i].accepted += n_rounds;
  };
  const auto count_all = [&](std::size_t n_guessed, const std::vector<std::uint32_t>& histogram) {
    for (std::size_t i = 0; i < std::min(histogram.size(), kMostGuesses); ++i)
      if (histogram[i] > 0) count(n_guessed, i, histogram[i]);
  };
  for (const auto& [length, histogram] : speculation.acceptance_histogram_by_draft_length)
    count_all(parsed_length(length), histogram);
  // Of a server that does not say it by length: there each round has as many.
  const auto& all = speculation.acceptance_histogram;
  if (speculation.acceptance_histogram_by_draft_length.empty() && !all.empty())
    count_all(std::min(all.size() - 1, kMostGuesses), all);
  return positions;
}

std::uint64_t n_judged(const wire::SpeculativeDecoding& speculation) {
  std::uint64_t n = 0;
  for (const auto& [length, histogram] : speculation.acceptance_histogram_by_draft_length) {
    const std::size_t n_guessed = parsed_length(length);
    for (std::size_t i = 0; i < histogram.size(); ++i)
      n += histogram[i] * std::min(i + 1, n_guessed);
  }
  return n;
}

double KindTally::acceptance_rate() const { return share_of(accepted, drafted); }
double KindTally::acceptance_length() const {
  return foretoken::cli::acceptance_length(accepted, rounds);
}

void add(KindTally& sum, const KindTally& more) {
  for (auto member : {&KindTally::n_done, &KindTally::tokens, &KindTally::rounds,
                      &KindTally::drafted, &KindTally::accepted})
    sum.*member += more.*member;
  for (auto member : {&KindTally::ttft_ms, &KindTally::tpot_ms})
    (sum.*member).insert((sum.*member).end(), (more.*member).begin(), (more.*member).end());
  add(sum.by_position, more.by_position);
}

std::map<std::string, KindTally> tally_kinds(const BenchSamples& samples) {
  std::map<std::string, KindTally> kinds;
  for (const auto& record : samples.records) {
    if (!record.is_done) continue;
    KindTally one{.n_done = 1,
                  .tokens = record.output_tokens,
                  .rounds = record.rounds,
                  .drafted = record.drafted,
                  .accepted = record.accepted,
                  .ttft_ms = {record.ttft_ms},
                  .by_position = record.by_position};
    if (record.tpot_ms > 0) one.tpot_ms.push_back(record.tpot_ms);
    add(kinds[record.kind], one);
  }
  return kinds;
}

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

double BenchSamples::a_second(double n) const { return seconds > 0 ? n / seconds : 0; }

double BenchSamples::output_throughput() const {
  return a_second(static_cast<double>(output_tokens()));
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
  add_processor_seconds(sum, more);
  sum.n_passes = (sum.records.empty() ? 0 : sum.n_passes) + more.n_passes;
  sum.records.insert(sum.records.end(), more.records.begin(), more.records.end());
  for (auto member :
       {&BenchSamples::n_failed, &BenchSamples::n_cut_off, &BenchSamples::n_asked_again})
    sum.*member += more.*member;
  sum.unreachable |= more.unreachable;
  sum.histogram.resize(std::max(sum.histogram.size(), more.histogram.size()));
  for (std::size_t i = 0; i < more.histogram.size(); ++i) sum.histogram[i] += more.histogram[i];
  sum.seconds += more.seconds;
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

double percentile(std::vector<double> values, double p) {
  std::sort(values.begin(), values.end());
  return percentile_of_sorted(values, p);
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
      {"schema", load.schema},
      {"machine", machine_description()},
      {"build", build_text()},
      {"door", load.door},
      {"model", load.model},
      {"dataset", load.dataset},
      {"input_len", load.input_len == 0 ? OrderedJson() : OrderedJson(load.input_len)},
      {"unique_prompts", load.unique_prompts},
      {"prompts_of_run", load.prompts_of_run},
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
      {"total_cached_tokens", s.sum(&BenchRecord::cached_tokens)},
      {"total_output_tokens", s.output_tokens()},
      {"request_throughput", s.a_second(static_cast<double>(s.n_done()))},
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
  document["processor_seconds"] = OrderedJson::object();
  for (const auto& [service, seconds] : s.processor_seconds)
    document["processor_seconds"][service] = seconds;
  if (load.goals.any()) document["goodput"] = goodput_json(s, load.goals);
  document["by_kind"] = kinds_json(s);
  document["answers"] = answers_json(s);
  document["requests"] = records_json(s);
  return document;
}

void print_block(const BenchSamples& s, const LatencyGoals& goals) {
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
  if (const std::uint64_t n = s.sum(&BenchRecord::cached_tokens); n > 0)
    count("  of them in the prefix cache:", n);
  count("Total generated tokens:", s.output_tokens());
  line("Request throughput (req/s):", s.a_second(static_cast<double>(s.n_done())));
  line("Output token throughput (tok/s):", s.output_throughput());
  if (goals.any())
    line("Request goodput (req/s):", s.a_second(static_cast<double>(n_good(s, goals))));
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
  if (!s.processor_seconds.empty())
    std::printf("------------------- Processors -------------------\n");
  for (const auto& [service, seconds] : s.processor_seconds)
    line(service + ":", seconds / s.seconds);
  std::printf("==================================================\n");
}

}  // namespace foretoken::cli
