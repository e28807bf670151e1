// model quantize: a folder with its linears in eight or four bits, and what that did to size and
// logits.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/config/resolve.h"
#include "common/model/head_ids.h"
#include "common/model/input_squares.h"
#include "common/model/pair.h"
#include "common/model/quantize.h"
#include "kernels/include/backend.h"
#include "services/cli/model_logits.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

std::string mib(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1u << 20));
  return text;
}

// What can be said about the two paths before anything is read. Throws FatalError(kConfig).
void refuse_output(const std::string& source, const std::string& out) {
  const auto refuse = [](const std::string& why) { throw FatalError(ErrorCode::kConfig, why); };
  std::error_code error;
  const auto status = std::filesystem::symlink_status(out, error);
  if (std::filesystem::is_symlink(status) && !std::filesystem::exists(out, error))
    refuse(out + " is a link to something that does not exist; give a new name");
  if (std::filesystem::exists(status)) refuse(out + " exists already");
  const auto from = std::filesystem::weakly_canonical(source, error),
             to = std::filesystem::weakly_canonical(out, error);
  const auto [end, ignored] = std::mismatch(from.begin(), from.end(), to.begin(), to.end());
  if (end == from.end()) refuse(out + " lies inside the folder it is made from, " + source);
}

QuantizeOptions quantize_options(const ModelOptions& m) {
  QuantizeOptions quantize{.to = m.to == "int8"   ? DType::kI8
                                 : m.to == "int4" ? DType::kI4
                                                  : DType::kF8E4M3,
                           .with_down_projections = m.down_proj,
                           .with_lm_head = m.lm_head};
  if (m.down_proj && quantize.to != DType::kI4)
    throw FatalError(ErrorCode::kConfig,
                     "--down-proj is of int4; " + m.to + " takes the down projections anyway");
  if (!m.calibrate.empty() && quantize.to != DType::kI4)
    throw FatalError(ErrorCode::kConfig, "--calibrate is of int4; " + m.to +
                                             " has one scale for a row, its largest value");
  if (m.group.empty()) return quantize;
  if (quantize.to != DType::kI4)
    throw FatalError(ErrorCode::kConfig,
                     "--group is of int4; " + m.to + " has a scale for each row");
  quantize.group = std::stoi(m.group);
  return quantize;
}

// All that is known before the folder is written.
struct QuantizePlan {
  std::string source;
  std::string out;
  QuantizeOptions how;
  MemoryEstimate before;
  std::vector<TokenId> sample;       // what the logits are compared on
  std::vector<TokenId> calibration;  // that scales are chosen for; none: for the weights alone
};

struct QuantizeReport {
  QuantizeResult written;
  MemoryEstimate after;
  std::optional<LogitComparison> comparison;
};

// Reads all texts, so that a wrong name fails before an hour of writing.
QuantizePlan quantize_plan(const ModelOptions& m,
                           const std::string& source,
                           const ModelInfo& info) {
  if (!m.compare && !m.text.empty())
    throw FatalError(ErrorCode::kConfig,
                     "--text is what is compared on, and --no-compare compares nothing");
  QuantizePlan plan{.source = source,
                    .out = m.other,
                    .how = quantize_options(m),
                    .before = estimate_memory(info, {}),
                    .sample = {},
                    .calibration = {}};
  if (m.compare && !info.config.quantized.any()) plan.sample = sample_tokens(source, m.text);
  if (!m.calibrate.empty()) plan.calibration = calibration_tokens(source, m.calibrate);
  return plan;
}

enum class ProgressBar : std::uint8_t { kSilent, kShown };

QuantizeResult write_quantized(const QuantizePlan& plan, ProgressBar bar) {
  QuantizeOptions how = plan.how;
  if (!plan.calibration.empty())
    how.measure_inputs = [&plan] {
      return mean_squared_inputs(plan.source, *make_backend({}), plan.calibration);
    };
  if (bar == ProgressBar::kShown)
    how.on_progress = [](std::uint64_t done, std::uint64_t total) {
      std::fprintf(stderr, "\rquantising, %3.0f %%",
                   100.0 * static_cast<double>(done) / static_cast<double>(total));
    };
  const QuantizeResult result = quantize_model(plan.source, plan.out, how);
  if (bar == ProgressBar::kShown) std::fprintf(stderr, "\r\x1b[K");
  return result;
}

// Of the written folder with its source. An error states that the folder is there.
LogitComparison comparison_of(const QuantizePlan& plan) {
  try {
    return compare_logits_of(plan.source, plan.out, plan.how.to, plan.sample);
  } catch (const FatalError& error) {
    throw FatalError(error.code(),
                     plan.out + " is written, but cannot be compared: " + error.what());
  }
}

void print_json(const ModelOptions& m, const QuantizePlan& plan, const QuantizeReport& report) {
  OrderedJson json{{"schema", "foretoken.model_quantize/1"},
                   {"folder", m.other},
                   {"to", m.to},
                   {"matrices", report.written.n_quantised},
                   {"file_bytes_before", report.written.bytes_before},
                   {"file_bytes_after", report.written.bytes_after},
                   {"weight_bytes_before", plan.before.weight_bytes},
                   {"weight_bytes_after", report.after.weight_bytes}};
  if (!plan.calibration.empty()) json["calibration_tokens"] = plan.calibration.size();
  if (report.comparison) json["logits"] = as_json(*report.comparison);
  std::cout << to_text(json, 2) << "\n";
}

void print_report(const ModelOptions& m, const QuantizePlan& plan, const QuantizeReport& report) {
  const QuantizeResult& written = report.written;
  std::cout << "wrote " << m.other << ": " << written.n_quantised << " matrices in " << m.to;
  if (plan.how.to == DType::kI4 && written.n_in_8_bits > 0)
    std::cout << ", " << written.n_in_8_bits << " of them in int8";
  if (!plan.calibration.empty())
    std::cout << ", scales chosen for " << plan.calibration.size() << " tokens of " << m.calibrate;
  std::cout << "\n  files " << mib(written.bytes_before) << " -> " << mib(written.bytes_after)
            << ", weights in memory " << mib(plan.before.weight_bytes) << " -> "
            << mib(report.after.weight_bytes);
  std::printf(" (%.2f)\n", static_cast<double>(report.after.weight_bytes) /
                               static_cast<double>(plan.before.weight_bytes));
  if (report.comparison) std::cout << "  " << sentence_of(*report.comparison) << "\n";
}

}  // namespace

int run_model_quantize(const CliOptions& options) {
  const ModelOptions& m = options.model;
  const std::string source = model_folder(m.folder, "target");
  refuse_output(source, m.other);
  ModelInfo info;
  try {
    info = inspect_model(source);
    if (m.compare)
      refuse_trimmed_head(info.config, source, "a comparison (--no-compare goes without)");
  } catch (const FatalError& error) {
    return report_error({error.code(), error.what()}), kExitModel;
  }
  if (m.lm_head && info.config.tie_word_embeddings)
    std::cerr << "warning: --lm-head: the head is the embedding (tie_word_embeddings), which stays "
                 "as it is\n";
  const QuantizePlan plan = quantize_plan(m, source, info);
  const bool shows = stderr_is_terminal() && !options.output.quiet;
  QuantizeReport report;
  report.written = write_quantized(plan, shows ? ProgressBar::kShown : ProgressBar::kSilent);
  report.after = estimate_memory(inspect_model(m.other), {});
  if (m.compare) report.comparison = comparison_of(plan);
  if (options.output.json)
    print_json(m, plan, report);
  else
    print_report(m, plan, report);
  return kExitOk;
}

}  // namespace foretoken::cli
