// A model over its ranks, from configuration until it can be served: the same for draft and target.
// serve_model() is for main alone; the rest is arithmetic over facts for what draft and target set
// up around the model, and makes nothing itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/cores.h"
#include "common/collective/collective.h"
#include "common/config/sections.h"
#include "common/engine/rank_setup.h"
#include "common/grammar/constraint.h"
#include "common/kv/kv_cache.h"
#include "common/kv/kv_size.h"
#include "common/messages/messages.h"
#include "common/model/load_model.h"
#include "common/model/model.h"
#include "common/runtime/rank_launcher.h"
#include "common/runtime/service_main.h"
#include "kernels/include/backend.h"

namespace foretoken {

struct ModelPlan {
  std::string role;    // "target": also the section that messages name
  std::string folder;  // of Hugging Face files
  ComputeSection compute;
  LoadOptions loading;                 // load_options(), and what is the role's own
  std::uint64_t bytes_per_thread = 0;  // weights that make another thread worth it; 0: all cores
};

// What the model's tokenizer says.
struct ModelVocabulary {
  Fingerprint vocabulary = 0;
  Fingerprint text = 0;
  std::int32_t n_ids = 0;  // that both have
  std::shared_ptr<Constraints> constraints;
};

struct ServedModel {
  Model& model;
  Backend& backend;
  ModelVocabulary vocabulary;
  std::uint64_t free_bytes = 0;  // of the rank that has least
  CoreUse cores;                 // of all ranks on this machine
  Collective& ranks;
  Runtime& runtime;
  Duration patience;  // with a silent rank, once it serves

  // Returns the exit code, when the service has drained and the other ranks may end.
  template <class Engine>
  int run(Service& service, Engine& engine) const {
    ranks.set_patience(patience);
    const int code = runtime.serve(service);
    engine.release_ranks();
    return code;
  }
};

// Starts the ranks if there are several, loads, and calls `serve` on rank 0. Returns the exit code:
// in the process that was started that of all ranks, in another rank when rank 0 lets it go. Throws
// FatalError.
int serve_model(const ModelPlan& plan,
                Runtime& runtime,
                const std::function<int(const ServedModel&)>& serve);

RankLaunch rank_launch(const ModelPlan& plan, const std::string& name);
// Throws FatalError on every rank where the ranks' plans or the contents of their folders differ:
// each reads those of its own host.
void check_plans_alike(Collective& ranks, const ModelPlan& plan);
// `weight_bytes`: of the model in memory, where that limits the threads.
BackendOptions backend_options(const ModelPlan& plan,
                               const RankSeat& seat,
                               std::uint64_t weight_bytes = 0);
// Of the ranks that a machine has with this one; one with a GPU computes on the host with a thread.
CoreUse core_use(const BackendOptions& options);
LoadOptions load_options(const Config& config, const ComputeSection& compute);
// Blocks that the memory of `request` has room for, at most as many as `n_full` of the longest
// sequences fill. The model says the request's geometry and length. FatalError naming the key.
std::int32_t cache_blocks(KvSizeRequest request,
                          const Model& model,
                          std::int32_t block_tokens,
                          std::int64_t n_full);
// "bfloat16 2, int8 14" without the counts.
std::string weight_dtypes(const std::string& counted);
wire::Hello model_hello(wire::Role role,
                        const std::string& name,
                        const Model& model,
                        const ModelVocabulary& vocabulary,
                        const KvCacheConfig& kv);

}  // namespace foretoken
