// Boards between processes that compute on CPUs: an anonymous file (memfd) that the owner maps for
// writing and everybody else for reading. Its card says where in /proc it is found, so only whoever
// may look into the owner's process reaches it: the same user, in the same PID namespace. A view
// keeps the memory, whatever becomes of the owner. Nothing is queued on a CPU: what was posted
// before a message is there when the message has come, so marks and waits have nothing to do.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "kernels/include/verdict_board.h"

namespace foretoken::cpu {

// Both null with a sentence in `why` if it cannot be.
std::unique_ptr<VerdictBoard> make_board(std::int32_t n_entries, std::string& why);
std::unique_ptr<BoardView> open_board(std::span<const std::byte> card, std::string& why);

}  // namespace foretoken::cpu
