#include "services/target/serve_target.h"

#include "common/spec/prediction_proposer.h"
#include "services/target/setup.h"
#include "services/target/target_service.h"

namespace foretoken {

int serve_target(const Config& config, Runtime& runtime, const ServedModel& served) {
  const Model& model = served.model;
  wire::Speaker speaker = runtime.speaker();
  DraftProposer drafts(draft_pool_options(config, model, served.vocabulary, served.cores), speaker);
  DraftProposer memories(memory_pool_options(config, model, served.vocabulary, served.cores),
                         speaker);
  NgramProposer ngram(ngram_config(config.speculation));
  PredictionProposer prediction;
  const TargetEngineOptions options =
      target_engine_options(config, model, served.free_bytes, served.vocabulary);
  TargetEngine engine(served.model, served.backend,
                      {{&drafts, &memories, &ngram, &prediction}, &drafts, &memories}, options);
  TargetService service(
      target_service_options(config),
      target_hello(config, runtime.name(), model, served.backend, served.vocabulary, options),
      engine, {drafts, &memories}, speaker, runtime.metrics());
  return served.run(service, engine);
}

}  // namespace foretoken
