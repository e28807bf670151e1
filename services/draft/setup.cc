#include "services/draft/setup.h"

#include <filesystem>

#include "common/config/resolve.h"
#include "common/model/config.h"
#include "common/model/hf_folder.h"
#include "common/model/pair.h"
#include "common/runtime/process.h"

namespace foretoken {
namespace {

// A cache larger than all places filled twice over only costs address space.
constexpr std::int64_t kCacheTurns = 2;

// Weights that make another thread worth its joins: a core reads 16 MiB in about a millisecond. A
// smaller draft on more threads only waits for them, and takes a core away from the target and the
// sockets just when they have to answer it: the demo pair on two cores, 2.3 against 1.6 times
// plain.
constexpr std::uint64_t kBytesPerThread = std::uint64_t{16} << 20;

}  // namespace

// The draft's context may end before the target's: there it falls silent, and the target goes on
// without it.
ModelPlan draft_plan(const Config& config) {
  if (config.model.draft.empty())
    throw FatalError(ErrorCode::kConfig, "model.draft is \"\": the model has no draft to run");
  const DraftSource source = draft_source(config.model);
  if (config.model.draft == kSelfDraft)
    if (const auto why = why_no_self_draft(read_model_config(source.folder)))
      throw FatalError(ErrorCode::kUnsupportedModel, source.folder + ": " + *why);
  ModelPlan plan{.role = "draft",
                 .folder = source.folder,
                 .compute = static_cast<const ComputeSection&>(config.draft),
                 .loading = load_options(config, config.draft),
                 .bytes_per_thread = kBytesPerThread};
  plan.loading.dtype = weight_dtype_from_name(source.dtype).value();
  plan.loading.most_model_len = config.model.max_model_len;
  return plan;
}

DraftEngineOptions draft_engine_options(const Config& config,
                                        const Model& model,
                                        std::uint64_t free_bytes,
                                        const ModelVocabulary& vocabulary) {
  const auto block_tokens = static_cast<std::int32_t>(config.kv_cache.block_tokens);
  const std::int32_t n_blocks =
      cache_blocks({.memory = config.draft.memory, .key = "draft.memory", .free_bytes = free_bytes},
                   model, block_tokens, kCacheTurns * config.draft.max_sequences);
  return {.kv = {.n_blocks = n_blocks, .block_tokens = block_tokens},
          .max_sequences = static_cast<std::int32_t>(config.draft.max_sequences),
          .max_batch_rows = static_cast<std::int32_t>(config.limits.max_batch_rows),
          .prefill_chunk = static_cast<std::int32_t>(config.limits.prefill_chunk),
          .max_step = std::chrono::milliseconds(config.limits.max_step_ms),
          .max_model_len = static_cast<Position>(model.config().max_model_len),
          .n_valid_ids = vocabulary.n_ids,
          .constraints = vocabulary.constraints};
}

DraftServiceOptions draft_service_options(const Config& config,
                                          const std::string& id,
                                          const ModelVocabulary& vocabulary) {
  return {.router = router_endpoint(config.bus),
          .endpoint = draft_endpoint(config.bus, id),
          .heartbeat = std::chrono::milliseconds(config.bus.heartbeat_ms),
          .vocabulary = vocabulary.vocabulary,
          .memory_endpoint = memory_endpoint(config.bus, id),
          .machine = boot_id()};
}

wire::Hello draft_hello(const Config& config,
                        const ModelPlan& plan,
                        const std::string& name,
                        const Model& model,
                        const ModelVocabulary& vocabulary,
                        const DraftEngineOptions& engine) {
  wire::Hello hello = model_hello(wire::Role::kDraft, name, model, vocabulary, engine.kv);
  hello.model_name = std::filesystem::path(plan.folder).filename().string();
  hello.device = plan.compute.device;
  hello.drafts_for = served_model_name(config.model);
  hello.max_sequences = static_cast<std::uint32_t>(engine.max_sequences);
  return hello;
}

}  // namespace foretoken
