#include "services/target/setup.h"

#include <unistd.h>

#include <algorithm>

#include "common/config/resolve.h"
#include "common/kv/kv_size.h"
#include "common/model/config.h"
#include "common/model/digest.h"
#include "common/runtime/process.h"
#include "common/runtime/service_main.h"
#include "common/spec/prefix_hash.h"
#include "common/transport/memory_links.h"

namespace foretoken {
namespace {

// A cache larger than all places filled four times over only costs address space.
constexpr std::int64_t kCacheTurns = 4;

PrefixHash root_of(const Model& model, const TargetVocabulary& vocabulary) {
  return prefix_hash_root(model.fingerprint(), vocabulary.vocabulary);
}

}  // namespace

RankLaunch target_ranks(const TargetSection& target, const std::string& name) {
  const auto n_ranks = static_cast<int>(target.tensor_parallel);
  if (target.hostfile.empty())  // all of them here, and all will see what this process sees
    check_devices(target.device, "target.device", n_ranks, visible_devices());
  return {.name = name,
          .n_ranks = n_ranks,
          .hostfile = target.hostfile,
          .deadline = std::chrono::milliseconds(target.rank_deadline_ms)};
}

BackendOptions target_backend(const TargetSection& target, const RankSeat& seat) {
  return {.device = rank_device(target.device, "target.device",
                                {seat.index_here, seat.n_here, visible_devices()}),
          .n_threads = static_cast<int>(target.threads),
          .pin = target.pin,
          .isa = cpu_isa_from_name(target.isa).value_or(CpuIsa::kAuto),
          .sharers = seat.n_here,
          .record = record_from_name(target.record).value_or(Record::kAuto)};
}

LoadOptions target_loading(const Config& config) {
  return {.dtype = weight_dtype_from_name(config.model.dtype).value_or(WeightDType::kAuto),
          .kv_dtype = kv_dtype_from_name(config.kv_cache.dtype),
          .max_rows = static_cast<std::int32_t>(config.limits.max_batch_rows),
          .max_model_len = config.model.max_model_len,
          .rank_tier = rank_tier_from_name(config.target.rank_sums).value_or(RankTier::kAuto)};
}

// Those that clients are told of, and those kept for clients that have few.
std::uint32_t n_places(const LimitsSection& limits) {
  const std::uint32_t all = limits.max_running + wire::kept_places(limits.max_running);
  return std::min(all, std::max(limits.max_running, limits.max_batch_rows));
}

TargetEngineOptions target_engine_options(const Config& config,
                                          const Model& model,
                                          std::uint64_t free_bytes,
                                          const TargetVocabulary& vocabulary) {
  const LimitsSection& limits = config.limits;
  const auto max_len = static_cast<std::int64_t>(model.config().max_model_len);
  const auto block_tokens = static_cast<std::int32_t>(config.kv_cache.block_tokens);
  const std::int64_t fitting =
      value_or_throw(kv_blocks({.memory = config.kv_cache.memory,
                                .geometry = model.kv_geometry(block_tokens),
                                .free_bytes = free_bytes,
                                .max_sequence_tokens = static_cast<std::uint64_t>(max_len)}));
  const std::int64_t useful =
      kCacheTurns * limits.max_running * ((max_len + block_tokens - 1) / block_tokens);
  return {.kv = {.n_blocks = static_cast<std::int32_t>(std::min(fitting, useful)),
                 .block_tokens = block_tokens,
                 .prefix_cache =
                     config.kv_cache.prefix_cache ? PrefixCaching::kOn : PrefixCaching::kOff},
          .max_running = static_cast<std::int32_t>(n_places(limits)),
          .max_waiting = static_cast<std::int32_t>(limits.max_waiting),
          .max_batch_rows = static_cast<std::int32_t>(limits.max_batch_rows),
          .prefill_chunk = static_cast<std::int32_t>(limits.prefill_chunk),
          .max_step = std::chrono::milliseconds(limits.max_step_ms),
          .policy = limits.policy == "guaranteed_no_evict" ? AdmissionPolicy::kGuaranteedNoEvict
                                                           : AdmissionPolicy::kMaxUtilization,
          .max_model_len = static_cast<Position>(max_len),
          .n_valid_ids = vocabulary.n_ids,
          .prefix_root = root_of(model, vocabulary),
          .draft_length = {.mode = config.speculation.adaptive ? LengthMode::kAdaptive
                                                               : LengthMode::kFixed}};
}

LinkChoice link_choice(const TargetSection& target) {
  if (target.draft_link == "zeromq") return LinkChoice::kZeroMq;
  if (target.draft_link != "shared_memory") return LinkChoice::kAuto;
  const std::string key = "target.draft_link = \"" + target.draft_link + "\"";
  if (const std::string why = MemoryLinks::why_unavailable(); !why.empty())
    throw FatalError(ErrorCode::kUnavailable, key + " is not to be had on this machine: " + why);
  return LinkChoice::kSharedMemory;
}

DraftPoolOptions draft_pool_options(const Config& config,
                                    const Model& model,
                                    const TargetVocabulary& vocabulary) {
  DraftPoolOptions options{.vocabulary = vocabulary.vocabulary,
                           .end_tokens = model.config().eos_token_ids,
                           .first_budget = config.speculation.draft_len,
                           .link = {.choice = link_choice(config.target),
                                    .machine = boot_id(),
                                    .folder = runtime_directory(config.bus)}};
  if (config.speculation.draft_deadline_ms != 0) {
    const auto deadline = std::chrono::milliseconds(config.speculation.draft_deadline_ms);
    options.rules.miss_floor = options.rules.miss_ceiling = deadline;
  }
  return options;
}

NgramConfig ngram_config(const SpeculationSection& speculation) {
  return {.min_match = speculation.ngram_min,
          .max_match = std::max(speculation.ngram_min, speculation.ngram_max)};
}

SamplingDefaults sampling_defaults(const Config& config, const ModelConfig& model) {
  return config.model.generation_config == "none" ? SamplingDefaults{} : model.generation;
}

TargetServiceOptions target_service_options(const Config& config) {
  const SpeculationSection& speculation = config.speculation;
  return {
      .router = router_endpoint(config.bus),
      .heartbeat = std::chrono::milliseconds(config.bus.heartbeat_ms),
      .proposer = value_named<ProposerKind>(speculation.proposer).value_or(ProposerKind::kDraft),
      .draft_len = speculation.draft_len,
      .adaptive = speculation.adaptive,
      .allow_prediction = speculation.allow_prediction};
}

std::string target_numerics(const Model& model, const Backend& backend, std::int32_t block_tokens) {
  return backend.numerics() + " weights " + model.config().weight_types + " kv " +
         dtype_name(model.kv_geometry(block_tokens).dtype) + " ranks " +
         std::to_string(model.ranks() == nullptr ? 1 : model.ranks()->size()) + " noise 1";
}

wire::Hello target_hello(const Config& config,
                         const std::string& name,
                         const Model& model,
                         const Backend& backend,
                         const TargetVocabulary& vocabulary,
                         const TargetEngineOptions& engine) {
  const std::string numerics = target_numerics(model, backend, engine.kv.block_tokens);
  return {.role = wire::Role::kTarget,
          .name = name,
          .fingerprints = {.vocabulary = vocabulary.vocabulary,
                           .text = vocabulary.text,
                           .model = model.fingerprint(),
                           .numerics = Digest().add(std::string_view(numerics)).value()},
          .model_name = served_model_name(config.model),
          .aliases = config.model.alias,
          .vocab_size = static_cast<std::uint32_t>(vocabulary.n_ids),
          .end_tokens = model.config().eos_token_ids,
          .max_model_len = engine.max_model_len,
          .max_sequences = config.limits.max_running,
          .max_waiting = static_cast<std::uint32_t>(engine.max_waiting),
          .block_tokens = static_cast<std::uint32_t>(engine.kv.block_tokens),
          .kv_blocks_total = static_cast<std::uint32_t>(engine.kv.n_blocks),
          .build = build_text(),
          .pid = static_cast<std::uint64_t>(getpid()),
          .sampling = sampling_defaults(config, model.config())};
}

}  // namespace foretoken
