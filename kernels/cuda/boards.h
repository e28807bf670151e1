// Boards on a CUDA device: memory and an event that processes on the same device share, with a card
// that says how to open them. A process opens its own boards too, by the card alone. What is native
// to the device is in board_place.h. Of a view that did not settle the device is given up: the
// backend is of no more use, but it and the process end without waiting for a queue that may never.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "kernels/cuda/runtime.h"
#include "kernels/include/verdict_board.h"

namespace foretoken::cuda {

// `is_recording`: of the backend, looked at whenever something is queued, for marks and waits
// cannot be recorded. Both null with a sentence in `why` if it cannot be.
std::unique_ptr<VerdictBoard> make_board(Runtime& runtime,
                                         const bool& is_recording,
                                         std::int32_t n_entries,
                                         std::string& why);
std::unique_ptr<BoardView> open_board(Runtime& runtime,
                                      const bool& is_recording,
                                      std::span<const std::byte> card,
                                      std::string& why);

}  // namespace foretoken::cuda
