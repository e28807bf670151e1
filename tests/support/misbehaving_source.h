// A source of proposals in front of an honest one, which it quotes faithfully or not: for tests of
// what a target makes of each. It has the honest one's kind. All randomness is seeded.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <random>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "common/engine/draft_watch.h"
#include "common/spec/proposal_store.h"
#include "common/spec/proposer.h"

namespace foretoken {

enum class Behaviour : std::uint8_t {
  kHonest,
  kMute,        // says nothing, and owes every answer
  kLying,       // other tokens in every place, and sure of them
  kLate,        // a few steps behind, and in another order
  kDuplicated,  // everything twice, and once more when it is stale
  kStreaming,   // each answer in parts: one token more with every collect()
};
inline constexpr std::array<std::string_view, 6> kBehaviourNames{
    "honest", "mute", "lying", "late", "duplicated", "streaming"};

class MisbehavingSource final : public Proposer, public DraftWatch {
 public:
  // `honest` is borrowed.
  MisbehavingSource(Proposer& honest, Behaviour behaviour, std::int32_t n_ids, std::uint64_t seed)
      : honest_(honest), behaviour_(behaviour), n_ids_(n_ids), quoted_(n_ids), rng_(seed) {}

  ProposerKind kind() const override { return honest_.kind(); }
  void open(const Opening& opening) override;
  void ask(std::span<const Ask> asks) override;
  void collect(TimePoint now, ProposalStore& into) override;
  void close(SeqId seq) override;
  // As of a draft that is attached.
  DraftOutlook outlook(SeqId seq, TimePoint now) const override;

  std::uint64_t n_said() const { return n_said_; }  // tokens

 private:
  struct Saying {
    SeqId seq{};
    Proposal proposal;
    int calls_left = 0;       // of collect()
    bool is_partial = false;  // the rest of the answer is owed still
  };
  struct Heard {
    const CommittedTokens* text = nullptr;
    bool is_owed = false;
  };
  int draw(int n) { return static_cast<int>(rng_() % static_cast<std::uint64_t>(n)); }
  void quote(SeqId seq, const Heard& heard);
  void say_later(SeqId seq, const Proposal& proposal, int calls);
  void stream(SeqId seq, const Proposal& answer);

  Proposer& honest_;
  Behaviour behaviour_;
  std::int32_t n_ids_;
  ProposalStore quoted_;  // what the honest one said
  std::mt19937_64 rng_;
  std::unordered_map<SeqId, Heard> heard_;
  std::deque<Saying> under_way_;
  std::uint64_t n_said_ = 0;
};

// Knows the answers beforehand, but for a mistake in every few tokens: a draft or a memory without
// a model.
class Oracle final : public Proposer {
 public:
  Oracle(ProposerKind kind, std::int32_t n_ids, std::uint64_t seed)
      : kind_(kind), n_ids_(n_ids), rng_(seed) {}
  // Prompt and answer of a sequence, before it is opened.
  void set_text(SeqId seq, std::vector<TokenId> text) { whole_texts_[seq] = std::move(text); }

  ProposerKind kind() const override { return kind_; }
  void open(const Opening& opening) override { texts_[opening.seq] = &opening.text; }
  void ask(std::span<const Ask> asks) override;
  void collect(TimePoint now, ProposalStore& into) override;
  void close(SeqId seq) override { texts_.erase(seq); }

 private:
  ProposerKind kind_;
  std::int32_t n_ids_;
  std::mt19937_64 rng_;
  std::unordered_map<SeqId, std::vector<TokenId>> whole_texts_;
  std::unordered_map<SeqId, const CommittedTokens*> texts_;
  std::vector<std::pair<SeqId, Proposal>> said_;
};

}  // namespace foretoken
