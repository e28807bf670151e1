#include <cmath>
#include <cstdio>
#include <utility>

#include "bench/micro.h"
#include "common/base/json.h"

namespace foretoken::bench {
namespace {

template <class... Values>
std::string print(const char* format, Values... values) {
  char line[512];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

// As many digits as the measurement is worth.
double rounded(double x, int decimals) {
  const double scale = std::pow(10, decimals);
  return std::round(x * scale) / scale;
}

OrderedJson json_of(const DtypeReport& d) {
  OrderedJson rows = OrderedJson::array();
  for (const RowsCost& r : d.rows)
    rows.push_back(
        {{"n_rows", r.n_rows}, {"ms", rounded(r.milliseconds, 2)}, {"ratio", rounded(r.ratio, 3)}});
  return {{"dtype", d.dtype},
          {"n_layers", d.n_layers},
          {"weight_gb", rounded(d.weight_gb, 3)},
          {"read_gb_s", rounded(d.read_gb_s, 2)},
          {"decode_gb_s", rounded(d.decode_gb_s, 2)},
          {"decode_of_read", rounded(d.decode_of_read, 3)},
          {"rows", std::move(rows)},
          {"peak_gop_s", rounded(d.peak_gop_s, 0)},
          {"prefill_gop_s", rounded(d.prefill_gop_s, 0)},
          {"prefill_of_peak", rounded(d.prefill_of_peak, 3)}};
}

OrderedJson json_of(const AttentionCost& a) {
  return {{"n_sequences", a.n_sequences}, {"n_rows", a.n_rows},
          {"context", a.context},         {"ms", rounded(a.milliseconds, 3)},
          {"gop_s", rounded(a.gop_s, 1)}, {"of_peak", rounded(a.of_peak, 3)}};
}

}  // namespace

OrderedJson MicroReport::to_json() const {
  OrderedJson out = {{"schema", "foretoken.bench_micro/1"},
                     {"machine", machine},
                     {"shape", shape},
                     {"backend", backend},
                     {"numerics", numerics},
                     {"load_average", rounded(load_average, 2)},
                     {"read_1_gb_s", rounded(read_1_gb_s, 2)},
                     {"read_all_gb_s", rounded(read_all_gb_s, 2)},
                     {"choose_greedy_us", rounded(choose_greedy_us, 1)},
                     {"choose_sampled_us", rounded(choose_sampled_us, 1)},
                     {"seconds", rounded(seconds, 1)},
                     {"clock", processor_time ? "processor" : "wall"},
                     {"weights", "random"},
                     {"dtypes", OrderedJson::array()}};
  for (const DtypeReport& d : dtypes) out["dtypes"].push_back(json_of(d));
  out["attention"] = OrderedJson::array();
  for (const AttentionCost& a : attention) out["attention"].push_back(json_of(a));
  return out;
}

std::string MicroReport::to_table() const {
  std::string out =
      print("%s\n%s (%s), load average %.1f at the start\n%s, random weights; medians%s\n",
            machine.c_str(), backend.c_str(), numerics.c_str(), load_average, shape.c_str(),
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
  for (const AttentionCost& a : attention)
    out +=
        print("attention, %d x %3d rows of %4d  %7.3f ms a layer, %5.1f Gop/s = %.0f %% of f32\n",
              a.n_sequences, a.n_rows, a.context, a.milliseconds, a.gop_s, 100 * a.of_peak);
  out += print("choose, 128256 ids      %7.0f us greedy, %.0f us sampled\n", choose_greedy_us,
               choose_sampled_us);
  return out + print("took %.1f s\n", seconds);
}

}  // namespace foretoken::bench
