#include "kernels/emu/memory.h"

#include <cstdlib>
#include <cstring>

#include "kernels/emu/machine.h"

#if defined(__SANITIZE_ADDRESS__)

namespace foretoken::emu {

void* allocate(std::size_t bytes) {
  void* address = nullptr;  // not a byte more than asked for, so that the sanitizer sees the end
  if (posix_memalign(&address, 256, bytes) != 0) return nullptr;
  std::memset(address, 0, bytes);
  return address;
}
void release(void* address) { std::free(address); }
bool can_watch() { return false; }
Watch::Watch() = default;
Watch::~Watch() = default;
void Watch::close() {}
void Watch::open() {}

}  // namespace foretoken::emu

#else

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace foretoken::emu {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kReserved = std::size_t{256} << 30;  // addresses, never used twice

struct Piece {
  std::size_t bytes = 0;    // as asked for
  bool is_written = false;  // by a kernel
  bool was_read_early = false;
  std::uint64_t readable_in = 0;  // this closing
  std::size_t span() const { return (bytes + kPage - 1) / kPage * kPage; }
};

std::mutex mutex;  // over all but the two flags at the end
std::byte* arena = nullptr;
std::byte* arena_end = nullptr;                   // of what was ever handed out
auto& pieces = *new std::map<std::byte*, Piece>;  // outlives every backend
bool is_closed = false;
std::uint64_t n_closings = 0;
std::atomic<bool> is_watched = false;
thread_local bool is_mine = false;  // the kernel that runs
struct sigaction earlier;

void protect(std::byte* from, const std::byte* to, int how) {
  if (from < to && mprotect(from, static_cast<std::size_t>(to - from), how) != 0)
    die("its memory cannot be protected");
}

std::string place_in(const std::byte* at, const std::map<std::byte*, Piece>::value_type& piece) {
  return "byte " + std::to_string(at - piece.first) + " of an allocation of " +
         std::to_string(piece.second.bytes) + " bytes";
}

// By the thread that runs the kernel. Returns when the access may be tried again.
void judge(std::byte* at) {
  const std::lock_guard lock(mutex);
  auto found = pieces.upper_bound(at);
  if (found == pieces.begin() || at >= (--found)->first + found->second.span())
    die("touches memory that was not allocated");
  Piece& piece = found->second;
  const auto open_for = [&](int how) { protect(found->first, found->first + piece.span(), how); };
  if (is_closed) {
    if (piece.is_written)
      die("touches " + place_in(at, *found) +
          " that kernels write, before it has waited for earlier kernels");
    if (piece.readable_in == n_closings)
      die("writes " + place_in(at, *found) + " before it has waited for earlier kernels");
    piece.was_read_early = true;
    piece.readable_in = n_closings;
    return open_for(PROT_READ);
  }
  if (piece.was_read_early)
    die("writes " + place_in(at, *found) +
        " that a kernel has read before it waited for earlier kernels");
  piece.is_written = true;
  open_for(PROT_READ | PROT_WRITE);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  auto* at = static_cast<std::byte*>(info->si_addr);
  if (at >= arena && at < arena + kReserved) {
    if (is_mine) return judge(at);
    while (is_watched) sched_yield();
    if (at < arena_end) return;
  }
  if ((earlier.sa_flags & SA_SIGINFO) != 0) return earlier.sa_sigaction(signal, info, context);
  sigaction(SIGSEGV, &earlier, nullptr);  // the next handler gets the signal as without us
}

void reserve() {
  void* at =
      mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) die("no addresses for its memory");
  arena = arena_end = static_cast<std::byte*>(at);
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &earlier);
}

// What kernels have written can be written, the rest read. Neighbours that are alike go together.
void open_all() {
  std::byte* from = arena;
  int how = PROT_NONE;
  for (const auto& [at, piece] : pieces) {
    const int mine = piece.is_written ? PROT_READ | PROT_WRITE : PROT_READ;
    if (mine == how) continue;
    protect(from, at, how);
    from = at;
    how = mine;
  }
  protect(from, arena_end, how);
}

}  // namespace

void* allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex);
  if (arena == nullptr) reserve();
  Piece piece{.bytes = bytes == 0 ? 1 : bytes};
  std::byte* at = arena_end;
  if (piece.span() > static_cast<std::size_t>(arena + kReserved - arena_end)) return nullptr;
  arena_end += piece.span();
  protect(at, arena_end, PROT_READ | PROT_WRITE);
  pieces.emplace(at, piece);
  return at;
}

void release(void* address) {
  const std::lock_guard lock(mutex);
  const auto found = pieces.find(static_cast<std::byte*>(address));
  if (found == pieces.end()) return;
  madvise(address, found->second.span(), MADV_DONTNEED);
  pieces.erase(found);
}

bool can_watch() { return true; }

Watch::Watch() {
  const std::lock_guard lock(mutex);
  is_watched = is_mine = true;
  open_all();
}

Watch::~Watch() {
  const std::lock_guard lock(mutex);
  protect(arena, arena_end, PROT_READ | PROT_WRITE);
  is_closed = is_watched = is_mine = false;
}

void Watch::close() {
  const std::lock_guard lock(mutex);
  is_closed = true;
  ++n_closings;
  protect(arena, arena_end, PROT_NONE);
}

void Watch::open() {
  const std::lock_guard lock(mutex);
  is_closed = false;
  open_all();
}

}  // namespace foretoken::emu

#endif
