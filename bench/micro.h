// The kernels against the machine: how much of the memory's bandwidth plain decoding gets, what
// more rows cost, how much of the arithmetic peak a prompt gets. Everything is a ratio to a ceiling
// measured beside it in the same process, because ceilings on shared machines move. Weights are
// random and called so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "kernels/include/backend.h"

namespace foretoken::bench {

// Of the layers that are measured. The default is a 1B-sized Llama.
struct LayerShape {
  std::string name = "layers of a 1B Llama";
  std::int32_t n_hidden = 2048, n_heads = 32, n_kv_heads = 8, head_dim = 64, n_ffn = 8192;
  std::int32_t n_layers = 0;  // at most; 0 = as many as fill weight_bytes
};

struct MicroOptions {
  LayerShape shape = {};
  std::vector<std::int32_t> contexts = {512, 4096};  // of attention; each >= 1
  int n_threads = 0;                                 // 0 = physical cores
  CpuIsa isa = CpuIsa::kAuto;
  std::size_t weight_bytes = std::size_t{560} << 20;  // per dtype; fewer, where the shape has fewer
                                                      // layers, may lie in caches
  // Processor time of the one thread instead of wall time: for machines that others keep busy.
  // Needs n_threads = 1.
  bool processor_time = false;
  int n_rounds = 7;  // everything once per round, medians over rounds
};

struct RowsCost {
  std::int32_t n_rows = 0;
  double milliseconds = 0;  // of one pass over all layers
  double ratio = 0;         // to the pass of one row next to it
};

struct DtypeReport {
  std::string dtype;
  std::int32_t n_layers = 0;
  double weight_gb = 0;        // read by one pass
  double read_gb_s = 0;        // ceiling: all threads, the same memory
  double decode_gb_s = 0;      // plain decoding, one row
  double decode_of_read = 0;   // median of ratios to the adjacent ceiling
  std::vector<RowsCost> rows;  // 2, 5, 9, 16
  double peak_gop_s = 0;       // all threads, from registers
  double prefill_gop_s = 0;    // 512 rows
  double prefill_of_peak = 0;
};

struct AttentionCost {
  std::int32_t n_sequences = 0;
  std::int32_t n_rows = 0;   // of each sequence
  std::int32_t context = 0;  // positions that the last row of each sees
  double milliseconds = 0;   // of one layer
  double gop_s = 0;          // multiplications and additions with keys and values
  double of_peak = 0;        // of all threads, from registers, beside it
};

struct MicroReport {
  std::string machine;
  std::string shape;
  std::string backend;
  std::string numerics;
  double load_average = 0;
  bool processor_time = false;
  double read_1_gb_s = 0;                              // one thread
  double read_all_gb_s = 0;                            // all threads
  double choose_greedy_us = 0, choose_sampled_us = 0;  // one row of 128256
  double seconds = 0;
  std::vector<DtypeReport> dtypes;
  std::vector<AttentionCost> attention;

  OrderedJson to_json() const;
  std::string to_table() const;
};

MicroReport run_micro(const MicroOptions& options);

}  // namespace foretoken::bench
