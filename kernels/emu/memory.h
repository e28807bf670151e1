// The emulated device's memory, and a watch over it: who touches what while kernels run. A kernel
// whose launch overlaps begins while kernels in front of it may be at work, and they may be far in
// front, each having let the next one start. So before it waits for them it may read what no kernel
// ever writes, and nothing else; the watch ends the program with a sentence when one does more.
//
// It works by the pages of allocations: closed, nothing can be touched, and an allocation that no
// kernel has written opens for reading when it is read; open, an allocation opens for writing when
// it is first written, unless a thread has read it early. All emulated devices of a process share
// one arena, since tests hand memory from one to another; a thread that meets a page closed for
// another's kernel comes back when that one has ended. Under AddressSanitizer memory is the heap's,
// whose ends it sees, and nothing is watched. For machine.cc and runtime_emu.cc; tests only.
#pragma once

#include <cstddef>

namespace foretoken::emu {

// Zeroed; null when there is none left.
void* allocate(std::size_t bytes);
void release(void* address);

// Whether this build can watch.
bool can_watch();

// From here to its end the calling thread runs one kernel; one at a time. Open to begin with.
class Watch {
 public:
  Watch();
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  void close();
  void open();
};

}  // namespace foretoken::emu
