// From configuration and a loaded model to what the target's parts are made with. Pure arithmetic
// over facts; main calls it once. It makes nothing itself.
#pragma once

#include <string>

#include "common/config/sections.h"
#include "common/engine/engine_options.h"
#include "common/messages/messages.h"
#include "common/model/model.h"
#include "common/spec/ngram_proposer.h"
#include "kernels/include/backend.h"
#include "services/served_model/served_model.h"
#include "services/target/draft_proposer.h"
#include "services/target/target_service.h"

namespace foretoken {

ModelPlan target_plan(const Config& config);
// Sizes the cache by what the backend has free. FatalError naming the key where it cannot be.
TargetEngineOptions target_engine_options(const Config& config,
                                          const Model& model,
                                          std::uint64_t free_bytes,
                                          const ModelVocabulary& vocabulary);
// FatalError where target.draft_link pins what this build or machine has not.
LinkChoice link_choice(const TargetSection& target);
DraftPoolOptions draft_pool_options(const Config& config,
                                    const Model& model,
                                    const ModelVocabulary& vocabulary,
                                    const CoreUse& cores);
DraftPoolOptions memory_pool_options(const Config& config,
                                     const Model& model,
                                     const ModelVocabulary& vocabulary,
                                     const CoreUse& cores);
NgramConfig ngram_config(const SpeculationSection& speculation);
// What a request gets that does not say, unless model.generation_config is "none".
SamplingDefaults sampling_defaults(const Config& config, const ModelConfig& model);
TargetServiceOptions target_service_options(const Config& config);
// All that decides the bits of a row besides the model, in words: the kernels that were chosen, the
// dtypes in memory (never "auto"), the ranks that share a row's sums, and the noise. Targets of
// equal words and model may finish each other's requests.
std::string target_numerics(const Model& model, const Backend& backend, std::int32_t block_tokens);
wire::Hello target_hello(const Config& config,
                         const std::string& name,
                         const Model& model,
                         const Backend& backend,
                         const ModelVocabulary& vocabulary,
                         const TargetEngineOptions& engine);

}  // namespace foretoken
