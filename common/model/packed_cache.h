// A file with the packed weights of an earlier load. The next load maps it instead of reading and
// packing the checkpoint. There is one file for each folder, type, layout, rank and host. It is
// used only if its key, over all that decides its bytes, is the expected one, and if the digests of
// its contents are right. Any other file is replaced: the weights are packed again. It records
// its folder and host, and the time of its modification is that of its last use, both for
// trim_packed_cache.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "kernels/include/types.h"

namespace foretoken {

inline constexpr std::string_view kPackedExtension = ".packed";

// The folder and the host of a file.
struct PackedOrigin {
  std::string model_folder;
  std::string host;
};
// Nothing if it is no such file, or has the format of another build.
std::optional<PackedOrigin> read_packed_origin(const std::filesystem::path& path);

// A lock on a file that ends with this object or the process: shared (LOCK_SH) by those that use
// it, and alone (LOCK_EX) by the one that removes it. Does not wait, and does not follow a link.
class PackedLock {
 public:
  PackedLock(const std::filesystem::path& path, int how);
  PackedLock(int open_file, int how);  // keeps a descriptor of its own
  PackedLock(const PackedLock&) = delete;
  PackedLock& operator=(const PackedLock&) = delete;
  ~PackedLock();
  bool is_held() const { return is_held_; }
  // Another process has it. False where the file system has no locks, too.
  bool is_refused() const { return is_refused_; }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  bool is_held_ = false, is_refused_ = false;
};

// A lock on the file if it has this key: whole, as its name came last. Null: there is none, it has
// another key, or others than this user may have written it.
std::shared_ptr<const PackedLock> lock_packed_file(const std::filesystem::path& path,
                                                   std::uint64_t key);

// A file that was opened, mapped and checked. Its bytes are there as long as it lives.
class PackedCache {
 public:
  // Maps the file and checks all of it. Messages do not name the path. kNotFound: there is none.
  // kIncompatible: it is of other weights, or of another build. kMalformed: it is damaged. kIo: it
  // cannot be read, or others than we may have written it.
  static Result<std::shared_ptr<const PackedCache>> open(const std::filesystem::path& path,
                                                         std::uint64_t key);
  PackedCache(const PackedCache&) = delete;
  PackedCache& operator=(const PackedCache&) = delete;
  ~PackedCache();

  std::size_t n_matrices() const { return matrices_.size(); }
  const PackedBytes& matrix(std::size_t i) const { return matrices_[i]; }  // in the order of add()
  // Of the checkpoint's tensors, as they were when the file was written.
  const std::map<std::string, std::uint64_t>& digests() const { return digests_; }
  std::uint64_t size_bytes() const { return map_.size(); }

 private:
  PackedCache(std::shared_ptr<const PackedLock> in_use, std::span<const std::byte> map)
      : in_use_(std::move(in_use)), map_(map) {}
  // False: it is damaged.
  bool read_table(std::uint64_t n_buffers,
                  std::uint64_t n_digests,
                  std::uint64_t table_bytes,
                  std::uint64_t table_digest);

  std::shared_ptr<const PackedLock> in_use_;
  std::span<const std::byte> map_;
  std::vector<PackedBytes> matrices_;
  std::map<std::string, std::uint64_t> digests_;
};

// Collects matrices while they are packed and writes them when all are. Borrows their memory, which
// must be the host's.
class PackedCacheWriter {
 public:
  void add(const Linear& linear);
  std::uint64_t size_bytes() const { return size_bytes_; }
  // Whole or not at all, and over whatever was there, unless that has the same key: several
  // processes that start at once keep one file. An interrupted one leaves nothing. Calls `on_piece`
  // after each buffer. Returns the lock of one that uses it. kIo: with the system's reason.
  struct Contents {
    std::uint64_t key = 0;
    const PackedOrigin& origin;
    const std::map<std::string, std::uint64_t>& digests;
  };
  Result<std::shared_ptr<const PackedLock>> write(const std::filesystem::path& path,
                                                  const Contents& contents,
                                                  const std::function<void()>& on_piece) const;

 private:
  // What stands before the buffers.
  std::string front(const Contents& contents) const;

  std::vector<std::span<const std::byte>> buffers_;  // three of each matrix
  std::uint64_t size_bytes_ = 0;
};

}  // namespace foretoken
