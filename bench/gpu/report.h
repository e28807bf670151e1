// Measures the CUDA backend through the door every model uses: kernels x shapes x rows as a share
// of this run's own copy bandwidth, whole steps, and the equality of all paths. Weights are
// synthetic and say so. Uses no CUDA; host clocks around replayed recordings are its only
// stopwatch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/include/backend.h"

namespace foretoken::bench {

struct GpuOptions {
  // The backend with this path. Throws FatalError without a device.
  std::function<std::unique_ptr<Backend>(CudaPath)> backend;
  std::string json;      // written anew after every row; empty: not written
  double seconds = 480;  // no row is begun later than this
  bool small = false;    // tiny shapes: is everything in working order?
};

// One measured line. Zero: not measured.
struct Row {
  std::string what;  // "8B gate_up", "step 1B"
  std::string dtype;
  std::string path;  // "simple", "ring", "ring_overlap"
  int n_rows = 0;
  int context = 0;          // tokens before the rows; 0: not a step
  double microseconds = 0;  // median
  double spread = 0;        // (slowest - fastest) / median
  double gigabytes_per_second = 0;
  double share_of_copy = 0;
};

// Draft K tokens, verify them, accept: a whole round of one sequence, draft and target on one
// device and in one process. Weights and acceptance are synthetic.
struct Iteration {
  std::string pair;  // "70B float8_e4m3 + 1B float8_e4m3"
  std::string path;
  int n_drafted = 0;      // K
  double acceptance = 0;  // of one token, made up
  int n_rounds = 0;
  double milliseconds = 0;      // median round, and what it is made of:
  double draft = 0;             // the chain, uploads included, until the device has done it
  double handoff = 0;           // proposals down, verdicts' rows up
  double verify = 0;            // forward, choose, judge
  double accept = 0;            // verdict and choices down
  double host = 0;              // the rest
  double tokens_per_round = 0;  // as it came out
  // Of an acceptance of exactly that: (1 - a^(K+1)) / (1 - a) tokens in such a round.
  double tokens_per_second() const;
};

struct Section {
  std::string what;
  double seconds = 0;
};

struct Check {
  std::string what;
  bool passed = false;
};

struct Report {
  std::string device;
  double copy_gigabytes_per_second = 0;  // read and written
  std::vector<Check> checks;
  std::vector<Row> rows;
  std::vector<Iteration> iterations;
  std::vector<Section> sections;     // where the time went
  std::vector<std::string> not_run;  // what the time or the memory did not allow
  std::string last_line;             // what has just been measured, for people

  std::string to_json() const;
  std::string to_table() const;  // at most 24 lines: run.sh adds what other programs say
  bool failed() const;
};

// A product of a model of a size: its name, rows (of all stacked matrices) and columns.
struct Matrix {
  const char* name;
  std::int64_t n_out;
  std::int64_t n_in;
  bool gate_up;
};
struct Model {
  const char* name;
  int n_layers;
  int n_hidden, n_ffn, n_heads, n_kv_heads, head_dim, vocab;
};
std::span<const Model> models(bool small);
std::vector<Matrix> matrices_of(const Model& model);
std::span<const std::int32_t> contexts(bool small);  // lengths that steps are timed at
// What peers are given to do the same.
std::string shapes_json(bool small);

// Throws FatalError without a device.
Report measure(const GpuOptions& options, const std::function<void(const Report&)>& after_row);

}  // namespace foretoken::bench
