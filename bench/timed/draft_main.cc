// foretoken-bench-draft: the draft service around a timed model, behind a relay that delays what
// targets and it say to each other, for `foretoken bench schedule`.
#include <chrono>
#include <optional>

#include "bench/schedule/delay_relay.h"
#include "bench/timed/timed_service.h"
#include "services/draft/draft_service.h"
#include "services/draft/model_guesser.h"
#include "services/draft/setup.h"

int main(int argc, char** argv) {
  using namespace foretoken;
  const bench::TimedSetting timed = bench::take_timed_setting(argc, argv);
  return service_main(
      {"draft", argc, argv, "The draft service around a timed model.", true},
      [&](const Config& config, Runtime& runtime) {
        const ModelPlan plan = draft_plan(config);
        return bench::serve_timed(timed, plan, runtime, [&](const ServedModel& served) {
          wire::Speaker speaker = runtime.speaker();
          const DraftEngineOptions options =
              draft_engine_options(config, served.model, served.free_bytes, served.vocabulary);
          DraftEngine engine(served.model, served.backend, options);
          DraftServiceOptions door =
              draft_service_options(config, runtime.id(), served.vocabulary, served.cores);
          std::optional<bench::DelayRelay> relay;
          if (timed.rtt_ms > 0) {
            const std::chrono::duration<double, std::milli> one_way(timed.rtt_ms / 2);
            relay.emplace(door.endpoint, std::chrono::duration_cast<Duration>(one_way));
            door.announced = relay->endpoint();
          }
          ModelGuesser guesser(engine);
          DraftService service(
              door,
              draft_hello(config, plan, runtime.name(), served.model, served.vocabulary, options),
              guesser, speaker, runtime.metrics());
          return served.run(service, engine);
        });
      });
}
