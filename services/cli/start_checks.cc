#include "services/cli/start_checks.h"

#include <algorithm>
#include <iostream>
#include <set>
#include <utility>

#include "common/config/models.h"
#include "common/config/resolve.h"
#include "common/model/pair.h"
#include "common/tokenizer/tokenizer.h"
#include "services/cli/draft_gain.h"
#include "services/cli/loading_findings.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

// "model chat: ", or nothing where only one is configured.
std::string prefix_of(const ModelInstances& model) {
  return model.name.empty() ? "" : "model " + model.name + ": ";
}

using Refusals = std::vector<ModelRefusal>;

// Draft and target that do not belong together.
Refusals refusals_of_pair(const ModelInstances& model) {
  const ModelSection& section = model.config.model;
  const auto report =
      report_on_pair(model_folder(section.draft, "draft"), model_folder(section.target, "target"));
  Refusals refusals;
  for (const auto& sentence : report.refusals) refusals.push_back({prefix_of(model) + sentence});
  if (!refusals.empty())
    refusals.back().advice =
        "another draft, or --draft \"\" --proposer ngram (foretoken model pair DRAFT TARGET says "
        "more)";
  return refusals;
}

// Settings that a target or draft of this model would refuse once it has been started.
void add_refusals(const ModelInstances& model,
                  const std::string& folder,
                  const LoadedAs& as,
                  Refusals& refusals) {
  // Without the tokenizer: its service reads it at once, and a large one takes half a second.
  const LoadingFindings found = loading_findings({folder, inspect_model(folder), nullptr}, as);
  for (const auto& sentence : found.numbers)
    refusals.push_back({.sentence = prefix_of(model) + sentence, .exit_code = kExitUsage});
  for (const auto& sentence : found.settings) refusals.push_back({prefix_of(model) + sentence});
}

// A target that cannot be the draft of itself. Throws FatalError.
void check_self_draft(const std::string& target) {
  if (const auto why = why_no_self_draft(inspect_model(target).config))
    throw FatalError(ErrorCode::kUnsupportedModel, target + ": " + *why);
}

Refusals refusals_of(const ModelInstances& model) {
  const ModelSection& section = model.config.model;
  const std::string target = model_folder(section.target, "target");
  inspect_folders(section, FolderDepth::kFiles);
  Refusals refusals;
  if (has_draft(section)) {
    if (section.draft == kSelfDraft)
      check_self_draft(target);
    else
      refusals = refusals_of_pair(model);
    if (!refusals.empty()) return refusals;
  }
  add_refusals(model, target, {model.config, false}, refusals);
  if (has_draft(section))
    add_refusals(model, draft_source(section).folder, {model.config, true}, refusals);
  return refusals;
}

// The keys by which a person names the folders of a model.
std::string keys_of(const ModelInstances& model) {
  if (model.name.empty()) return "--target or --draft (model.target, model.draft)";
  return "model." + model.name + ".target, model." + model.name + ".draft";
}

bool is_held_here(const ComputeSection& compute) {
  return compute.device == "cpu" && compute.hostfile.empty();
}

}  // namespace

bool has_draft(const ModelSection& model) { return !model.draft.empty() && model.drafts > 0; }

void inspect_folders(const ModelSection& model, FolderDepth depth) {
  std::vector<std::pair<std::string, std::string>> folders = {{model.target, "target"}};
  if (has_draft(model) && model.draft != kSelfDraft) folders.emplace_back(model.draft, "draft");
  for (const auto& [configured, role] : folders) {
    const std::string folder = model_folder(configured, role);
    (void)inspect_model(folder);
    if (role == "target") refuse_draft_as_target(model);
    if (depth == FolderDepth::kTokenizers)
      (void)value_or_throw(
          Tokenizer::load(folder, {.patterns = regex_policy_from_name(model.patterns)}));
  }
}

std::vector<ModelRefusal> model_refusals(const LoadedConfig& loaded) {
  Refusals all;
  for (const ModelInstances& model : models_of(loaded)) {
    try {
      for (ModelRefusal& refusal : refusals_of(model)) all.push_back(std::move(refusal));
    } catch (const FatalError& error) {
      all.push_back({.sentence = prefix_of(model) + error.what(), .keys = keys_of(model)});
    }
  }
  return all;
}

int refuse_unfit_models(const LoadedConfig& loaded) {
  int code = kExitOk;
  for (const ModelRefusal& refusal : model_refusals(loaded)) {
    std::cerr << "error: " << refusal.sentence << "\n";
    if (!refusal.keys.empty()) std::cerr << "  in: " << refusal.keys << "\n";
    if (!refusal.advice.empty()) std::cerr << "  try: " << refusal.advice << "\n";
    code = std::max(code, refusal.exit_code);
  }
  return code;
}

std::uint64_t weight_bytes_here(const LoadedConfig& loaded) {
  std::set<std::pair<std::string, std::string>> held;  // folder, model.dtype
  for (const ModelInstances& model : models_of(loaded)) {
    const ModelSection& section = model.config.model;
    if (is_held_here(model.config.target))
      held.emplace(model_folder(section.target, "target"), section.dtype);
    if (has_draft(section) && is_held_here(model.config.draft)) {
      const DraftSource draft = draft_source(section);
      held.emplace(draft.folder, draft.dtype);
    }
  }
  std::uint64_t bytes = 0;
  for (const auto& [folder, dtype] : held)
    bytes += estimate_memory(inspect_model(folder),
                             {.dtype = weight_dtype_from_name(dtype).value_or(WeightDType::kAuto)})
                 .weight_bytes;
  return bytes;
}

std::vector<std::string> self_draft_predictions(const LoadedConfig& loaded) {
  std::vector<std::string> sentences;
  for (const ModelInstances& model : models_of(loaded)) {
    const ModelSection& section = model.config.model;
    const auto most =
        std::min<int>(static_cast<int>(model.config.speculation.draft_len), kMostPredictedGuesses);
    if (section.draft != kSelfDraft || !has_draft(section) || most == 0) continue;
    const ModelInfo target = inspect_model(model_folder(section.target, "target"));
    const WeightDType dtype = weight_dtype_from_name(section.dtype).value_or(WeightDType::kAuto);
    sentences.push_back(prefix_of(model) + kSelfDraft + ": " +
                        self_draft_prediction(self_draft_cost(target, dtype), most) +
                        " (foretoken model pair " + kSelfDraft + " " + section.target +
                        " measures how many are right)");
  }
  return sentences;
}

}  // namespace foretoken::cli
