// The target service around a model that is loaded: proposers, engine and service, until it ends.
// main and the benchmark of schedules call it, each with a model of its own.
#pragma once

#include "common/config/sections.h"
#include "common/runtime/service_main.h"
#include "services/served_model/served_model.h"

namespace foretoken {

// Returns the exit code. Throws FatalError where the configuration does not fit the model or the
// memory that is free.
int serve_target(const Config& config, Runtime& runtime, const ServedModel& served);

}  // namespace foretoken
