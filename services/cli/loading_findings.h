// What keeps a service from loading a model's folder, beyond what is in the folder: for `model
// check`. Looks at headers that are read already; what a machine has, such as its memory, is no
// matter of the folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/config/load.h"
#include "common/model/pair.h"
#include "common/tokenizer/tokenizer.h"

namespace foretoken::cli {

// As what a folder would be loaded.
struct LoadedAs {
  const Config& config;  // of that service; borrowed from the configuration
  bool is_draft = false;

  const ComputeSection& compute() const;           // [target] or [draft]
  std::string key(const std::string& name) const;  // "target.NAME" or "draft.NAME"
};

// As the target of a model that has the folder as one, else as the draft of one, else as a target
// of the first model. A folder whose head has some ids only is a draft.
LoadedAs loaded_as(const std::filesystem::path& folder,
                   const ModelInfo& info,
                   const LoadedConfig& loaded);

// A setting or a device that loading a folder needs. `setting`: what the configuration has
// instead; empty if it does not keep a service from loading it.
struct LoadingNeed {
  std::string what;
  std::string setting = {};
};

// Beyond the defaults on a CPU. info: as inspect_model() has it for as many ranks as there are.
std::vector<LoadingNeed> loading_needs(const ModelInfo& info,
                                       const Tokenizer& tokenizer,
                                       const LoadedAs& as);

// A sentence for each number of the configuration that the model's shape does not allow.
std::vector<std::string> refused_numbers(const std::filesystem::path& folder,
                                         const ModelConfig& model,
                                         const LoadedAs& as);

}  // namespace foretoken::cli
