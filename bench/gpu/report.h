// Measures the CUDA backend through the door every model uses: kernels x shapes x rows as a share
// of this run's own copy bandwidth, whole steps, and the equality of all paths. Weights are
// synthetic and say so. Knows no CUDA; host clocks around replayed recordings are its only
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
  double microseconds = 0;  // median
  double spread = 0;        // (slowest - fastest) / median
  double gigabytes_per_second = 0;
  double share_of_copy = 0;
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
  std::vector<std::string> not_run;  // what the time did not allow

  std::string to_json() const;
  std::string to_table() const;  // at most 30 lines
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

// Throws FatalError without a device.
Report measure(const GpuOptions& options, const std::function<void(const Report&)>& after_row);

}  // namespace foretoken::bench
