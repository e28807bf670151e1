// bench schedule: what drafting brings where only times count. Real processes and sockets around
// timed mock models, the same requests plain and with guesses, beside the schedules' model; alone
// at one setting, or over a grid that shows where guessing would cost more than it brings.
#include <signal.h>

#include <iostream>
#include <utility>

#include "bench/schedule/timed_prompts.h"
#include "common/base/log.h"
#include "services/cli/bench_door.h"
#include "services/cli/bench_load.h"
#include "services/cli/gnuplot.h"
#include "services/cli/metric_samples.h"
#include "services/cli/progress_line.h"
#include "services/cli/schedule_figures.h"
#include "services/cli/schedule_plot.h"
#include "services/cli/schedule_system.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

constexpr int kSweepSequences[] = {1, 2, 4, 8, 16, 32, 64};
constexpr double kSweepAcceptances[] = {0, 0.3, 0.5, 0.8, 1};

// The supervisor has blocked them; between runs they are heeded.
bool is_interrupted() {
  sigset_t pending;
  return ::sigpending(&pending) == 0 &&
         (::sigismember(&pending, SIGINT) == 1 || ::sigismember(&pending, SIGTERM) == 1);
}

// Of all pairs of runs: a pair that asked for the texts of another one would measure nothing new.
std::vector<std::vector<DemoPrompt>> prompts_by_pair(const BenchScheduleOptions& chosen,
                                                     double acceptance,
                                                     int n_sequences) {
  const auto n_each = static_cast<std::size_t>(n_sequences);
  const auto n_pairs = static_cast<std::size_t>(chosen.repeats);
  auto token_ids = bench::timed_prompts(
      {.n_texts = n_pairs * n_each, .n_tokens = chosen.tokens, .acceptance = acceptance});
  std::vector<std::vector<DemoPrompt>> by_pair(n_pairs);
  for (std::size_t i = 0; i < token_ids.size(); ++i)
    by_pair[i / n_each].push_back({.kind = "timed", .token_ids = std::move(token_ids[i])});
  return by_pair;
}

BenchLoad load_for(std::vector<DemoPrompt> prompts, std::uint32_t n_tokens) {
  const std::size_t n_requests = prompts.size();
  BenchLoad load{.prompts = std::move(prompts), .n_requests = n_requests};
  load.base.proposer = ProposerKind::kDraft;  // alone: the draft is what is measured
  load.base.params.temperature = 0;
  load.base.params.max_tokens = n_tokens;
  load.base.params.ignore_eos = true;
  load.base.given = {"temperature", "max_tokens"};
  load.base.timeout_ms = 600'000;
  load.base.stream = true;
  return load;
}

enum class Guesses { kNone, kWanted };
BenchSamples run_requests(BenchDoor& door, BenchLoad load, Guesses guesses) {
  if (guesses == Guesses::kNone) load.base.num_draft_tokens = 0;
  return run_load(door, load);
}

SchedulePair run_pair(BenchDoor& door, const BenchLoad& load) {
  SchedulePair pair{.plain = run_requests(door, load, Guesses::kNone)};
  const auto before = door.metrics();
  pair.guessed = run_requests(door, load, Guesses::kWanted);
  const Growth growth(before, door.metrics());
  pair.draft_seconds = growth.of({"spec_decode_round_seconds_sum", {{"phase", "propose"}}});
  pair.n_drafted = growth.of({"draft_tokens_total"});
  return pair;
}

// Of one system, which has learnt from what was measured before.
ScheduleFigures measure(ScheduleSystem& system,
                        const ScheduleConditions& conditions,
                        const BenchScheduleOptions& chosen,
                        int n_sequences) {
  const auto door = zeromq_door(system.client());
  auto prompts = prompts_by_pair(chosen, conditions.acceptance, n_sequences);
  // Its times are not counted: here the target learns what passes cost and which guesses stand.
  const BenchSamples uncounted =
      run_requests(*door, load_for(prompts.front(), chosen.tokens), Guesses::kWanted);
  if (chosen.kill_draft) system.kill_draft();
  std::vector<SchedulePair> pairs;
  for (std::vector<DemoPrompt>& of_pair : prompts) {
    if (is_interrupted()) throw FatalError(ErrorCode::kCancelled, "interrupted");
    pairs.push_back(run_pair(*door, load_for(std::move(of_pair), chosen.tokens)));
  }
  ScheduleFigures figures = figures_of(conditions, pairs, uncounted);
  figures.draft_killed = chosen.kill_draft;
  if (chosen.kill_draft) figures.asked_model = figures.model = {};
  return figures;
}

