// foretoken-bench-target: the target service around a timed model, for `foretoken bench schedule`.
#include "bench/timed/timed_service.h"
#include "services/target/serve_target.h"
#include "services/target/setup.h"

int main(int argc, char** argv) {
  using namespace foretoken;
  const bench::TimedSetting timed = bench::take_timed_setting(argc, argv);
  return service_main({"target", argc, argv, "The target service around a timed model.", true},
                      [&](const Config& config, Runtime& runtime) {
                        return bench::serve_timed(timed, target_plan(config), runtime,
                                                  [&](const ServedModel& served) {
                                                    return serve_target(config, runtime, served);
                                                  });
                      });
}
