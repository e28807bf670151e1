#include "services/cli/start_checks.h"

#include <algorithm>
#include <iostream>
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

// Draft and target that do not belong together.
int refuse_pair(const ModelInstances& model) {
  const ModelSection& section = model.config.model;
  const auto report =
      report_on_pair(model_folder(section.draft, "draft"), model_folder(section.target, "target"));
  for (const auto& sentence : report.refusals)
    std::cerr << "error: " << prefix_of(model) << sentence << "\n";
  if (report.refusals.empty()) return kExitOk;
  std::cerr << "  try: another draft, or --draft \"\" --proposer ngram (foretoken model pair "
               "DRAFT TARGET says more)\n";
  return kExitModel;
}

// Settings that a target or draft of this model would refuse once it has been started.
int refuse_settings(const ModelInstances& model, const std::string& folder, const LoadedAs& as) {
  // Without the tokenizer: its service reads it at once, and a large one takes half a second.
  const LoadingFindings found = loading_findings({folder, inspect_model(folder), nullptr}, as);
  for (const auto* sentences : {&found.numbers, &found.settings})
    for (const auto& sentence : *sentences)
      std::cerr << "error: " << prefix_of(model) << sentence << "\n";
  if (!found.settings.empty()) return kExitModel;
  return found.numbers.empty() ? kExitOk : kExitUsage;
}

int refuse_unfit(const ModelInstances& model) {
  const ModelSection& section = model.config.model;
  const std::string target = model_folder(section.target, "target");
  inspect_folders(section, FolderDepth::kFiles);
  if (section.draft == kSelfDraft) {
    if (const auto why = why_no_self_draft(inspect_model(target).config))
      throw FatalError(ErrorCode::kUnsupportedModel, target + ": " + *why);
  } else if (!section.draft.empty()) {
    if (const int code = refuse_pair(model); code != kExitOk) return code;
  }
  int code = refuse_settings(model, target, {model.config, false});
  if (!section.draft.empty() && section.drafts > 0)
    code =
        std::max(code, refuse_settings(model, draft_source(section).folder, {model.config, true}));
  return code;
}

}  // namespace

void inspect_folders(const ModelSection& model, FolderDepth depth) {
  for (const auto& [configured, role] :
       {std::pair{model.target, "target"}, std::pair{model.draft, "draft"}}) {
    if (configured.empty() || configured == kSelfDraft) continue;
    const std::string folder = model_folder(configured, role);
    (void)inspect_model(folder);
    if (role == std::string_view("target")) refuse_draft_as_target(model);
    if (depth == FolderDepth::kTokenizers)
      (void)value_or_throw(
          Tokenizer::load(folder, {.patterns = regex_policy_from_name(model.patterns)}));
  }
}

int refuse_unfit_models(const LoadedConfig& loaded) {
  int code = kExitOk;
  for (const ModelInstances& model : models_of(loaded)) {
    try {
      code = std::max(code, refuse_unfit(model));
    } catch (const FatalError& error) {
      const std::string keys =
          model.name.empty() ? "--target or --draft (model.target, model.draft)"
                             : "model." + model.name + ".target, model." + model.name + ".draft";
      report_error({error.code(), prefix_of(model) + error.what(), keys});
      code = kExitModel;
    }
  }
  return code;
}

std::vector<std::string> self_draft_predictions(const LoadedConfig& loaded) {
  std::vector<std::string> sentences;
  for (const ModelInstances& model : models_of(loaded)) {
    const ModelSection& section = model.config.model;
    const auto most =
        std::min<int>(static_cast<int>(model.config.speculation.draft_len), kMostPredictedGuesses);
    if (section.draft != kSelfDraft || section.drafts == 0 || most == 0) continue;
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
