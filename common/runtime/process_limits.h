// What the system lets this process have, looked at before a service starts: too little is refused
// with a sentence, where libraries would end the process later without one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace foretoken {

// A service's own files, sockets and events (31 at most with one of each service) and its peers,
// four each with a link through memory.
inline constexpr std::size_t kLeastDescriptors = 128;
// As many as the largest door takes clients, and as the units ask for.
inline constexpr std::size_t kMostDescriptors = 65536;

// Raises the soft limit of descriptors to the hard one, at most to kMostDescriptors. Returns the
// limit in force.
std::uint64_t raise_descriptor_limit();

// Before the first thread: the same, and throws FatalError where that is below kLeastDescriptors.
void claim_descriptors();

// Before the first thread, and again when a service has loaded, beside what that took. Where there
// is a limit of address space (ulimit -v): that the threads of a service fit in it, for libzmq ends
// the process when one of its own does not start. Throws FatalError. From the first call on no
// thread reserves a heap of its own, which would take that room.
void claim_thread_memory();

}  // namespace foretoken
