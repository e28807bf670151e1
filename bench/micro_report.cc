#include <cstdio>

#include "bench/micro.h"

namespace foretoken::bench {
namespace {

template <class... Values>
std::string print(const char* format, Values... values) {
  char line[512];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

// Processor names and the like hold no control characters; quotes and backslashes are escaped all
// the same.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + "\"";
}

}  // namespace

std::string MicroReport::to_json() const {
  std::string out = "{\"machine\": " + quoted(machine) + ", \"backend\": " + quoted(backend) +
                    ", \"numerics\": " + quoted(numerics);
  out += print(", \"load_average\": %.2f, \"read_1_gb_s\": %.2f, \"read_all_gb_s\": %.2f",
               load_average, read_1_gb_s, read_all_gb_s);
  out += print(", \"choose_greedy_us\": %.1f, \"choose_sampled_us\": %.1f, \"seconds\": %.1f",
               choose_greedy_us, choose_sampled_us, seconds);
  out += processor_time ? ", \"clock\": \"processor\"" : ", \"clock\": \"wall\"";
  out += ", \"weights\": \"random\", \"dtypes\": [";
  for (std::size_t i = 0; i < dtypes.size(); ++i) {
    const DtypeReport& d = dtypes[i];
    out += print("%s{\"dtype\": \"%s\", \"n_layers\": %d, \"weight_gb\": %.3f, \"read_gb_s\": %.2f",
                 i > 0 ? ", " : "", d.dtype.c_str(), d.n_layers, d.weight_gb, d.read_gb_s);
    out += print(", \"decode_gb_s\": %.2f, \"decode_of_read\": %.3f, \"rows\": [", d.decode_gb_s,
                 d.decode_of_read);
    for (std::size_t r = 0; r < d.rows.size(); ++r)
      out += print("%s{\"n_rows\": %d, \"ms\": %.2f, \"ratio\": %.3f}", r > 0 ? ", " : "",
                   d.rows[r].n_rows, d.rows[r].milliseconds, d.rows[r].ratio);
    out += print("], \"peak_gop_s\": %.0f, \"prefill_gop_s\": %.0f, \"prefill_of_peak\": %.3f}",
                 d.peak_gop_s, d.prefill_gop_s, d.prefill_of_peak);
  }
  return out + "]}";
}

std::string MicroReport::to_table() const {
  std::string out = print("%s\n%s (%s), load average %.1f at the start; random weights, medians\n",
                          machine.c_str(), backend.c_str(), numerics.c_str(), load_average,
                          processor_time ? " of processor time" : "");
  out += print("read bandwidth          %7.1f GB/s one thread, %.1f GB/s all threads\n",
               read_1_gb_s, read_all_gb_s);
  for (const DtypeReport& d : dtypes) {
    out += print(
        "%-8s decode, 1 row   %7.1f GB/s of %.1f read beside it = %.0f %%  (%.2f GB of weights, %d "
        "layers)\n",
        d.dtype.c_str(), d.decode_gb_s, d.read_gb_s, 100 * d.decode_of_read, d.weight_gb,
        d.n_layers);
    for (const RowsCost& r : d.rows)
      out += print("%-8s pass of %2d rows  %7.2f ms = %.2f x one row\n", d.dtype.c_str(), r.n_rows,
                   r.milliseconds, r.ratio);
    out += print("%-8s prefill, 512    %7.0f Gop/s of %.0f from registers = %.0f %%\n",
                 d.dtype.c_str(), d.prefill_gop_s, d.peak_gop_s, 100 * d.prefill_of_peak);
  }
  out += print("choose, 128256 ids      %7.0f us greedy, %.0f us sampled\n", choose_greedy_us,
               choose_sampled_us);
  return out + print("took %.1f s\n", seconds);
}

}  // namespace foretoken::bench
