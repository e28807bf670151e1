#include "services/target/setup.h"

#include <algorithm>

#include "common/config/resolve.h"
#include "common/messages/named_proposers.h"
#include "common/model/config.h"
#include "common/model/digest.h"
#include "common/runtime/process.h"
#include "common/spec/prefix_hash.h"
#include "common/transport/memory_links.h"

namespace foretoken {
namespace {

// A cache larger than all places filled four times over only costs address space.
constexpr std::int64_t kCacheTurns = 4;

PrefixHash root_of(const Model& model, const ModelVocabulary& vocabulary) {
  return prefix_hash_root(model.fingerprint(), vocabulary.vocabulary);
}

}  // namespace

ModelPlan target_plan(const Config& config) {
  ModelPlan plan{.role = "target",
                 .folder = model_folder(config.model.target, "target"),
                 .compute = static_cast<const ComputeSection&>(config.target),
                 .loading = load_options(config, config.target)};
  plan.loading.max_model_len = config.model.max_model_len;
  return plan;
}

// The places that clients see, and those kept for clients that have few.
std::uint32_t n_places(const LimitsSection& limits) {
  const std::uint32_t all = limits.max_running + wire::kept_places(limits.max_running);
  return std::min(all, std::max(limits.max_running, limits.max_batch_rows));
}

TargetEngineOptions target_engine_options(const Config& config,
                                          const Model& model,
                                          std::uint64_t free_bytes,
                                          const ModelVocabulary& vocabulary) {
  const LimitsSection& limits = config.limits;
  const auto block_tokens = static_cast<std::int32_t>(config.kv_cache.block_tokens);
  const std::int32_t n_blocks =
      cache_blocks({.memory = config.kv_cache.memory, .free_bytes = free_bytes}, model,
                   block_tokens, kCacheTurns * limits.max_running);
  return {.kv = {.n_blocks = n_blocks,
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
          .max_model_len = static_cast<Position>(model.config().max_model_len),
          .n_valid_ids = vocabulary.n_ids,
          .prefix_root = root_of(model, vocabulary),
          .constraints = vocabulary.constraints,
          .draft_length = {.mode = config.speculation.adaptive ? LengthMode::kAdaptive
                                                               : LengthMode::kFixed}};
}

LinkChoice link_choice(const TargetSection& target) {
  if (target.draft_link == "zeromq") return LinkChoice::kZeroMq;
  if (target.draft_link != "shared_memory") return LinkChoice::kAuto;
  const std::string key = "target.draft_link = \"" + target.draft_link + "\"";
  if (const std::string why = MemoryLinks::why_unavailable(); !why.empty())
    throw FatalError(ErrorCode::kUnavailable, key + " does not work on this machine: " + why);
  return LinkChoice::kSharedMemory;
}

DraftPoolOptions draft_pool_options(const Config& config,
                                    const Model& model,
                                    const ModelVocabulary& vocabulary,
                                    const CoreUse& cores) {
  DraftPoolOptions options{.vocabulary = vocabulary.vocabulary,
                           .end_tokens = model.config().eos_token_ids,
                           .first_budget = config.speculation.draft_len,
                           .link = {.choice = link_choice(config.target),
                                    .cores = cores,
                                    .folder = runtime_directory(config.bus)}};
  if (config.speculation.draft_deadline_ms != 0) {
    const auto deadline = std::chrono::milliseconds(config.speculation.draft_deadline_ms);
    options.rules.miss_floor = options.rules.miss_ceiling = deadline;
  }
  return options;
}

DraftPoolOptions memory_pool_options(const Config& config,
                                     const Model& model,
                                     const ModelVocabulary& vocabulary,
                                     const CoreUse& cores) {
  DraftPoolOptions options = draft_pool_options(config, model, vocabulary, cores);
  options.kind = ProposerKind::kMemory;
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
  return {.router = router_endpoint(config.bus),
          .heartbeat = std::chrono::milliseconds(config.bus.heartbeat_ms),
          .proposers = speculation.proposer,
          .draft_len = speculation.draft_len,
          .lookup_len = speculation.lookup_len,
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
                         const ModelVocabulary& vocabulary,
                         const TargetEngineOptions& engine) {
  const std::string numerics = target_numerics(model, backend, engine.kv.block_tokens);
  wire::Hello hello = model_hello(wire::Role::kTarget, name, model, vocabulary, engine.kv);
  hello.fingerprints.numerics = Digest().add(std::string_view(numerics)).value();
  hello.model_name = served_model_name(config.model);
  hello.aliases = config.model.alias;
  hello.max_sequences = config.limits.max_running;
  hello.max_waiting = static_cast<std::uint32_t>(engine.max_waiting);
  hello.sampling = sampling_defaults(config, model.config());
  hello.device = config.target.device;
  hello.draft_len = config.speculation.draft_len;
  const wire::NamedProposers proposers = wire::named(config.speculation.proposer);
  hello.proposer = proposers.first;
  hello.proposers = proposers.bits;
  return hello;
}

}  // namespace foretoken
