#include "bench/micro.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "bench/micro_attention.h"
#include "bench/probe.h"
#include "bench/timing.h"
#include "common/base/result.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/include/numerics.h"

namespace foretoken::bench {
namespace {

constexpr std::int32_t kMostRows = 512;

struct Layer {
  Linear qkv, out, gate_up, down;
};

// What weights are held in. group and kind: of int4.
struct WeightType {
  DType dtype = DType::kF32;
  std::int64_t group = 0;
  Int4Kind kind = Int4Kind::kOffset;
};

// Rows of four-bit weights: codes from a pool of random bytes, all scales and zero points alike.
class Int4Rows final : public RowReader {
 public:
  Int4Rows(std::span<const std::byte> pool, std::int64_t n_in, const WeightType& type)
      : pool_(pool), n_in_(n_in), type_(type) {}
  void read(std::int64_t first, std::int64_t n, std::byte* to, float* scales) const override {
    const std::int64_t bytes = row_bytes(DType::kI4, n_in_, type_.group, type_.kind);
    for (std::int64_t r = 0; r < n; ++r, to += bytes) scales[r] = read_row(first + r, to);
  }

 private:
  float read_row(std::int64_t row, std::byte* to) const {
    const std::int64_t n = int4_code_bytes(n_in_, type_.group),
                       n_groups = int4_groups_of(n_in_, type_.group);
    const auto room = static_cast<std::int64_t>(pool_.size()) - n;
    std::copy_n(pool_.data() + row * 4096 % room, n, to);
    const std::uint16_t scale = f32_to_f16(0.0025f);
    for (std::int64_t g = 0; g < n_groups; ++g) std::memcpy(to + n + g * 2, &scale, sizeof scale);
    if (type_.kind == Int4Kind::kZeroPoints)
      std::fill_n(to + n + n_groups * 2, n_groups, std::byte{7});
    return 1;
  }

  std::span<const std::byte> pool_;
  std::int64_t n_in_;
  WeightType type_;
};

class Stack {
 public:
  Stack(Backend& backend, const LayerShape& shape, const WeightType& type, std::size_t weight_bytes)
      : backend_(backend), shape_(shape), type_(type) {
    fill_random_rows();
    const std::int64_t n_hidden = shape.n_hidden, n_ffn = shape.n_ffn;
    do {
      layers_.push_back({pack({n_qkv()}, n_hidden), pack({n_hidden}, n_query()),
                         pack({n_ffn, n_ffn}, n_hidden, Stacking::kGateUp),
                         pack({n_hidden}, n_ffn)});
      for (const Linear* linear : linears(layers_.back())) bytes_ += linear->weights.size_bytes();
    } while (bytes_ < weight_bytes && (shape.n_layers == 0 || n_layers() < shape.n_layers));
    raw_ = {};
    const auto floats = [&](std::int64_t n) {
      return backend.allocate(static_cast<std::size_t>(n) * sizeof(float));
    };
    hidden_ = floats(kMostRows * n_hidden);
    q_ = floats(kMostRows * n_query());
    ffn_ = floats(kMostRows * n_ffn);
    ones_ = floats(std::max<std::int64_t>(n_hidden, kMostRows * shape.head_dim / 2));
    std::fill_n(ones_.as<float>(), ones_.size_bytes() / sizeof(float), 1.0f);
    positions_ = floats(kMostRows);
    kv_ = {{DType::kBf16, 1, shape.n_kv_heads, shape.head_dim, 16}, nullptr, kMostRows / 16};
    blocks_ = backend.allocate(kv_.geometry.block_bytes() * static_cast<std::size_t>(kv_.n_blocks));
    kv_.blocks = blocks_.as<std::byte>();
    for (std::int32_t i = 0; i < kMostRows; ++i) positions_.as<std::int32_t>()[i] = i;
  }

  std::size_t bytes() const { return bytes_; }
  std::int32_t n_layers() const { return static_cast<std::int32_t>(layers_.size()); }
  const std::vector<Layer>& layers() const { return layers_; }
  static std::vector<const Linear*> linears(const Layer& l) {
    return {&l.qkv, &l.out, &l.gate_up, &l.down};
  }

