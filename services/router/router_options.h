// Settings of the router, plain and complete: made of the configuration once, at start.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "common/base/clock.h"
#include "common/config/load.h"
#include "common/messages/limits.h"
#include "services/router/request_rules.h"

namespace foretoken {

struct RouterServiceOptions {
  std::string client;  // endpoint for clients
  std::string router;  // endpoint for workers
  std::string name = "router-0";
  std::string build;
  Duration heartbeat = std::chrono::milliseconds(250);  // eight missed = gone
  std::size_t max_answer_bytes = wire::kMaxAnswerBytes;
  RequestRules rules;
};

// For how long a router that was just started waits for services that run, before it decides what
// they serve.
Duration registration_time(const std::string& router, Duration heartbeat);

RouterServiceOptions router_options(const LoadedConfig& loaded, const std::string& name);

}  // namespace foretoken
