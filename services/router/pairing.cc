#include "services/router/pairing.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/log.h"
#include "services/router/placement.h"

namespace foretoken {
namespace {

constexpr std::size_t kMostRefused = 1024;

// Draft `d` of a target's `n`. Each target, by its number, begins with another draft.
wire::Assign assign_of(const Worker& draft, std::size_t d, std::size_t n, std::size_t target) {
  return {.draft = draft.id,
          .incarnation = draft.incarnation,
          .name = draft.hello.name,
          .endpoint = draft.hello.endpoint,
          .fingerprints = draft.hello.fingerprints,
          .max_sequences = draft.hello.max_sequences,
          .order = static_cast<std::uint32_t>((d + n - target % n) % n),
          .source = draft.hello.source};
}

std::string why_not_used(const Worker& draft) {
  if (draft.state == wire::WorkerState::kDraining) return "draining";
  return draft.hello.source == wire::DraftSource::kMemory
             ? "a memory of another model, or it takes none"
             : "there is one of its own model";
}

}  // namespace

void Pairing::pair_all(const Pool& pool, std::span<const Worker* const> needed, Actions& actions) {
  const auto drafts = pool.alive(wire::Role::kDraft);
  const auto targets = pool.alive(wire::Role::kTarget);
  for (std::size_t t = 0; t < targets.size(); ++t) {
    const Worker& target = *targets[t];
    const auto own = drafts_of(target, needed);
    for (std::size_t d = 0; d < own.size(); ++d)
      actions.push_back(ToWorker{target.id, {}, assign_of(*own[d], d, own.size(), t)});
    for (const Worker* draft : drafts) {
      if (std::ranges::find(own, draft) != own.end()) continue;
      if (why_not_paired(target.hello, draft->hello).empty())
        actions.push_back(ToWorker{target.id,
                                   {},
                                   wire::Unassign{.draft = draft->id,
                                                  .incarnation = draft->incarnation,
                                                  .reason = why_not_used(*draft)}});
      else
        log_refused(target.hello, draft->hello,
                    why_not_together(target.hello, draft->hello, targets));
    }
  }
}

void Pairing::unassign(const Pool& pool,
                       const Worker& draft,
                       const std::string& why,
                       Actions& actions) {
  for (const Worker* target : pool.alive(wire::Role::kTarget))
    actions.push_back(ToWorker{
        target->id,
        {},
        wire::Unassign{.draft = draft.id, .incarnation = draft.incarnation, .reason = why}});
}

void Pairing::log_refused(const wire::Hello& target,
                          const wire::Hello& draft,
                          const std::string& reason) {
  if (reason.empty() || refused_.size() >= kMostRefused || !refused_.insert(reason).second) return;
  log_warning("refused a pair",
              {{"target", target.name}, {"draft", draft.name}, {"reason", reason}});
}

}  // namespace foretoken
