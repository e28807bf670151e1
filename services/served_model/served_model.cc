#include "services/served_model/served_model.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/base/tool_formats.h"
#include "common/config/resolve.h"
#include "common/engine/follower.h"
#include "common/model/config.h"
#include "common/model/fingerprint.h"
#include "common/model/hf_folder.h"
#include "common/model/pair.h"
#include "common/model/shard.h"
#include "common/runtime/mps.h"
#include "common/runtime/process.h"
#include "common/tokenizer/tokenizer.h"
#include "kernels/include/device_identity.h"

namespace foretoken {
namespace {

// Tokens that a reader of the text does not see, such as end tokens, are no part of what a grammar
// allows.
std::shared_ptr<Constraints> constraints_of(const Tokenizer& tokenizer, std::int32_t n_ids) {
  std::vector<std::string_view> bytes(static_cast<std::size_t>(n_ids));
  for (TokenId id = 0; id < n_ids; ++id)
    if (tokenizer.is_token(id) && !tokenizer.is_skipped(id))
      bytes[static_cast<std::size_t>(id)] = tokenizer.token_bytes(id);
  return std::make_shared<Constraints>(bytes);
}

void log_packed_cache(const PackedCacheReport& report) {
  const auto mib = report.size_bytes >> 20;
  const auto file = report.file.string();
  switch (report.outcome) {
    case PackedCacheReport::Outcome::kUsed:
      return log_info("packed weights of an earlier start are used",
                      {{"file", file}, {"mib", mib}});
    case PackedCacheReport::Outcome::kWritten:
      return log_info("packed weights are kept for the next start", {{"file", file}, {"mib", mib}});
    case PackedCacheReport::Outcome::kRemoved:
      return log_info("packed weights are removed",
                      {{"file", file}, {"mib", mib}, {"reason", report.problem}});
    case PackedCacheReport::Outcome::kNotUsed:
      return log_warning("packed weights of an earlier start are not used",
                         {{"file", file}, {"reason", report.problem}});
    case PackedCacheReport::Outcome::kNotWritten:
      return log_warning("packed weights are not kept for the next start (model.packed_cache)",
                         {{"file", file}, {"reason", report.problem}});
  }
}

}  // namespace

int serve_model(const ModelPlan& plan,
                Runtime& runtime,
                const std::function<int(const ServedModel&)>& serve) {
  const ComputeSection& compute = plan.compute;
  const auto n_ranks = static_cast<int>(compute.tensor_parallel);
  if (n_ranks > 1 && compute.pin)
    throw FatalError(ErrorCode::kConfig,
                     plan.role + ".pin: ranks of one host would take the same cores");
  // Before there are ranks, with the key of this section in the sentence.
  if (n_ranks > 1)
    if (const auto why = not_shardable(read_model_config(plan.folder), n_ranks))
      throw FatalError(ErrorCode::kConfig, plan.folder + ": " + plan.role + "." + *why);
  const std::optional<int> started_as = started_rank();
  if (n_ranks > 1 && !started_as) return launch_ranks(rank_launch(plan, runtime.name()));
  if (n_ranks > 1) join_launcher(*started_as);
  const auto ranks = n_ranks > 1 ? make_mpi_collective(n_ranks) : make_self_collective();
  const bool is_first = ranks->rank() == 0;
  if (n_ranks > 1 && is_first) runtime.progress("all ranks are connected");

  const auto tokenizer = value_or_throw(Tokenizer::load(
      plan.folder, {.patterns = regex_policy_from_name(runtime.loaded().config.model.patterns)}));
  const std::uint64_t weight_bytes =
      plan.bytes_per_thread == 0
          ? 0
          : estimate_memory(inspect_model(plan.folder), plan.loading).weight_bytes;
  const BackendOptions options =
      backend_options(plan, find_seat(*ranks, host_name()), weight_bytes);
  const auto backend = make_backend(options);
  check_apart(*ranks, "device (" + plan.role + ".device)", device_identity(options.device));
  if (compute.device != "cpu" && is_first) log_mps();
  check_alike(*ranks, "build", build_text());
  check_alike(*ranks, "arithmetic (" + plan.role + ".isa)", backend->numerics());
  check_plans_alike(*ranks, plan);
  if (is_first)
    log_info("kernels", {{"backend", backend->description()}, {"numerics", backend->numerics()}});

  LoadOptions loading = plan.loading;
  loading.ranks = ranks.get();
  loading.end_tokens.assign(tokenizer->eos_ids().begin(), tokenizer->eos_ids().end());
  // A signal may be sent to each rank, as by srun.
  loading.on_progress = [&](std::uint64_t done, std::uint64_t total) {
    if (!is_first) return runtime.check_stop();
    runtime.progress("loading the " + plan.role + ", " +
                     std::to_string(100 * done / std::max<std::uint64_t>(1, total)) + " %");
  };
  std::uint64_t mapped_bytes = 0;  // pages of a file, which the system counts as free
  loading.on_packed_cache = [&](const PackedCacheReport& report) {
    if (report.outcome == PackedCacheReport::Outcome::kUsed) mapped_bytes = report.size_bytes;
    log_packed_cache(report);
  };
  const auto model = load_model(plan.folder, *backend, loading);
  if (n_ranks > 1 && is_first)
    log_info("rank sums", {{"ranks", n_ranks}, {"rank_sums", model->rank_sums()}});
  if (is_first && !model->config().kv_scales.empty())
    log_info("KV scales of the checkpoint", {{"kv_scales", model->config().kv_scales}});
  const std::uint64_t free_here = backend->free_bytes();
  const std::uint64_t free_bytes = least_of(*ranks, free_here - std::min(free_here, mapped_bytes));
  const Duration patience = std::chrono::milliseconds(compute.rank_deadline_ms);
  if (!is_first) {
    follow(*model, *backend, patience);
    return kExitOk;
  }
  const std::int32_t n_ids =
      std::min(static_cast<std::int32_t>(tokenizer->vocab_size()), model->config().vocab_size);
  return serve({.model = *model,
                .backend = *backend,
                .vocabulary = {.vocabulary = tokenizer->vocabulary_fingerprint(),
                               .text = text_under_format(tokenizer->text_fingerprint(),
                                                         runtime.loaded().config.model.tool_format),
                               .n_ids = n_ids,
                               .constraints = constraints_of(*tokenizer, n_ids)},
                .free_bytes = free_bytes,
                .cores = core_use(options),
                .ranks = *ranks,
                .runtime = runtime,
                .patience = patience});
}

RankLaunch rank_launch(const ModelPlan& plan, const std::string& name) {
  const ComputeSection& compute = plan.compute;
  const auto n_ranks = static_cast<int>(compute.tensor_parallel);
  if (compute.hostfile.empty())  // all of them here, and all will see what this process sees
    check_devices(compute.device, plan.role + ".device", n_ranks, visible_devices());
  return {.name = name,
          .n_ranks = n_ranks,
          .hostfile = compute.hostfile,
          .deadline = std::chrono::milliseconds(compute.rank_deadline_ms)};
}

void check_plans_alike(Collective& ranks, const ModelPlan& plan) {
  if (ranks.size() == 1) return;
  const LoadOptions& loading = plan.loading;
  const std::pair<std::string, std::string> settings[] = {
      {"model.dtype", std::string(weight_dtype_name(loading.dtype))},
      {"kv_cache.dtype", loading.kv_dtype ? dtype_name(*loading.kv_dtype) : "auto"},
      {"model.max_model_len",
       std::to_string(std::max(loading.max_model_len, loading.most_model_len))},
      {"limits.max_batch_rows", std::to_string(loading.max_rows)},
      {plan.role + ".rank_sums", plan.compute.rank_sums},
      {plan.role + ".rank_deadline_ms", std::to_string(plan.compute.rank_deadline_ms)}};
  for (const auto& [key, value] : settings) check_alike(ranks, key, value);
  check_alike(ranks, "model in " + plan.folder,
              "fingerprint " + std::to_string(sampled_fingerprint(plan.folder)));
}

BackendOptions backend_options(const ModelPlan& plan,
                               const RankSeat& seat,
                               std::uint64_t weight_bytes) {
  constexpr std::uint64_t kMostThreads = 1024;
  const ComputeSection& compute = plan.compute;
  BackendOptions options{.device = rank_device(compute.device, plan.role + ".device",
                                               {seat.index_here, seat.n_here, visible_devices()}),
                         .n_threads = static_cast<int>(compute.threads),
                         .pin = compute.pin,
                         .isa = cpu_isa_from_name(compute.isa).value_or(CpuIsa::kAuto),
                         .sharers = seat.n_here,
                         .record = record_from_name(compute.record).value_or(Record::kAuto)};
  if (plan.bytes_per_thread > 0)
    options.max_threads = static_cast<int>(
        std::clamp<std::uint64_t>(weight_bytes / plan.bytes_per_thread, 1, kMostThreads));
  return options;
}

CoreUse core_use(const BackendOptions& options) {
  CoreUse use{.machine = boot_id(),
              .cpus = allowed_cpus(),
              .n_threads = options.sharers,
              .cpu_limit = cpu_limit()};
  if (options.device != "cpu") return use;
  const int n_cores = usable_cores();
  const int most = options.max_threads > 0 ? options.max_threads : n_cores;
  use.n_threads = options.n_threads > 0 ? options.n_threads * options.sharers
                                        : std::min(n_cores, most * options.sharers);
  return use;
}

LoadOptions load_options(const Config& config, const ComputeSection& compute) {
  return {.dtype = weight_dtype_from_name(config.model.dtype).value_or(WeightDType::kAuto),
          .kv_dtype = kv_dtype_from_name(config.kv_cache.dtype),
          .max_rows = static_cast<std::int32_t>(config.limits.max_batch_rows),
          .packed_cache = {.folder = packed_cache_folder(config.model),
                           .is_own = config.model.packed_cache == "auto",
                           .build = build_text(),
                           .host = host_name()},
          .rank_tier = rank_tier_from_name(compute.rank_sums).value_or(RankTier::kAuto)};
}

std::int32_t cache_blocks(KvSizeRequest request,
                          const Model& model,
                          std::int32_t block_tokens,
                          std::int64_t n_full) {
  const std::int64_t max_len = model.config().max_model_len;
  request.geometry = model.kv_geometry(block_tokens);
  request.max_sequence_tokens = static_cast<std::uint64_t>(max_len);
  const std::int64_t fitting = value_or_throw(kv_blocks(request));
  const std::int64_t useful = n_full * ((max_len + block_tokens - 1) / block_tokens);
  return static_cast<std::int32_t>(std::min(fitting, useful));
}

std::string weight_dtypes(const std::string& counted) {
  std::string types;
  std::istringstream words(counted);
  for (std::string type, count; words >> type >> count;)
    types += (types.empty() ? "" : ", ") + type;
  return types;
}

wire::Hello model_hello(wire::Role role,
                        const std::string& name,
                        const Model& model,
                        const ModelVocabulary& vocabulary,
                        const KvCacheConfig& kv) {
  return {.role = role,
          .name = name,
          .fingerprints = {.vocabulary = vocabulary.vocabulary,
                           .text = vocabulary.text,
                           .model = model.fingerprint()},
          .vocab_size = static_cast<std::uint32_t>(vocabulary.n_ids),
          .end_tokens = model.config().eos_token_ids,
          .max_model_len = static_cast<std::uint32_t>(model.config().max_model_len),
          .block_tokens = static_cast<std::uint32_t>(kv.block_tokens),
          .kv_blocks_total = static_cast<std::uint32_t>(kv.n_blocks),
          .build = build_text(),
          .pid = static_cast<std::uint64_t>(getpid()),
          .dtype = weight_dtypes(model.config().weight_types)};
}

}  // namespace foretoken
