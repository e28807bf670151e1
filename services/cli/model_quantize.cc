// model quantize: a folder with its linears in eight bits, and what that did to size and logits.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/config/resolve.h"
#include "common/model/load_model.h"
#include "common/model/pair.h"
#include "common/model/quantize.h"
#include "common/tokenizer/tokenizer.h"
#include "common/wire/msgpack_reader.h"
#include "kernels/include/backend.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

constexpr std::size_t kMostTextBytes = 1u << 20;
constexpr std::size_t kMostSampleTokens = 2048;

// Plain prose, numbers and code: enough positions for a rate, short enough for any model.
constexpr const char* kText =
    R"(The harbour lay quiet before sunrise. Two boats had come in during the night, and their crews slept on deck
between coils of rope and empty crates. By seven the first carts would arrive: 40 boxes for the market, 12 for the
inn, and whatever was left over for the cannery at the end of the pier. Nobody was in a hurry yet.

def mean(values):
    total = 0.0
    for value in values:
        total += value
    return total / len(values) if values else 0.0

Question: a train leaves at 9:15 and arrives at 11:40. How long does the journey take? Answer: from 9:15 to 11:15 are
two hours, from 11:15 to 11:40 are 25 minutes, so the journey takes 2 hours and 25 minutes.

{"name": "lamp", "price": 24.5, "tags": ["light", "desk"], "stock": {"north": 3, "south": 0}}
)";

std::string mib(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1u << 20));
  return text;
}

std::vector<TokenId> sample_tokens(const std::string& folder, const std::string& file) {
  std::string text = kText;
  if (!file.empty()) {
    auto read = read_text_file(file, kMostTextBytes);
    // A mistyped option, and not a model that is missing.
    if (!read.ok()) throw FatalError(ErrorCode::kConfig, "--text: " + read.error().message);
    text = std::move(*read);
    if (text.empty())
      throw FatalError(ErrorCode::kConfig,
                       "--text: " + file + " is empty: there is nothing to compare on");
    if (!wire::is_utf8(text))
      throw FatalError(ErrorCode::kConfig, "--text: " + file + " is not UTF-8");
  }
  const auto tokenizer = value_or_throw(Tokenizer::load(folder, {.patterns = RegexPolicy::kAny}));
  auto tokens = value_or_throw(tokenizer->encode(text, AddSpecialTokens::kYes));
  if (tokens.size() > kMostSampleTokens) tokens.resize(kMostSampleTokens);
  return tokens;
}

// What can be said about the two paths before anything is read. Throws FatalError(kConfig).
void refuse_output(const std::string& source, const std::string& out) {
  const auto refuse = [](const std::string& why) { throw FatalError(ErrorCode::kConfig, why); };
  if (out.empty()) refuse("the output folder is an empty name");
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

struct LogitComparison {
  LogitDifference logits;
  std::string held;  // what the quantised model was computed in
};

// The float folder as it is, the new one as it would be served here; where this device has no
// product of that type, with its weights widened to float32: the error of the weights alone.
LogitComparison compare(const std::string& source,
                        const std::string& folder,
                        DType to,
                        const std::vector<TokenId>& tokens) {
  const auto backend = make_backend({});
  LoadOptions loading;
  loading.max_rows = 64;
  loading.most_model_len = static_cast<std::int64_t>(tokens.size());
  const auto reference = load_model(source, *backend, loading);
  const bool widened = !backend->holds(to);
  if (widened) loading.dtype = WeightDType::kF32;
  const auto other = load_model(folder, *backend, loading);
  const auto n_tokens = static_cast<std::size_t>(reference->config().max_model_len);
  return {compare_logits(*reference, *other, *backend,
                         std::span(tokens).first(std::min(n_tokens, tokens.size()))),
          widened ? std::string("float32, widened from ") + dtype_name(to) : dtype_name(to)};
}

OrderedJson as_json(const LogitComparison& c) {
  const LogitDifference& d = c.logits;
  return {{"positions", d.n_positions},
          {"same_top", d.n_same_top},
          {"top1_agreement", static_cast<double>(d.n_same_top) / std::max(1u, d.n_positions)},
          {"rms_error", d.rms},
          {"rms_logit", d.rms_reference},
          {"largest_error", d.largest},
          {"mean_kl_nats", d.mean_kl},
          {"computed_in", c.held}};
}

}  // namespace

int run_model_quantize(const CliOptions& options) {
  const ModelOptions& m = options.model;
  const std::string source = model_folder(m.folder, "target");
  refuse_output(source, m.other);
  ModelInfo info;
  try {
    info = inspect_model(source);
  } catch (const FatalError& error) {
    return report_error({error.code(), error.what()}), kExitModel;
  }
  if (!m.compare && !m.text.empty())
    throw FatalError(ErrorCode::kConfig,
                     "--text is what is compared on, and --no-compare compares nothing");
  const MemoryEstimate before = estimate_memory(info, {});
  std::vector<TokenId> sample;  // first: an hour of writing is no time to hear of a mistyped name
  if (m.compare && !info.config.quantized) sample = sample_tokens(source, m.text);
  QuantizeOptions quantize{.to = m.to == "int8" ? DType::kI8 : DType::kF8E4M3,
                           .with_lm_head = m.lm_head};
  const bool shows = stderr_is_terminal() && !options.output.quiet;
  if (shows)
    quantize.on_progress = [](std::uint64_t done, std::uint64_t total) {
      std::fprintf(stderr, "\rquantising, %3.0f %%",
                   100.0 * static_cast<double>(done) / static_cast<double>(total));
    };
  const QuantizeResult result = quantize_model(source, m.other, quantize);
  if (shows) std::fprintf(stderr, "\r\x1b[K");
  const auto after = estimate_memory(inspect_model(m.other), {});
  std::optional<LogitComparison> comparison;
  if (m.compare) comparison = compare(source, m.other, quantize.to, sample);

  const double share =
      static_cast<double>(after.weight_bytes) / static_cast<double>(before.weight_bytes);
  if (options.output.json) {
    OrderedJson json{{"schema", "foretoken.model_quantize/1"},
                     {"folder", m.other},
                     {"to", m.to},
                     {"matrices", result.n_quantised},
                     {"file_bytes_before", result.bytes_before},
                     {"file_bytes_after", result.bytes_after},
                     {"weight_bytes_before", before.weight_bytes},
                     {"weight_bytes_after", after.weight_bytes}};
    if (comparison) json["logits"] = as_json(*comparison);
    std::cout << to_text(json, 2) << "\n";
    return kExitOk;
  }
  std::cout << "wrote " << m.other << ": " << result.n_quantised << " matrices in " << m.to << "\n"
            << "  files " << mib(result.bytes_before) << " -> " << mib(result.bytes_after)
            << ", weights in memory " << mib(before.weight_bytes) << " -> "
            << mib(after.weight_bytes);
  std::printf(" (%.2f)\n", share);
  if (!comparison) return kExitOk;
  const LogitDifference& d = comparison->logits;
  std::printf(
      "  logits over %u positions, computed in %s: same likeliest token %u (%.1f %%), error %.4f "
      "rms beside logits of %.2f rms, largest %.3f, KL %.5f nats\n",
      d.n_positions, comparison->held.c_str(), d.n_same_top,
      100.0 * d.n_same_top / std::max(1u, d.n_positions), d.rms, d.rms_reference, d.largest,
      d.mean_kl);
  return kExitOk;
}

}  // namespace foretoken::cli