int put_out(const OrderedJson& document, const std::string& table, const CliOptions& options) {
  if (!options.bench_schedule.out.empty())
    if (const auto written = write_whole_file(options.bench_schedule.out,
                                              to_text(document, 2) + "\n", Existing::kReplace);
        !written.ok())
      return report_error(written.error());
  std::cout << (options.output.json ? to_text(document, 2) + "\n" : table) << std::flush;
  return kExitOk;
}

int verdict(const std::vector<ScheduleFigures>& cells) {
  std::uint64_t n_differing = 0;
  for (const ScheduleFigures& cell : cells) {
    if (cell.n_failed > 0) {
      std::cerr << "error: " << cell.n_failed << " requests failed: " << cell.first_error << "\n";
      return kExitFailed;
    }
    n_differing += cell.n_differing;
  }
  if (n_differing == 0) return kExitOk;
  std::cerr << "error: " << n_differing << " texts differ from those of plain decoding\n";
  return kExitDiffers;
}

OrderedJson document_of(std::string_view schema, const std::vector<ScheduleFigures>& cells) {
  OrderedJson document = {
      {"schema", schema}, {"machine", machine_description()}, {"cells", OrderedJson::array()}};
  for (const ScheduleFigures& cell : cells) document["cells"].push_back(json_of(cell));
  return document;
}

int run_one(const CliOptions& options) {
  const BenchScheduleOptions& chosen = options.bench_schedule;
  ScheduleSystem system(chosen.conditions, options.config);
  const std::vector cells{measure(system, chosen.conditions, chosen, chosen.sequences)};
  const int written = put_out(document_of("foretoken.bench_schedule/1", cells),
                              figures_table(cells.front()), options);
  const int verdict_code = verdict(cells);
  return verdict_code != kExitOk ? verdict_code : written;
}

std::vector<ScheduleFigures> measure_grid(const CliOptions& options) {
  const BenchScheduleOptions& chosen = options.bench_schedule;
  ProgressLine progress(ProgressLine::kind_here(options.output.quiet),
                        2 * std::size(kSweepAcceptances) * std::size(kSweepSequences), 0);
  std::vector<ScheduleFigures> cells;
  for (const Cores cores : {Cores::kOwn, Cores::kShared})
    for (const double acceptance : kSweepAcceptances) {
      ScheduleConditions conditions = chosen.conditions;
      conditions.cores = cores;
      conditions.acceptance = acceptance;
      ScheduleSystem system(conditions, options.config);
      for (const int n_sequences : kSweepSequences) {
        cells.push_back(measure(system, conditions, chosen, n_sequences));
        progress.show(cells.size(), "cells", steady_now());
      }
    }
  return cells;
}

int run_grid(const CliOptions& options) {
  const BenchScheduleOptions& chosen = options.bench_schedule;
  const std::vector<ScheduleFigures> cells = measure_grid(options);
  OrderedJson document = document_of("foretoken.bench_schedule_sweep/1", cells);
  document["worst"] = worst_of(cells).speedup;
  int written = put_out(document, ratio_table(cells), options);
  if (written == kExitOk && !chosen.plot.empty())
    written = draw_by_gnuplot(
        ratio_script(cells, {.path = chosen.plot, .machine = machine_description()}));
  const int verdict_code = verdict(cells);
  return verdict_code != kExitOk ? verdict_code : written;
}

// What could not be written at the end, when all has been measured.
int check_files(const BenchScheduleOptions& chosen) {
  const std::string& plot = chosen.plot;
  if (!plot.empty() && !plot.ends_with(".svg") && !plot.ends_with(".png"))
    return report_error(
        {ErrorCode::kInvalidValue, "--plot: \"" + plot + "\" must end in .svg or .png", "--plot"});
  for (const auto& [path, flag] : {std::pair(chosen.out, "--out"), std::pair(plot, "--plot")})
    if (const auto writable = check_writable(path, flag); !writable.ok())
      return report_error(writable.error());
  return plot.empty() ? kExitOk : find_gnuplot();
}

}  // namespace

int run_bench_schedule(const CliOptions& options) {
  if (const int wrong = check_files(options.bench_schedule); wrong != kExitOk) return wrong;
  try {
    return options.bench_schedule.sweep ? run_grid(options) : run_one(options);
  } catch (const FatalError& error) {
    report_error({error.code(), error.what()});
    return error.code() == ErrorCode::kCancelled ? kExitInterrupted
           : error.code() == ErrorCode::kConfig  ? kExitUsage
                                                 : kExitFailed;
  }
}

}  // namespace foretoken::cli
