#include "services/cli/bench_session.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <utility>

#include "common/client/client.h"
#include "services/cli/ask.h"
#include "services/cli/bench_tables.h"
#include "services/cli/chat_stream.h"
#include "services/cli/latency_goals.h"
#include "services/cli/progress_line.h"
#include "services/cli/verbs.h"
#include "services/cli/voice.h"

namespace foretoken::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kUsualConcurrency = 4;

// "story: 128 tokens, the first after 12.3 ms, then 1.90 ms each; 110 of 131 guesses right"
std::string detail_of(const BenchRecord& record) {
  if (!record.is_done) return record.kind + ": no answer";
  char text[160];
  std::snprintf(
      text, sizeof text,
      ": %u tokens, the first after %.1f ms, then %.2f ms each; %llu of %llu guesses right",
      record.output_tokens, record.ttft_ms, record.tpot_ms,
      static_cast<unsigned long long>(record.accepted),
      static_cast<unsigned long long>(record.drafted));
  return record.kind + text;
}

// Of all services, or of none: a sum without one that did not answer in time would be taken for the
// whole.
std::map<std::string, double> processor_seconds(const std::vector<MetricSample>& before,
                                                const std::vector<MetricSample>& now) {
  const auto by_service = [](const auto& from, const auto& to) {
    return Growth(from, to).by("service", {"process_cpu_seconds_total"});
  };
  const auto grown = by_service(before, now);
  const bool all_said_it = grown.size() == by_service(before, before).size() &&
                           grown.size() == by_service(now, now).size();
  return all_said_it ? std::map<std::string, double>(grown.begin(), grown.end())
                     : std::map<std::string, double>();
}

// How far all passes are; its line is gone when it is.
class BenchProgress {
 public:
  BenchProgress(const BenchSession& session, std::size_t n_passes)
      : door_(session.door),
        line_(is_verbose() ? ProgressLine::Kind::kNone  // a line a request tells more
                           : ProgressLine::kind_here(session.options.output.quiet),
              n_passes * session.load.n_requests,
              0) {}

  BenchSamples run(BenchLoad load) {
    load.on_end = [this](const BenchRecord& record) {
      line_.show(++n_done_, "requests", steady_now());
      say_detail(detail_of(record));
    };
    const auto before = door_.metrics();
    BenchSamples samples = run_load(door_, load);
    samples.processor_seconds = processor_seconds(before, door_.metrics());
    return samples;
  }

 private:
  BenchDoor& door_;
  ProgressLine line_;
  std::size_t n_done_ = 0;
};

// In an order in which neither way profits from what the other left warm.
struct BothWays {
  BenchSamples plain, speculative;
  // Requests that did not get the same answer every time; a failed one has none.
  std::size_t n_differing = 0;

  // Ratios and equality are claims about whole answers.
  bool complete() const { return plain.n_failed + speculative.n_failed == 0; }
  double throughput_ratio() const {
    return ratio(speculative.output_throughput(), plain.output_throughput());
  }
  double tpot_ratio() const { return ratio(median_tpot(plain), median_tpot(speculative)); }

 private:
  static double ratio(double a, double b) { return b > 0 ? a / b : 0; }
  static double median_tpot(const BenchSamples& samples) {
    return percentile(samples.values(&BenchRecord::tpot_ms), 0.5);
  }
};

// Uncounted: every prompt once, so that no run is the one that fills the prefix cache.
void ask_each_once(const BenchSession& session) {
  BenchLoad once = session.load;
  once.n_requests = std::min(once.n_requests, once.prompts.size());
  once.base.params.max_tokens = std::min<std::uint32_t>(8, once.base.params.max_tokens);
  (void)run_load(session.door, once);
}

BothWays measure_both_ways(const BenchSession& session) {
  const BenchLoad& load = session.load;
  ask_each_once(session);
  BenchLoad plain = load;
  plain.base.num_draft_tokens = 0;
  BothWays result;
  BenchProgress progress(session, 4);
  std::vector<BenchRecord> first;
  for (const bool is_plain : {true, false, false, true}) {
    const BenchSamples pass = progress.run(is_plain ? plain : load);
    add(is_plain ? result.plain : result.speculative, pass);
    if (first.empty()) first = pass.records;
    std::size_t n_differing = 0;
    for (std::size_t i = 0; i < first.size(); ++i)
      n_differing += first[i].answer != pass.records[i].answer ||
                     first[i].token_ids != pass.records[i].token_ids;
    result.n_differing = std::max(result.n_differing, n_differing);
    if (pass.unreachable) break;
  }
  return result;
}

