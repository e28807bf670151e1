// The limits and times of a router's requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/config/models.h"
#include "services/router/finished_replies.h"
#include "services/router/retry.h"

namespace foretoken {

struct RequestRules {
  std::size_t max_requests = 272;  // limits.max_running + limits.max_waiting; of several, the sum
  std::vector<RequestLimit> model_limits;  // of each model that the configuration declares
  FinishedReplies::Limits finished;
  std::string default_model;  // router.default_model: of requests that name none
  // The model of a configuration that has one, with every service on this host: a request that
  // names none need not wait for others to register. Empty: it waits.
  std::string only_model;
  std::uint32_t default_draft_len = 4;
  std::uint32_t max_migrations = 3;
  Duration timeout = std::chrono::seconds(600);  // limits.request_timeout_s
  Silence silence;                               // then a worker is asked again
  // A prompt that has waited for so long at a tokenizer goes to another that has nothing to encode.
  Duration encode_patience = std::chrono::seconds(4);
  // After a stop string: for the target's counts, which come when its pass under way has ended.
  // Later the answer is given without them.
  Duration stats_patience = std::chrono::milliseconds(500);
  // Least time between two TOKENS of an answer that is not streamed. Far below the silence after
  // which a target is asked again.
  Duration unstreamed_interval = std::chrono::milliseconds(50);
  Duration deadline_grace =
      std::chrono::milliseconds(500);  // the target ends a late request itself; then we do
  Duration first_placement = std::chrono::seconds(15);  // for services that are still starting
  // After begin(): which models are served is not known yet. A request waits if that matters to it.
  Duration registration{};
  std::map<std::string, double> tenant_weights;  // limits.tenant_weights; 1 where none is said

  double weight_of(const std::string& tenant) const {
    const auto weight = tenant_weights.find(tenant);
    return weight == tenant_weights.end() ? 1 : weight->second;
  }
};

}  // namespace foretoken