  // Every matrix of the first n_layers, attention left out.
  void pass(std::int32_t n_rows, std::int32_t n_layers) {
    std::fill_n(hidden_.as<float>(), std::int64_t{n_rows} * shape_.n_hidden, 0.5f);
    for (std::int32_t i = 0; i < n_layers; ++i) {
      const Layer& layer = layers_[static_cast<std::size_t>(i)];
      backend_.qkv_rope_append({.hidden = hidden_.as<float>(),
                                .n_rows = n_rows,
                                .norm = ones_.as<float>(),
                                .norm_eps = 1e-5f,
                                .qkv = &layer.qkv,
                                .n_heads = shape_.n_heads,
                                .rope_cos = ones_.as<float>(),
                                .rope_sin = ones_.as<float>(),
                                .n_positions = kMostRows,
                                .positions = positions_.as<std::int32_t>(),
                                .slots = positions_.as<std::int32_t>(),
                                .kv = kv_,
                                .layer = 0,
                                .q = q_.as<float>()});
      backend_.matmul_residual({.x = q_.as<float>(),
                                .n_rows = n_rows,
                                .weight = &layer.out,
                                .residual = hidden_.as<float>()});
      backend_.gate_up_swiglu({.hidden = hidden_.as<float>(),
                               .n_rows = n_rows,
                               .norm = ones_.as<float>(),
                               .norm_eps = 1e-5f,
                               .gate_up = &layer.gate_up,
                               .out = ffn_.as<float>()});
      backend_.matmul_residual({.x = ffn_.as<float>(),
                                .n_rows = n_rows,
                                .weight = &layer.down,
                                .residual = hidden_.as<float>()});
    }
  }
  double operations_per_row() const {
    return 2.0 * shape_.n_hidden * static_cast<double>(n_qkv() + n_query() + 3 * shape_.n_ffn);
  }

 private:
  std::int64_t n_query() const { return std::int64_t{shape_.n_heads} * shape_.head_dim; }
  std::int64_t n_qkv() const {
    return n_query() + std::int64_t{2} * shape_.n_kv_heads * shape_.head_dim;
  }
  // One pool of random numbers serves all matrices: contents do not matter, sizes do.
  void fill_random_rows() {
    std::int64_t most_bytes = 0, most_outs = 0;
    for (const auto& [n_out, n_in] :
         {std::pair{n_qkv(), std::int64_t{shape_.n_hidden}},
          {std::int64_t{shape_.n_hidden}, n_query()},
          {std::int64_t{shape_.n_ffn}, std::int64_t{shape_.n_hidden}},
          {std::int64_t{shape_.n_hidden}, std::int64_t{shape_.n_ffn}}}) {
      most_bytes =
          std::max(most_bytes, n_out * row_bytes(type_.dtype, n_in, type_.group, type_.kind));
      most_outs = std::max(most_outs, n_out);
    }
    raw_.resize(static_cast<std::size_t>(most_bytes));
    std::mt19937 rng(1);
    std::uniform_real_distribution<float> uniform(-0.02f, 0.02f);
    std::vector<std::uint16_t> some(65536);
    for (std::uint16_t& x : some)
      x = type_.dtype == DType::kBf16 ? f32_to_bf16(uniform(rng))
                                      : static_cast<std::uint16_t>(rng());
    for (std::size_t i = 0; i < raw_.size(); ++i)
      raw_[i] = reinterpret_cast<const std::byte*>(some.data())[i % (some.size() * 2)];
    scales_.assign(static_cast<std::size_t>(most_outs), 1e-4f);
  }
  Linear pack(const std::vector<std::int64_t>& outs,
              std::int64_t n_in,
              Stacking stacking = Stacking::kRows) {
    const Int4Rows rows(raw_, n_in, type_);
    std::vector<LinearSource> sources;
    for (const std::int64_t n : outs) {
      sources.push_back({.dtype = type_.dtype,
                         .n_out = n,
                         .n_in = n_in,
                         .group = type_.group,
                         .kind = type_.kind});
      LinearSource& source = sources.back();
      if (type_.dtype == DType::kI4) {
        source.rows = &rows;
        continue;
      }
      source.data = raw_.data();
      if (is_quantised(type_.dtype)) source.scales = scales_.data();
    }
    return backend_.pack(sources, stacking);
  }