// Pages, pools and the step-cost table; uncounted, and of a prompt that is asked last or not at
// all, so that it helps no more than one of those that count.
void warm_up(const BenchSession& session) {
  BenchLoad one = session.load;
  one.prompts = {one.prompts[std::min(one.n_requests, one.prompts.size() - 1)]};
  one.n_requests = 1;
  (void)run_load(session.door, one);
}

struct Sweep {
  OrderedJson document = {
      {"schema", kSweepSchema}, {"machine", machine_description()}, {"runs", OrderedJson::array()}};
  std::vector<SweepRow> rows;
  BenchSamples all;
  std::optional<Error> broken;  // why it has no further runs
};

Sweep measure_sweep(const BenchSession& session, const std::vector<int>& concurrency) {
  if (session.prompts.are_made_up())
    warm_up(session);
  else
    ask_each_once(session);
  BenchProgress progress(session, concurrency.size());
  Sweep sweep;
  for (std::size_t run = 0; run < concurrency.size() && !sweep.all.unreachable; ++run) {
    BenchLoad load = session.load;
    BenchDescription description = session.description;
    if (run > 0 && session.prompts.are_made_up()) {
      auto prompts = session.prompts.of_run(run);
      if (!prompts.ok()) {
        sweep.broken = prompts.error();
        break;
      }
      load.prompts = std::move(*prompts);
      description.prompts_of_run = run;
    }
    load.concurrency = static_cast<std::size_t>(concurrency[run]);
    description.concurrency = concurrency[run];
    BenchSamples samples = progress.run(std::move(load));
    sweep.document["runs"].push_back(bench_json(samples, description));
    add(sweep.all, samples);
    sweep.rows.push_back({concurrency[run], std::move(samples)});
  }
  return sweep;
}

// The document where --out says, then on standard output that or what people read.
int put_out(const OrderedJson& document,
            const CliOptions& options,
            const std::function<void()>& print) {
  const std::string json = to_text(document, 2);
  int code = kExitOk;
  if (const std::string& out = options.bench_load.out; !out.empty())
    if (const auto written = write_whole_file(out, json + "\n", Existing::kReplace); !written.ok())
      code = report_error(written.error());
  if (options.output.json)
    std::cout << json << std::endl;
  else
    print();
  return code;
}

int report_failures(const BenchSamples& samples) {
  if (samples.n_failed == 0) return kExitOk;
  std::cerr << "error: " << samples.n_failed
            << (samples.n_failed == 1 ? " request failed, " : " requests failed, ")
            << samples.n_cut_off << " of them cut off; the first: " << samples.first_error << "\n";
  if (samples.unreachable) return kExitUnreachable;
  return samples.n_cut_off == samples.n_failed ? kExitDeadline : kExitFailed;
}

void print_both(const BothWays& result, const PrintRun& print) {
  std::cout << "plain" << std::endl;
  print(result.plain);
  std::printf("speculative\n");
  print(result.speculative);
  if (!result.complete()) {
    std::printf("Not every request was answered: no comparison\n");
    return;
  }
  std::printf("%-40s %.2f\n", "Throughput, speculative / plain:", result.throughput_ratio());
  std::printf("%-40s %.2f\n", "Median TPOT, plain / speculative:", result.tpot_ratio());
  const std::string same = result.n_differing == 0
                               ? "yes"
                               : "no, " + std::to_string(result.n_differing) + " requests differ";
  std::printf("%-40s %s\n", "Same answers:", same.c_str());
}

OrderedJson json_of(const BothWays& result, const BenchDescription& description) {
  const bool complete = result.complete();
  BenchDescription plain = description;
  plain.num_draft_tokens = 0;
  OrderedJson document = {{"schema", "foretoken.bench_compare/1"},
                          {"machine", machine_description()},
                          {"complete", complete}};
  // Without every answer there is nothing to claim.
  document["identical"] = complete ? OrderedJson(result.n_differing == 0) : OrderedJson();
  document["requests_differing"] = complete ? OrderedJson(result.n_differing) : OrderedJson();
  document["throughput_ratio"] = complete ? OrderedJson(result.throughput_ratio()) : OrderedJson();
  document["median_tpot_ratio"] = complete ? OrderedJson(result.tpot_ratio()) : OrderedJson();
  document["plain"] = bench_json(result.plain, plain);
  document["speculative"] = bench_json(result.speculative, description);
  return document;
}

