// Device memory that processes of one host share. Two implementations:
// kernels/cuda/peer_memory_cuda.cu, and for the emulator, which has one process,
// kernels/emu/peer_memory_emu.cc.
#pragma once

#include <array>
#include <cstddef>

#include "kernels/device/runtime.h"

namespace foretoken::cuda {

using MemoryHandle = std::array<std::byte, 64>;

// Of memory that runtime.allocate() gave. All zeros where it cannot be shared.
MemoryHandle handle_of(Runtime& runtime, void* address);
// Null where the other process's memory is out of reach, with `why` in words.
void* open_peer(Runtime& runtime, const MemoryHandle& handle, std::string& why);
void close_peer(Runtime& runtime, void* address) noexcept;
}  // namespace foretoken::cuda
