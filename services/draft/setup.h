// From configuration and a loaded model to what the draft's parts are made with. Pure arithmetic
// over facts, but for keep_texts(); main calls it once.
#pragma once

#include <string>

#include "common/config/sections.h"
#include "common/engine/engine_options.h"
#include "common/messages/messages.h"
#include "common/model/model.h"
#include "services/draft/draft_service.h"
#include "services/draft/memory_guesser.h"
#include "services/served_model/served_model.h"

namespace foretoken {

ModelPlan draft_plan(const Config& config);
DraftEngineOptions draft_engine_options(const Config& config,
                                        const Model& model,
                                        std::uint64_t free_bytes,
                                        const ModelVocabulary& vocabulary);
DraftServiceOptions draft_service_options(const Config& config,
                                          const std::string& id,
                                          const ModelVocabulary& vocabulary,
                                          const CoreUse& cores);
wire::Hello draft_hello(const Config& config,
                        const ModelPlan& plan,
                        const std::string& name,
                        const Model& model,
                        const ModelVocabulary& vocabulary,
                        const DraftEngineOptions& engine);

MemoryGuesserOptions memory_guesser_options(const Config& config,
                                            const ModelVocabulary& vocabulary);
wire::Hello memory_hello(const Config& config,
                         const std::string& name,
                         const ModelVocabulary& vocabulary);
// Reads back what memory.folder has, if it is set, and logs what was found. A folder
// that cannot be used is a warning: the memory goes on without.
void keep_texts(MemoryGuesser& guesser,
                const MemorySection& section,
                const ModelVocabulary& vocabulary);

}  // namespace foretoken
