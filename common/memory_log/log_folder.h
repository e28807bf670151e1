// A memory's log on a disk: FOLDER/HASH/NNNN.log, a folder for each tenant, named by a hash of its
// salt. Files are numbered over all tenants, so that the smallest number is the oldest; it is
// deleted where the log has more than its limits. One process owns the folder, by a lock. Other
// files in the folder are neither read nor changed.
//
// It returns facts and logs nothing. What fails is an Error that names the file; the caller then
// stops writing. It must not know what is kept in memory. One thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/memory_log/log_format.h"

namespace foretoken {

struct LogFolderOptions {
  std::filesystem::path folder;
  Fingerprint vocabulary = 0;
  TokenId n_ids = 0;  // of the vocabulary
  // After so many another file is begun; 0 = an eighth of a tenant's limit, from 4096 to 4 Mi.
  std::uint64_t file_tokens = 0;
  std::uint64_t max_tokens = 0;         // of all files
  std::uint64_t max_tenant_tokens = 0;  // older files of a tenant with more are deleted
};

// What reading back has found besides texts.
struct LogReport {
  std::uint64_t n_files = 0;
  std::uint64_t n_tokens = 0;
  std::uint64_t n_torn = 0;          // files whose last record was incomplete, and is cut off
  std::uint64_t n_damaged = 0;       // files cut at a bad record
  std::vector<std::string> foreign;  // files of another vocabulary, or of no log: left as they are
  std::vector<std::string> cut;      // names of those that were damaged
  bool others_can_read = false;      // the folder: it was there before, and its mode was kept
};

class LogFolder {
 public:
  static constexpr std::size_t kMaxFiles = 8192;

  // Makes the folder where there is none, for this user alone. A folder that another process has is
  // an error.
  static Result<LogFolder> open(const LogFolderOptions& options);

  using Visitor = std::function<void(std::uint64_t salt, const LogRecord& record)>;
  // All records from the oldest file to the newest; cuts what is torn or damaged.
  Result<LogReport> read_back(const Visitor& visitor);

  // The record is written at once, or the file is as it was before.
  Result<void> append(std::uint64_t salt, const LogRecord& record);

  std::uint64_t n_tokens() const { return n_tokens_; }
  std::size_t n_files() const { return files_.size(); }

 private:
  struct File {
    std::uint64_t number = 0;
    std::uint64_t salt = 0;
    std::uint64_t n_tokens = 0;
    std::uint64_t n_bytes = 0;
    std::filesystem::path path;
  };
  using Files = std::map<std::uint64_t, File>;  // by number

  LogFolder(const LogFolderOptions& options, Fd lock);
  Result<std::vector<File>> list_files() const;
  bool remove_cut_header(const File& file, std::string_view bytes);
  Result<void> read_file(File file, const Visitor& visitor, LogReport& report);
  Result<File*> file_for(std::uint64_t salt);
  Result<File*> new_file(std::uint64_t salt);
  Result<void> write(File& file, std::string_view bytes);
  void delete_oldest(std::uint64_t salt);
  Files::iterator oldest_of(std::uint64_t salt);
  Files::iterator first_to_delete();
  void erase(Files::iterator file);
  std::filesystem::path folder_of(std::uint64_t salt) const;

  LogFolderOptions options_;
  Fd lock_;
  Files files_;
  std::map<std::uint64_t, std::uint64_t> newest_;         // salt -> number
  std::map<std::uint64_t, std::uint64_t> tenant_tokens_;  // salt -> of its files
  std::map<std::uint64_t, Fd> open_;                      // number -> for writing
  std::uint64_t n_tokens_ = 0;
  std::uint64_t next_number_ = 1;
};

}  // namespace foretoken
