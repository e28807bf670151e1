// What bench measured of a system, request by request, and what follows from it: sums, percentiles,
// the document and the block. Definitions: TTFT = sending to first piece; TPOT = (last piece -
// first piece) / (tokens - 1); ITL = gaps between pieces, and a piece may carry several tokens,
// which is why TPOT is the one to compare; E2EL = sending to the end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/messages/client.h"

namespace foretoken::cli {

// Of the guesses at one place of their rounds: how many there were, and how many stood.
struct PositionTally {
  std::uint64_t guessed = 0, accepted = 0;
  bool operator==(const PositionTally&) const = default;
};
std::vector<PositionTally> tally_positions(const wire::SpeculativeDecoding& speculation);
// Of the guesses those before which all of their round stood: the first wrong one of a round and
// those before it. Those after it say nothing. 0 of a server that does not say how long rounds
// were.
std::uint64_t n_judged(const wire::SpeculativeDecoding& speculation);

struct BenchRecord {
  std::string kind;  // of its prompt
  bool is_done = false;
  double at_ms = 0;  // sent, from the beginning of the pass
  double ttft_ms = 0, e2el_ms = 0, tpot_ms = 0;
  std::vector<double> itl_ms;
  std::uint32_t prompt_tokens = 0, output_tokens = 0;
  std::uint64_t cached_tokens = 0;  // of the prompt; 0 of a server that does not say it
  std::uint64_t rounds = 0, drafted = 0, accepted = 0, judged = 0;
  std::vector<PositionTally> by_position;
  // To be compared; empty where it failed. Over HTTP there are no token ids.
  std::string answer;
  std::vector<TokenId> token_ids;
};

// What a request must keep to count as good: goodput counts those alone.
struct LatencyGoals {
  std::optional<double> ttft_ms, tpot_ms, e2el_ms;  // at most

  bool any() const { return ttft_ms || tpot_ms || e2el_ms; }
  bool met_by(const BenchRecord& record) const;
};

struct BenchSamples {
  std::vector<BenchRecord> records;
  std::uint64_t n_failed = 0;
  std::uint64_t n_asked_again = 0;       // after a lost connection: their times hold the wait
  std::uint64_t n_cut_off = 0;           // of those that failed: time was up, or cancelled
  std::vector<std::uint64_t> histogram;  // rounds that accepted 0, 1, 2 ... tokens
  std::string first_error;
  bool unreachable = false;  // one of those that failed found no service; nothing was sent after it
  double seconds = 0;
  int n_passes = 1;
  std::map<std::string, double> processor_seconds;  // by service, in the passes

  std::uint64_t n_done() const;
  std::uint64_t sum(std::uint64_t BenchRecord::*member) const;
  std::uint64_t output_tokens() const;
  double a_second(double n) const;  // 0 where nothing ran
  double output_throughput() const;
  std::vector<double> values(double BenchRecord::*member) const;  // of those that are done
};

// Sums over the requests of one kind of text that are done.
struct KindTally {
  std::uint64_t n_done = 0, tokens = 0, rounds = 0, drafted = 0, accepted = 0;
  std::vector<double> ttft_ms, tpot_ms;
  std::vector<PositionTally> by_position;

  double acceptance_rate() const;
  double acceptance_length() const;  // tokens per round
};
std::map<std::string, KindTally> tally_kinds(const BenchSamples& samples);
void add(KindTally& sum, const KindTally& more);

enum class BenchKind : std::uint8_t { kServe, kLatency, kAcceptance };
// Of one run of each kind: bench compare and plot take all.
inline constexpr std::array<std::string_view, 3> kRunSchemas{
    "foretoken.bench_serve/1", "foretoken.bench_latency/1", "foretoken.bench_acceptance/1"};
inline constexpr std::string_view kSweepSchema = "foretoken.bench_sweep/1";  // runs of bench serve

// What the load was, for the document.
struct BenchDescription {
  std::string schema;
  std::string door, model, dataset;
  std::uint32_t input_len = 0;  // of random prompts; 0: others
  bool unique_prompts = false;
  // Of a sweep whose runs have prompts of their own: which run's.
  std::size_t prompts_of_run = 0;
  std::string proposer;
  int n_requests = 0, concurrency = 0;
  std::uint32_t output_len = 0;
  double request_rate = 0;
  std::int32_t num_draft_tokens = -1;
  Json request;  // what else was asked: sampling
  LatencyGoals goals;
};

// Two passes of the same requests as one.
void add(BenchSamples& sum, const BenchSamples& more);

std::uint64_t n_good(const BenchSamples& samples, const LatencyGoals& goals);
std::vector<double> token_times(const BenchSamples& samples);  // TPOT of those that have one
std::vector<double> all_gaps(const BenchSamples& samples);     // ITL
// p from 0 to 1; between two values interpolated, as numpy.percentile does. 0 where there are none.
double percentile(std::vector<double> values, double p);
double mean(const std::vector<double>& values);

OrderedJson bench_json(const BenchSamples& samples, const BenchDescription& load);
void print_block(const BenchSamples& samples, const LatencyGoals& goals);

}  // namespace foretoken::cli
