// model info, check, pair, init-random: model folders, without any service.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "common/base/json.h"
#include "common/config/resolve.h"
#include "common/model/head_ids.h"
#include "common/model/hf_folder.h"
#include "common/model/init_random.h"
#include "common/model/pair.h"
#include "common/tokenizer/tokenizer.h"
#include "services/cli/draft_gain.h"
#include "services/cli/loading_findings.h"
#include "services/cli/model_logits.h"
#include "services/cli/model_storage.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

std::string as_size(std::uint64_t bytes) {
  char text[32];
  if (bytes >= (1ull << 30))
    std::snprintf(text, sizeof(text), "%.2f GiB", static_cast<double>(bytes) / (1ull << 30));
  else
    std::snprintf(text, sizeof(text), "%.1f MiB", static_cast<double>(bytes) / (1ull << 20));
  return text;
}

// Sizes in memory are those with `dtype`.
OrderedJson info_json(const std::string& folder, const ModelInfo& info, WeightDType dtype) {
  const ModelConfig& c = info.config;
  const MemoryEstimate memory = estimate_memory(info, {.dtype = dtype});
  return {{"schema", "foretoken.model_info/1"},
          {"folder", folder},
          {"family", std::string(family_name(c.family))},
          {"architecture", c.architecture},
          {"parameters", info.n_parameters},
          {"files", info.n_files},
          {"tensors", info.n_tensors},
          {"file_bytes", info.file_bytes},
          {"dtype", dtype_name(c.checkpoint_dtype)},
          {"quantised", quantised_as(info)},
          {"quantisation", quantisation_json(info)},
          {"layers", c.n_layers},
          {"hidden", c.n_hidden},
          {"heads", c.n_heads},
          {"kv_heads", c.n_kv_heads},
          {"head_dim", c.head_dim},
          {"ffn", c.n_ffn},
          {"vocab", c.vocab_size},
          {"context", context_length(c)},
          {"rope", std::string(rope_type_name(c.rope.type))},
          {"tied_embeddings", c.tie_word_embeddings},
          {"model_dtype", std::string(weight_dtype_name(dtype))},
          {"held_as", held_as(info, dtype)},
          {"needs", dtype_needs(info, dtype)},
          {"weight_bytes", memory.weight_bytes},
          {"scratch_bytes", memory.scratch_bytes},
          {"kv_bytes_per_token", memory.kv_bytes_per_token}};
}

// As a service that loads a folder does.
void take_end_tokens(const Tokenizer& tokenizer, ModelConfig& config) {
  if (config.eos_token_ids.empty())
    config.eos_token_ids.assign(tokenizer.eos_ids().begin(), tokenizer.eos_ids().end());
}

// Sentences that speak against the two vocabularies; empty if they are one.
std::vector<std::string> vocabulary_findings(const Tokenizer& draft, const Tokenizer& target) {
  std::vector<std::string> findings;
  if (draft.vocabulary_fingerprint() == target.vocabulary_fingerprint()) return findings;
  std::size_t n_different = 0;
  std::string first;
  const auto largest = static_cast<TokenId>(std::max(draft.vocab_size(), target.vocab_size()));
  for (TokenId id = 0; id < largest; ++id) {
    if (!draft.is_token(id) && !target.is_token(id)) continue;
    if (draft.token_text(id) == target.token_text(id)) continue;
    if (n_different++ == 0)
      first = "first: id " + std::to_string(id) + " is \"" + std::string(draft.token_text(id)) +
              "\" for the draft and \"" + std::string(target.token_text(id)) + "\" for the target";
  }
  if (n_different > 0)
    findings.push_back("draft and target disagree about " + std::to_string(n_different) +
                       " tokens (" + first + ")");
  else
    findings.push_back(
        "draft and target have the same tokens but other special tokens or end tokens");
  return findings;
}

// A line: what model.dtype makes of the folder.
std::string said_of_dtype(const ModelInfo& info, WeightDType dtype) {
  const std::string needs = dtype_needs(info, dtype);
  return "  model.dtype \"" + std::string(weight_dtype_name(dtype)) + "\": matrices as " +
         held_as(info, dtype) + (needs.empty() ? "" : "; needs " + needs) + "\n";
}

// Such as a [PAD] that was added for training.
int count_tokens_without_embedding(const Tokenizer& tokenizer, const ModelConfig& model) {
  int n = 0;
  for (auto id = model.vocab_size; id < static_cast<TokenId>(tokenizer.vocab_size()); ++id)
    n += tokenizer.is_token(id) ? 1 : 0;
  return n;
}

}  // namespace

