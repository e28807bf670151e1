// What the mains of target and draft do around a timed model, in place of serve_model(): the
// tokenizer of the model's folder, one CPU thread that chooses tokens, no weights and no ranks.
#pragma once

#include <functional>

#include "bench/schedule/timed_setting.h"
#include "common/runtime/service_main.h"
#include "services/served_model/served_model.h"

namespace foretoken::bench {

// Takes "--timed TEXT" out of the arguments. Ends the process with exit code 64 if they are not
// there or the text is none.
TimedSetting take_timed_setting(int& argc, char** argv);

// Calls `serve`, and returns what it returns. Throws FatalError.
int serve_timed(const TimedSetting& setting,
                const ModelPlan& plan,
                Runtime& runtime,
                const std::function<int(const ServedModel&)>& serve);

}  // namespace foretoken::bench
