// A sequence as its draft holds it under a lease: its text and branches, what its target asked for,
// what was answered, and what follows from these: how long its chain may become, and whether it
// wants rows of a pass. Must not know other sequences, what a pass has room for, or who sends
// answers. Its fields are set by the classes of a draft engine. Pure; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "common/engine/draft_branches.h"
#include "common/engine/draft_events.h"
#include "common/grammar/constraint.h"

namespace foretoken {

// More than this many tokens behind is a prompt, and goes through in chunks.
inline constexpr std::uint32_t kFewBehind = 64;

struct DraftKey {
  TargetKey target;
  SeqId seq{};
  auto operator<=>(const DraftKey&) const = default;
};

struct ChainLimits {
  std::uint32_t max_ahead = 0;  // guesses of a chain
  Position max_len = 0;         // tokens of a text
};

// What a draft decides of a sequence that it takes.
struct LeaseTerms {
  ChainLimits limits;
  std::span<const TokenId> end_tokens;   // borrowed for the call
  std::optional<Constraint> constraint;  // that the parameters ask for
};

struct LeasedSequence : BranchedSequence {
  // Takes the tokens over.
  LeasedSequence(const DraftKey& whose, wire::Attach& attach, LeaseTerms terms);

  // How long its chain may become: what was asked for, and beyond that once it has been answered.
  std::uint32_t chain_limit() const;
  // Its chain goes on once it has answered.
  bool goes_on() const { return budget > 0 && run_ahead > 0; }
  // What it guesses now was not asked for: everything else comes first.
  bool is_ahead() const { return !owes_answer && goes_on(); }
  // Whether texts beside its chain may be of use: those of a target that listens all the time.
  bool may_branch() const { return goes_on() && !chain.is_outgrown(); }
  bool can_grow() const;
  // How many more guesses it wants and may make.
  std::uint32_t n_wanted() const;
  // Tokens that were not fed to the model yet.
  std::uint32_t n_pending(const KvCache& kv) const;
  bool wants_rows(const KvCache& kv) const;

  DraftKey key;
  Lease lease{};
  ChainLimits limits;
  Epoch epoch{};
  bool is_fresh = true;  // no blocks since ATTACH: its prompt is prefilled before anything is asked
  std::uint64_t tenant_salt = 0;
  PrefixHash prefix = 0;        // of the committed tokens
  std::uint32_t budget = 0;     // chain length wanted
  std::uint32_t run_ahead = 0;  // beyond it, once it has answered
  bool owes_answer = false;
  bool has_guessed = false;        // since it last answered
  TimePoint asked{};               // when the record came that it owes the answer to
  std::optional<Epoch> overtaken;  // a record whose answer was not complete when the next one came
  TimePoint overtaken_asked{};
  bool is_stuck = false;   // no token may follow: until the next record
  std::uint64_t turn = 0;  // when it last had rows
  TimePoint renewed{};     // when its target last sent anything
  TimePoint named{};       // when a message last named this sequence
  TimePoint busy_until{};
};

using LeasedSequences = std::map<DraftKey, std::unique_ptr<LeasedSequence>>;

}  // namespace foretoken
