#include "common/model/packed_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "common/base/check.h"
#include "common/model/digest.h"

namespace foretoken {
namespace {

// The file: a header, a table, and the buffers, each from the start of a page. The table has a
// BufferEntry of each buffer, then of each tensor its digest, the length of its name and the name.
constexpr std::array<char, 16> kMagic = {'f', 'o', 'r', 'e', 't', 'o', 'k', 'e',
                                         'n', ' ', 'p', 'a', 'c', 'k', 'e', 'd'};
constexpr std::uint64_t kFormat = 1;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kBuffersOfMatrix = 3;
constexpr std::uint64_t kMostTableBytes = 16u << 20;

struct Header {
  std::array<char, 16> magic = kMagic;
  std::uint64_t format = kFormat;
  std::uint64_t key = 0;
  std::uint64_t n_buffers = 0;
  std::uint64_t n_digests = 0;
  std::uint64_t table_bytes = 0;
  std::uint64_t table_digest = 0;
};
static_assert(sizeof(Header) == 64);

struct BufferEntry {
  std::uint64_t begin = 0;  // from the start of the file
  std::uint64_t size = 0;
  std::uint64_t digest = 0;
};

std::uint64_t page_after(std::uint64_t at) { return (at + kPage - 1) / kPage * kPage; }

Error error_of(ErrorCode code, const std::filesystem::path& path, const std::string& what) {
  return {code, path.string() + ": " + what};
}

Error system_error(const std::filesystem::path& path, const std::string& what) {
  return error_of(ErrorCode::kIo, path, what + ": " + std::generic_category().message(errno));
}

template <class T>
void append(std::string& to, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Takes values from the front of bytes that may be too few.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : left_(bytes) {}

  template <class T>
  bool take(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (left_.size() < sizeof value) return false;
    std::memcpy(&value, left_.data(), sizeof value);
    left_ = left_.subspan(sizeof value);
    return true;
  }
  bool take(std::string& text, std::uint64_t size) {
    if (left_.size() < size) return false;
    text.assign(reinterpret_cast<const char*>(left_.data()), static_cast<std::size_t>(size));
    left_ = left_.subspan(static_cast<std::size_t>(size));
    return true;
  }
  bool is_at_end() const { return left_.empty(); }

 private:
  std::span<const std::byte> left_;
};

// Digests of many buffers, by a few threads: one alone is slower than the memory.
std::vector<std::uint64_t> digests_of(std::span<const std::span<const std::byte>> buffers) {
  std::vector<std::uint64_t> digests(buffers.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < buffers.size(); i = next++)
      digests[i] = digest_bytes(buffers[i]);
  };
  std::vector<std::jthread> helpers;
  for (unsigned i = 1; i < std::min(4u, std::thread::hardware_concurrency()); ++i)
    helpers.emplace_back(work);
  work();
  helpers.clear();  // joins
  return digests;
}

// Null where the system refuses it; the reason is in errno then.
const std::byte* map_file(int fd, std::uint64_t size) {
  void* map = ::mmap(nullptr, static_cast<std::size_t>(size), PROT_READ, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return nullptr;
  // Wishes: where they are refused, pages are small and come one by one.
  (void)::madvise(map, static_cast<std::size_t>(size), MADV_HUGEPAGE);
#ifdef MADV_POPULATE_READ
  (void)::madvise(map, static_cast<std::size_t>(size), MADV_POPULATE_READ);
#endif
  return static_cast<const std::byte*>(map);
}

bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), std::min<std::size_t>(bytes.size(), 64u << 20));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

// Closes itself.
struct File {
  ~File() {
    if (fd >= 0) ::close(fd);
  }
  int fd = -1;
};

}  // namespace

PackedCache::~PackedCache() {
  if (map_.data() != nullptr) ::munmap(const_cast<std::byte*>(map_.data()), map_.size());
}

Result<std::shared_ptr<const PackedCache>> PackedCache::open(const std::filesystem::path& path,
                                                             std::uint64_t key) {
  const std::shared_ptr<PackedCache> cache(new PackedCache);
  if (auto good = cache->read(path, key); !good.ok()) return good.error();
  return std::shared_ptr<const PackedCache>(cache);
}

