// What a proposer in this process has to say until the engine collects it. One thread.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "common/spec/proposal_store.h"

namespace foretoken {

class ReadyProposals {
 public:
  void add(SeqId seq, Proposal proposal) { ready_.emplace_back(seq, std::move(proposal)); }
  void hand_over(ProposalStore& into) {
    for (const auto& [seq, proposal] : ready_) into.insert(seq, proposal);
    ready_.clear();
  }
  void forget(SeqId seq) {
    std::erase_if(ready_, [&](const auto& each) { return each.first == seq; });
  }

 private:
  std::vector<std::pair<SeqId, Proposal>> ready_;
};

}  // namespace foretoken
