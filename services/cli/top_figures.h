// What `foretoken top` shows: figures of a system between two looks at it. Every one that is no
// present state is a difference of counters. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/messages/client.h"
#include "services/cli/metric_samples.h"

namespace foretoken::cli {

struct Look {
  TimePoint at{};
  wire::StatusReply status;
  std::vector<MetricSample> samples;
};

struct TopService {
  std::string role, name, state, model, note;
  std::optional<double> cpu;  // of one core, 1 = all of it
  std::uint64_t rss_bytes = 0, n_active = 0, n_queued = 0;
  std::optional<double> tokens_per_second;
  std::string timed;  // what p50 and p99 are of: verify, propose, token gap
  std::optional<double> p50_s, p99_s;
};

struct TopDraft {
  std::string name, model, note;
  double guesses_per_second = 0;
  // Of a model; a memory of texts does not count these.
  std::optional<double> kept;  // of the guesses, those that a target committed
  std::optional<double> cut;   // thrown away before a target saw them, or after it went elsewhere
  std::optional<double> kv_used;
  std::uint64_t n_sequences = 0;
  std::optional<double> p50_s, p99_s;  // from a question to its answer
};

struct TopPhase {
  std::string name;
  std::optional<double> mean_s;
};

struct TopFigures {
  double seconds = 0;  // between the two looks
  bool ready = false;
  std::vector<std::string> models, draft_models;
  std::uint64_t uptime_s = 0;
  double tokens_per_second = 0;
  double asking_gain = 0;  // speed by that without drafts, when last compared; 0 = never
  std::uint64_t n_running = 0, n_waiting = 0;
  double kv_used = 0;

  std::optional<double> tokens_per_round;    // of rounds that verified guesses
  std::optional<double> accepted;            // of the guesses verified
  std::vector<double> accepted_by_position;  // of these rounds, those that accepted that guess
  double n_rounds = 0;
  std::vector<std::pair<std::string, double>> fallbacks;  // rounds without guesses, by reason
  std::vector<TopPhase> phases;
  std::optional<double> round_s;  // wait, verify and commit of a round

  std::vector<TopService> services;
  std::vector<TopDraft> drafts;
};

TopFigures top_figures(const Look& before, const Look& now);
OrderedJson top_json(const TopFigures& figures);

}  // namespace foretoken::cli
