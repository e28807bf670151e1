// foretoken-bench-target: the target service around a timed model, for `foretoken bench schedule`.
#include "bench/timed/timed_service.h"
#include "common/spec/prediction_proposer.h"
#include "services/target/setup.h"
#include "services/target/target_service.h"

int main(int argc, char** argv) {
  using namespace foretoken;
  const bench::TimedSetting timed = bench::take_timed_setting(argc, argv);
  return service_main(
      {"target", argc, argv, "The target service around a timed model.", true},
      [&](const Config& config, Runtime& runtime) {
        return bench::serve_timed(
            timed, target_plan(config), runtime, [&](const ServedModel& served) {
              const Model& model = served.model;
              wire::Speaker speaker = runtime.speaker();
              DraftProposer drafts(draft_pool_options(config, model, served.vocabulary), speaker);
              NgramProposer ngram(ngram_config(config.speculation));
              PredictionProposer prediction;
              const TargetEngineOptions options =
                  target_engine_options(config, model, served.free_bytes, served.vocabulary);
              TargetEngine engine(served.model, served.backend,
                                  {{&drafts, &ngram, &prediction}, &drafts}, options);
              TargetService service(target_service_options(config),
                                    target_hello(config, runtime.name(), model, served.backend,
                                                 served.vocabulary, options),
                                    engine, {drafts, nullptr}, speaker, runtime.metrics());
              return served.run(service, engine);
            });
      });
}
