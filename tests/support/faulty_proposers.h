// Proposers that misbehave on purpose, for property tests: whatever they do, the target's text must
// not change. All randomness is seeded.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <unordered_map>
#include <variant>
#include <vector>

#include "common/engine/draft_engine.h"
#include "common/engine/draft_watch.h"
#include "common/spec/proposer.h"

namespace foretoken {

// What a link does to a message. Rates in per cent; delays in calls of collect.
struct LinkFaults {
  int lose = 0;
  int repeat = 0;
  int max_delay = 0;  // different delays reorder
};

template <class Message>
class FaultyLink {
 public:
  FaultyLink(const LinkFaults& faults, std::uint64_t seed) : faults_(faults), rng_(seed) {}

  void send(Message message) {
    for (int copies = draw(100) < faults_.repeat ? 2 : 1; copies > 0; --copies)
      if (draw(100) >= faults_.lose)
        under_way_.emplace(now_ + draw(faults_.max_delay + 1), message);
  }
  std::vector<Message> receive() {
    std::vector<Message> arrived;
    while (!under_way_.empty() && under_way_.begin()->first <= now_) {
      arrived.push_back(std::move(under_way_.begin()->second));
      under_way_.erase(under_way_.begin());
    }
    ++now_;
    return arrived;
  }
  bool is_empty() const { return under_way_.empty(); }

 private:
  int draw(int n) { return static_cast<int>(rng_() % static_cast<std::uint64_t>(n)); }
  LinkFaults faults_;
  std::mt19937_64 rng_;
  std::multimap<int, Message> under_way_;
  int now_ = 0;
};

// Says random tokens, sometimes malformed ones: ids beyond the vocabulary, parents that point
// forward, wrong hashes, bases ahead of the text. Now and then falls silent for a while.
class Liar final : public Proposer {
 public:
  Liar(std::int32_t vocab_size, std::uint64_t seed) : vocab_size_(vocab_size), rng_(seed) {}
  ProposerKind kind() const override { return ProposerKind::kDraft; }
  void open(const Opening& opening) override { texts_[opening.seq] = &opening.text; }
  void ask(std::span<const Ask> asks) override;
  void collect(TimePoint now, ProposalStore& into) override;
  void close(SeqId seq) override { texts_.erase(seq); }

 private:
  std::int32_t vocab_size_;
  std::mt19937_64 rng_;
  std::unordered_map<SeqId, const CommittedTokens*> texts_;
  std::vector<std::pair<SeqId, Proposal>> said_;
};

// A draft engine in the same process behind a faulty link: the protocol of a draft service in
// small. Each message may be lost, repeated, late or overtaken, and the draft may vanish with all
// it knows.
class LinkedDraft final : public Proposer, public DraftWatch {
 public:
  LinkedDraft(DraftEngine& engine, PrefixHash root, const LinkFaults& faults, std::uint64_t seed)
      : engine_(engine), root_(root), to_draft_(faults, seed), to_target_(faults, seed + 1) {}
  ProposerKind kind() const override { return ProposerKind::kDraft; }
  void open(const Opening& opening) override;
  void ask(std::span<const Ask> asks) override;
  void collect(TimePoint now, ProposalStore& into) override;
  void close(SeqId seq) override;
  DraftOutlook outlook(SeqId seq, TimePoint now) const override;

  void vanish() { engine_.detach_all(kTarget.target); }
  static constexpr TargetKey kTarget{WorkerId{7}, Incarnation{1}};

 private:
  struct Known {
    SamplingParams params;
    std::uint32_t n_prompt = 0;
    const CommittedTokens* text = nullptr;
    Lease lease{1};
    Epoch epoch{0};
    Position confirmed = 0;
    std::uint32_t budget = 0;
    bool needs_attach = true;
  };
  using ToDraft = std::variant<wire::Attach, wire::ProposeRecord, wire::CloseSequence>;
  struct ToTarget {
    std::vector<wire::ProposalRecord> proposals;
    std::vector<wire::Need> needs;
  };
  void tell(SeqId seq, Known& known);
  void attend();
  void deliver(const ToDraft& message, TimePoint now, ToTarget& answers);

  DraftEngine& engine_;
  PrefixHash root_;
  FaultyLink<ToDraft> to_draft_;
  FaultyLink<ToTarget> to_target_;
  std::unordered_map<SeqId, Known> sequences_;
  std::unordered_map<SeqId, Epoch> answered_;
  std::uint64_t n_steps_ = 0;
  TimePoint now_{};
  ToTarget said_;
};

}  // namespace foretoken
