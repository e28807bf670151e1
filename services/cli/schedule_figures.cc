#include "services/cli/schedule_figures.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "bench/schedule/row_curve.h"

namespace foretoken::cli {
namespace {

template <class... Values>
std::string printed(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

double median_token_ms(const BenchSamples& samples) {
  return percentile(samples.values(&BenchRecord::tpot_ms), 0.5);
}

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

// Requests that a run answered otherwise than the first of these runs.
std::uint64_t n_differing(const std::vector<const BenchSamples*>& runs) {
  std::set<std::size_t> differing;
  const auto& first = runs.front()->records;
  for (const BenchSamples* run : runs)
    for (std::size_t i = 0; i < first.size(); ++i)
      if (run->records[i].token_ids != first[i].token_ids) differing.insert(i);
  return differing.size();
}

void add_rounds(ScheduleFigures& figures, const std::vector<SchedulePair>& pairs) {
  BenchSamples all;
  double draft_seconds = 0, n_drafted = 0;
  for (const SchedulePair& pair : pairs) {
    add(all, pair.guessed);
    draft_seconds += pair.draft_seconds;
    n_drafted += pair.n_drafted;
  }
  const auto rounds = static_cast<double>(all.sum(&BenchRecord::rounds)),
             accepted = static_cast<double>(all.sum(&BenchRecord::accepted)),
             judged = static_cast<double>(all.sum(&BenchRecord::judged));
  figures.tokens_per_round = 1 + ratio(accepted, rounds);
  figures.guesses_per_round = ratio(static_cast<double>(all.sum(&BenchRecord::drafted)), rounds);
  if (judged > 0) figures.acceptance = accepted / judged;
  const bool all_were_asked_for = !figures.asked.runs_ahead();
  if (n_drafted > 0 && all_were_asked_for) figures.draft_ms = 1000 * draft_seconds / n_drafted;
}

OrderedJson or_null(const std::optional<double>& value) {
  return value ? OrderedJson(*value) : OrderedJson();
}

OrderedJson json_of(const bench::ScheduleValue& value) {
  return {{"speedup", value.speedup},
          {"length", value.length},
          {"tokens_per_round", value.tokens_per_round}};
}

OrderedJson json_of(const ScheduleFigures::Model& model) {
  return {{"synchronous", json_of(model.synchronous)},
          {"chain", model.chain ? json_of(*model.chain) : OrderedJson()},
          {"branches", model.branches ? json_of(*model.branches) : OrderedJson()}};
}

std::string or_dash(const std::optional<double>& value, const char* format) {
  return value ? printed(format, *value) : "-";
}

ScheduleFigures::Model model_of(const ScheduleFigures& figures, double acceptance) {
  const ScheduleConditions& asked = figures.asked;
  const bench::ScheduleSetting setting{.acceptance = acceptance,
                                       .cost = asked.cost,
                                       .round_trip = ratio(asked.rtt_ms, asked.target_ms),
                                       .n_sequences = figures.n_sequences};
  ScheduleFigures::Model model{.synchronous = synchronous_value(setting)};
  if (figures.n_sequences > 1 || !asked.runs_ahead()) return model;
  model.chain = chain_value(setting);
  // A chain that goes on covers what comes after the next pass, too, which they do not.
  if (asked.n_branches() > 0)
    model.branches = std::ranges::max(*model.chain, branches_value(setting, asked.n_branches() + 1),
                                      {}, &bench::ScheduleValue::speedup);
  return model;
}

}  // namespace

ScheduleFigures figures_of(const ScheduleConditions& asked,
                           const std::vector<SchedulePair>& pairs,
                           const BenchSamples& uncounted) {
  ScheduleFigures figures{.asked = asked,
                          .n_sequences = static_cast<int>(pairs.front().plain.records.size())};
  std::vector<double> ratios, plain, guessed;
  std::vector<const BenchSamples*> runs{&uncounted};
  for (const SchedulePair& pair : pairs) {
    plain.push_back(median_token_ms(pair.plain));
    guessed.push_back(median_token_ms(pair.guessed));
    ratios.push_back(ratio(plain.back(), guessed.back()));
    runs.insert(runs.end(), {&pair.plain, &pair.guessed});
  }
  for (const BenchSamples* run : runs) {
    figures.n_failed += run->n_failed;
    if (figures.first_error.empty()) figures.first_error = run->first_error;
  }
  figures.plain_ms = percentile(plain, 0.5);
  figures.guessed_ms = percentile(guessed, 0.5);
  figures.speedup = percentile(ratios, 0.5);
  figures.least = *std::ranges::min_element(ratios);
  figures.most = *std::ranges::max_element(ratios);
  for (const SchedulePair& pair : pairs)
    figures.n_differing += &pair == &pairs.front()
                               ? n_differing({&pair.plain, &pair.guessed, &uncounted})
                               : n_differing({&pair.plain, &pair.guessed});
  add_rounds(figures, pairs);
  figures.asked_model = model_of(figures, asked.acceptance);
  figures.model = model_of(figures, figures.acceptance.value_or(asked.acceptance));
  return figures;
}

OrderedJson json_of(const ScheduleFigures& figures) {
  const ScheduleConditions& asked = figures.asked;
  OrderedJson document = {{"models", "timed mocks"},
                          {"asked",
                           {{"target_ms", asked.target_ms},
                            {"cost", asked.cost},
                            {"acceptance", asked.acceptance},
                            {"rtt_ms", asked.rtt_ms},
                            {"runs_ahead", asked.runs_ahead()},
                            {"branches", asked.n_branches()},
                            {"sequences", figures.n_sequences},
                            {"cores", name_of(asked.cores)},
                            {"draft_killed", figures.draft_killed}}},
                          {"plain_ms", figures.plain_ms},
                          {"guessed_ms", figures.guessed_ms},
                          {"draft_ms", or_null(figures.draft_ms)},
                          {"cost", figures.cost()},
                          {"acceptance", or_null(figures.acceptance)},
                          {"rho", ratio(asked.rtt_ms, figures.plain_ms)},
                          {"tokens_per_round", figures.tokens_per_round},
                          {"guesses_per_round", figures.guesses_per_round},
                          {"speedup", figures.speedup},
                          {"speedup_least", figures.least},
                          {"speedup_most", figures.most},
                          {"same_texts", figures.n_differing == 0 && figures.n_failed == 0},
                          {"model_asked", json_of(figures.asked_model)},
                          {"model", json_of(figures.model)}};
  return document;
}

std::string figures_table(const ScheduleFigures& figures) {
  const ScheduleConditions& asked = figures.asked;
  const double plain_asked = asked.target_ms * bench::row_cost(figures.n_sequences);
  std::string text = printed(
      "timed mock models: target %.6g ms a row, draft %.6g ms, %d sequences, %s cores, %s%s\n\n",
      asked.target_ms, asked.target_ms * asked.cost, figures.n_sequences,
      std::string(name_of(asked.cores)).c_str(),
      asked.n_branches() > 0
          ? printed("the draft runs ahead with %d branches", asked.n_branches()).c_str()
      : asked.runs_ahead() ? "the draft runs ahead"
                           : "the draft answers questions",
      figures.draft_killed ? ", killed" : "");
  text += printed("%-34s %10s %10s\n", "", "asked", "measured");
  text += printed("%-34s %10.2f %10.2f\n", "T: plain, ms a token", plain_asked, figures.plain_ms);
  text += printed("%-34s %10.3f %10s\n", "c: draft, of T", asked.cost,
                  figures.draft_ms ? printed("%.3f", figures.cost()).c_str() : "-");
  text += printed("%-34s %10.2f %10s\n", "a: share of guesses that stood", asked.acceptance,
                  or_dash(figures.acceptance, "%.3f").c_str());
  text += printed("%-34s %10.3f %10.3f\n\n", "rho: round trip, of T",
                  ratio(asked.rtt_ms, plain_asked), ratio(asked.rtt_ms, figures.plain_ms));
  const bench::ScheduleValue &of_asked = figures.asked_model.value(), &of_a = figures.model.value();
  text += printed("%-34s %10s %10s %14s\n", "", "measured", "model", "measured a's");
  text += printed("%-34s %10.2f %10.2f %14.2f\n", "tokens a round", figures.tokens_per_round,
                  of_asked.tokens_per_round, of_a.tokens_per_round);
  text += printed("%-34s %10.2f %10d %14d\n", "guesses a round (model: at most)",
                  figures.guesses_per_round, of_asked.length, of_a.length);
  text += printed("%-34s %10.2f %10.2f %14.2f   (%.2f to %.2f)\n", "speed-up over plain",
                  figures.speedup, of_asked.speedup, of_a.speedup, figures.least, figures.most);
  const std::string same = figures.n_failed > 0
                               ? std::to_string(figures.n_failed) + " requests failed"
                           : figures.n_differing == 0
                               ? "yes"
                               : "NO: " + std::to_string(figures.n_differing) + " requests differ";
  return text + printed("%-34s %10s\n", "same texts", same.c_str());
}

const ScheduleFigures& worst_of(const std::vector<ScheduleFigures>& cells) {
  return *std::ranges::min_element(cells, {}, &ScheduleFigures::speedup);
}

std::string ratio_table(const std::vector<ScheduleFigures>& cells) {
  std::map<std::pair<Cores, int>, std::map<double, const ScheduleFigures*>> rows;
  std::set<double> acceptances;
  for (const ScheduleFigures& cell : cells) {
    rows[{cell.asked.cores, cell.n_sequences}][cell.asked.acceptance] = &cell;
    acceptances.insert(cell.asked.acceptance);
  }
  const ScheduleConditions& asked = cells.front().asked;
  std::string text = printed("timed mock models: target %.6g ms a row, c %.6g, RTT %.6g ms\n",
                             asked.target_ms, asked.cost, asked.rtt_ms);
  text += "speed-up over plain / the model's, by acceptance of the draft\n\n";
  text += printed("%-6s %9s", "cores", "sequences");
  for (const double a : acceptances) text += printed(" %13s", printed("a %.2f", a).c_str());
  text += "\n";
  for (const auto& [key, row] : rows) {
    text += printed("%-6s %9d", std::string(name_of(key.first)).c_str(), key.second);
    for (const double a : acceptances) {
      const auto at = row.find(a);
      text += printed(" %13s", at == row.end() ? "-"
                                               : printed("%.2f / %.2f", at->second->speedup,
                                                         at->second->asked_model.value().speedup)
                                                     .c_str());
    }
    text += "\n";
  }
  const ScheduleFigures& worst = worst_of(cells);
  return text + printed("\nworst cell: %.2f of plain (%s cores, %d sequences, a %.2f)\n",
                        worst.speedup, std::string(name_of(worst.asked.cores)).c_str(),
                        worst.n_sequences, worst.asked.acceptance);
}

}  // namespace foretoken::cli
