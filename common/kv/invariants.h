// The rules of the KV ledger as one pure function: a snapshot in, every violation out, one sentence
// each. Tests run it after every simulated step.
#pragma once

#include <string>
#include <vector>

#include "common/kv/kv_cache.h"

namespace foretoken {

std::vector<std::string> kv_violations(const KvSnapshot& snapshot);

}  // namespace foretoken
