// foretoken-router: front door for clients, places requests, follows each to its end, watches every
// service.
#include "common/runtime/service_main.h"
#include "services/router/router_service.h"

int main(int argc, char** argv) {
  using namespace foretoken;
  return service_main(
      {"router", argc, argv, "Takes requests, places them, and watches every other service."},
      [](const Config&, Runtime& runtime) {
        wire::Speaker speaker = runtime.speaker();
        RouterService service(router_options(runtime.loaded(), runtime.name()), speaker,
                              runtime.metrics());
        return runtime.serve(service);
      });
}
