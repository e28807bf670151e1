// foretoken-target: runs the target model, judges proposals, owns the committed sequences.
#include <algorithm>
#include <optional>

#include "common/base/log.h"
#include "common/config/resolve.h"
#include "common/engine/follower.h"
#include "common/engine/rank_setup.h"
#include "common/runtime/mps.h"
#include "common/runtime/process.h"
#include "common/runtime/rank_launcher.h"
#include "common/runtime/service_main.h"
#include "common/spec/prediction_proposer.h"
#include "common/tokenizer/tokenizer.h"
#include "kernels/include/backend.h"
#include "kernels/include/device_identity.h"
#include "services/target/setup.h"
#include "services/target/target_service.h"

int main(int argc, char** argv) {
  using namespace foretoken;
  return service_main(
      {"target", argc, argv, "Runs the target model and judges what drafts propose."},
      [](const Config& config, Runtime& runtime) {
        const std::string folder = model_folder(config.model.target, "target");
        const auto n_ranks = static_cast<int>(config.target.tensor_parallel);
        if (n_ranks > 1 && config.target.pin)
          throw FatalError(ErrorCode::kConfig,
                           "target.pin: ranks of one host would take the same cores");
        (void)link_choice(
            config.target);  // what cannot be is said before ranks or a model are there
        const std::optional<int> rank = started_rank();
        if (n_ranks > 1 && !rank) return launch_ranks(target_ranks(config.target, runtime.name()));
        if (n_ranks > 1) join_launcher(*rank);
        const auto ranks = n_ranks > 1 ? make_mpi_collective(n_ranks) : make_self_collective();
        if (n_ranks > 1 && rank == 0) runtime.progress("all ranks have met");
        const auto tokenizer = value_or_throw(
            Tokenizer::load(folder, {.patterns = regex_policy_from_name(config.model.patterns)}));
        const BackendOptions backend_options =
            target_backend(config.target, find_seat(*ranks, host_name()));
        const auto backend = make_backend(backend_options);
        check_apart(*ranks, "device (target.device)", device_identity(backend_options.device));
        if (config.target.device != "cpu" && ranks->rank() == 0) log_mps();
        check_alike(*ranks, "build", build_text());
        check_alike(*ranks, "arithmetic (target.isa)", backend->numerics());
        if (ranks->rank() == 0)
          log_info("kernels",
                   {{"backend", backend->description()}, {"numerics", backend->numerics()}});
        LoadOptions loading = target_loading(config);
        loading.ranks = ranks.get();
        if (ranks->rank() == 0)
          loading.on_progress = [&](std::uint64_t done, std::uint64_t total) {
            runtime.progress("loading the target, " +
                             std::to_string(100 * done / std::max<std::uint64_t>(1, total)) + " %");
          };
        const auto model = load_model(folder, *backend, loading);
        if (n_ranks > 1 && ranks->rank() == 0)
          log_info("ranks add", {{"ranks", n_ranks}, {"rank_sums", model->rank_sums()}});
        if (ranks->rank() == 0 && !model->config().kv_scales.empty())
          log_info("KV scales", {{"kv_scales", model->config().kv_scales}});
        const std::uint64_t free_bytes = least_of(*ranks, backend->free_bytes());
        const Duration patience = std::chrono::milliseconds(config.target.rank_deadline_ms);
        if (ranks->rank() != 0) {
          follow(*model, *backend, patience);
          return kExitOk;
        }
        const TargetVocabulary vocabulary{
            .vocabulary = tokenizer->vocabulary_fingerprint(),
            .text = tokenizer->text_fingerprint(),
            .n_ids = std::min(static_cast<std::int32_t>(tokenizer->vocab_size()),
                              model->config().vocab_size)};

        wire::Speaker speaker = runtime.speaker();
        DraftProposer drafts(draft_pool_options(config, *model, vocabulary), speaker);
        NgramProposer ngram(ngram_config(config.speculation));
        PredictionProposer prediction;
        const TargetEngineOptions options =
            target_engine_options(config, *model, free_bytes, vocabulary);
        TargetEngine engine(*model, *backend, {{&drafts, &ngram, &prediction}, &drafts}, options);
        TargetService service(
            target_service_options(config),
            target_hello(config, runtime.name(), *model, *backend, vocabulary, options), engine,
            drafts, speaker, runtime.metrics());
        ranks->set_patience(patience);
        const int code = runtime.serve(service);
        engine.release_ranks();
        return code;
      });
}
