// Says nothing: plain decoding, the baseline of every test and measurement.
#pragma once

#include "common/spec/proposer.h"

namespace foretoken {

class NullProposer final : public Proposer {
 public:
  ProposerKind kind() const override { return ProposerKind::kNone; }
  void open(const Opening&) override {}
  void ask(std::span<const Ask>) override {}
  void collect(TimePoint, ProposalStore&) override {}
  void close(SeqId) override {}
};

}  // namespace foretoken
