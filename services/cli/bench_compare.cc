// bench compare: what a second run of bench gained over a first one, and whether both gave
// the same answers.
#include <cstdio>
#include <iostream>
#include <utility>

#include "services/cli/bench_files.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

struct Figure {
  const char* label;
  const char* name;
  const char* inner;  // nullptr: a number of its own
};
constexpr Figure kFigures[] = {
    {"Output token throughput (tok/s)", "output_throughput", nullptr},
    {"Request throughput (req/s)", "request_throughput", nullptr},
    {"Median TTFT (ms)", "ttft_ms", "median"},
    {"P99 TTFT (ms)", "ttft_ms", "p99"},
    {"Median TPOT (ms)", "tpot_ms", "median"},
    {"P99 TPOT (ms)", "tpot_ms", "p99"},
    {"Median ITL (ms)", "itl_ms", "median"},
    {"P99 ITL (ms)", "itl_ms", "p99"},
    {"Median E2EL (ms)", "e2el_ms", "median"},
    {"Acceptance rate", "speculative_decoding", "acceptance_rate"},
    {"Acceptance length", "speculative_decoding", "acceptance_length"},
};

double figure_of(const BenchRun& run, const Figure& figure) {
  return figure.inner == nullptr ? run.number(figure.name) : run.number(figure.name, figure.inner);
}

OrderedJson ratio_or_null(double a, double b) {
  return a > 0 && b > 0 ? OrderedJson(a / b) : OrderedJson();
}

// A key that an older file lacks has the value of one that is not used.
bool is_unused(const Json& value) { return value.is_null() || value == false || value == 0; }

// Keys of the documents in which the runs differ: what must be equal for the answers to be, and
// what the times depend on.
std::vector<std::string> differing(const BenchRun& a,
                                   const BenchRun& b,
                                   std::initializer_list<const char*> names) {
  std::vector<std::string> found;
  for (const char* name : names) {
    const Json &first = a.at(name), &second = b.at(name);
    if (first != second && !(is_unused(first) && is_unused(second))) found.emplace_back(name);
  }
  return found;
}

OrderedJson kinds_gain(const BenchRun& a, const BenchRun& b) {
  OrderedJson gain = OrderedJson::object();
  if (!a.at("by_kind").is_object()) return gain;
  for (const auto& [kind, value] : a.at("by_kind").items()) {
    const Json& other = b.at("by_kind", kind.c_str());
    if (!value.is_object() || !other.is_object()) continue;
    gain[kind] = ratio_or_null(BenchRun{{}, value}.number("median_tpot_ms"),
                               BenchRun{{}, other}.number("median_tpot_ms"));
  }
  return gain;
}

OrderedJson comparison_json(const BenchRun& a, const BenchRun& b) {
  const bool complete = a.is_complete() && b.is_complete();
  const auto gain = [&](double first, double second) {
    return complete ? ratio_or_null(first, second) : OrderedJson();
  };
  const auto load = differing(a, b,
                              {"schema", "model", "dataset", "input_len", "unique_prompts",
                               "prompts_of_run", "num_prompts", "output_len", "request"});
  const auto rest = differing(a, b,
                              {"machine", "build", "door", "concurrency", "request_rate", "repeats",
                               "total_cached_tokens"});
  OrderedJson document = {
      {"schema", "foretoken.bench_gain/1"},
      {"base", a.label},
      {"other", b.label},
      {"complete", complete},
      {"throughput_ratio", gain(b.number("output_throughput"), a.number("output_throughput"))},
      {"decode_speedup", gain(a.number("tpot_ms", "median"), b.number("tpot_ms", "median"))},
      {"latency_speedup", gain(a.number("e2el_ms", "median"), b.number("e2el_ms", "median"))},
      {"decode_speedup_by_kind", complete ? kinds_gain(a, b) : OrderedJson::object()},
      {"same_answers", OrderedJson()},
      {"differing_load", load},
      {"differing_conditions", rest}};
  if (complete && load.empty() && a.at("answers").is_string() && b.at("answers").is_string())
    document["same_answers"] = a.at("answers") == b.at("answers");
  return document;
}

std::string in_words(const OrderedJson& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name.get<std::string>();
  return text;
}

void print_gain(const BenchRun& a, const BenchRun& b, const OrderedJson& document) {
  const bool complete = document["complete"].get<bool>();
  std::printf("base:  %s\nother: %s\n\n", a.label.c_str(), b.label.c_str());
  std::printf("%-34s %12s %12s %14s\n", "", "base", "other", "other / base");
  for (const Figure& figure : kFigures) {
    const double first = figure_of(a, figure), second = figure_of(b, figure);
    std::printf("%-34s %12.2f %12.2f", figure.label, first, second);
    if (complete && first > 0) std::printf(" %14.2f", second / first);
    std::printf("\n");
  }
  const auto print_ratio = [&](const char* label, const OrderedJson& value) {
    if (value.is_number()) std::printf("%-34s %12.2f\n", label, value.get<double>());
  };
  std::printf("\n");
  for (const BenchRun* run : {&a, &b})
    if (!run->is_complete())
      std::printf("Failed requests of %s: %.0f; no comparison\n", run->label.c_str(),
                  run->number("failed"));
  print_ratio("Decode speedup (median TPOT)", document["decode_speedup"]);
  for (const auto& [kind, value] : document["decode_speedup_by_kind"].items())
    print_ratio(("  of " + kind).c_str(), value);
  print_ratio("Latency speedup (median E2EL)", document["latency_speedup"]);
  const OrderedJson& same = document["same_answers"];
  const std::string load = in_words(document["differing_load"]);
  std::printf("%-34s %12s\n", "Same answers",
              same.is_boolean() ? (same.get<bool>() ? "yes" : "no") : "not known");
  if (!load.empty()) std::printf("The requests differ in: %s\n", load.c_str());
  if (const std::string rest = in_words(document["differing_conditions"]); !rest.empty())
    std::printf("The conditions differ in: %s\n", rest.c_str());
}

}  // namespace

int run_bench_compare(const CliOptions& options) {
  const auto runs = read_bench_runs(options.bench_files.files);
  if (!runs.ok()) return report_error(runs.error());
  if (runs->size() != 2)
    return report_error({ErrorCode::kInvalidValue,
                         "two runs are compared: two files of bench --out, or one of bench "
                         "--compare --out; these have " +
                             std::to_string(runs->size()),
                         "FILE"});
  const BenchRun& a = runs->front();
  const BenchRun& b = runs->back();
  const OrderedJson document = comparison_json(a, b);
  if (options.output.json)
    std::cout << to_text(document, 2) << "\n";
  else
    print_gain(a, b, document);
  return document["same_answers"] == false ? kExitDiffers : kExitOk;
}

}  // namespace foretoken::cli