int run_model_info(const CliOptions& options) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  const std::string folder = model_folder(options.model.folder, "target");
  const WeightDType dtype = configured_dtype(*loaded);
  const ModelInfo info = inspect_model(folder);
  const MemoryEstimate memory = estimate_memory(info, {.dtype = dtype});
  if (options.output.json) {
    OrderedJson json = info_json(folder, info, dtype);
    if (!info.config.head_ids.empty()) json["head_ids"] = info.config.head_ids.size();
    std::cout << to_text(json, 2) << "\n";
    return kExitOk;
  }
  const ModelConfig& c = info.config;
  std::cout << folder << "\n"
            << "  " << family_name(c.family) << " (" << c.architecture << "), "
            << std::floor(static_cast<double>(info.n_parameters) / 1e5) / 10 << " M parameters, "
            << dtype_name(c.checkpoint_dtype) << ", " << as_size(info.file_bytes) << " in "
            << info.n_files << " files\n";
  if (const std::string quantised = quantised_as(info); !quantised.empty())
    std::cout << "  quantised linears: " << quantised << "\n";
  std::cout << "  " << c.n_layers << " layers, hidden " << c.n_hidden << ", " << c.n_heads
            << " heads (" << c.n_kv_heads << " KV) of " << c.head_dim << ", ffn " << c.n_ffn
            << ", vocabulary " << c.vocab_size << (c.tie_word_embeddings ? ", tied" : "");
  if (!c.head_ids.empty()) std::cout << ", head of " << c.head_ids.size() << " ids";
  std::cout << "\n"
            << "  context " << context_length(c)
            << (context_length(c) == c.sliding_window ? " tokens (its sliding window), RoPE "
                                                      : " tokens, RoPE ")
            << rope_type_name(c.rope.type) << "\n"
            << said_of_dtype(info, dtype) << "  memory: weights " << as_size(memory.weight_bytes)
            << ", scratch " << as_size(memory.scratch_bytes) << ", KV " << memory.kv_bytes_per_token
            << " bytes a token\n";
  return kExitOk;
}

int run_model_check(const CliOptions& options) {
  const std::string folder = model_folder(options.model.folder, "target");
  const ReadFolder read = read_folder(folder);
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  const LoadedAs as = loaded_as(folder, read.info, *loaded);
  const WeightDType dtype =
      weight_dtype_from_name(as.config.model.dtype).value_or(WeightDType::kAuto);
  const auto [info, numbers, settings, needs] = loading_findings(read, as);
  const int n_without = count_tokens_without_embedding(*read.tokenizer, info.config);
  std::vector<std::string> findings = weights_not_finite(folder);
  findings.insert(findings.end(), numbers.begin(), numbers.end());
  findings.insert(findings.end(), settings.begin(), settings.end());
  if (options.output.json)
    std::cout << to_text(OrderedJson{{"schema", "foretoken.model_check/1"},
                                     {"ok", findings.empty()},
                                     {"folder", folder},
                                     {"quantised", quantised_as(info)},
                                     {"model_dtype", std::string(weight_dtype_name(dtype))},
                                     {"held_as", held_as(info, dtype)},
                                     {"tokens_without_embedding", n_without},
                                     {"findings", findings},
                                     {"needs", needs}},
                         2)
              << "\n";
  for (const auto& sentence : findings) std::cerr << "error: " << sentence << "\n";
  if (!findings.empty()) return kExitModel;
  if (!options.output.json)
    std::cout << "ok: " << folder << " can be loaded (" << family_name(info.config.family) << ", "
              << info.n_tensors << " tensors, tokenizer of " << read.tokenizer->vocab_size()
              << ")\n"
              << (info.config.quantized.any() ? "  quantised linears: " + quantised_as(info) + "\n"
                                              : "")
              << "  model.dtype \"" << weight_dtype_name(dtype) << "\": matrices as "
              << held_as(info, dtype) << "\n"
              << (n_without == 0 ? ""
                                 : "  tokens without an embedding: " + std::to_string(n_without) +
                                       "; prompts with them are refused\n")
              << (needs.empty() ? "" : "  needs " + needs + "\n");
  return kExitOk;
}

