#include "services/router/router_options.h"

#include "common/config/models.h"
#include "common/config/resolve.h"
#include "common/runtime/outbox.h"
#include "common/runtime/service_main.h"
#include "common/transport/endpoint.h"

namespace foretoken {
namespace {

// Where services of other hosts may register, this configuration does not know all models.
std::string only_model(const LoadedConfig& loaded, const std::string& router) {
  const bool is_one_host = value_or_throw(parse_endpoint(router)).loopback;
  const auto models = models_of(loaded);
  if (!is_one_host || models.size() > 1) return {};
  return served_model_name(models.front().config.model);
}

}  // namespace

// The time in which every running service registers: it connects again, the reply to its next
// heartbeat says that the router does not know it, and it sends HELLO. A thread of a busy machine
// may be late by most of a second (see Pool).
Duration registration_time(const std::string& router, Duration heartbeat) {
  return back_within(value_or_throw(parse_endpoint(router))) + heartbeat * 9 / 8 +
         std::chrono::seconds(1);
}

RouterServiceOptions router_options(const LoadedConfig& loaded, const std::string& name) {
  const Config& config = loaded.config;
  RouterServiceOptions options{.client = client_endpoint(config.bus),
                               .router = router_endpoint(config.bus),
                               .name = name,
                               .build = build_text(),
                               .heartbeat = std::chrono::milliseconds(config.bus.heartbeat_ms)};
  options.rules.max_requests = most_requests(loaded);
  options.rules.model_limits = request_limits(loaded);
  options.rules.default_draft_len = config.speculation.draft_len;
  options.rules.timeout = std::chrono::seconds(config.limits.request_timeout_s);
  options.rules.default_model = config.router.default_model;
  options.rules.only_model = only_model(loaded, options.router);
  options.rules.registration = registration_time(options.router, options.heartbeat);
  options.rules.tenant_weights = value_or_throw(weights_of(config.limits.tenant_weights));
  return options;
}

}  // namespace foretoken
