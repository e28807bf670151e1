#include "bench/gpu/report.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "bench/gpu/step.h"
#include "common/base/result.h"

namespace foretoken::bench {
namespace {

constexpr CudaPath kPaths[] = {CudaPath::kSimple, CudaPath::kRing, CudaPath::kRingOverlap,
                               CudaPath::kRingPrefetch};
constexpr const char* kPathNames[] = {"simple", "ring", "ring_overlap", "ring_prefetch"};
constexpr int kRows[] = {1, 2, 4, 8, 11, 16};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Bench {
 public:
  Bench(const GpuOptions& options, const std::function<void(const Report&)>& after_row)
      : options_(options), after_row_(after_row), end_(now() + options.seconds) {
    for (std::size_t i = 0; i < std::size(kPaths); ++i) {
      try {
        backends_.push_back(options.backend(kPaths[i]));
      } catch (const FatalError& error) {
        if (i == 0 || error.code() != ErrorCode::kConfig) throw;  // older devices have no ring
        report_.not_run.push_back(std::string("path ") + kPathNames[i] + ": " + error.what());
        break;
      }
    }
    report_.device = plain().description();
  }

  Report run() {
    measure_copy();
    for (const DType dtype : {DType::kBf16, DType::kF8E4M3}) check_equality(dtype);
    for (const Model& model : models(options_.small))
      for (const DType dtype : {DType::kBf16, DType::kF8E4M3}) {
        if (model.n_layers >= 80 && dtype == DType::kBf16) continue;  // fits no device
        measure_matrices(model, dtype);
      }
    for (const Model& model : models(options_.small))
      for (const DType dtype : {DType::kF8E4M3, DType::kBf16}) {
        if (model.n_layers >= 80 && dtype == DType::kBf16) continue;
        measure_step(model, dtype);
      }
    return std::move(report_);
  }

 private:
  Backend& plain() { return *backends_.front(); }
  bool late(const std::string& what) {
    if (now() < end_) return false;
    report_.not_run.push_back(what);
    return true;
  }

  // Seconds of `calls`, recorded and replayed: median and (slowest - fastest) / median of rounds.
  std::pair<double, double> time_recording(Backend& backend, const std::function<void()>& calls) {
    constexpr int kRounds = 7;
    const auto recording = backend.record(calls);
    backend.replay(*recording);
    backend.synchronize();
    std::vector<double> seconds;
    for (int i = 0; i < kRounds; ++i) {
      const double begin = now();
      backend.replay(*recording);
      backend.synchronize();
      seconds.push_back(now() - begin);
    }
    std::sort(seconds.begin(), seconds.end());
    return {seconds[kRounds / 2], (seconds.back() - seconds.front()) / seconds[kRounds / 2]};
  }

  void measure_copy() {
    const std::size_t bytes = options_.small ? std::size_t{1} << 20 : std::size_t{1} << 30;
    constexpr int kTimes = 10;
    const Buffer from = plain().allocate(bytes), to = plain().allocate(bytes);
    const double seconds = time_recording(plain(), [&] {
                             for (int i = 0; i < kTimes; ++i)
                               plain().copy(to.as<std::byte>(), from.as<std::byte>(), bytes);
                           }).first;
    report_.copy_gigabytes_per_second = 2.0 * kTimes * static_cast<double>(bytes) / seconds / 1e9;
  }

  void add_row(Row row, double bytes) {
    row.gigabytes_per_second = bytes / row.microseconds / 1e3;
    row.share_of_copy = row.gigabytes_per_second / report_.copy_gigabytes_per_second;
    report_.rows.push_back(std::move(row));
    after_row_(report_);
  }

  // A text of a small model: on every path, with and without recordings, in passes of 1 and of 11
  // rows.
  void check_equality(DType dtype) {
    static constexpr Model kSmall{"small", 4, 1024, 2816, 16, 4, 64, 8000};
    static constexpr Model kTiny{"tiny", 2, 128, 200, 4, 2, 32, 300};
    const Model& model = options_.small ? kTiny : kSmall;
    constexpr int kBlock = 11;
    const int n_steps = options_.small ? 2 * kBlock : 200;
    Step step(plain(), model, dtype, n_steps + Step::kMaxRows);
    const auto text = [&](Backend& backend, bool recorded) {
      std::vector<std::int32_t> ids = {1};
      std::vector<float> logits;
      const auto recording = recorded ? backend.record([&] { step.run(backend, 1); }) : nullptr;
      for (int i = 0; i < n_steps; ++i) {
        step.set_rows({ids.back()}, i);
        if (recorded)
          backend.replay(*recording);
        else
          step.run(backend, 1);
        backend.synchronize();
        ids.push_back(step.tokens(1).front());
        const std::vector<float> row = step.logits(1);
        logits.insert(logits.end(), row.begin(), row.end());
      }
      return std::pair{ids, logits};
    };
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    const auto [ids, logits] = text(plain(), false);
    const std::string name = dtype_name(dtype);
    const std::size_t n_different = static_cast<std::size_t>(
        std::count_if(ids.begin(), ids.end(), [&](std::int32_t id) { return id != ids.back(); }));
    report_.checks.push_back(
        {name + ": the text is not one token again and again", n_different > ids.size() / 2});
    for (std::size_t p = 0; p < backends_.size(); ++p) {
      for (const bool recorded : {false, true}) {
        const auto [other_ids, other_logits] = text(*backends_[p], recorded);
        report_.checks.push_back({name + ": " + std::to_string(n_steps) + " steps on path " +
                                      kPathNames[p] + (recorded ? ", recorded" : "") +
                                      " have the bits of simple calls",
                                  other_ids == ids && same(other_logits, logits)});
      }
      std::vector<float> verified;
      for (int i = 0; i + kBlock <= n_steps; i += kBlock) {
        step.set_rows({ids.begin() + i, ids.begin() + i + kBlock}, i);
        step.run(*backends_[p], kBlock);
        backends_[p]->synchronize();
        const std::vector<float> rows = step.logits(kBlock);
        verified.insert(verified.end(), rows.begin(), rows.end());
      }
      report_.checks.push_back(
          {name + ": rows verified 11 at a time on path " + kPathNames[p] +
               " have the bits of single rows",
           same(verified,
                {logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(verified.size())})});
    }
    after_row_(report_);
  }

  void measure_matrices(const Model& model, DType dtype) {
    for (const Matrix& matrix : matrices_of(model)) {
      const std::string what = std::string(model.name) + " " + matrix.name;
      if (late(what + " " + dtype_name(dtype))) continue;
      std::vector<Linear> copies;
      copies.push_back(synthetic_linear(plain(), dtype, matrix, 5));
      const auto bytes = static_cast<double>(copies.front().weights.size_bytes());
      const double wanted = options_.small ? 1e6 : 1.2e9;  // more than any L2 holds
      while (static_cast<double>(copies.size()) * bytes < wanted || copies.size() < 2)
        copies.push_back(copy_of(plain(), copies.front()));
      plain().synchronize();
      const std::int64_t n_out = matrix.gate_up ? matrix.n_out / 2 : matrix.n_out;
      const auto floats = [&](std::int64_t n) {
        return plain().allocate(static_cast<std::size_t>(n) * sizeof(float));
      };
      const Buffer x = floats(16 * matrix.n_in), out = floats(16 * n_out),
                   norm = floats(matrix.n_in), squares = floats(16 * squares_per_row(matrix.n_in));
      std::vector<float> values(static_cast<std::size_t>(16 * matrix.n_in));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(i * 2654435761u % 1000) / 500 - 1;
      plain().upload(x.as<float>(), values.data(), values.size() * sizeof(float));
      plain().upload(norm.as<float>(), values.data(),
                     static_cast<std::size_t>(matrix.n_in) * sizeof(float));
      const std::vector<float> thirds(squares.size_bytes() / sizeof(float), kSquaresPiece / 3.0f);
      plain().upload(squares.as<float>(), thirds.data(), squares.size_bytes());
      plain().synchronize();
      for (std::size_t p = 0; p < backends_.size(); ++p)
        for (const int n_rows : kRows) {
          Backend& b = *backends_[p];
          const auto [seconds, spread] = time_recording(b, [&] {
            for (std::size_t i = 0; i < copies.size(); ++i) {
              const Linear &weight = copies[i], &next = copies[(i + 1) % copies.size()];
              if (matrix.gate_up)
                b.gate_up_swiglu({.hidden = x.as<float>(),
                                  .n_rows = n_rows,
                                  .norm = norm.as<float>(),
                                  .norm_eps = 1e-5f,
                                  .gate_up = &weight,
                                  .out = out.as<float>(),
                                  .squares = squares.as<float>(),
                                  .next = &next});
              else
                b.matmul_residual({.x = x.as<float>(),
                                   .n_rows = n_rows,
                                   .weight = &weight,
                                   .residual = out.as<float>(),
                                   .partial = out.as<float>(),
                                   .next = &next});
            }
          });
          add_row({what, dtype_name(dtype), kPathNames[p], n_rows,
                   seconds / static_cast<double>(copies.size()) * 1e6, spread},
                  bytes);
        }
    }
  }

  void measure_step(const Model& model, DType dtype) {
    const std::string what = std::string("step ") + model.name;
    if (late(what + " " + dtype_name(dtype))) return;
    const std::int32_t context = options_.small ? 40 : 1024;
    try {
      Step step(plain(), model, dtype, context);
      for (std::size_t p = 0; p < backends_.size(); ++p)
        for (const int n_rows : {1, 11}) {
          step.set_rows(std::vector<std::int32_t>(static_cast<std::size_t>(n_rows), 3), context);
          const auto [seconds, spread] =
              time_recording(*backends_[p], [&] { step.run(*backends_[p], n_rows); });
          add_row({what, dtype_name(dtype), kPathNames[p], n_rows, seconds * 1e6, spread},
                  static_cast<double>(step.weight_bytes()));
        }
    } catch (const FatalError& error) {
      if (error.code() != ErrorCode::kOutOfMemory) throw;
      report_.not_run.push_back(what + " " + dtype_name(dtype) + ": " + error.what());
    }
  }

  GpuOptions options_;
  std::function<void(const Report&)> after_row_;
  double end_;
  std::vector<std::unique_ptr<Backend>> backends_;
  Report report_;
};

}  // namespace

Report measure(const GpuOptions& options, const std::function<void(const Report&)>& after_row) {
  return Bench(options, after_row).run();
}

}  // namespace foretoken::bench
