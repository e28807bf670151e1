#include "services/edge/answer_room.h"

#include <string>

namespace foretoken::edge {
namespace {

HttpError answers_too_large(std::size_t max_bytes) {
  return http_error(
      Error{ErrorCode::kInvalidValue,
            "the answers to this body take more than " + std::to_string(max_bytes >> 20) +
                " MiB of memory together, with their log probabilities and those of the prompt "
                "(edge.max_bodies_mib); ask for fewer answers, tokens or log probabilities in one "
                "body"});
}

}  // namespace

bool AnswerRoom::hold(std::size_t n_bytes) {
  const HeldRoom room = exchange_.hold_answer(n_bytes);
  if (room == HeldRoom::kNever) refusal_ = answers_too_large(max_bytes_);
  if (room == HeldRoom::kTaken) refusal_ = overloaded_error();
  return !refusal_;
}

}  // namespace foretoken::edge
