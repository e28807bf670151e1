// The rules of the KV ledger as one pure function: a snapshot in, every violation out, one sentence
// each. Tests run it after every simulated step.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/kv/kv_cache.h"

namespace foretoken {

// What sequences hold: [length] tokens each. The cache does not have them; the rules about contents
// are checked for the sequences that are named here.
using KvTexts = std::map<SeqId, std::vector<TokenId>>;

std::vector<std::string> kv_violations(const KvSnapshot& snapshot, const KvTexts& texts = {});

}  // namespace foretoken
