// The loop around a service on the work thread: messages, turns, signals, readiness, watchdog,
// draining. Separate from service_main so that a test can run it with a transport of its own.
#pragma once

#include "common/runtime/process.h"
#include "common/runtime/service.h"
#include "common/runtime/threaded_bus.h"

namespace foretoken {

struct LoopOptions {
  Duration drain_time = std::chrono::seconds(30);
  Duration stuck_time = std::chrono::seconds(30);  // the least bound of a turn (Progress)
};

// Returns the exit code. Throws what Service::start throws.
int run_service(Service& service,
                ThreadedBus& bus,
                Signals& signals,
                Notifier& notifier,
                const LoopOptions& options);

}  // namespace foretoken
