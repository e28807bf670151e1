#include "kernels/cpu/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

#include "common/base/control_groups.h"
#include "common/base/result.h"

namespace foretoken::cpu {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

// Large memory comes straight from the kernel: zero already, at a huge page's border, given back
// when freed.
void* map_large(std::size_t bytes) {
  const std::size_t size = round_up(bytes, kHugePage);
  if (size < bytes || size > kNoLimit - kHugePage) return nullptr;
  void* raw =
      mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(raw);
  const std::size_t lead = round_up(start, kHugePage) - start;
  if (lead > 0) munmap(raw, lead);
  std::byte* address = static_cast<std::byte*>(raw) + lead;
  const std::size_t tail = kHugePage - lead;
  if (tail > 0) munmap(address + size, tail);
  madvise(address, size, MADV_HUGEPAGE);  // a wish; without it things are only slower
  return address;
}

// A control group file holds one number or "max".
std::size_t read_limit(const std::string& path) {
  std::ifstream file(path);
  std::size_t value = 0;
  return file >> value ? value : kNoLimit;
}

using Words = std::array<std::string_view, 2>;

// The sum of the numbers behind these words in a file of lines "word number".
std::size_t sum_of_entries(const std::string& path, const Words& words) {
  std::ifstream file(path);
  std::size_t sum = 0;
  for (std::string key, rest; file >> key; std::getline(file, rest)) {
    std::size_t value = 0;
    if (std::ranges::find(words, key) != words.end() && file >> value) sum += value;
  }
  return sum;
}

struct GroupFiles {
  const char* limit;
  const char* used;
  Words file_pages;  // of memory.stat
};

std::size_t left_in_group(const std::string& folder, const GroupFiles& files) {
  const std::size_t limit = read_limit(folder + files.limit);
  const std::size_t used = read_limit(folder + files.used);
  if (limit == kNoLimit || used == kNoLimit) return kNoLimit;
  // Pages of files count as used. Before the kernel ends a process for memory it gives up those of
  // both lists, mapped ones too, and changed ones once they are on the disk; MemAvailable has both
  // as well. A page is on the active list after its second use: weights are there after a restart.
  // Shared memory and locked pages, which stay, are on neither list.
  const std::size_t cached =
      std::min(used, sum_of_entries(folder + "memory.stat", files.file_pages));
  return limit > used - cached ? limit - (used - cached) : 0;
}

}  // namespace

void* allocate_zeroed(std::size_t bytes) {
  if (bytes >= kHugePage) return map_large(bytes);
  void* address = std::aligned_alloc(64, round_up(std::max<std::size_t>(bytes, 1), 64));
  if (address != nullptr) std::memset(address, 0, round_up(bytes, 64));
  return address;
}

void release(void* address, std::size_t bytes) noexcept {
  if (address == nullptr) return;
  if (bytes >= kHugePage)
    munmap(address, round_up(bytes, kHugePage));
  else
    std::free(address);
}

std::size_t available_memory(std::istream& meminfo) {
  std::size_t free_and_cached = 0;
  for (std::string key, rest; meminfo >> key; std::getline(meminfo, rest)) {
    std::size_t kilobytes = 0;
    const bool is_free = key == "MemFree:" || key == "Buffers:" || key == "Cached:";
    if (!is_free && key != "MemAvailable:") continue;
    if (!(meminfo >> kilobytes)) break;
    if (!is_free) return kilobytes * 1024;
    free_and_cached += kilobytes * 1024;
  }
  return free_and_cached;
}

std::size_t left_in_groups(std::istream& groups, const std::string& root) {
  constexpr GroupFiles kSecond{"memory.max", "memory.current", {"inactive_file", "active_file"}};
  constexpr GroupFiles kFirst{"memory.limit_in_bytes",
                              "memory.usage_in_bytes",
                              {"total_inactive_file", "total_active_file"}};
  std::size_t left = kNoLimit;
  visit_groups(groups, root, "memory", [&](const std::string& folder, GroupVersion version) {
    left = std::min(left, left_in_group(folder, version == GroupVersion::kTwo ? kSecond : kFirst));
  });
  return left;
}

std::size_t free_memory_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::size_t available = available_memory(meminfo);
  if (available == 0) {
    const long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0)
      available = static_cast<std::size_t>(pages) * static_cast<std::size_t>(page);
  }
  std::ifstream groups("/proc/self/cgroup");
  return std::min(available, left_in_groups(groups, "/sys/fs/cgroup"));
}

void* Scratch::bytes(std::size_t n) {
  if (n <= size_ && address_ != nullptr) return address_;
  release(address_, size_);
  const std::size_t wanted = std::max(n + n / 4, std::size_t{4096});
  size_ = 0;
  address_ = allocate_zeroed(wanted);
  if (address_ == nullptr)
    throw FatalError(ErrorCode::kOutOfMemory,
                     "no memory for " + std::to_string(wanted) + " bytes of working space");
  size_ = wanted;
  return address_;
}

}  // namespace foretoken::cpu