Result<void> PackedCache::read(const std::filesystem::path& path, std::uint64_t key) {
  const File file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
  if (file.fd < 0 && errno == ENOENT) return error_of(ErrorCode::kNotFound, path, "is not there");
  if (file.fd < 0) return system_error(path, "cannot open");
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) return system_error(path, "cannot stat");
  // Weights decide every text: they come from nobody but us.
  if (!S_ISREG(status.st_mode) || (status.st_uid != ::geteuid() && status.st_uid != 0) ||
      (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return error_of(ErrorCode::kIo, path,
                    "is not a regular file that only this user can write; it is not used");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  Header header;
  if (size < sizeof header) return error_of(ErrorCode::kMalformed, path, "is cut short");
  const std::byte* map = map_file(file.fd, size);
  if (map == nullptr) return system_error(path, "cannot map");
  map_ = {map, static_cast<std::size_t>(size)};

  std::memcpy(&header, map, sizeof header);
  if (header.magic != kMagic || header.format != kFormat)
    return error_of(ErrorCode::kIncompatible, path, "is of another format");
  if (header.key != key)
    return error_of(ErrorCode::kIncompatible, path, "is of other weights or another build");
  const auto damaged = [&] {
    return error_of(ErrorCode::kMalformed, path, "is damaged: its digest differs");
  };
  if (header.table_bytes > kMostTableBytes || header.table_bytes > size - sizeof header)
    return damaged();
  const auto table = map_.subspan(sizeof header, static_cast<std::size_t>(header.table_bytes));
  if (digest_bytes(table) != header.table_digest ||
      header.n_buffers > header.table_bytes / sizeof(BufferEntry) ||
      header.n_buffers % kBuffersOfMatrix != 0)
    return damaged();

  Cursor cursor(table);
  std::vector<std::span<const std::byte>> buffers;
  std::vector<std::uint64_t> expected;
  for (std::uint64_t i = 0; i < header.n_buffers; ++i) {
    BufferEntry entry;
    if (!cursor.take(entry) || entry.begin > size || entry.size > size - entry.begin ||
        entry.begin % kPage != 0)
      return damaged();
    buffers.push_back(
        map_.subspan(static_cast<std::size_t>(entry.begin), static_cast<std::size_t>(entry.size)));
    expected.push_back(entry.digest);
  }
  for (std::uint64_t i = 0; i < header.n_digests; ++i) {
    std::uint64_t digest = 0, length = 0;
    std::string name;
    if (!cursor.take(digest) || !cursor.take(length) || !cursor.take(name, length))
      return damaged();
    digests_[std::move(name)] = digest;
  }
  if (!cursor.is_at_end() || digests_of(buffers) != expected) return damaged();
  for (std::size_t i = 0; i < buffers.size(); i += kBuffersOfMatrix)
    matrices_.push_back({buffers[i], buffers[i + 1], buffers[i + 2]});
  return {};
}

void PackedCacheWriter::add(const Linear& linear) {
  for (const Buffer* buffer : {&linear.weights, &linear.scales, &linear.bias}) {
    buffers_.emplace_back(buffer->as<const std::byte>(), buffer->size_bytes());
    size_bytes_ += page_after(buffer->size_bytes());
  }
}

Result<void> PackedCacheWriter::write(const std::filesystem::path& path,
                                      std::uint64_t key,
                                      const std::map<std::string, std::uint64_t>& digests) const {
  std::string names;
  for (const auto& [name, digest] : digests) {
    append(names, digest);
    append(names, std::uint64_t{name.size()});
    names += name;
  }
  const std::vector<std::uint64_t> contents = digests_of(buffers_);
  const std::uint64_t table_bytes = buffers_.size() * sizeof(BufferEntry) + names.size();
  std::string front;
  std::uint64_t at = page_after(sizeof(Header) + table_bytes);
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    append(front, BufferEntry{at, buffers_[i].size(), contents[i]});
    at += page_after(buffers_[i].size());
  }
  front += names;
  Header header;
  header.key = key;
  header.n_buffers = buffers_.size();
  header.n_digests = digests.size();
  header.table_bytes = table_bytes;
  header.table_digest = digest_bytes(std::as_bytes(std::span(front)));
  front.insert(0, reinterpret_cast<const char*>(&header), sizeof header);
  front.resize(static_cast<std::size_t>(page_after(front.size())));

  // Several processes may write at once: each has a file of its own until it is whole.
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  std::string unfinished = path.string() + ".XXXXXX";
  const File file{::mkostemp(unfinished.data(), O_CLOEXEC)};  // for this user alone
  if (file.fd < 0) return system_error(path, "cannot create");
  const std::array<std::byte, kPage> zeros{};
  bool is_good = write_all(file.fd, std::as_bytes(std::span(front)));
  for (const auto buffer : buffers_) {
    const auto rest = static_cast<std::size_t>(page_after(buffer.size()) - buffer.size());
    is_good =
        is_good && write_all(file.fd, buffer) && write_all(file.fd, std::span(zeros).first(rest));
  }
  if (is_good && ::rename(unfinished.c_str(), path.c_str()) == 0) return {};
  const Error error = system_error(path, "cannot write");
  ::unlink(unfinished.c_str());
  return error;
}

}  // namespace foretoken
