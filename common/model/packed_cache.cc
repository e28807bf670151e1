#include "common/model/packed_cache.h"

#include <fcntl.h>
#include <sys/file.h>
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
#include "common/base/own_folder.h"
#include "common/model/digest.h"

namespace foretoken {
namespace {

// The file: a header, a table, and the buffers, each from the start of a page. The table has the
// model's folder and the host, a BufferEntry of each buffer, then of each tensor its digest and its
// name; texts have their length before them.
constexpr std::array<char, 16> kMagic = {'f', 'o', 'r', 'e', 't', 'o', 'k', 'e',
                                         'n', ' ', 'p', 'a', 'c', 'k', 'e', 'd'};
constexpr std::uint64_t kFormat = 2;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kBuffersOfMatrix = 3;
constexpr std::uint64_t kMostTableBytes = 16u << 20;
constexpr std::size_t kMostOriginBytes = 8192;  // of a path and a name of a host

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

Error system_error(const std::string& what) {
  return {ErrorCode::kIo, what + ": " + std::generic_category().message(errno)};
}

template <class T>
void append(std::string& to, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append(std::string& to, const std::string& text) {
  append(to, std::uint64_t{text.size()});
  to += text;
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
  bool take(std::string& text) {
    std::uint64_t size = 0;
    if (!take(size) || left_.size() < size) return false;
    text.assign(reinterpret_cast<const char*>(left_.data()), static_cast<std::size_t>(size));
    left_ = left_.subspan(static_cast<std::size_t>(size));
    return true;
  }
  bool is_at_end() const { return left_.empty(); }

 private:
  std::span<const std::byte> left_;
};

// Digests of many buffers, made by a few threads: one alone is slower than the memory.
std::vector<std::uint64_t> digests_of(std::span<const std::span<const std::byte>> buffers) {
  std::vector<std::uint64_t> digests(buffers.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < buffers.size(); i = next++)
      digests[i] = digest_bytes(buffers[i]);
  };
  std::vector<std::jthread> helpers;
  try {
    for (unsigned i = 1; i < std::min(4u, std::thread::hardware_concurrency()); ++i)
      helpers.emplace_back(work);
  } catch (const std::system_error&) {  // no more threads can be made: go on with fewer
  }
  work();
  helpers.clear();  // joins
  return digests;
}

// Null on failure; the reason is in errno.
const std::byte* map_file(int fd, std::uint64_t size) {
  void* map = ::mmap(nullptr, static_cast<std::size_t>(size), PROT_READ, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return nullptr;
  // Hints: without them pages are small and are read one by one.
  (void)::madvise(map, static_cast<std::size_t>(size), MADV_HUGEPAGE);
#ifdef MADV_POPULATE_READ
  (void)::madvise(map, static_cast<std::size_t>(size), MADV_POPULATE_READ);
#endif
  return static_cast<const std::byte*>(map);
}

// False on failure; the reason is in errno.
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

bool is_of_key(const Header& header, std::uint64_t key) {
  return header.magic == kMagic && header.format == kFormat && header.key == key;
}

// True if only this user or root can have written it.
bool is_ours(const struct stat& status) {
  return (status.st_uid == ::geteuid() || status.st_uid == 0) &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// A reason if users other than this one and root can replace the file; else empty.
std::string why_no_folder(const std::filesystem::path& path) {
  struct stat folder {};
  if (::stat(path.parent_path().c_str(), &folder) != 0 || is_ours(folder)) return {};
  return "lies in a folder that others than this user can write to (chmod go-w)";
}

// Gives a file without a name this one. False on failure; the reason is in errno.
bool give_name(int fd, const std::filesystem::path& path) {
  const std::string open_file = "/proc/self/fd/" + std::to_string(fd);
  return ::linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

}  // namespace

std::shared_ptr<const PackedLock> lock_packed_file(const std::filesystem::path& path,
                                                   std::uint64_t key) {
  if (!why_no_folder(path).empty()) return nullptr;
  auto lock = std::make_shared<const PackedLock>(path, LOCK_SH);
  struct stat status {};
  if (lock->fd() < 0 || lock->is_refused() || ::fstat(lock->fd(), &status) != 0) return nullptr;
  Header header;
  const bool is_same =
      S_ISREG(status.st_mode) && is_ours(status) &&
      ::pread(lock->fd(), &header, sizeof header, 0) == static_cast<ssize_t>(sizeof header) &&
      is_of_key(header, key);
  return is_same ? lock : nullptr;
}

std::optional<PackedOrigin> read_packed_origin(const std::filesystem::path& path) {
  const File file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
  std::vector<std::byte> begin(sizeof(Header) + kMostOriginBytes);
  const ssize_t n = file.fd < 0 ? -1 : ::pread(file.fd, begin.data(), begin.size(), 0);
  if (n < 0) return std::nullopt;
  Cursor cursor(std::span<const std::byte>(begin).first(static_cast<std::size_t>(n)));
  Header header;
  PackedOrigin origin;
  if (!cursor.take(header) || header.magic != kMagic || header.format != kFormat)
    return std::nullopt;
  if (!cursor.take(origin.model_folder) || !cursor.take(origin.host)) return std::nullopt;
  return origin;
}

PackedLock::PackedLock(const std::filesystem::path& path, int how)
    : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)),
      is_held_(fd_ >= 0 && ::flock(fd_, how | LOCK_NB) == 0),
      is_refused_(fd_ >= 0 && !is_held_ && errno == EWOULDBLOCK) {}

PackedLock::PackedLock(int open_file, int how)
    : fd_(::fcntl(open_file, F_DUPFD_CLOEXEC, 0)),
      is_held_(fd_ >= 0 && ::flock(fd_, how | LOCK_NB) == 0),
      is_refused_(fd_ >= 0 && !is_held_ && errno == EWOULDBLOCK) {}

PackedLock::~PackedLock() {
  if (fd_ >= 0) ::close(fd_);
}

PackedCache::~PackedCache() { ::munmap(const_cast<std::byte*>(map_.data()), map_.size()); }

Result<std::shared_ptr<const PackedCache>> PackedCache::open(const std::filesystem::path& path,
                                                             std::uint64_t key) {
  const File file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
  if (file.fd < 0 && errno == ENOENT) return Error{ErrorCode::kNotFound, "is not there"};
  struct stat status {};
  if (file.fd < 0 || ::fstat(file.fd, &status) != 0) return system_error("cannot open");
  if (!S_ISREG(status.st_mode) || !is_ours(status))
    return Error{ErrorCode::kIo, "is not a regular file that only this user can write"};
  if (auto problem = why_no_folder(path); !problem.empty())
    return Error{ErrorCode::kIo, std::move(problem)};

  // A stale file is not read: it may be large, and on a disk.
  Header header;
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (::pread(file.fd, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header))
    return Error{ErrorCode::kMalformed, "is cut short"};
  if (!is_of_key(header, key))
    return Error{ErrorCode::kIncompatible, "is of other weights or another build"};

  // Before it is mapped, and of the file that is: a path may come to name another one.
  auto in_use = std::make_shared<const PackedLock>(file.fd, LOCK_SH);
  if (in_use->is_refused()) return Error{ErrorCode::kNotFound, "is being removed"};
  const std::byte* map = map_file(file.fd, size);
  if (map == nullptr) return system_error("cannot map");
  const std::shared_ptr<PackedCache> cache(
      new PackedCache(std::move(in_use), {map, static_cast<std::size_t>(size)}));
  if (!cache->read_table(header.n_buffers, header.n_digests, header.table_bytes,
                         header.table_digest))
    return Error{ErrorCode::kMalformed, "is damaged: its digest differs"};
  // Of a file of root's, or on a disk that is read only, the time stays.
  (void)::futimens(file.fd, nullptr);
  return std::shared_ptr<const PackedCache>(cache);
}

bool PackedCache::read_table(std::uint64_t n_buffers,
                             std::uint64_t n_digests,
                             std::uint64_t table_bytes,
                             std::uint64_t table_digest) {
  const std::uint64_t size = map_.size();
  if (table_bytes > kMostTableBytes || table_bytes > size - sizeof(Header)) return false;
  const auto table = map_.subspan(sizeof(Header), static_cast<std::size_t>(table_bytes));
  if (digest_bytes(table) != table_digest || n_buffers > table_bytes / sizeof(BufferEntry) ||
      n_buffers % kBuffersOfMatrix != 0)
    return false;
  Cursor cursor(table);
  PackedOrigin origin;
  if (!cursor.take(origin.model_folder) || !cursor.take(origin.host)) return false;
  std::vector<std::span<const std::byte>> buffers;
  std::vector<std::uint64_t> expected;
  for (std::uint64_t i = 0; i < n_buffers; ++i) {
    BufferEntry entry;
    if (!cursor.take(entry) || entry.begin > size || entry.size > size - entry.begin ||
        entry.begin % kPage != 0)
      return false;
    buffers.push_back(
        map_.subspan(static_cast<std::size_t>(entry.begin), static_cast<std::size_t>(entry.size)));
    expected.push_back(entry.digest);
  }
  for (std::uint64_t i = 0; i < n_digests; ++i) {
    std::uint64_t digest = 0;
    std::string name;
    if (!cursor.take(digest) || !cursor.take(name)) return false;
    digests_[std::move(name)] = digest;
  }
  if (!cursor.is_at_end() || digests_of(buffers) != expected) return false;
  for (std::size_t i = 0; i < buffers.size(); i += kBuffersOfMatrix)
    matrices_.push_back({buffers[i], buffers[i + 1], buffers[i + 2]});
  return true;
}

void PackedCacheWriter::add(const Linear& linear) {
  for (const Buffer* buffer : {&linear.weights, &linear.scales, &linear.bias}) {
    buffers_.emplace_back(buffer->as<const std::byte>(), buffer->size_bytes());
    size_bytes_ += page_after(buffer->size_bytes());
  }
}

std::string PackedCacheWriter::front(const Contents& contents) const {
  std::string origin, names;
  append(origin, contents.origin.model_folder);
  append(origin, contents.origin.host);
  for (const auto& [name, digest] : contents.digests) {
    append(names, digest);
    append(names, name);
  }
  const std::vector<std::uint64_t> digests = digests_of(buffers_);
  Header header;
  header.key = contents.key;
  header.n_buffers = buffers_.size();
  header.n_digests = contents.digests.size();
  header.table_bytes = origin.size() + buffers_.size() * sizeof(BufferEntry) + names.size();
  std::string table = origin;
  std::uint64_t at = page_after(sizeof header + header.table_bytes);
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    append(table, BufferEntry{at, buffers_[i].size(), digests[i]});
    at += page_after(buffers_[i].size());
  }
  table += names;
  header.table_digest = digest_bytes(std::as_bytes(std::span(table)));
  std::string front;
  append(front, header);
  front += table;
  front.resize(static_cast<std::size_t>(page_after(front.size())));
  return front;
}

Result<std::shared_ptr<const PackedLock>> PackedCacheWriter::write(
    const std::filesystem::path& path,
    const Contents& contents,
    const std::function<void()>& on_piece) const {
  (void)make_own_folder(path.parent_path());  // opening a file there fails where it fails
  if (auto problem = why_no_folder(path); !problem.empty())
    return Error{ErrorCode::kIo, std::move(problem)};
  // It has no name until it is whole: what interrupts the writing leaves nothing behind.
  const File file{::open(path.parent_path().c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600)};
  if (file.fd < 0) return system_error("cannot create a file beside it");
  const std::array<std::byte, kPage> zeros{};
  const std::string begin = front(contents);
  if (!write_all(file.fd, std::as_bytes(std::span(begin)))) return system_error("cannot write");
  for (const auto buffer : buffers_) {
    const auto rest = static_cast<std::size_t>(page_after(buffer.size()) - buffer.size());
    if (!write_all(file.fd, buffer) || !write_all(file.fd, std::span(zeros).first(rest)))
      return system_error("cannot write");
    on_piece();
  }
  // Locked before it has a name, by which another process could remove it.
  auto in_use = std::make_shared<const PackedLock>(file.fd, LOCK_SH);
  if (give_name(file.fd, path)) return in_use;
  if (auto there = lock_packed_file(path, contents.key)) return there;
  // linkat() replaces no file: first a name that no other process uses.
  const std::string passing = path.string() + "." + std::to_string(::getpid());
  ::unlink(passing.c_str());
  if (give_name(file.fd, passing) && ::rename(passing.c_str(), path.c_str()) == 0) return in_use;
  const Error error = system_error("cannot get its name");
  ::unlink(passing.c_str());
  return error;
}

}  // namespace foretoken
