#include "services/cli/model_logits.h"

#include <algorithm>
#include <cstdio>
#include <span>

#include "common/base/file.h"
#include "common/model/pair.h"
#include "common/tokenizer/tokenizer.h"
#include "common/wire/msgpack_reader.h"
#include "kernels/include/backend.h"

namespace foretoken::cli {
namespace {

constexpr std::size_t kMostTextBytes = 1u << 20;
constexpr std::size_t kMostSampleTokens = 2048;
constexpr std::size_t kLeastCalibrationTokens = 512, kMostCalibrationTokens = 8192;

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

LoadOptions loading_for(const std::vector<TokenId>& tokens) {
  LoadOptions loading;
  loading.max_rows = 64;
  loading.most_model_len = static_cast<std::int64_t>(tokens.size());
  return loading;
}

LogitDifference difference_of(Model& reference,
                              Model& other,
                              Backend& backend,
                              const std::vector<TokenId>& tokens) {
  const auto n_tokens = static_cast<std::size_t>(reference.config().max_model_len);
  return compare_logits(reference, other, backend,
                        std::span(tokens).first(std::min(n_tokens, tokens.size())));
}

// What the file that a flag names has. A file that cannot be read is a mistyped option, and not a
// model that is missing.
std::string text_of_file(const std::string& flag, const std::string& file) {
  const auto refuse = [&](const std::string& why) {
    throw FatalError(ErrorCode::kConfig, flag + ": " + why);
  };
  const auto read = read_text_file(file, kMostTextBytes);
  if (!read.ok()) refuse(read.error().message);
  if (read->empty()) refuse(file + " is empty: there is nothing to read");
  if (!wire::is_utf8(*read)) refuse(file + " is not UTF-8");
  return *read;
}

// `where` names the text in errors. A tokenizer may have tokens that the model has no embedding of,
// such as a [PAD] that was added for training.
std::vector<TokenId> tokens_of(const std::string& folder,
                               const std::string& where,
                               const std::string& text,
                               std::size_t most) {
  const auto tokenizer = value_or_throw(Tokenizer::load(folder, {.patterns = RegexPolicy::kAny}));
  auto tokens = value_or_throw(tokenizer->encode(text, AddSpecialTokens::kYes));
  if (tokens.size() > most) tokens.resize(most);
  const std::int64_t n_ids = inspect_model(folder).config.vocab_size;
  for (const TokenId token : tokens)
    if (token >= n_ids)
      throw FatalError(ErrorCode::kConfig, where + " has token id " + std::to_string(token) + " (" +
                                               std::string(tokenizer->token_text(token)) +
                                               "); the model has " + std::to_string(n_ids) +
                                               " ids, 0 to " + std::to_string(n_ids - 1));
  return tokens;
}

}  // namespace

std::vector<TokenId> sample_tokens(const std::string& folder, const std::string& file) {
  if (file.empty()) return tokens_of(folder, "the built-in text", kText, kMostSampleTokens);
  return tokens_of(folder, "--text: " + file, text_of_file("--text", file), kMostSampleTokens);
}

std::vector<TokenId> calibration_tokens(const std::string& folder, const std::string& file) {
  auto tokens = tokens_of(folder, "--calibrate: " + file, text_of_file("--calibrate", file),
                          kMostCalibrationTokens);
  if (tokens.size() < kLeastCalibrationTokens)
    throw FatalError(ErrorCode::kConfig, "--calibrate: " + file + " has " +
                                             std::to_string(tokens.size()) + " tokens; at least " +
                                             std::to_string(kLeastCalibrationTokens) +
                                             " say what the model will read");
  return tokens;
}

LogitComparison compare_logits_of(const std::string& source,
                                  const std::string& folder,
                                  DType to,
                                  const std::vector<TokenId>& tokens) {
  const auto backend = make_backend({});
  LoadOptions loading = loading_for(tokens);
  const auto reference = load_model(source, *backend, loading);
  const bool widened = !backend->holds(to);
  if (widened) loading.dtype = WeightDType::kF32;
  const auto other = load_model(folder, *backend, loading);
  return {difference_of(*reference, *other, *backend, tokens),
          widened            ? std::string("float32, widened from ") + dtype_name(to)
          : to == DType::kI4 ? other->config().weight_types
                             : dtype_name(to)};
}

LogitComparison compare_logits_of(const std::string& folder,
                                  WeightDType dtype,
                                  const std::vector<TokenId>& tokens) {
  const auto backend = make_backend({});
  LoadOptions loading = loading_for(tokens);
  const bool as_stored = !inspect_model(folder).not_held.contains(WeightDType::kAuto);
  if (!as_stored) loading.dtype = WeightDType::kF32;
  const auto reference = load_model(folder, *backend, loading);
  loading.dtype = dtype;
  const auto other = load_model(folder, *backend, loading);
  return {difference_of(*reference, *other, *backend, tokens), other->config().weight_types,
          as_stored ? std::string() : reference->config().weight_types};
}

std::string sentence_of(const LogitComparison& comparison) {
  const LogitDifference& d = comparison.logits;
  char text[256];
  std::snprintf(text, sizeof text,
                ": same likeliest token %u (%.1f %%), error %.4f rms beside logits of %.2f rms, "
                "largest %.3f, KL %.5f nats",
                d.n_same_top, 100.0 * d.n_same_top / std::max(1u, d.n_positions), d.rms,
                d.rms_reference, d.largest, d.mean_kl);
  return "logits over " + std::to_string(d.n_positions) + " positions, computed in " +
         comparison.held +
         (comparison.reference.empty() ? "" : " beside the folder in " + comparison.reference) +
         text;
}

OrderedJson as_json(const LogitComparison& comparison) {
  const LogitDifference& d = comparison.logits;
  return {{"positions", d.n_positions},
          {"same_top", d.n_same_top},
          {"top1_agreement", static_cast<double>(d.n_same_top) / std::max(1u, d.n_positions)},
          {"rms_error", d.rms},
          {"rms_logit", d.rms_reference},
          {"largest_error", d.largest},
          {"mean_kl_nats", d.mean_kl},
          {"computed_in", comparison.held},
          {"reference", comparison.reference.empty() ? "as stored" : comparison.reference}};
}

}  // namespace foretoken::cli