  Backend& backend_;
  LayerShape shape_;
  WeightType type_;
  std::vector<std::byte> raw_;
  std::vector<float> scales_;
  std::vector<Layer> layers_;
  std::size_t bytes_ = 0;
  Buffer hidden_, q_, ffn_, ones_, positions_, blocks_;
  PagedKv kv_;
};

// The very memory that decoding reads, read and added up: every member takes its share of each
// matrix.
double read_gb_s(const Stack& stack, const Probe& probe, cpu::Team& team) {
  const double seconds = seconds_of([&] {
    for (const Layer& layer : stack.layers())
      for (const Linear* linear : Stack::linears(layer))
        team.run([&](int member) {
          const cpu::Share share = cpu::share_of(
              static_cast<std::int64_t>(linear->weights.size_bytes() / 4096), member, team.size());
          volatile float kept =
              probe.read(linear->weights.as<std::byte>() + share.begin * 4096,
                         static_cast<std::size_t>(share.end - share.begin) * 4096);
          (void)kept;
        });
  });
  return static_cast<double>(stack.bytes()) / seconds / 1e9;
}

DtypeReport measure(Backend& backend,
                    const WeightType& type,
                    const MicroOptions& options,
                    const Probe& probe,
                    cpu::Team& team,
                    cpu::Team& one,
                    std::vector<double>& read_1,
                    std::vector<double>& read_all) {
  Stack stack(backend, options.shape, type, options.weight_bytes);
  DtypeReport report;
  report.dtype = weight_type_name(type.dtype, type.group, type.kind);
  report.n_layers = stack.n_layers();
  report.weight_gb = static_cast<double>(stack.bytes()) / 1e9;
  const std::int32_t many[] = {2, 5, 9, 16};
  std::vector<double> reads, decodes, fractions, peaks, prefills, shares;
  std::vector<std::vector<double>> times(4), ratios(4);
  stack.pass(1, stack.n_layers());
  stack.pass(kMostRows, 1);
  for (int round = 0; round < options.n_rounds; ++round) {
    read_1.push_back(read_gb_s(stack, probe, one));
    const double before = read_gb_s(stack, probe, team);
    const double single = seconds_of([&] { stack.pass(1, stack.n_layers()); });
    const double after = read_gb_s(stack, probe, team);
    const double ceiling = (before + after) / 2;
    reads.push_back(ceiling);
    read_all.push_back(ceiling);
    decodes.push_back(report.weight_gb / single);
    fractions.push_back(report.weight_gb / single / ceiling);
    for (std::size_t i = 0; i < 4; ++i) {
      const double first = seconds_of([&] { stack.pass(1, stack.n_layers()); });
      const double several = seconds_of([&] { stack.pass(many[i], stack.n_layers()); });
      const double second = seconds_of([&] { stack.pass(1, stack.n_layers()); });
      times[i].push_back(several * 1e3);
      ratios[i].push_back(several / ((first + second) / 2));
    }
    const auto peak_of = is_quantised(type.dtype)     ? probe.peak_i8
                         : type.dtype == DType::kBf16 ? probe.peak_bf16
                                                      : probe.peak_f32;
    const double peak_before = peak_gop_s(peak_of, team);
    const double prefill = stack.operations_per_row() * kMostRows /
                           seconds_of([&] { stack.pass(kMostRows, 1); }) / 1e9;
    const double peak = (peak_before + peak_gop_s(peak_of, team)) / 2;
    peaks.push_back(peak);
    prefills.push_back(prefill);
    shares.push_back(prefill / peak);
  }
  report.read_gb_s = median(reads);
  report.decode_gb_s = median(decodes);
  report.decode_of_read = median(fractions);
  for (std::size_t i = 0; i < 4; ++i)
    report.rows.push_back({many[i], median(times[i]), median(ratios[i])});
  report.peak_gop_s = median(peaks);
  report.prefill_gop_s = median(prefills);
  report.prefill_of_peak = median(shares);
  return report;
}

double choose_us(Backend& backend, float temperature, int n_rounds) {
  constexpr std::int32_t kVocabulary = 128256;
  std::mt19937 rng(2);
  std::normal_distribution<float> normal(0, 2.5f);
  const Buffer logits = backend.allocate(kVocabulary * sizeof(float));
  for (std::int32_t i = 0; i < kVocabulary; ++i) logits.as<float>()[i] = normal(rng);
  RowRule rule;
  rule.temperature = temperature;
  Choice choice;
  std::vector<double> times;
  for (int i = 0; i < 3 * n_rounds; ++i) {
    rule.position = static_cast<std::uint32_t>(i);
    times.push_back(1e6 * seconds_of([&] {
                      backend.choose({.logits = logits.as<float>(),
                                      .n_rows = 1,
                                      .vocab = kVocabulary,
                                      .n_valid = kVocabulary,
                                      .rules = &rule,
                                      .choices = &choice});
                    }));
  }
  return median(times);
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

}  // namespace

MicroReport run_micro(const MicroOptions& options) {
  if (options.processor_time && options.n_threads != 1)
    throw FatalError(ErrorCode::kConfig,
                     "processor time is that of one thread; ask for one thread");
  MicroReport report;
  std::vector<double> read_1, read_all;
  clock_of_choice = options.processor_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  report.processor_time = options.processor_time;
  report.seconds = seconds_of([&] {
    const auto backend = make_backend(
        {.device = "cpu", .n_threads = options.n_threads, .pin = false, .isa = options.isa});
    report.machine = processor_name();
    report.shape = options.shape.name;
    report.backend = backend->description();
    report.numerics = backend->numerics();
    std::ifstream("/proc/loadavg") >> report.load_average;
    const Probe probe = probe_for(options.isa);
    // "cpu, N threads, ...": the probes use as many.
    const int n_threads = std::max(1, std::atoi(report.backend.c_str() + 5));
    cpu::Team team(n_threads, false), one(1, false);
    const auto add = [&](const WeightType& type) {
      report.dtypes.push_back(measure(*backend, type, options, probe, team, one, read_1, read_all));
    };
    add({DType::kBf16});
    add({DType::kI8});
    for (const std::int64_t group : kInt4Groups) add({DType::kI4, group});
    add({DType::kI4, 128, Int4Kind::kZeroPoints});
    add({DType::kI4, 32, Int4Kind::kE2m1});
    for (const std::int64_t group : {32, 128}) add({DType::kI4, group, Int4Kind::kNonUniform});
    report.attention = measure_attention(*backend, options, probe, team);
    report.choose_greedy_us = choose_us(*backend, 0, options.n_rounds);
    report.choose_sampled_us = choose_us(*backend, 0.8f, options.n_rounds);
  });
  report.read_1_gb_s = median(read_1);
  report.read_all_gb_s = median(read_all);
  return report;
}

Probe probe_for(CpuIsa isa) {
#if defined(FORETOKEN_X86)
  if ((isa == CpuIsa::kAuto || isa == CpuIsa::kAmx) && cpu::machine_has(CpuIsa::kAmx))
    return probe_amx();
  if ((isa == CpuIsa::kAuto || isa == CpuIsa::kAvx512Bf16) && cpu::machine_has(CpuIsa::kAvx512Bf16))
    return probe_avx512_bf16();
  if (isa != CpuIsa::kScalar && isa != CpuIsa::kAvx2 && cpu::machine_has(CpuIsa::kAvx512))
    return probe_avx512();
  if (isa != CpuIsa::kScalar && cpu::machine_has(CpuIsa::kAvx2)) return probe_avx2();
#endif
  (void)isa;
  return probe_scalar();
}

}  // namespace foretoken::bench
