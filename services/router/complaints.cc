#include "services/router/complaints.h"

#include <cstdint>
#include <optional>

#include "services/router/placement.h"

namespace foretoken {
namespace {

constexpr std::uint64_t kLongTurnUs = 2'000'000;  // a longer turn is shown in the status

}  // namespace

std::string complaints_about(const Worker& worker, const Pool& pool) {
  std::string sentences;
  const auto add = [&](const std::string& sentence) {
    if (!sentence.empty() && sentences.size() < 1024)
      sentences += (sentences.empty() ? "" : "; ") + sentence;
  };
  if (worker.state != wire::WorkerState::kGone && worker.load.busy_us >= kLongTurnUs)
    add("in one turn (" + std::string(name_of(worker.load.activity)) + ") for " +
        std::to_string(worker.load.busy_us / 1'000'000) + " s");
  const auto tokenizers = pool.alive(wire::Role::kTokenizer);
  if (worker.hello.role == wire::Role::kTarget && !tokenizers.empty() &&
      !place_tokenizer(tokenizers, worker.hello.fingerprints, std::nullopt))
    add("no tokenizer has its vocabulary and chat template");
  const auto targets = pool.alive(wire::Role::kTarget);
  for (const Worker* other : pool.all()) {
    if (other->state == wire::WorkerState::kGone) continue;
    if (other->id != worker.id && other->hello.name == worker.hello.name)
      add("another " + worker.hello.name +
          " runs on another host, and metrics do not distinguish them: give one another --id");
    const wire::Role mine = worker.hello.role, theirs = other->hello.role;
    const bool is_helper = theirs == wire::Role::kDraft || theirs == wire::Role::kTokenizer;
    if (mine == wire::Role::kTarget && is_helper)
      add(why_not_together(worker.hello, other->hello, targets));
    if (mine != wire::Role::kEdge && theirs == wire::Role::kTarget && mine != theirs)
      add(why_not_together(other->hello, worker.hello, targets));
    if (mine == wire::Role::kDraft && theirs == wire::Role::kTarget)
      for (const wire::DraftSetAside& aside : other->load.set_aside)
        if (aside.draft == worker.id)
          add("set aside by " + other->hello.name + ": " + aside.reason + "; tried again in " +
              std::to_string(aside.again_in_s) + " s");
  }
  return sentences;
}

}  // namespace foretoken
