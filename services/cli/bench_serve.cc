// bench serve: load on a running system, seen from outside, and the same load plain and
// speculative. The block has the lines and the order of `vllm bench serve`.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "common/client/client.h"
#include "services/cli/bench_load.h"
#include "services/cli/chat_stream.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kUsualConcurrency = 4;

// The same load both ways, in an order in which neither profits from what the other left warm.
struct Comparison {
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

Comparison compare(BenchDoor& door, const BenchLoad& load) {
  // Uncounted: every prompt once, so that no pass is the one that fills the prefix cache.
  BenchLoad once = load;
  once.n_requests = std::min(load.n_requests, load.prompts.size());
  once.base.params.max_tokens = std::min<std::uint32_t>(8, load.base.params.max_tokens);
  (void)run_load(door, once);

  BenchLoad plain = load;
  plain.base.num_draft_tokens = 0;
  Comparison result;
  std::vector<BenchRecord> first;
  for (const bool is_plain : {true, false, false, true}) {
    const BenchSamples pass = run_load(door, is_plain ? plain : load);
    add(is_plain ? result.plain : result.speculative, pass);
    if (first.empty()) first = pass.records;
    std::size_t n_differing = 0;
    for (std::size_t i = 0; i < first.size(); ++i)
      n_differing += first[i].answer != pass.records[i].answer ||
                     first[i].token_ids != pass.records[i].token_ids;
    result.n_differing = std::max(result.n_differing, n_differing);
  }
  return result;
}

int write_json(const std::string& json, const CliOptions& options) {
  if (options.bench_serve.out.empty()) return kExitOk;
  const auto written = write_whole_file(options.bench_serve.out, json + "\n", Existing::kReplace);
  return written.ok() ? kExitOk : report_error(written.error());
}

int report_failures(const BenchSamples& samples) {
  if (samples.n_failed == 0) return kExitOk;
  std::cerr << "error: " << samples.n_failed
            << (samples.n_failed == 1 ? " request failed, " : " requests failed, ")
            << samples.n_cut_off << " of them cut off; the first: " << samples.first_error << "\n";
  return samples.n_cut_off == samples.n_failed ? kExitDeadline : kExitFailed;
}

void print_comparison(const Comparison& result) {
  std::cout << "plain" << std::endl;
  print_block(result.plain);
  std::printf("speculative\n");
  print_block(result.speculative);
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

int run_compare(BenchDoor& door,
                const CliOptions& options,
                const BenchLoad& load,
                const BenchDescription& description) {
  const Comparison result = compare(door, load);
  const bool complete = result.complete(), identical = complete && result.n_differing == 0;
  BenchDescription plain = description;
  plain.num_draft_tokens = 0;
  OrderedJson document = {{"schema", "foretoken.bench_compare/1"},
                          {"machine", machine_description()},
                          {"complete", complete}};
  // Without every answer there is nothing to claim.
  document["identical"] = complete ? OrderedJson(identical) : OrderedJson();
  document["requests_differing"] = complete ? OrderedJson(result.n_differing) : OrderedJson();
  document["throughput_ratio"] = complete ? OrderedJson(result.throughput_ratio()) : OrderedJson();
  document["median_tpot_ratio"] = complete ? OrderedJson(result.tpot_ratio()) : OrderedJson();
  document["plain"] = bench_json(result.plain, plain);
  document["speculative"] = bench_json(result.speculative, description);
  const std::string json = to_text(document, 2);
  const int written = write_json(json, options);
  if (options.output.json)
    std::cout << json << "\n";
  else
    print_comparison(result);
  BenchSamples all = result.plain;
  add(all, result.speculative);
  if (const int failed = report_failures(all); failed != kExitOk) return failed;
  return identical ? written : kExitDiffers;
}

// What decides the answers beside the prompts.
Json sampling_of(const wire::ClientRequest& base) {
  Json body = chat_body(base);
  for (const char* key :
       {"messages", "model", "max_tokens", "speculation", "prediction", "stream", "stream_options"})
    body.erase(key);
  return body;
}

// What is not said: a few at a time, or with a rate as many as arrive.
std::size_t concurrency_of(const BenchServeOptions& bench) {
  if (bench.concurrency > 0) return static_cast<std::size_t>(bench.concurrency);
  return bench.request_rate > 0 ? 0 : kUsualConcurrency;
}

// `model`: the one that a request without a name means.
int run_through(BenchDoor& door,
                const CliOptions& options,
                wire::ClientRequest base,
                const std::string& model) {
  const auto& bench = options.bench_serve;
  const BenchLoad load{.base = std::move(base),
                       .prompts = load_prompts(bench.dataset),
                       .n_requests = static_cast<std::size_t>(bench.n_prompts),
                       .concurrency = concurrency_of(bench),
                       .request_rate = bench.request_rate};
  const BenchDescription description{.door = door.name(),
                                     .model = load.base.model.empty() ? model : load.base.model,
                                     .dataset = bench.dataset,
                                     .proposer = std::string(wire::name_of(load.base.proposer)),
                                     .n_requests = bench.n_prompts,
                                     .concurrency = static_cast<int>(load.concurrency),
                                     .output_len = bench.output_len,
                                     .request_rate = bench.request_rate,
                                     .num_draft_tokens = load.base.num_draft_tokens,
                                     .request = sampling_of(load.base)};
  if (bench.compare) return run_compare(door, options, load, description);
  const BenchSamples samples = run_load(door, load);
  const std::string json = to_text(bench_json(samples, description), 2);
  const int written = write_json(json, options);
  if (options.output.json)
    std::cout << json << "\n";
  else
    print_block(samples);
  const int failed = report_failures(samples);
  return failed != kExitOk ? failed : written;
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

int run_over_http(const CliOptions& options, const EdgeSection& edge, wire::ClientRequest base) {
  const auto address = server_of(options.bench_serve.url, edge);
  if (!address.ok()) return report_error(address.error());
  const auto model = first_model(*address);
  if (!model.ok()) return report_error(model.error());
  if (base.model.empty()) base.model = *model;
  const auto door = http_door(*address);
  return run_through(*door, options, std::move(base), *model);
}

int run_over_zeromq(const CliOptions& options, const BusSection& bus, wire::ClientRequest base) {
  Client client(bus, {.say = say_note});
  const auto status = client.status(steady_now() + 3s);
  if (!status.ok()) return report_error(client.unreachable(status.error()));
  if (!status->ready)
    return report_error({ErrorCode::kUnavailable,
                         "the services at " + client.endpoint() + " are not ready to serve"});
  const auto door = zeromq_door(client);
  const std::string model = status->models.size() == 1 ? status->models.front() : "";
  return run_through(*door, options, std::move(base), model);
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
  const bool is_http = options.bench_serve.http || !options.bench_serve.url.empty();
  return is_http ? run_over_http(options, loaded->config.edge, std::move(*base))
                 : run_over_zeromq(options, loaded->config.bus, std::move(*base));
}

}  // namespace foretoken::cli
