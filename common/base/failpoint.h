// Faults on purpose, for tests of real processes.
// FORETOKEN_FAILPOINTS="target.step=abort:0.01,draft.send=error" makes the named places misbehave
// with that probability (1 if not given). Without the variable a place costs one load and a branch.
// Seeded by FORETOKEN_FAILPOINT_SEED (default 1) and counted, so that a run can be repeated.
#pragma once

#include <cstdint>
#include <string_view>

namespace foretoken {

enum class FailAction : std::uint8_t { kNone, kError, kDelay, kAbort, kStop };

// Anything armed at all? Read once per process.
bool failpoints_armed();
// Decides for this hit; kAbort and kDelay (10 ms) and kStop (SIGSTOP) are carried out here, kError
// is the caller's to act.
FailAction failpoint_hit(std::string_view name);

inline FailAction failpoint(std::string_view name) {
  return failpoints_armed() ? failpoint_hit(name) : FailAction::kNone;
}

}  // namespace foretoken
