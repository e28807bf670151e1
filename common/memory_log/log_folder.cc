#include "common/memory_log/log_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include "common/base/file.h"
#include "common/base/hash.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxOpenFiles = 32;
// A file has fewer: its tokens, with the largest share of what stands around them.
constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;

Error failed(const fs::path& path, const std::string& what) {
  return {ErrorCode::kIo, path.string() + " cannot be " + what + ": " + std::strerror(errno)};
}

// NNNN.log, with four digits or more.
std::optional<std::uint64_t> number_in(const fs::path& path) {
  const std::string name = path.stem().string();
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (path.extension() != ".log" || error != std::errc{} || end != name.data() + name.size())
    return std::nullopt;
  return number;
}

}  // namespace

Result<LogFolder> LogFolder::open(const LogFolderOptions& options) {
  std::error_code error;
  fs::create_directories(options.folder, error);
  const fs::path lock_path = options.folder / "lock";
  Fd lock(::open(lock_path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  if (!lock) return failed(lock_path, "opened");
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return Error{ErrorCode::kIo, lock_path.string() + " is locked: another process has this log"};
  fs::permissions(options.folder, fs::perms::owner_all, error);  // it holds people's texts
  return LogFolder(options, std::move(lock));
}

LogFolder::LogFolder(const LogFolderOptions& options, Fd lock)
    : options_(options), lock_(std::move(lock)) {}

fs::path LogFolder::folder_of(std::uint64_t salt) const {
  char name[17];
  std::snprintf(name, sizeof name, "%016llx",
                static_cast<unsigned long long>(mix64(salt + kGoldenRatio64)));
  return options_.folder / name;
}

// ---- reading back

Result<LogReport> LogFolder::read_back(const Visitor& visitor) {
  std::vector<File> found;
  std::error_code error;
  for (fs::recursive_directory_iterator it(options_.folder, error), end; it != end;
       it.increment(error)) {
    if (error) break;
    if (const auto number = number_in(it->path()); number && it->is_regular_file(error))
      found.push_back({.number = *number, .path = it->path()});
  }
  if (error) return Error{ErrorCode::kIo, options_.folder.string() + ": " + error.message()};
  std::sort(found.begin(), found.end(),
            [](const File& a, const File& b) { return a.number < b.number; });
  LogReport report;
  for (File& file : found) {
    next_number_ = std::max(next_number_, file.number + 1);
    if (auto read = read_file(std::move(file), visitor, report); !read.ok())
      return std::move(read).error();
  }
  report.n_files = files_.size();
  report.n_tokens = n_tokens_;
  return report;
}

Result<void> LogFolder::read_file(File file, const Visitor& visitor, LogReport& report) {
  const auto bytes = read_text_file(file.path, kMaxFileBytes);
  const auto is_ours = [&](const LogHeader& header) {
    return header.vocabulary == options_.vocabulary &&
           file.path.parent_path() == folder_of(header.salt);
  };
  LogContents contents;
  if (bytes.ok() && bytes->size() < kLogHeaderBytes) {  // stopped while it was made
    ++report.n_torn;
    std::error_code error;
    fs::remove(file.path, error);
    return {};
  }
  if (bytes.ok())
    contents = read_log(*bytes, {.n_ids = options_.n_ids,
                                 .wanted = is_ours,
                                 .record = [&](const LogHeader& header, const LogRecord& record) {
                                   visitor(header.salt, record);
                                 }});
  if (contents.end == LogEnd::kForeign || !is_ours(contents.header) ||
      files_.contains(file.number)) {
    report.foreign.push_back(file.path.string());
    return {};
  }
  if (contents.end != LogEnd::kWhole) {
    if (::truncate(file.path.c_str(), static_cast<off_t>(contents.n_good_bytes)) != 0)
      return failed(file.path, "cut");
    ++(contents.end == LogEnd::kTorn ? report.n_torn : report.n_damaged);
    if (contents.end == LogEnd::kDamaged) report.cut.push_back(file.path.string());
  }
  file.salt = contents.header.salt;
  file.n_tokens = contents.n_tokens;
  file.n_bytes = contents.n_good_bytes;
  n_tokens_ += file.n_tokens;
  tenant_tokens_[file.salt] += file.n_tokens;
  newest_[file.salt] = file.number;
  files_.emplace(file.number, std::move(file));
  return {};
}

// ---- writing

Result<void> LogFolder::append(std::uint64_t salt, const LogRecord& record) {
  auto file = file_for(salt);
  if (!file.ok()) return std::move(file).error();
  std::string bytes;
  add_log_record(bytes, record);
  if (auto written = write(**file, bytes); !written.ok()) return written;
  (*file)->n_tokens += record.tokens.size();
  tenant_tokens_[salt] += record.tokens.size();
  n_tokens_ += record.tokens.size();
  delete_oldest(salt);
  return {};
}

Result<LogFolder::File*> LogFolder::file_for(std::uint64_t salt) {
  const auto newest = newest_.find(salt);
  if (newest == newest_.end()) return new_file(salt);
  File& file = files_.at(newest->second);
  if (file.n_tokens >= options_.file_tokens) return new_file(salt);
  if (open_.contains(file.number)) return &file;
  if (open_.size() >= kMaxOpenFiles) open_.clear();
  Fd fd(::open(file.path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!fd) return failed(file.path, "opened");
  open_.emplace(file.number, std::move(fd));
  return &file;
}

Result<LogFolder::File*> LogFolder::new_file(std::uint64_t salt) {
  const fs::path folder = folder_of(salt);
  std::error_code error;
  fs::create_directory(folder, error);
  char name[32];
  std::snprintf(name, sizeof name, "%04llu.log", static_cast<unsigned long long>(next_number_));
  const std::uint64_t number = next_number_++;
  File file{.number = number, .salt = salt, .path = folder / name};
  Fd fd(::open(file.path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_APPEND | O_CLOEXEC, 0600));
  if (!fd) return failed(file.path, "made");
  if (open_.size() >= kMaxOpenFiles) open_.clear();
  open_.emplace(number, std::move(fd));
  newest_[salt] = number;
  File& kept = files_.emplace(number, std::move(file)).first->second;
  if (auto written = write(kept, log_header({.vocabulary = options_.vocabulary, .salt = salt}));
      !written.ok())
    return std::move(written).error();
  return &kept;
}

Result<void> LogFolder::write(File& file, std::string_view bytes) {
  const int fd = open_.at(file.number).get();
  std::size_t n_written = 0;
  while (n_written < bytes.size()) {
    const ssize_t n = ::write(fd, bytes.data() + n_written, bytes.size() - n_written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const Error error = failed(file.path, "written");
      if (::ftruncate(fd, static_cast<off_t>(file.n_bytes)) != 0) return error;
      return error;
    }
    n_written += static_cast<std::size_t>(n);
  }
  file.n_bytes += bytes.size();
  return {};
}

// The file that is written to stays, however much it has.
void LogFolder::delete_oldest(std::uint64_t salt) {
  const auto oldest_of = [this](std::uint64_t of) {
    return std::find_if(files_.begin(), files_.end(),
                        [of](const auto& file) { return file.second.salt == of; });
  };
  while (tenant_tokens_[salt] > options_.max_tenant_tokens) {
    const auto oldest = oldest_of(salt);
    if (oldest->first == newest_.at(salt) ||
        tenant_tokens_[salt] - oldest->second.n_tokens < options_.max_tenant_tokens)
      break;
    erase(oldest);
  }
  while ((n_tokens_ > options_.max_tokens || files_.size() > kMaxFiles) &&
         files_.begin()->first != newest_.at(salt))
    erase(files_.begin());
}

void LogFolder::erase(Files::iterator file) {
  const std::uint64_t salt = file->second.salt;
  std::error_code error;
  fs::remove(file->second.path, error);
  open_.erase(file->first);
  n_tokens_ -= file->second.n_tokens;
  tenant_tokens_[salt] -= file->second.n_tokens;
  if (newest_.at(salt) == file->first) {
    newest_.erase(salt);
    tenant_tokens_.erase(salt);
    fs::remove(file->second.path.parent_path(), error);  // only where it is empty
  }
  files_.erase(file);
}

}  // namespace foretoken