// What decides the answers beside the prompts.
Json sampling_of(const wire::ClientRequest& base) {
  Json body = chat_body(base);
  for (const char* key :
       {"messages", "model", "max_tokens", "speculation", "prediction", "stream", "stream_options"})
    body.erase(key);
  return body;
}

// bench latency and acceptance.
bool is_alone(BenchKind kind) { return kind != BenchKind::kServe; }

// What is not said: a few at a time, or with a rate as many as arrive.
std::size_t concurrency_of(BenchKind kind, const BenchLoadOptions& bench) {
  if (is_alone(kind)) return 1;
  if (!bench.concurrency.empty()) return static_cast<std::size_t>(bench.concurrency.front());
  return bench.request_rate > 0 ? 0 : kUsualConcurrency;
}

// What is to be measured, before it is known whom to ask.
struct BenchPlan {
  BenchKind kind;
  const CliOptions& options;
  wire::ClientRequest base;  // of all requests
  LatencyGoals goals;
  const std::function<int(BenchSession&)>& measure;
};

// `model`: the one that a request without a name means.
int measure_through(BenchDoor& door,
                    const BenchPlan& plan,
                    const std::string& model,
                    BenchPrompts::Tokenize tokenize = {}) {
  const auto& bench = plan.options.bench_load;
  const BenchPrompts source(bench, plan.base.params.seed, std::move(tokenize));
  auto prompts = source.of_run(0);
  if (!prompts.ok()) return report_error(prompts.error());
  if (is_alone(plan.kind)) *prompts = kinds_in_turn(*prompts);
  BenchLoad load{.base = plan.base,
                 .prompts = std::move(*prompts),
                 .n_requests = static_cast<std::size_t>(bench.n_prompts),
                 .concurrency = concurrency_of(plan.kind, bench),
                 .request_rate = bench.request_rate};
  BenchDescription description{
      .schema = std::string(kRunSchemas[static_cast<std::size_t>(plan.kind)]),
      .door = door.name(),
      .model = load.base.model.empty() ? model : load.base.model,
      .dataset = bench.dataset,
      .input_len = bench.dataset == kRandomPrompts ? bench.input_len.value_or(kUsualInputLen) : 0,
      .unique_prompts = source.are_made_up(),
      .proposer = names_in(load.base.proposer),
      .n_requests = bench.n_prompts,
      .concurrency = static_cast<int>(load.concurrency),
      .output_len = bench.output_len,
      .request_rate = bench.request_rate,
      .num_draft_tokens = load.base.num_draft_tokens,
      .request = sampling_of(load.base),
      .goals = plan.goals};
  BenchSession session{plan.kind, door, plan.options, std::move(load), std::move(description),
                       source};
  return plan.measure(session);
}

