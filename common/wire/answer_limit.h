// How large an answer to a client may be: more than a message between services, as a whole one has
// up to 20 log-probabilities for each token.
#pragma once

#include <cstddef>

namespace foretoken::wire {

// As much as the router keeps of the end of an answer for a client that does not read
// (common/runtime/outbox.h).
inline constexpr std::size_t kMaxAnswerBytes = std::size_t{32} << 20;

}  // namespace foretoken::wire
