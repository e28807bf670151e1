#include "services/draft/setup.h"

#include <unistd.h>

#include <utility>

#include "common/base/clock.h"
#include "common/base/log.h"
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

// A pass of the target uses a dozen guesses at most; 8 gained as much as 16 in simulations.
constexpr std::uint32_t kRunAhead = 16;

MemorySharing sharing_of(const MemorySection& memory) {
  return memory.share == "all"   ? MemorySharing::kAll
         : memory.share == "off" ? MemorySharing::kOff
                                 : MemorySharing::kTenant;
}

}  // namespace

// The draft's context may end before the target's: there it sends no more guesses, and the target
// goes on without it.
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
          .constraints = vocabulary.constraints,
          .run_ahead = config.draft.run_ahead == "on" ? kRunAhead : 0,
          .branch_rows = config.draft.branches};
}

DraftServiceOptions draft_service_options(const Config& config,
                                          const std::string& id,
                                          const ModelVocabulary& vocabulary,
                                          const CoreUse& cores) {
  // A GPU takes many steps at a time, and what a chain that goes on gains there is not measured.
  const bool may_run_ahead = config.draft.run_ahead == "auto" && config.draft.device == "cpu";
  return {.router = router_endpoint(config.bus),
          .endpoint = draft_endpoint(config.bus, id),
          .heartbeat = std::chrono::milliseconds(config.bus.heartbeat_ms),
          .vocabulary = vocabulary.vocabulary,
          .memory_endpoint = memory_endpoint(config.bus, id),
          .cores = cores,
          .run_ahead = may_run_ahead ? kRunAhead : 0};
}

wire::Hello draft_hello(const Config& config,
                        const ModelPlan& plan,
                        const std::string& name,
                        const Model& model,
                        const ModelVocabulary& vocabulary,
                        const DraftEngineOptions& engine) {
  wire::Hello hello = model_hello(wire::Role::kDraft, name, model, vocabulary, engine.kv);
  hello.model_name = name_of_folder(plan.folder);
  hello.device = plan.compute.device;
  hello.drafts_for = served_model_name(config.model);
  hello.max_sequences = static_cast<std::uint32_t>(engine.max_sequences);
  return hello;
}

MemoryGuesserOptions memory_guesser_options(const Config& config,
                                            const ModelVocabulary& vocabulary) {
  const MemorySection& memory = config.memory;
  const MemorySharing sharing = sharing_of(memory);
  // Texts that all share are as those of one tenant.
  const double share = sharing == MemorySharing::kAll ? 1 : memory.tenant_share;
  return {.memories = {.n_places = memory.tokens, .tenant_share = share},
          .rules = {.min_match = memory.min_match,
                    .max_len = memory.max_len,
                    .min_share = memory.min_share},
          .sharing = sharing,
          .n_ids = vocabulary.n_ids,
          .first_document = random_u64(),
          .clock = steady_now};
}

// It loads no model, but texts of other models are not for it.
wire::Hello memory_hello(const Config& config,
                         const std::string& name,
                         const ModelVocabulary& vocabulary) {
  return {.role = wire::Role::kDraft,
          .name = name,
          .fingerprints = {.vocabulary = vocabulary.vocabulary},
          .model_name = "memory",
          .vocab_size = static_cast<std::uint32_t>(vocabulary.n_ids),
          .max_sequences = static_cast<std::uint32_t>(MemoryGuesserOptions{}.max_sequences),
          .build = build_text(),
          .pid = static_cast<std::uint64_t>(::getpid()),
          .device = "cpu",
          .drafts_for = served_model_name(config.model),
          .source = wire::DraftSource::kMemory};
}

void keep_texts(MemoryGuesser& guesser,
                const MemorySection& section,
                const ModelVocabulary& vocabulary) {
  if (section.folder.empty() || section.share == "off") return;
  const auto report =
      guesser.keep_in(LogFolder::open({.folder = section.folder,
                                       .vocabulary = vocabulary.vocabulary,
                                       .n_ids = vocabulary.n_ids,
                                       .max_tokens = section.tokens,
                                       .max_tenant_tokens = guesser.most_tenant_tokens()}));
  if (!report.ok())
    return log_warning("texts are not kept for the next start (memory.folder)",
                       {{"reason", report.error().message}});
  if (report->others_can_read)
    log_warning(
        "other users can list the folder of texts (memory.folder); its files they cannot read",
        {{"folder", section.folder}});
  for (const std::string& path : report->cut)
    log_warning("a damaged file of texts was cut at its first bad record", {{"file", path}});
  for (const std::string& path : report->foreign)
    log_warning("a file of texts is not read: it is of another vocabulary, or none of ours",
                {{"file", path}});
  log_info("texts of earlier starts", {{"tokens", report->n_tokens},
                                       {"files", report->n_files},
                                       {"torn", report->n_torn},
                                       {"damaged", report->n_damaged}});
}

}  // namespace foretoken
