// What the links of a process carried, lost and refused, as metrics. The thread that owns them
// counts, the work thread reads when metrics are asked for.
#pragma once

#include <memory>

#include "common/runtime/metrics.h"
#include "common/transport/memory_links.h"
#include "common/transport/zmq_transport.h"

namespace foretoken {

void publish_transport(Metrics& metrics, std::shared_ptr<const TransportCounters> counters);
void publish_memory_links(Metrics& metrics, std::shared_ptr<const MemoryLinkCounters> counters);

}  // namespace foretoken
