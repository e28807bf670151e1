// What `up` finds out before it starts anything: models that no service could load with these
// settings, and what a draft of the target itself may gain. Reads headers and tokenizers, no
// weights.
#pragma once

#include <string>
#include <vector>

#include "common/config/load.h"

namespace foretoken::cli {

// The folders of a model as far as they can be judged without loading weights, or also their
// tokenizers. Throws FatalError.
enum class FolderDepth { kFiles, kTokenizers };
void inspect_folders(const ModelSection& model, FolderDepth depth);

// Prints what speaks against the models that are configured, and returns the exit code: kExitModel
// for a folder that cannot be loaded, kExitUsage where only numbers of the configuration do not go
// with its shape, kExitOk for nothing.
int refuse_unfit_models(const LoadedConfig& loaded);

// A sentence for each model whose draft is its target in four bits.
std::vector<std::string> self_draft_predictions(const LoadedConfig& loaded);

}  // namespace foretoken::cli
