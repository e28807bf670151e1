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
#include "common/base/own_folder.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxOpenFiles = 32;
// A file has fewer: its tokens, with the largest share of what stands around them.
constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;

constexpr std::uint64_t kLeastFileTokens = 4096;
constexpr std::uint64_t kMostFileTokens = std::uint64_t{4} << 20;
constexpr std::uint64_t kFilesOfATenant = 8;  // at its limit; one of them is what deleting takes
constexpr std::size_t kFolderDigits = 16;

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

// Sixteen hexadecimal digits, as folder_of makes them.
bool is_tenant_folder(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.size() == kFolderDigits &&
         name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool others_can_read(const fs::path& folder) {
  constexpr auto kOthers = fs::perms::group_read | fs::perms::others_read;
  std::error_code error;
  const auto mode = fs::status(folder, error).permissions();
  return !error && (mode & kOthers) != fs::perms::none;
}

// For this user alone: it holds texts.
Result<void> make_folder(const fs::path& folder) {
  if (const std::error_code error = make_own_folder(folder))
    return Error{ErrorCode::kIo, folder.string() + " cannot be made: " + error.message()};
  return {};
}

}  // namespace

Result<LogFolder> LogFolder::open(const LogFolderOptions& options) {
  if (auto made = make_folder(options.folder); !made.ok()) return std::move(made).error();
  const fs::path lock_path = options.folder / "lock";
  Fd lock(::open(lock_path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  if (!lock) return failed(lock_path, "opened");
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return Error{ErrorCode::kIo, lock_path.string() + " is locked: another process has this log"};
  return LogFolder(options, std::move(lock));
}

LogFolder::LogFolder(const LogFolderOptions& options, Fd lock)
    : options_(options), lock_(std::move(lock)) {
  if (options_.file_tokens == 0)
    options_.file_tokens =
        std::clamp(options_.max_tenant_tokens / kFilesOfATenant, kLeastFileTokens, kMostFileTokens);
}

fs::path LogFolder::folder_of(std::uint64_t salt) const {
  char name[kFolderDigits + 1];
  std::snprintf(name, sizeof name, "%016llx",
                static_cast<unsigned long long>(mix64(salt + kGoldenRatio64)));
  return options_.folder / name;
}

// ---- reading back

// The oldest first.
Result<std::vector<LogFolder::File>> LogFolder::list_files() const {
  std::vector<File> found;
  std::error_code error, unreadable;
  for (fs::directory_iterator folder(options_.folder, error), end; !error && folder != end;
       folder.increment(error)) {
    if (!is_tenant_folder(folder->path()) || !folder->is_directory(unreadable)) continue;
    for (fs::directory_iterator it(folder->path(), error); !error && it != end; it.increment(error))
      if (const auto number = number_in(it->path()); number && it->is_regular_file(unreadable))
        found.push_back({.number = *number, .path = it->path()});
    if (error) break;
  }
  if (error) return Error{ErrorCode::kIo, options_.folder.string() + ": " + error.message()};
  std::sort(found.begin(), found.end(),
            [](const File& a, const File& b) { return a.number < b.number; });
  return found;
}

Result<LogReport> LogFolder::read_back(const Visitor& visitor) {
  auto found = list_files();
  if (!found.ok()) return std::move(found).error();
  LogReport report{.others_can_read = others_can_read(options_.folder)};
  for (File& file : *found) {
    next_number_ = std::max(next_number_, file.number + 1);
    if (auto read = read_file(std::move(file), visitor, report); !read.ok())
      return std::move(read).error();
  }
  report.n_files = files_.size();
  report.n_tokens = n_tokens_;
  return report;
}

// A file that was stopped while it was made.
bool LogFolder::remove_cut_header(const File& file, std::string_view bytes) {
  std::error_code error;
  return is_cut_log_header(bytes, options_.vocabulary) && fs::remove(file.path, error);
}

Result<void> LogFolder::read_file(File file, const Visitor& visitor, LogReport& report) {
  const auto bytes = read_text_file(file.path, kMaxFileBytes);
  const auto is_ours = [&](const LogHeader& header) {
    return header.vocabulary == options_.vocabulary &&
           file.path.parent_path() == folder_of(header.salt);
  };
  LogContents contents;
  if (bytes.ok() && remove_cut_header(file, *bytes)) {
    ++report.n_torn;
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
  if (auto made = make_folder(folder); !made.ok()) return std::move(made).error();
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

// The file that is written to stays, however much it has. A tenant keeps at least its limit, and
// so has more than it by up to a file.
void LogFolder::delete_oldest(std::uint64_t salt) {
  while (tenant_tokens_[salt] > options_.max_tenant_tokens) {
    const auto oldest = oldest_of(salt);
    if (oldest->first == newest_.at(salt) ||
        tenant_tokens_[salt] - oldest->second.n_tokens < options_.max_tenant_tokens)
      break;
    erase(oldest);
  }
  while (n_tokens_ > options_.max_tokens || files_.size() > kMaxFiles) {
    const auto first = first_to_delete();
    if (first->first == newest_.at(salt)) break;
    erase(first);
  }
}

LogFolder::Files::iterator LogFolder::oldest_of(std::uint64_t salt) {
  return std::find_if(files_.begin(), files_.end(),
                      [salt](const auto& file) { return file.second.salt == salt; });
}

// For the limit of all: of a tenant above its own limit, before one within it loses anything.
LogFolder::Files::iterator LogFolder::first_to_delete() {
  const auto is_above = [this](const auto& file) {
    return tenant_tokens_.at(file.second.salt) > options_.max_tenant_tokens &&
           newest_.at(file.second.salt) != file.first;
  };
  const auto above = std::find_if(files_.begin(), files_.end(), is_above);
  return above == files_.end() ? files_.begin() : above;
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
