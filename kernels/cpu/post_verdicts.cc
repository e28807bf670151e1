#include <atomic>
#include <cstdint>

#include "kernels/contract.h"
#include "kernels/cpu/backend.h"

namespace foretoken::cpu {

// Another process may read meanwhile. It believes what stood between two sights of the same tag, so
// the old tag goes before the rest changes, and the new one comes after.
void CpuBackend::post_verdicts_now(const PostVerdictsArgs& args) {
  contract::check_contents(args);
  for (std::int32_t i = 0; i < args.n; ++i) {
    const Verdict& verdict = args.verdicts[args.which[i]];
    BoardEntry& entry = args.board[args.entries[i]];
    std::atomic_ref(entry.tag).store(0, std::memory_order_relaxed);
    std::atomic_ref(entry.n_accepted).store(verdict.n_accepted, std::memory_order_release);
    std::atomic_ref(entry.next_token).store(verdict.next_token, std::memory_order_release);
    std::atomic_ref(entry.tag).store(args.tags[i], std::memory_order_release);
  }
}

}  // namespace foretoken::cpu
