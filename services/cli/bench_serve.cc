// bench serve: load on a running system, seen from outside. The block has the lines and the order
// of `vllm bench serve`. Definitions: TTFT = sending to first piece; TPOT = (last piece - first
// piece) / (tokens - 1); ITL = gaps between pieces, and a piece may carry several tokens, which is
// why TPOT is the one to compare.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <random>
#include <unordered_map>

#include "common/client/answer_json.h"
#include "common/client/client.h"
#include "common/config/resolve.h"
#include "services/cli/prompts.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

using namespace std::chrono_literals;
using Wall = std::chrono::steady_clock;

double milliseconds_between(TimePoint from, TimePoint to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

struct Outstanding {
  std::size_t index = 0;  // of the request: decides prompt and seed
  TimePoint sent;
  std::optional<TimePoint> first;
  TimePoint last;
  std::vector<double> itl_ms;
};

struct Samples {
  std::vector<double> ttft_ms, tpot_ms, itl_ms;
  std::uint64_t n_done = 0, n_failed = 0;
  std::uint64_t n_asked_again = 0;  // after a lost connection: their times hold the wait
  std::uint64_t n_cut_off = 0;      // of those that failed: the time was up, or they were cancelled
  std::uint64_t prompt_tokens = 0, output_tokens = 0;
  std::uint64_t rounds = 0, drafted = 0, accepted = 0;
  std::vector<std::uint64_t> histogram;         // rounds that accepted 0, 1, 2 ... tokens
  std::vector<std::vector<TokenId>> token_ids;  // by request; empty where it failed
  std::string first_error;
  double seconds = 0;
};

// Two passes of the same requests as one.
void add(Samples& sum, const Samples& more) {
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(sum.ttft_ms, more.ttft_ms);
  append(sum.tpot_ms, more.tpot_ms);
  append(sum.itl_ms, more.itl_ms);
  if (sum.first_error.empty() || (sum.n_failed == sum.n_cut_off && more.n_failed > more.n_cut_off))
    sum.first_error = more.first_error;
  for (auto member : {&Samples::n_done, &Samples::n_failed, &Samples::n_cut_off,
                      &Samples::n_asked_again, &Samples::prompt_tokens, &Samples::output_tokens,
                      &Samples::rounds, &Samples::drafted, &Samples::accepted})
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

void count_reply(Samples& samples, const wire::ClientReply& reply) {
  ++samples.n_done;
  samples.prompt_tokens += reply.usage.prompt_tokens;
  samples.output_tokens += reply.usage.completion_tokens;
  const auto& s = reply.metrics.speculative_decoding;
  samples.rounds += s.num_spec_steps;
  samples.drafted += s.num_draft_tokens;
  samples.accepted += s.num_accepted_draft_tokens;
  samples.histogram.resize(std::max(samples.histogram.size(), s.acceptance_histogram.size()));
  for (std::size_t i = 0; i < s.acceptance_histogram.size(); ++i)
    samples.histogram[i] += s.acceptance_histogram[i];
}

class Load {
 public:
  Load(Client& client,
       const CliOptions& options,
       wire::ClientRequest base,
       std::vector<DemoPrompt> prompts)
      : client_(client), options_(options), base_(std::move(base)), prompts_(std::move(prompts)) {}

  // Throws nothing; failures are counted, the first one kept.
  Samples run() {
    const auto begun = Wall::now();
    const std::uint64_t asked_again_before = client_.n_asked_again();
    next_arrival_ = begun;
    samples_.token_ids.resize(static_cast<std::size_t>(options_.bench_serve.n_prompts));
    while (n_sent_ < static_cast<std::size_t>(options_.bench_serve.n_prompts) ||
           !outstanding_.empty()) {
      send_due();
      const TimePoint until =
          n_sent_ < static_cast<std::size_t>(options_.bench_serve.n_prompts) && has_place()
              ? std::min(next_arrival_, Wall::now() + 100ms)
              : Wall::now() + 100ms;
      if (auto answer = client_.receive(until)) take(*answer);
      drop_overdue();
    }
    samples_.n_asked_again = client_.n_asked_again() - asked_again_before;
    samples_.seconds = milliseconds_between(begun, Wall::now()) / 1000;
    return std::move(samples_);
  }

 private:
  bool has_place() const {
    return outstanding_.size() < static_cast<std::size_t>(options_.bench_serve.concurrency);
  }

  void send_due() {
    const auto& bench = options_.bench_serve;
    while (n_sent_ < static_cast<std::size_t>(bench.n_prompts) && has_place() &&
           Wall::now() >= next_arrival_) {
      wire::ClientRequest request = base_;
      request.messages = prompts_[n_sent_ % prompts_.size()].messages;
      request.params.seed = base_.params.seed + n_sent_;
      request.given.insert("seed");
      const std::size_t index = n_sent_++;
      if (bench.request_rate > 0)
        next_arrival_ += std::chrono::duration_cast<Duration>(
            std::chrono::duration<double>(gap_(random_) / bench.request_rate));
      const TimePoint now = Wall::now();
      const auto id = client_.send(std::move(request), now + 3s);
      if (!id.ok()) {
        fail(id.error().message);
        continue;
      }
      outstanding_[wire::hex_of(*id)] = {.index = index, .sent = now, .last = now};
    }
  }

  void take(const Result<wire::ClientAnswer>& answer) {
    if (!answer.ok()) return fail(answer.error().message);
    const auto found = outstanding_.find(answer_id(*answer));
    if (found == outstanding_.end()) return;
    Outstanding& request = found->second;
    const TimePoint now = Wall::now();
    if (const auto* error = std::get_if<wire::ClientError>(&*answer)) {
      samples_.token_ids[request.index].clear();
      fail(error->error.code + ": " + error->error.message,
           error->error.code == error_code_name(ErrorCode::kDeadlineExceeded) ? CutOff::kYes
                                                                              : CutOff::kNo);
      outstanding_.erase(found);
      return;
    }
    if (!request.first) {
      request.first = now;
    } else {
      request.itl_ms.push_back(milliseconds_between(request.last, now));
    }
    request.last = now;
    auto& ids = samples_.token_ids[request.index];
    if (const auto* piece = std::get_if<wire::ClientPiece>(&*answer))
      ids.insert(ids.end(), piece->token_ids.begin(), piece->token_ids.end());
    const auto* reply = std::get_if<wire::ClientReply>(&*answer);
    if (reply == nullptr) return;
    // Half an answer is none: its times and tokens would flatter the rest.
    if (reply->finish_reason == "deadline" || reply->finish_reason == "cancelled") {
      ids.clear();
      fail("cut off (" + reply->finish_reason + ") after " +
               std::to_string(reply->usage.completion_tokens) + " of " +
               std::to_string(base_.params.max_tokens) + " tokens",
           CutOff::kYes);
      outstanding_.erase(found);
      return;
    }
    ids.insert(ids.end(), reply->token_ids.begin(), reply->token_ids.end());
    samples_.ttft_ms.push_back(milliseconds_between(request.sent, *request.first));
    samples_.itl_ms.insert(samples_.itl_ms.end(), request.itl_ms.begin(), request.itl_ms.end());
    if (reply->usage.completion_tokens > 1)
      samples_.tpot_ms.push_back(milliseconds_between(*request.first, now) /
                                 (reply->usage.completion_tokens - 1));
    count_reply(samples_, *reply);
    outstanding_.erase(found);
  }

  void drop_overdue() {
    const TimePoint limit = Wall::now() - std::chrono::milliseconds(base_.timeout_ms) - 2s;
    for (auto it = outstanding_.begin(); it != outstanding_.end();) {
      if (it->second.sent >= limit) {
        ++it;
        continue;
      }
      samples_.token_ids[it->second.index].clear();
      fail("no answer within the timeout", CutOff::kYes);
      if (const auto id = wire::request_id_from_hex(it->first)) client_.forget(*id);
      it = outstanding_.erase(it);
    }
  }

  // The reason that is shown is the first one that is not the clock's, if there is any.
  enum class CutOff { kNo, kYes };
  void fail(const std::string& why, CutOff cut_off = CutOff::kNo) {
    const bool only_cut_off = samples_.n_failed == samples_.n_cut_off;
    ++samples_.n_failed;
    if (cut_off == CutOff::kYes) ++samples_.n_cut_off;
    if (samples_.first_error.empty() || (only_cut_off && cut_off == CutOff::kNo))
      samples_.first_error = why;
  }

  Client& client_;
  const CliOptions& options_;
  wire::ClientRequest base_;
  std::vector<DemoPrompt> prompts_;
  std::unordered_map<std::string, Outstanding> outstanding_;
  std::size_t n_sent_ = 0;
  TimePoint next_arrival_{};
  std::mt19937_64 random_{1};
  std::exponential_distribution<double> gap_{1.0};
  Samples samples_;
};

OrderedJson samples_json(const Samples& s, const CliOptions& options) {
  const auto summary = [](const std::vector<double>& values) {
    return OrderedJson{{"mean", mean(values)},
                       {"median", percentile(values, 0.5)},
                       {"p99", percentile(values, 0.99)}};
  };
  OrderedJson document = {{"schema", "foretoken.bench_serve/1"},
                          {"machine", machine_description()},
                          {"num_prompts", options.bench_serve.n_prompts},
                          {"output_len", options.bench_serve.output_len},
                          {"concurrency", options.bench_serve.concurrency},
                          {"request_rate", options.bench_serve.request_rate},
                          {"completed", s.n_done},
                          {"failed", s.n_failed},
                          {"cut_off", s.n_cut_off},
                          {"asked_again", s.n_asked_again},
                          {"duration_s", s.seconds},
                          {"total_input_tokens", s.prompt_tokens},
                          {"total_output_tokens", s.output_tokens},
                          {"request_throughput", static_cast<double>(s.n_done) / s.seconds},
                          {"output_throughput", static_cast<double>(s.output_tokens) / s.seconds},
                          {"ttft_ms", summary(s.ttft_ms)},
                          {"tpot_ms", summary(s.tpot_ms)},
                          {"itl_ms", summary(s.itl_ms)}};
  document["speculative_decoding"] = {
      {"acceptance_rate",
       s.drafted ? static_cast<double>(s.accepted) / static_cast<double>(s.drafted) : 0.0},
      {"acceptance_length",
       s.rounds ? 1 + static_cast<double>(s.accepted) / static_cast<double>(s.rounds) : 1.0},
      {"drafts", s.rounds},
      {"draft_tokens", s.drafted},
      {"accepted_tokens", s.accepted},
      {"acceptance_histogram", s.histogram}};
  return document;
}

void print_block(const Samples& s) {
  const auto line = [](const char* label, double value) {
    std::printf("%-40s %-10.2f\n", label, value);
  };
  const auto count = [](const char* label, std::uint64_t value) {
    std::printf("%-40s %-10llu\n", label, static_cast<unsigned long long>(value));
  };
  std::printf("============ Serving Benchmark Result ============\n");
  count("Successful requests:", s.n_done);
  count("Failed requests:", s.n_failed);
  if (s.n_asked_again > 0) count("Asked again after a lost connection:", s.n_asked_again);
  line("Benchmark duration (s):", s.seconds);
  count("Total input tokens:", s.prompt_tokens);
  count("Total generated tokens:", s.output_tokens);
  line("Request throughput (req/s):", static_cast<double>(s.n_done) / s.seconds);
  line("Output token throughput (tok/s):", static_cast<double>(s.output_tokens) / s.seconds);
  const std::pair<const char*, const std::vector<double>*> groups[] = {
      {"TTFT", &s.ttft_ms}, {"TPOT", &s.tpot_ms}, {"ITL", &s.itl_ms}};
  for (const auto& [name, values] : groups) {
    std::printf("---------------------- %-4s ----------------------\n", name);
    line((std::string("Mean ") + name + " (ms):").c_str(), mean(*values));
    line((std::string("Median ") + name + " (ms):").c_str(), percentile(*values, 0.5));
    line((std::string("P99 ") + name + " (ms):").c_str(), percentile(*values, 0.99));
  }
  std::printf("-------------- Speculative Decoding --------------\n");
  line("Acceptance rate (%):",
       s.drafted ? 100 * static_cast<double>(s.accepted) / static_cast<double>(s.drafted) : 0);
  line("Acceptance length:",
       s.rounds ? 1 + static_cast<double>(s.accepted) / static_cast<double>(s.rounds) : 1);
  count("Drafts:", s.rounds);
  count("Draft tokens:", s.drafted);
  count("Accepted tokens:", s.accepted);
  // Of all rounds, the share that accepted at least so many: survival by position.
  std::uint64_t reached = s.rounds;
  for (std::size_t i = 1; i < s.histogram.size(); ++i) {
    reached -= std::min(reached, s.histogram[i - 1]);
    if (reached == 0) break;
    std::printf("Position %zu (%%):%*s%-10.2f\n", i, i < 10 ? 27 : 26, "",
                s.rounds ? 100 * static_cast<double>(reached) / static_cast<double>(s.rounds) : 0);
  }
  std::printf("==================================================\n");
}

// The same load both ways, in an order in which neither profits from what the other left warm.
struct Comparison {
  Samples plain, speculative;
  // Requests that did not get the same tokens every time; a failed one has none.
  std::size_t n_differing = 0;

  // Ratios and equality are claims about whole answers.
  bool complete() const { return plain.n_failed + speculative.n_failed == 0; }
  double throughput_ratio() const { return ratio(rate(speculative), rate(plain)); }
  double tpot_ratio() const {
    return ratio(percentile(plain.tpot_ms, 0.5), percentile(speculative.tpot_ms, 0.5));
  }

 private:
  static double ratio(double a, double b) { return b > 0 ? a / b : 0; }
  static double rate(const Samples& s) {
    return s.seconds > 0 ? static_cast<double>(s.output_tokens) / s.seconds : 0;
  }
};

Comparison compare(Client& client,
                   const CliOptions& options,
                   const wire::ClientRequest& base,
                   const std::vector<DemoPrompt>& prompts) {
  // Uncounted: every prompt once, so that no pass is the one that fills the prefix cache.
  CliOptions once = options;
  once.bench_serve.n_prompts =
      std::min(options.bench_serve.n_prompts, static_cast<int>(prompts.size()));
  wire::ClientRequest warm = base;
  warm.params.max_tokens = std::min<std::uint32_t>(8, base.params.max_tokens);
  (void)Load(client, once, warm, prompts).run();

  wire::ClientRequest plain = base;
  plain.num_draft_tokens = 0;
  Comparison result;
  std::vector<std::vector<TokenId>> first;
  for (const bool is_plain : {true, false, false, true}) {
    const Samples pass = Load(client, options, is_plain ? plain : base, prompts).run();
    add(is_plain ? result.plain : result.speculative, pass);
    if (first.empty()) first = pass.token_ids;
    std::size_t n_differing = 0;
    for (std::size_t i = 0; i < first.size(); ++i) n_differing += first[i] != pass.token_ids[i];
    result.n_differing = std::max(result.n_differing, n_differing);
  }
  return result;
}

int write_json(const std::string& json, const CliOptions& options) {
  if (options.bench_serve.out.empty()) return kExitOk;
  const auto written = write_whole_file(options.bench_serve.out, json + "\n", Existing::kReplace);
  return written.ok() ? kExitOk : report_error(written.error());
}

int report_failures(const Samples& samples) {
  if (samples.n_failed == 0) return kExitOk;
  std::cerr << "error: " << samples.n_failed << " requests failed, " << samples.n_cut_off
            << " of them cut off; the first: " << samples.first_error << "\n";
  return samples.n_cut_off == samples.n_failed ? kExitDeadline : kExitFailed;
}

int run_compare(Client& client, const CliOptions& options, const wire::ClientRequest& base) {
  const Comparison result =
      compare(client, options, base, load_prompts(options.bench_serve.dataset));
  const bool complete = result.complete(), identical = complete && result.n_differing == 0;
  OrderedJson document = {{"schema", "foretoken.bench_compare/1"},
                          {"machine", machine_description()},
                          {"complete", complete}};
  // Without every answer there is nothing to claim.
  document["identical"] = complete ? OrderedJson(identical) : OrderedJson();
  document["requests_differing"] = complete ? OrderedJson(result.n_differing) : OrderedJson();
  document["throughput_ratio"] = complete ? OrderedJson(result.throughput_ratio()) : OrderedJson();
  document["median_tpot_ratio"] = complete ? OrderedJson(result.tpot_ratio()) : OrderedJson();
  document["plain"] = samples_json(result.plain, options);
  document["speculative"] = samples_json(result.speculative, options);
  const std::string json = to_text(document, 2);
  const int written = write_json(json, options);
  if (options.output.json) {
    std::cout << json << "\n";
  } else {
    std::cout << "plain" << std::endl;
    print_block(result.plain);
    std::printf("speculative\n");
    print_block(result.speculative);
    if (complete) {
      std::printf("%-40s %.2f\n", "Throughput, speculative / plain:", result.throughput_ratio());
      std::printf("%-40s %.2f\n", "Median TPOT, plain / speculative:", result.tpot_ratio());
      std::printf("%-40s %s\n", "Same tokens:",
                  identical
                      ? "yes"
                      : ("no, " + std::to_string(result.n_differing) + " requests differ").c_str());
    } else {
      std::printf("Not every request was answered: no comparison\n");
    }
  }
  Samples all = result.plain;
  add(all, result.speculative);
  if (const int failed = report_failures(all); failed != kExitOk) return failed;
  return identical ? written : kExitDiffers;
}

}  // namespace

int run_bench_serve(const CliOptions& options) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  auto base = request_from(options.request);
  if (!base.ok()) return report_error(base.error());
  base->prompt_kind = wire::PromptKind::kMessages;
  base->params.max_tokens = options.bench_serve.output_len;
  base->params.ignore_eos = true;
  if (!base->given.contains("temperature")) base->params.temperature = 0;
  base->given.insert("max_tokens");
  base->given.insert("temperature");
  base->stream = true;
  if (options.bench_serve.compare &&
      (base->num_draft_tokens == 0 || base->proposer == ProposerKind::kNone))
    return report_error(
        {ErrorCode::kInvalidValue, "plain decoding is what --compare compares with", "--compare"});
  Client client(loaded->config.bus, {.say = say_note});
  const auto status = client.status(Wall::now() + 3s);
  if (!status.ok()) return report_error(client.unreachable(status.error()));
  if (!status->ready)
    return report_error({ErrorCode::kUnavailable,
                         "the services at " + client.endpoint() + " are not ready to serve"});
  if (options.bench_serve.compare) return run_compare(client, options, *base);
  const Samples samples =
      Load(client, options, *base, load_prompts(options.bench_serve.dataset)).run();
  const std::string json = to_text(samples_json(samples, options), 2);
  const int written = write_json(json, options);
  if (options.output.json)
    std::cout << json << "\n";
  else
    print_block(samples);
  const int failed = report_failures(samples);
  return failed != kExitOk ? failed : written;
}

}  // namespace foretoken::cli
