// How the CUDA backends of several ranks come to sum on the device: memory that each opens to the
// others (one host), or NCCL, a library that is loaded where it is found and never linked. Neither
// has run on several devices yet: they are used only where the configuration asks for them.
#pragma once

#include <functional>
#include <memory>

#include "kernels/device/runtime.h"
#include "kernels/include/backend.h"

namespace foretoken::cuda {

// Null: these ranks sum through the host. Throws FatalError where links.tier names what cannot be.
std::unique_ptr<RankSums> join_ranks(Runtime& runtime, const RankLinks& links);

}  // namespace foretoken::cuda
