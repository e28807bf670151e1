// From configuration and a loaded model to what the draft's parts are made with. Pure arithmetic
// over facts; main calls it once. It makes nothing itself.
#pragma once

#include <string>

#include "common/config/sections.h"
#include "common/engine/engine_options.h"
#include "common/engine/rank_setup.h"
#include "common/model/load_model.h"
#include "common/model/model.h"
#include "common/runtime/rank_launcher.h"
#include "common/wire/messages.h"
#include "kernels/include/backend.h"
#include "services/draft/draft_service.h"

namespace foretoken {

// What the model's tokenizer says; main asks it.
struct DraftVocabulary {
  Fingerprint vocabulary = 0;
  Fingerprint text = 0;
  std::int32_t n_ids = 0;
};

// `weight_bytes`: of the model in memory, for the number of threads it pays for.
RankLaunch draft_ranks(const DraftSection& draft, const std::string& name);
BackendOptions draft_backend(const DraftSection& draft,
                             std::uint64_t weight_bytes,
                             const RankSeat& seat);
LoadOptions draft_loading(const Config& config);
DraftEngineOptions draft_engine_options(const Config& config,
                                        const Model& model,
                                        std::uint64_t free_bytes,
                                        const DraftVocabulary& vocabulary);
DraftServiceOptions draft_service_options(const Config& config,
                                          const std::string& id,
                                          const DraftVocabulary& vocabulary);
wire::Hello draft_hello(const std::string& folder,
                        const std::string& name,
                        const Model& model,
                        const DraftVocabulary& vocabulary,
                        const DraftEngineOptions& engine);

}  // namespace foretoken
