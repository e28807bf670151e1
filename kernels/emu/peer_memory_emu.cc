// The emulated device has one process: there is no other to share memory with.
#include "kernels/device/peer_memory.h"

namespace foretoken::cuda {

MemoryHandle handle_of(Runtime&, void*) { return {}; }
void* open_peer(Runtime&, const MemoryHandle&, std::string& why) {
  why = "the emulated device has no other processes";
  return nullptr;
}
void close_peer(Runtime&, void*) noexcept {}

}  // namespace foretoken::cuda
