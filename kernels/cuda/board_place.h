// Where a board lies on a device: memory of its own, and an event that says when its last posts are
// done; both can be opened by other processes. Two halves: board_place_cuda.cu, and for the
// emulator, which has one process, kernels/emu/board_place_emu.cc.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "kernels/cuda/peer_memory.h"
#include "kernels/cuda/runtime.h"

namespace foretoken::cuda {

using EventHandle = std::array<std::byte, 64>;

struct PlaceHandles {
  MemoryHandle memory{};
  EventHandle event{};
};

// Ours or another process's. Does not need the Runtime it was made with in order to go, so that a
// view in the owner's own process may outlive the owner; what is queued must not use it any more.
class BoardPlace {
 public:
  virtual ~BoardPlace() = default;
  virtual void* memory() const = 0;
  // Queues on this Runtime: the event, or the wait for it.
  virtual void mark(Runtime& runtime) = 0;
  virtual void wait(Runtime& runtime) = 0;
};

// Zeroed memory, an event, and what others open them with. Null with `why` if it cannot be.
std::shared_ptr<BoardPlace> make_place(Runtime& runtime,
                                       std::size_t n_bytes,
                                       PlaceHandles& handles,
                                       std::string& why);
// Another process's. Null with `why` if it is out of reach.
std::shared_ptr<BoardPlace> open_place(Runtime& runtime,
                                       const PlaceHandles& handles,
                                       std::string& why);

// Whether all that was queued is done.
bool is_idle(Runtime& runtime);
// Which device this is, the same in every process: 32 hexadecimal digits.
std::string device_of(Runtime& runtime);

}  // namespace foretoken::cuda
