#include "common/model/trim_packed_cache.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>

#include "common/model/packed_cache.h"

namespace foretoken {
namespace {

struct KeptFile {
  std::filesystem::path path;
  PackedOrigin origin = {};
  struct stat status {};

  std::uint64_t size_bytes() const { return static_cast<std::uint64_t>(status.st_size); }
  auto last_used() const {
    return std::tuple(status.st_mtim.tv_sec, status.st_mtim.tv_nsec, path.string());
  }
};

// Of this user and this host; the least recently used first.
std::vector<KeptFile> kept_files(const std::filesystem::path& folder, const std::string& host) {
  std::vector<KeptFile> files;
  std::error_code unreadable;
  for (std::filesystem::directory_iterator at(folder, unreadable), end; !unreadable && at != end;
       at.increment(unreadable)) {
    KeptFile file{.path = at->path()};
    if (file.path.extension() != kPackedExtension || ::lstat(file.path.c_str(), &file.status) != 0)
      continue;
    if (!S_ISREG(file.status.st_mode) || file.status.st_uid != ::geteuid()) continue;
    auto origin = read_packed_origin(file.path);
    if (!origin || origin->host != host) continue;
    file.origin = std::move(*origin);
    files.push_back(std::move(file));
  }
  std::ranges::sort(files, {}, &KeptFile::last_used);
  return files;
}

// Another folder in the same parent shows that the disk is mounted. A parent without folders, or
// none, is what an empty mount point looks like, where a lone file may lie as well.
bool is_gone(const std::filesystem::path& folder) {
  struct stat status {};
  if (!folder.is_absolute() || ::stat(folder.c_str(), &status) == 0 || errno != ENOENT)
    return false;
  std::error_code unreadable;
  for (std::filesystem::directory_iterator at(folder.parent_path(), unreadable), end;
       !unreadable && at != end; at.increment(unreadable)) {
    std::error_code unknown;
    if (at->is_directory(unknown)) return true;
  }
  return false;
}

// Why the file is of no use to a later start; empty where it may be.
std::string why_useless(const KeptFile& file, const TrimRules& rules) {
  if (std::ranges::find(rules.replaced, file.path) != rules.replaced.end())
    return "it has the same weights in an older layout";
  if (is_gone(file.origin.model_folder))
    return "its model folder is not there any more: " + file.origin.model_folder;
  return {};
}

bool is_same(const struct stat& a, const struct stat& b) {
  return a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

// False: a process uses it, or it has been replaced since it was looked at, or cannot be removed.
bool trim_unused(const KeptFile& file, Trim how) {
  const PackedLock lock(file.path, LOCK_EX);
  struct stat locked {};
  struct stat named {};
  if (!lock.is_held() || ::fstat(lock.fd(), &locked) != 0 ||
      ::lstat(file.path.c_str(), &named) != 0)
    return false;
  return is_same(locked, file.status) && is_same(named, file.status) &&
         (how == Trim::kPlan || ::unlink(file.path.c_str()) == 0);
}

}  // namespace

std::vector<RemovedPackedFile> trim_packed_cache(const std::filesystem::path& folder,
                                                 const TrimRules& rules,
                                                 Trim how) {
  std::vector<RemovedPackedFile> removed;
  std::vector<KeptFile> left;
  std::uint64_t n_bytes = 0;
  for (KeptFile& file : kept_files(folder, rules.host)) {
    const std::string reason = why_useless(file, rules);
    if (!reason.empty() && trim_unused(file, how)) {
      removed.push_back({file.path, file.size_bytes(), reason});
    } else {
      n_bytes += file.size_bytes();
      left.push_back(std::move(file));
    }
  }
  const std::string reason = "least recently used of " + std::to_string(n_bytes >> 20) +
                             " MiB that are kept; at most " +
                             std::to_string(rules.most_bytes >> 20) + " MiB fit beside the new one";
  for (const KeptFile& file : left) {
    if (n_bytes <= rules.most_bytes) break;
    if (!trim_unused(file, how)) continue;
    n_bytes -= file.size_bytes();
    removed.push_back({file.path, file.size_bytes(), reason});
  }
  return removed;
}

}  // namespace foretoken