std::string key_in(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// A key goes only where its owner meant it to: that of OpenAI to what --url names, as with other
// clients of its interface, and not to whatever listens at edge.port.
Result<HttpAddress> server_of(const std::string& url, const EdgeSection& edge) {
  if (!url.empty()) {
    auto address = read_url(url);
    if (address.ok()) address->key = key_in("OPENAI_API_KEY");
    return address;
  }
  if (edge.port == 0)
    return Error{ErrorCode::kInvalidValue,
                 "edge.port is 0, any free port: say which one with --url (foretoken ps --json has "
                 "it)",
                 "--http"};
  return HttpAddress{
      .host = edge.host, .port = std::to_string(edge.port), .key = key_in("FORETOKEN_API_KEY")};
}

int over_http(BenchPlan plan, const EdgeSection& edge) {
  const auto address = server_of(plan.options.bench_load.url, edge);
  if (!address.ok()) return report_error(address.error());
  const auto model = first_model(*address);
  if (!model.ok()) return report_error(model.error());
  if (plan.base.model.empty()) plan.base.model = *model;
  const auto door = http_door(*address);
  return measure_through(*door, plan, *model);
}

int over_zeromq(const BenchPlan& plan, const BusSection& bus) {
  Client client(bus, {.say = say_note});
  const auto status = client.status(steady_now() + 3s);
  if (!status.ok()) return report_error(client.unreachable(status.error()));
  if (!status->ready)
    return report_error({ErrorCode::kUnavailable,
                         "the services at " + client.endpoint() + " are not ready to serve"});
  const auto door = zeromq_door(client);
  return measure_through(
      *door, plan, status->models.size() == 1 ? status->models.front() : "",
      [&](const std::string& text) { return tokens_of(client, text, plan.base.model); });
}

Result<void> check_load(const BenchLoadOptions& bench) {
  const bool is_random = bench.dataset == kRandomPrompts;
  if (bench.input_len && !is_random)
    return Error{ErrorCode::kInvalidValue, "--input-len goes with --dataset random", "--input-len"};
  if (bench.unique_prompts && is_random)
    return Error{ErrorCode::kInvalidValue, "random prompts share no beginning anyway",
                 "--unique-prompts"};
  if (is_random && (bench.http || !bench.url.empty()))
    return Error{ErrorCode::kInvalidValue,
                 "random prompts are token ids and go over ZeroMQ: chat over HTTP takes none",
                 "--dataset"};
  if (bench.compare && bench.concurrency.size() > 1)
    return Error{ErrorCode::kInvalidValue, "--compare takes one number of requests at a time",
                 "--concurrency"};
  if (bench.compare && bench.unique_prompts)
    return Error{ErrorCode::kInvalidValue,
                 "--compare asks each prompt again, to compare the answers; --unique-prompts does "
                 "not go with it",
                 "--unique-prompts"};
  return {};
}

// The request that all others are made from.
Result<wire::ClientRequest> base_request(BenchKind kind, const CliOptions& options) {
  auto base = request_from(options.request);
  if (!base.ok()) return base;
  base->prompt_kind = wire::PromptKind::kMessages;
  base->params.max_tokens = options.bench_load.output_len;
  base->params.ignore_eos = true;
  if (!base->given.contains("temperature")) base->params.temperature = 0;
  base->given.insert("max_tokens");
  base->given.insert("temperature");
  base->stream = true;
  const bool is_plain = base->num_draft_tokens == 0 || base->proposer == ProposerKind::kNone;
  if (is_plain && options.bench_load.compare)
    return Error{ErrorCode::kInvalidValue, "plain decoding is what --compare compares with",
                 "--compare"};
  if (is_plain && kind == BenchKind::kAcceptance)
    return Error{ErrorCode::kInvalidValue, "plain decoding accepts nothing: there are no guesses",
                 "bench acceptance"};
  return base;
}

}  // namespace

int with_bench_session(BenchKind kind,
                       const CliOptions& options,
                       const std::function<int(BenchSession&)>& measure) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  auto base = base_request(kind, options);
  if (!base.ok()) return report_error(base.error());
  const auto goals = read_goals(options.bench_load.goodput);
  if (!goals.ok()) return report_error(goals.error());
  if (const auto fits = check_load(options.bench_load); !fits.ok())
    return report_error(fits.error());
  if (const auto out = check_writable(options.bench_load.out, "--out"); !out.ok())
    return report_error(out.error());
  const BenchPlan plan{kind, options, std::move(*base), *goals, measure};
  const bool is_http = options.bench_load.http || !options.bench_load.url.empty();
  return is_http ? over_http(plan, loaded->config.edge) : over_zeromq(plan, loaded->config.bus);
}

int run_once(const BenchSession& session, const PrintRun& print) {
  if (is_alone(session.kind)) warm_up(session);
  const BenchSamples samples = BenchProgress(session, 1).run(session.load);
  const int written =
      put_out(bench_json(samples, session.description), session.options, [&] { print(samples); });
  const int failed = report_failures(samples);
  return failed != kExitOk ? failed : written;
}

int run_sweep(const BenchSession& session, const std::vector<int>& concurrency) {
  const Sweep sweep = measure_sweep(session, concurrency);
  const int written = put_out(sweep.document, session.options, [&] {
    std::cout << sweep_table(sweep.rows, session.description.goals) << std::flush;
  });
  if (sweep.broken) return report_error(*sweep.broken);
  const int failed = report_failures(sweep.all);
  return failed != kExitOk ? failed : written;
}

int run_both_ways(const BenchSession& session, const PrintRun& print) {
  const BothWays result = measure_both_ways(session);
  const int written = put_out(json_of(result, session.description), session.options,
                              [&] { print_both(result, print); });
  BenchSamples all = result.plain;
  add(all, result.speculative);
  if (const int failed = report_failures(all); failed != kExitOk) return failed;
  return result.n_differing == 0 ? written : kExitDiffers;
}

}  // namespace foretoken::cli