void refuse_draft_as_target(const ModelSection& model) {
  const std::filesystem::path folder = model_folder(model.target, "target");
  std::error_code unreadable;  // another user serves it, perhaps
  if (std::filesystem::exists(folder / kHeadIdsFile, unreadable))
    refuse_trimmed_head(read_model_config(folder), folder, "a target");
}

PairReport report_on_pair(const std::string& draft_folder, const std::string& target_folder) {
  ModelInfo draft = inspect_model(draft_folder), target = inspect_model(target_folder);
  refuse_trimmed_head(target.config, target_folder, "a target");
  const TokenizerOptions any_pattern{.patterns = RegexPolicy::kAny};
  const auto of_draft = value_or_throw(Tokenizer::load(draft_folder, any_pattern));
  const auto of_target = value_or_throw(Tokenizer::load(target_folder, any_pattern));
  take_end_tokens(*of_draft, draft.config);
  take_end_tokens(*of_target, target.config);
  PairReport report{.cost = static_cast<double>(draft.step_bytes) /
                            static_cast<double>(target.step_bytes)};
  for (const auto& finding : check_pair(draft, target))
    (finding.level == PairFinding::Level::kRefuse ? report.refusals : report.warnings)
        .push_back(finding.sentence);
  for (auto& sentence : vocabulary_findings(*of_draft, *of_target))
    report.refusals.push_back(std::move(sentence));
  // Texts never have those that the target has none for either.
  const int n_without = count_tokens_without_embedding(*of_target, draft.config) -
                        count_tokens_without_embedding(*of_target, target.config);
  if (n_without > 0 && report.refusals.empty())
    report.warnings.push_back("the draft has no embedding for " + std::to_string(n_without) +
                              " of the target's tokens: a text with one of them is written "
                              "without the draft");
  return report;
}

namespace {

// What a target's own weights in four bits are as its draft.
int run_self_pair(const CliOptions& options) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  const std::string folder = model_folder(options.model.other, "target");
  LogitComparison comparison;
  double cost = 0;
  try {
    const ModelInfo info = inspect_model(folder);
    if (const auto why = why_no_self_draft(info.config))
      throw FatalError(ErrorCode::kUnsupportedModel, folder + ": " + *why);
    refuse_trimmed_head(info.config, folder, "a target");
    cost = self_draft_cost(info, configured_dtype(*loaded));
    comparison = compare_logits_of(folder, WeightDType::kI4, sample_tokens(folder, ""));
  } catch (const FatalError& error) {
    return report_error({error.code(), error.what()}), kExitModel;
  }
  const double acceptance = static_cast<double>(comparison.logits.n_same_top) /
                            std::max(1u, comparison.logits.n_positions);
  const PredictedRound best = best_round(acceptance, cost, kMostPredictedGuesses);
  if (options.output.json) {
    std::cout << to_text(OrderedJson{{"schema", "foretoken.model_pair/1"},
                                     {"compatible", true},
                                     {"refusals", Json::array()},
                                     {"warnings", Json::array()},
                                     {"draft_to_target_bytes", cost},
                                     {"logits", as_json(comparison)},
                                     {"predicted",
                                      {{"draft_len", best.n_guesses}, {"gain", best.gain}}}},
                         2)
              << "\n";
    return kExitOk;
  }
  std::cout << folder << " in four bits: " << sentence_of(comparison) << "\n";
  std::printf("a draft step reads %.1f %% of a target step's bytes\n", 100 * cost);
  if (best.gain > 1)
    std::printf(
        "predicted: %.2f x plain decoding, greedy, with %d guesses a round, if a pass of %d rows "
        "takes as long as one\n",
        best.gain, best.n_guesses, best.n_guesses + 1);
  else
    std::printf("predicted: no gain over plain decoding\n");
  return kExitOk;
}

}  // namespace

int run_model_pair(const CliOptions& options) {
  if (options.model.folder == kSelfDraft) return run_self_pair(options);
  const std::string draft_folder = model_folder(options.model.folder, "draft");
  const std::string target_folder = model_folder(options.model.other, "target");
  const auto [refusals, warnings, cost] = report_on_pair(draft_folder, target_folder);
  if (options.output.json) {
    std::cout << to_text(OrderedJson{{"schema", "foretoken.model_pair/1"},
                                     {"compatible", refusals.empty()},
                                     {"refusals", refusals},
                                     {"warnings", warnings},
                                     {"draft_to_target_bytes", cost}},
                         2)
              << "\n";
    return refusals.empty() ? kExitOk : kExitModel;
  }
  for (const auto& sentence : refusals) std::cerr << "error: " << sentence << "\n";
  for (const auto& sentence : warnings) std::cerr << "warning: " << sentence << "\n";
  if (!refusals.empty()) {
    std::cerr << "  try: another draft, or foretoken up --draft \"\" --proposer ngram\n";
    return kExitModel;
  }
  std::printf("compatible: one vocabulary, a draft step reads %.1f %% of a target step's bytes\n",
              100 * cost);
  return kExitOk;
}

