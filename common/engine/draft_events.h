// What a draft engine answers, as plain data: how a target's message was taken, what a step sends
// to targets, and the engine's counts.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/kv/kv_cache.h"
#include "common/messages/draft.h"

namespace foretoken {

// One run of a target. One that restarts has another incarnation, so nothing of its former one is
// confused with it.
struct TargetKey {
  WorkerId target{};
  Incarnation incarnation{};
  auto operator<=>(const TargetKey&) const = default;
};

struct Applied {};  // taken in
struct Ignored {};  // of a dead lease, or a record older than one applied: drop and count

using DraftOutcome = std::variant<Applied, Ignored, wire::Need, wire::DraftBusy>;

// Answers to an ATTACH that is not taken: its tokens are not those of its fingerprint, or there is
// no room.
wire::Need mismatch_of(const wire::Attach& attach);
wire::DraftBusy busy_with(const wire::Attach& attach, Duration retry_after);

// A chain ready to be sent, complete or as far as it was when the next record overtook it (then the
// epoch is that of the record before, and an answer to the later one follows), or longer than it
// was when that epoch was answered. May be empty: there is nothing to say beyond the draft's
// longest context, after a token that it has no embedding for or after an end token, and the target
// need not wait.
struct ReadyProposal {
  TargetKey to;
  wire::ProposalRecord record;
  TimePoint asked{};  // when the record came that it answers; none: no question
};

// A sequence that lost its blocks to others.
struct BusySequence {
  TargetKey of;
  wire::DraftBusy busy;
};

struct DraftOutput {
  std::vector<ReadyProposal> proposals;
  std::vector<BusySequence> busy;
  std::uint32_t n_rows = 0;   // 0: nothing was run
  std::uint32_t n_steps = 0;  // one after another in this pass
  std::uint32_t n_drafted = 0;
};

struct DraftSnapshot {
  std::uint32_t n_attached = 0;    // now
  std::uint32_t n_behind = 0;      // now: sequences with work to do
  std::uint64_t n_remembered = 0;  // now: tokens kept of all of them, own guesses included
  KvStats kv;
  std::uint64_t n_ignored = 0;
  std::uint64_t n_needs = 0;
  std::uint64_t n_busy = 0;
  std::uint64_t n_expired = 0;
  std::uint64_t n_steps = 0;
  std::uint64_t n_rows = 0;
  std::uint64_t n_drafted = 0;         // tokens guessed
  std::uint64_t n_kept = 0;            // guesses that a later tail confirmed
  std::uint64_t n_cut = 0;             // guesses thrown away
  std::uint64_t n_branches = 0;        // texts begun beside a chain
  std::uint64_t n_branches_taken = 0;  // of these, those that the target's text went on with
  std::uint64_t n_branch_tokens = 0;   // guessed for them; n_drafted has those of branches taken
};

}  // namespace foretoken
