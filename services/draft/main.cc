// foretoken-draft: guesses ahead for the sequences of any number of targets.
#include <algorithm>
#include <optional>

#include "common/base/log.h"
#include "common/config/resolve.h"
#include "common/engine/follower.h"
#include "common/engine/rank_setup.h"
#include "common/model/pair.h"
#include "common/runtime/mps.h"
#include "common/runtime/process.h"
#include "common/runtime/rank_launcher.h"
#include "common/runtime/service_main.h"
#include "common/tokenizer/tokenizer.h"
#include "kernels/include/backend.h"
#include "kernels/include/device_identity.h"
#include "services/draft/draft_service.h"
#include "services/draft/setup.h"

int main(int argc, char** argv) {
  using namespace foretoken;
  return service_main(
      {"draft", argc, argv, "Guesses ahead for targets, batched together."},
      [](const Config& config, Runtime& runtime) {
        const std::string folder = model_folder(config.model.draft, "draft");
        const auto n_ranks = static_cast<int>(config.draft.tensor_parallel);
        if (n_ranks > 1 && config.draft.pin)
          throw FatalError(ErrorCode::kConfig,
                           "draft.pin: ranks of one host would take the same cores");
        const std::optional<int> rank = started_rank();
        if (n_ranks > 1 && !rank) return launch_ranks(draft_ranks(config.draft, runtime.name()));
        if (n_ranks > 1) join_launcher(*rank);
        const auto ranks = n_ranks > 1 ? make_mpi_collective(n_ranks) : make_self_collective();
        if (n_ranks > 1 && rank == 0) runtime.progress("all ranks have met");
        const auto tokenizer = value_or_throw(
            Tokenizer::load(folder, {.patterns = regex_policy_from_name(config.model.patterns)}));
        LoadOptions loading = draft_loading(config);
        const auto estimate = estimate_memory(inspect_model(folder), loading);
        const BackendOptions backend_options =
            draft_backend(config.draft, estimate.weight_bytes, find_seat(*ranks, host_name()));
        const auto backend = make_backend(backend_options);
        check_apart(*ranks, "device (draft.device)", device_identity(backend_options.device));
        if (config.draft.device != "cpu" && ranks->rank() == 0) log_mps();
        check_alike(*ranks, "build", build_text());
        check_alike(*ranks, "arithmetic (draft.isa)", backend->numerics());
        if (ranks->rank() == 0)
          log_info("kernels",
                   {{"backend", backend->description()}, {"numerics", backend->numerics()}});
        loading.ranks = ranks.get();
        if (ranks->rank() == 0)
          loading.on_progress = [&](std::uint64_t done, std::uint64_t total) {
            runtime.progress("loading the draft, " +
                             std::to_string(100 * done / std::max<std::uint64_t>(1, total)) + " %");
          };
        const auto model = load_model(folder, *backend, loading);
        if (n_ranks > 1 && ranks->rank() == 0)
          log_info("ranks add", {{"ranks", n_ranks}, {"rank_sums", model->rank_sums()}});
        if (ranks->rank() == 0 && !model->config().kv_scales.empty())
          log_info("KV scales", {{"kv_scales", model->config().kv_scales}});
        const std::uint64_t free_bytes = least_of(*ranks, backend->free_bytes());
        const Duration patience = std::chrono::milliseconds(config.draft.rank_deadline_ms);
        if (ranks->rank() != 0) {
          follow(*model, *backend, patience);
          return kExitOk;
        }
        const DraftVocabulary vocabulary{
            .vocabulary = tokenizer->vocabulary_fingerprint(),
            .text = tokenizer->text_fingerprint(),
            .n_ids = std::min(static_cast<std::int32_t>(tokenizer->vocab_size()),
                              model->config().vocab_size)};

        wire::Speaker speaker = runtime.speaker();
        const DraftEngineOptions options =
            draft_engine_options(config, *model, free_bytes, vocabulary);
        DraftEngine engine(*model, *backend, options);
        DraftService service(draft_service_options(config, runtime.id(), vocabulary),
                             draft_hello(folder, runtime.name(), *model, vocabulary, options),
                             engine, speaker, runtime.metrics());
        ranks->set_patience(patience);
        const int code = runtime.serve(service);
        engine.release_ranks();
        return code;
      });
}
