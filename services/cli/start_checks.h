// What `up` finds out before it starts anything, and `doctor` without starting it: models that no
// service could load with these settings, and what a draft of the target itself may gain. Reads
// headers and tokenizers, no weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/load.h"
#include "services/cli/options.h"

namespace foretoken::cli {

// Whether `up` starts a draft for it: one is named, and model.drafts is not 0.
bool has_draft(const ModelSection& model);

// The folders of a model, without a draft that is not started, as far as they can be judged without
// loading weights, or also their tokenizers. Throws FatalError.
enum class FolderDepth { kFiles, kTokenizers };
void inspect_folders(const ModelSection& model, FolderDepth depth);

// Why no service could load a configured model.
struct ModelRefusal {
  std::string sentence;     // begins with "model NAME: " where models are declared
  std::string keys = {};    // which name the folder, if it is at fault
  std::string advice = {};  // what to try
  // kExitModel for a folder that cannot be loaded, kExitUsage where only a number of the
  // configuration does not go with its shape.
  int exit_code = kExitModel;
};
// Of all configured models; empty: they can be loaded.
std::vector<ModelRefusal> model_refusals(const LoadedConfig& loaded);

// Prints them and returns the highest exit code, or kExitOk.
int refuse_unfit_models(const LoadedConfig& loaded);

// Of the configured models as this host's memory would hold them: those on a CPU, spread over no
// other hosts, each folder in each type once, as processes share it. Throws FatalError.
std::uint64_t weight_bytes_here(const LoadedConfig& loaded);

// A sentence for each model whose draft is its target in four bits.
std::vector<std::string> self_draft_predictions(const LoadedConfig& loaded);

}  // namespace foretoken::cli
