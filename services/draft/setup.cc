#include "services/draft/setup.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "common/config/resolve.h"
#include "common/kv/kv_size.h"
#include "common/model/config.h"
#include "common/runtime/process.h"
#include "common/runtime/service_main.h"

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

RankLaunch draft_ranks(const DraftSection& draft, const std::string& name) {
  const auto n_ranks = static_cast<int>(draft.tensor_parallel);
  if (draft.hostfile.empty())  // all of them here, and all will see what this process sees
    check_devices(draft.device, "draft.device", n_ranks, visible_devices());
  return {.name = name,
          .n_ranks = n_ranks,
          .hostfile = draft.hostfile,
          .deadline = std::chrono::milliseconds(draft.rank_deadline_ms)};
}

BackendOptions draft_backend(const DraftSection& draft,
                             std::uint64_t weight_bytes,
                             const RankSeat& seat) {
  constexpr std::uint64_t kMostThreads = 1024;
  return {.device = rank_device(draft.device, "draft.device",
                                {seat.index_here, seat.n_here, visible_devices()}),
          .n_threads = static_cast<int>(draft.threads),
          .max_threads = static_cast<int>(
              std::clamp<std::uint64_t>(weight_bytes / kBytesPerThread, 1, kMostThreads)),
          .pin = draft.pin,
          .isa = cpu_isa_from_name(draft.isa).value_or(CpuIsa::kAuto),
          .sharers = seat.n_here,
          .record = record_from_name(draft.record).value_or(Record::kAuto)};
}

// The draft's context may end before the target's: there it falls silent, and the target goes on
// without it.
LoadOptions draft_loading(const Config& config) {
  return {.dtype = weight_dtype_from_name(config.model.dtype).value_or(WeightDType::kAuto),
          .kv_dtype = kv_dtype_from_name(config.kv_cache.dtype),
          .max_rows = static_cast<std::int32_t>(config.limits.max_batch_rows),
          .most_model_len = config.model.max_model_len,
          .rank_tier = rank_tier_from_name(config.draft.rank_sums).value_or(RankTier::kAuto)};
}

DraftEngineOptions draft_engine_options(const Config& config,
                                        const Model& model,
                                        std::uint64_t free_bytes,
                                        const DraftVocabulary& vocabulary) {
  const auto max_len = static_cast<std::int64_t>(model.config().max_model_len);
  const auto block_tokens = static_cast<std::int32_t>(config.kv_cache.block_tokens);
  const std::int64_t fitting =
      value_or_throw(kv_blocks({.memory = config.draft.memory,
                                .key = "draft.memory",
                                .geometry = model.kv_geometry(block_tokens),
                                .free_bytes = free_bytes,
                                .max_sequence_tokens = static_cast<std::uint64_t>(max_len)}));
  const std::int64_t useful =
      kCacheTurns * config.draft.max_sequences * ((max_len + block_tokens - 1) / block_tokens);
  return {.kv = {.n_blocks = static_cast<std::int32_t>(std::min(fitting, useful)),
                 .block_tokens = block_tokens},
          .max_sequences = static_cast<std::int32_t>(config.draft.max_sequences),
          .max_batch_rows = static_cast<std::int32_t>(config.limits.max_batch_rows),
          .prefill_chunk = static_cast<std::int32_t>(config.limits.prefill_chunk),
          .max_step = std::chrono::milliseconds(config.limits.max_step_ms),
          .max_model_len = static_cast<Position>(max_len),
          .n_valid_ids = vocabulary.n_ids};
}

DraftServiceOptions draft_service_options(const Config& config,
                                          const std::string& id,
                                          const DraftVocabulary& vocabulary) {
  return {.router = router_endpoint(config.bus),
          .endpoint = draft_endpoint(config.bus, id),
          .heartbeat = std::chrono::milliseconds(config.bus.heartbeat_ms),
          .vocabulary = vocabulary.vocabulary,
          .memory_endpoint = memory_endpoint(config.bus, id),
          .machine = boot_id()};
}

wire::Hello draft_hello(const std::string& folder,
                        const std::string& name,
                        const Model& model,
                        const DraftVocabulary& vocabulary,
                        const DraftEngineOptions& engine) {
  return {.role = wire::Role::kDraft,
          .name = name,
          .fingerprints = {.vocabulary = vocabulary.vocabulary,
                           .text = vocabulary.text,
                           .model = model.fingerprint()},
          .model_name = std::filesystem::path(folder).filename().string(),
          .vocab_size = static_cast<std::uint32_t>(vocabulary.n_ids),
          .end_tokens = model.config().eos_token_ids,
          .max_model_len = engine.max_model_len,
          .max_sequences = static_cast<std::uint32_t>(engine.max_sequences),
          .block_tokens = static_cast<std::uint32_t>(engine.kv.block_tokens),
          .kv_blocks_total = static_cast<std::uint32_t>(engine.kv.n_blocks),
          .build = build_text(),
          .pid = static_cast<std::uint64_t>(getpid())};
}

}  // namespace foretoken
