#include "bench/gpu/report.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "bench/gpu/iterate.h"
#include "bench/gpu/step.h"
#include "common/base/result.h"

namespace foretoken::bench {
namespace {

constexpr CudaPath kPaths[] = {CudaPath::kSimple, CudaPath::kRing, CudaPath::kRingOverlap,
                               CudaPath::kRingPrefetch};
constexpr const char* kPathNames[] = {"simple", "ring", "ring_overlap", "ring_prefetch"};
constexpr int kRows[] = {1, 2, 4, 8, 11, 16};

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Bench {
 public:
  Bench(const GpuOptions& options, const std::function<void(const Report&)>& after_row)
      : options_(options), after_row_(after_row), end_(now_s() + options.seconds) {
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

  // Steps before products: they are what the goals speak of.
  Report run() {
    section("copy", 10, [&] { measure_copy(); });
    for (const DType dtype : {DType::kBf16, DType::kF8E4M3})
      section(std::string("equality ") + dtype_name(dtype), 40, [&] { check_equality(dtype); });
    for (const Model& model : models(options_.small))
      for (const DType dtype : {DType::kF8E4M3, DType::kBf16}) {
        if (model.n_layers >= 80 && dtype == DType::kBf16) continue;  // fits no device
        section(name_of(model, dtype), model.n_layers >= 80 ? 90 : 30,
                [&] { measure_model(model, dtype); });
      }
    draft_ = nullptr;
    for (const Model& model : models(options_.small))
      for (const DType dtype : {DType::kF8E4M3, DType::kBf16}) {
        if (model.n_layers >= 80 && dtype == DType::kBf16) continue;
        section("products of " + name_of(model, dtype), 30,
                [&] { measure_matrices(model, dtype); });
      }
    return std::move(report_);
  }

 private:
  Backend& plain() { return *backends_.front(); }
  static std::string name_of(const Model& model, DType dtype) {
    return std::string(model.name) + " " + dtype_name(dtype);
  }
  bool late(const std::string& what) {
    if (now_s() < end_) return false;
    report_.not_run.push_back(what);
    return true;
  }

  // `expected`: seconds it may take on a large device, said so that a reader can foresee the end.
  void section(const std::string& what, int expected, const std::function<void()>& body) {
    const double begin = now_s();
    say("-- " + what + ": about " + std::to_string(expected) + " s of the " +
        std::to_string(static_cast<int>(std::max(0.0, end_ - begin))) + " s left");
    try {
      body();
    } catch (const FatalError& error) {
      if (error.code() != ErrorCode::kOutOfMemory) throw;
      report_.not_run.push_back(what + ": " + error.what());
    }
    report_.sections.push_back({what, now_s() - begin});
  }
  void say(const std::string& line) {
    report_.last_line = line;
    after_row_(report_);
  }

  // Seconds of `calls`, recorded and replayed for about `seconds` a round, at most 200 times:
  // median and (slowest - fastest) / median of rounds.
  std::pair<double, double> time_recording(Backend& backend,
                                           double seconds,
                                           const std::function<void()>& calls) {
    constexpr int kRounds = 5;
    const auto recording = backend.record(calls);
    const auto replay = [&](int n) {
      const double begin = now_s();
      for (int i = 0; i < n; ++i) backend.replay(*recording);
      backend.synchronize();
      return (now_s() - begin) / n;
    };
    replay(1);
    const int n = static_cast<int>(std::clamp(seconds / replay(1), 1.0, 200.0));
    std::vector<double> times;
    for (int i = 0; i < kRounds; ++i) times.push_back(replay(n));
    std::sort(times.begin(), times.end());
    return {times[kRounds / 2], (times.back() - times.front()) / times[kRounds / 2]};
  }

  // Called, not recorded: on an H200 recorded copies reached 2.8 TB/s, called ones 4.3, which is
  // what products reach.
  void measure_copy() {
    const std::size_t bytes = std::size_t{options_.small ? 1u : 2048u} << 20;
    const int n = options_.small ? 2 : 20;
    const Buffer from = plain().allocate(bytes), to = plain().allocate(bytes);
    const auto copies = [&] {
      const double begin = now_s();
      for (int i = 0; i < n; ++i) plain().copy(to.as<std::byte>(), from.as<std::byte>(), bytes);
      plain().synchronize();
      return now_s() - begin;
    };
    copies();
    report_.copy_gigabytes_per_second = 2.0 * n * static_cast<double>(bytes) / copies() / 1e9;
  }

  void add_row(Row row, double bytes) {
    row.gigabytes_per_second = bytes / row.microseconds / 1e3;
    row.share_of_copy = row.gigabytes_per_second / report_.copy_gigabytes_per_second;
    char line[160];
    std::snprintf(line, sizeof line, "%-14s %-12s %-12s %5d %2d rows %10.2f us %7.1f GB/s %5.1f %%",
                  row.what.c_str(), row.dtype.c_str(), row.path.c_str(), row.context, row.n_rows,
                  row.microseconds, row.gigabytes_per_second, 100 * row.share_of_copy);
    report_.rows.push_back(std::move(row));
    say(line);
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
        step.set_rows(backend, {ids.back()}, i);
        if (recorded)
          backend.replay(*recording);
        else
          step.run(backend, 1);
        ids.push_back(step.results(backend).choices[0].token);
        const std::vector<float> row = step.logits(backend, 1);
        logits.insert(logits.end(), row.begin(), row.end());
      }
      return std::pair{ids, logits};
    };
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    const auto first = text(plain(), false);
    const std::vector<std::int32_t>& ids = first.first;
    const std::vector<float>& logits = first.second;
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
        Backend& b = *backends_[p];
        step.set_rows(b, {ids.begin() + i, ids.begin() + i + kBlock}, i);
        step.run(b, kBlock);
        const std::vector<float> rows = step.logits(b, kBlock);
        verified.insert(verified.end(), rows.begin(), rows.end());
      }
      report_.checks.push_back(
          {name + ": rows verified 11 at a time on path " + kPathNames[p] +
               " have the bits of single rows",
           same(verified,
                {logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(verified.size())})});
      report_.checks.push_back({name + ": chains of 10 steps on path " + kPathNames[p] +
                                    ", called and recorded, are what single steps chose",
                                chains_agree(*backends_[p], step, ids, n_steps)});
    }
    say(name + ": " + std::to_string(report_.checks.size()) + " checks so far");
  }

  static bool chains_agree(Backend& b,
                           Step& step,
                           const std::vector<std::int32_t>& ids,
                           int n_steps) {
    constexpr int kSteps = 10;
    bool agree = true;
    const auto recording = b.record([&] { step.chain(b, 1, kSteps, 0); });
    for (int i = 0; i + kSteps <= n_steps; i += kSteps) {
      step.set_rows(b, {ids[static_cast<std::size_t>(i)]}, i);
      if (i % (2 * kSteps) == 0)
        step.chain(b, 1, kSteps, 0);
      else
        b.replay(*recording);
      const Step::Results got = step.results(b);
      agree = agree && got.choices[0].token == ids[static_cast<std::size_t>(i + 1)];
      for (int k = 1; k < kSteps; ++k)
        agree = agree && got.chained[k].token == ids[static_cast<std::size_t>(i + 1 + k)];
    }
    return agree;
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
          const auto [seconds, spread] = time_recording(b, 0.01, [&] {
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
          add_row({what, dtype_name(dtype), kPathNames[p], n_rows, 0,
                   seconds / static_cast<double>(copies.size()) * 1e6, spread},
                  bytes);
        }
    }
  }

  // Steps at every context, then rounds with a draft beside it.
  void measure_model(const Model& model, DType dtype) {
    if (late("step " + name_of(model, dtype))) return;
    const std::span<const std::int32_t> all = contexts(options_.small);
    Step step(plain(), model, dtype, all.back());
    double fastest = 0;
    std::size_t best = 0;
    for (const std::int32_t context : all)
      for (std::size_t p = 0; p < backends_.size(); ++p)
        for (const int n_rows : {1, 11}) {
          Backend& b = *backends_[p];
          step.set_rows(b, std::vector<std::int32_t>(static_cast<std::size_t>(n_rows), 3), context);
          b.synchronize();
          const auto [seconds, spread] =
              time_recording(b, 0.05, [&] { step.run(b, n_rows, context); });
          add_row({std::string("step ") + model.name, dtype_name(dtype), kPathNames[p], n_rows,
                   context, seconds * 1e6, spread},
                  static_cast<double>(step.weight_bytes()));
          if (n_rows == 1 && (fastest == 0 || seconds < fastest)) fastest = seconds, best = p;
        }
    if (model.n_layers <= models(options_.small).front().n_layers && !options_.small) return;
    measure_pair(model, dtype, step, best);
  }

  // The smallest model in eight bits drafts, on the path that was fastest.
  void measure_pair(const Model& model, DType dtype, Step& target, std::size_t path) {
    const Model& small = models(options_.small).front();
    const std::string pair = name_of(model, dtype) + " + " + name_of(small, DType::kF8E4M3);
    if (late("rounds of " + pair)) return;
    const std::span<const std::int32_t> all = contexts(options_.small);
    const std::int32_t context = options_.small ? 0 : all[1];
    if (draft_ == nullptr)
      draft_ = std::make_unique<Step>(plain(), small, DType::kF8E4M3, all.back());
    Backend& b = *backends_[path];
    const std::vector<std::int32_t> kept = plain_text(b, target, context,
                                                      options_.small         ? 30
                                                      : model.n_layers >= 80 ? 60
                                                                             : 200);
    for (const int k : options_.small ? std::vector{2, 5} : std::vector{2, 4, 6, 8, 10})
      for (const double a : {0.6, 0.7, 0.8, 0.9}) {
        if (late("rounds of " + pair + ", K = " + std::to_string(k))) return;
        bool same_text = false;
        Iteration one = measure_rounds(b, target, *draft_, kept, {context, k, a}, same_text);
        one.pair = pair;
        one.path = kPathNames[path];
        report_.checks.push_back({pair + ", K = " + std::to_string(k) + ", made-up acceptance " +
                                      std::to_string(a).substr(0, 3) +
                                      ": the rounds write the plain text",
                                  same_text});
        char line[200];
        std::snprintf(
            line, sizeof line,
            "%s K %d a %.1f (synthetic): %.3f ms = draft %.3f + handoff %.3f + verify %.3f "
            "+ accept %.3f + host %.3f",
            pair.c_str(), k, a, one.milliseconds, one.draft, one.handoff, one.verify, one.accept,
            one.host);
        report_.iterations.push_back(std::move(one));
        say(line);
      }
  }

  GpuOptions options_;
  std::function<void(const Report&)> after_row_;
  double end_;
  std::vector<std::unique_ptr<Backend>> backends_;
  std::unique_ptr<Step> draft_;
  Report report_;
};

}  // namespace

Report measure(const GpuOptions& options, const std::function<void(const Report&)>& after_row) {
  return Bench(options, after_row).run();
}

}  // namespace foretoken::bench
