// foretoken-draft: guesses ahead for the sequences of any number of targets.
#include "common/runtime/service_main.h"
#include "services/draft/draft_service.h"
#include "services/draft/setup.h"
#include "services/served_model/served_model.h"

int main(int argc, char** argv) {
  using namespace foretoken;
  return service_main(
      {"draft", argc, argv, "Guesses ahead for targets, batched together.", true},
      [](const Config& config, Runtime& runtime) {
        const ModelPlan plan = draft_plan(config);
        return serve_model(plan, runtime, [&](const ServedModel& served) {
          wire::Speaker speaker = runtime.speaker();
          const DraftEngineOptions options =
              draft_engine_options(config, served.model, served.free_bytes, served.vocabulary);
          DraftEngine engine(served.model, served.backend, options);
          DraftService service(
              draft_service_options(config, runtime.id(), served.vocabulary),
              draft_hello(config, plan, runtime.name(), served.model, served.vocabulary, options),
              engine, speaker, runtime.metrics());
          return served.run(service, engine);
        });
      });
}