namespace {

// A head of an odd size has no halves to rotate.
std::int32_t head_dim_of(const ModelConfig& c) {
  if (c.n_hidden % (2 * c.n_heads) != 0)
    throw FatalError(ErrorCode::kConfig, "a hidden size of " + std::to_string(c.n_hidden) +
                                             " (--hidden) cannot be divided into " +
                                             std::to_string(c.n_heads) +
                                             " heads (--heads) of an even size");
  return c.n_hidden / c.n_heads;
}

}  // namespace

int run_model_init_random(const CliOptions& options) {
  const ModelOptions& m = options.model;
  std::error_code unreadable;  // writing says why
  if (std::filesystem::exists(m.folder, unreadable))
    throw FatalError(ErrorCode::kConfig, m.folder + " exists already");
  RandomModelRecipe recipe;
  bool known = false;
  for (Family family : {Family::kLlama, Family::kQwen2, Family::kQwen3, Family::kMistral})
    if (family_name(family) == m.family) recipe.config = tiny_config(family), known = true;
  if (!known)
    throw FatalError(ErrorCode::kConfig,
                     "family is \"" + m.family + "\"; it must be llama, qwen2, qwen3 or mistral");
  ModelConfig& c = recipe.config;
  if (m.shape == "1b") {
    c.n_layers = 16, c.n_hidden = 2048, c.n_heads = 32, c.n_kv_heads = 8, c.head_dim = 64,
    c.n_ffn = 8192, c.vocab_size = 32000;
    recipe.n_shards = 4;
  } else if (m.shape == "3b") {
    c.n_layers = 28, c.n_hidden = 3072, c.n_heads = 24, c.n_kv_heads = 8, c.head_dim = 128,
    c.n_ffn = 8192, c.vocab_size = 32000;
    recipe.n_shards = 4;
  } else if (m.shape != "tiny") {
    throw FatalError(ErrorCode::kConfig, "shape is \"" + m.shape + "\"; it must be tiny, 1b or 3b");
  }
  if (m.layers > 0) c.n_layers = m.layers;
  if (m.hidden > 0) c.n_hidden = m.hidden;
  if (m.heads > 0) c.n_heads = m.heads;
  if (m.kv_heads > 0) c.n_kv_heads = m.kv_heads;
  if (m.ffn > 0) c.n_ffn = m.ffn;
  if (!m.tokenizer.empty()) {  // a model that can be used with it, and beside others that are
    const auto tokenizer = value_or_throw(
        Tokenizer::load(model_folder(m.tokenizer, "target"), {.patterns = RegexPolicy::kAny}));
    c.vocab_size = static_cast<std::int32_t>(tokenizer->vocab_size());
    if (const auto ends = tokenizer->eos_ids(); !ends.empty())
      c.eos_token_ids.assign(ends.begin(), ends.end());
  }
  if (m.vocab > 0) c.vocab_size = m.vocab;
  if (m.positions > 0) c.max_position_embeddings = c.max_model_len = m.positions;
  if (m.hidden > 0 || m.heads > 0) c.head_dim = head_dim_of(c);
  known = false;
  for (DType dtype : {DType::kF32, DType::kBf16, DType::kF16})
    if (m.dtype == dtype_name(dtype)) recipe.dtype = dtype, known = true;
  if (!known)
    throw FatalError(ErrorCode::kConfig,
                     "dtype is \"" + m.dtype + "\"; it must be float32, bfloat16 or float16");
  recipe.seed = m.seed;
  write_random_model(m.folder, recipe);
  if (!m.tokenizer.empty()) copy_tokenizer_files(model_folder(m.tokenizer, "target"), m.folder);
  const ModelInfo info = inspect_model(m.folder);
  if (options.output.json)
    std::cout << to_text(info_json(m.folder, info, WeightDType::kAuto), 2) << "\n";
  else
    std::cout << "wrote " << m.folder << ": synthetic, " << info.n_parameters
              << " random parameters\n";
  return kExitOk;
}

}  // namespace foretoken::cli
