#include "common/runtime/process_limits.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <string>

#include "common/base/result.h"

namespace foretoken {
namespace {

// libzmq's two, the sockets', the clients' relay or the encoder, the loading pulse, and the
// interpreter's room.
constexpr std::size_t kThreads = 6;
constexpr std::size_t kBuffers = std::size_t{16} << 20;

std::string in_mebibytes(std::size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

std::uint64_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMostDescriptors;
  const rlim_t most = std::min<rlim_t>(limit.rlim_max, kMostDescriptors);
  if (limit.rlim_cur < most) {
    limit.rlim_cur = most;
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
    (void)::getrlimit(RLIMIT_NOFILE, &limit);
  }
  return limit.rlim_cur;
}

void claim_descriptors() {
  const std::uint64_t n = raise_descriptor_limit();
  if (n >= kLeastDescriptors) return;
  throw FatalError(ErrorCode::kIo, "this process may have " + std::to_string(n) +
                                       " files and sockets open and needs " +
                                       std::to_string(kLeastDescriptors) +
                                       " at least: raise the limit (ulimit -n 1024, LimitNOFILE= "
                                       "of a unit, --ulimit nofile= of a container)");
}

void claim_thread_memory() {
  rlimit space{};
  if (::getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY) return;
  ::mallopt(M_ARENA_MAX, 1);
  pthread_attr_t usual{};
  std::size_t stack = std::size_t{8} << 20;
  if (::pthread_attr_init(&usual) == 0) {
    ::pthread_attr_getstacksize(&usual, &stack);
    ::pthread_attr_destroy(&usual);
  }
  const std::size_t need = kThreads * stack + kBuffers;
  void* room = ::mmap(nullptr, need, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    throw FatalError(ErrorCode::kOutOfMemory, "threads and buffers need " + in_mebibytes(need) +
                                                  " of address space more than the limit of " +
                                                  in_mebibytes(space.rlim_cur) +
                                                  " leaves: raise it (ulimit -v, in KiB)");
  ::munmap(room, need);
}

}  // namespace foretoken
