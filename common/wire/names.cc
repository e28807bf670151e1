#include <array>

#include "common/wire/message_types.h"

namespace foretoken::wire {
namespace {

template <class E, std::size_t N>
std::string_view pick(E value, const std::array<std::string_view, N>& names) {
  const auto index = static_cast<std::size_t>(value);
  return index < N ? names[index] : "unknown";
}

}  // namespace

std::string_view name_of(Role value) {
  return pick<Role, 6>(value, {"router", "tokenizer", "draft", "target", "edge", "tool"});
}
std::string_view name_of(FinishReason value) {
  return pick<FinishReason, 4>(value, {"stop", "length", "cancelled", "deadline"});
}
std::string_view name_of(CloseReason value) {
  return pick<CloseReason, 6>(
      value, {"stop", "cancelled", "deadline", "migrated", "draining", "finished"});
}
std::string_view name_of(Acceptance value) {
  return pick<Acceptance, 2>(value, {"coupled", "rejection"});
}
std::string_view name_of(NeedReason value) {
  return pick<NeedReason, 5>(value, {"unknown", "gap", "mismatch", "evicted", "refused"});
}
std::string_view name_of(PromptKind value) {
  return pick<PromptKind, 3>(value, {"tokens", "text", "messages"});
}
std::string_view name_of(Activity value) {
  return pick<Activity, 3>(value, {"waiting", "messages", "step"});
}
std::string_view name_of(ProposerKind value) {
  return pick<ProposerKind, 5>(value, {"default", "draft", "ngram", "prediction", "none"});
}

}  // namespace foretoken::wire
