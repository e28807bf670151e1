// What keeps a service from loading a model's folder, beyond what is in the folder: for `model
// check`, and for `up` before it starts anything. Reads headers, and no weights.
// Must not look at the machine, such as its memory.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/config/load.h"
#include "common/model/pair.h"
#include "common/tokenizer/tokenizer.h"

namespace foretoken::cli {

// The service that would load a folder, a target or a draft, and its configuration.
struct LoadedAs {
  const Config& config;  // of that service; borrowed from the configuration
  bool is_draft = false;

  const ComputeSection& compute() const;           // [target] or [draft]
  std::string key(const std::string& name) const;  // "target.NAME" or "draft.NAME"
  bool is_self_draft() const;                      // the target's folder again, in four bits
};

// The target of a model with this `model.target`, else the draft of one with this `model.draft`.
// Where the folder is configured as neither, it is for the first model: as its target, or, if the
// head has some ids only, as its draft.
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
                                       const Tokenizer* tokenizer,
                                       const LoadedAs& as);

// A sentence for each number of the configuration that the model's shape does not allow.
std::vector<std::string> refused_numbers(const std::filesystem::path& folder,
                                         const ModelConfig& model,
                                         const LoadedAs& as);

// A folder as far as it is known without its weights.
struct ReadFolder {
  std::string folder;
  ModelInfo info;
  std::unique_ptr<Tokenizer> tokenizer;  // with any pattern; null: not looked at
};
// Throws FatalError as inspect_model() does, and for a tokenizer that cannot be loaded.
ReadFolder read_folder(const std::string& folder);

// Both of the above, a sentence each that names the setting.
struct LoadingFindings {
  ModelInfo info;                     // for as many ranks as there are
  std::vector<std::string> numbers;   // that the model's shape does not allow
  std::vector<std::string> settings;  // that the folder cannot be loaded with
  std::string needs;                  // of all loading_needs(), "; " between them
};
LoadingFindings loading_findings(const ReadFolder& read, const LoadedAs& as);

}  // namespace foretoken::cli
