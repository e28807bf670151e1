// What the links of a process carried, lost and refused, as metrics. The socket thread counts, the
// work thread reads when somebody asks.
#pragma once

#include <memory>

#include "common/runtime/metrics.h"
#include "common/transport/zmq_transport.h"

namespace foretoken {

void publish_transport(Metrics& metrics, std::shared_ptr<const TransportCounters> counters);

}  // namespace foretoken
