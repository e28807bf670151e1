// foretoken-edge: HTTP for OpenAI's clients, curl, Prometheus and browsers.
#include "common/runtime/service_main.h"
#include "services/edge/edge_service.h"

int main(int argc, char** argv) {
  using namespace foretoken;
  return service_main({"edge", argc, argv, "Speaks HTTP with clients, and with the router as one."},
                      [](const Config&, Runtime& runtime) {
                        wire::Speaker speaker = runtime.speaker();
                        edge::EdgeService service(runtime.loaded(), runtime.name(), speaker,
                                                  runtime.metrics());
                        return runtime.serve(service);
                      });
}
