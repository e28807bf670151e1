// The answers of a batch on their way to a file. Each is appended to FILE.part as it comes, whole
// or not at all, so that nothing is lost however the process ends; at the end they are put in the
// order of the batch and become FILE. One process at a time: it has a lock on FILE.part.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/fd.h"
#include "common/base/ids.h"
#include "common/base/result.h"

namespace foretoken::cli {

class BatchOutput {
 public:
  enum class Failed { kKeep, kAskAgain };

  // Reads what earlier runs have left in `file` and in `file`.part. `ids`: of the batch's lines, in
  // order. kConfig: all answers of one of them are to other lines, or to these with other flags. An
  // error changes neither.
  static Result<BatchOutput> open(const std::string& file,
                                  const std::vector<RequestId>& ids,
                                  Failed failed);

  std::size_t n_lines() const { return places_.size(); }
  bool is_done(std::size_t line) const { return places_[line].has_value(); }
  bool has_failed(std::size_t line) const { return places_[line] && places_[line]->failed; }
  std::size_t n_done() const { return n_done_; }
  std::size_t n_failed() const { return n_failed_; }  // of the done ones
  // Answers found whose lines are not in this batch, or were asked with other flags; they are left
  // out.
  std::size_t n_strange() const { return n_strange_; }
  // The same for all runs that continue one another, another one for any others.
  RequestId run() const { return run_; }

  // `text` without its end of line.
  Result<void> add(std::size_t line, std::string_view text, bool failed);
  // When all lines are done: FILE is there, and FILE.part not any more.
  Result<void> finish();

 private:
  struct Place {
    bool in_part = false;
    off_t at = 0;
    std::size_t size = 0;  // with its end of line
    bool failed = false;
  };
  struct IdHash {
    std::size_t operator()(const RequestId& id) const { return id.low ^ id.high; }
  };

  BatchOutput(const std::string& file, const std::vector<RequestId>& ids, Failed failed);
  Error cannot(const std::string& path) const;  // by errno
  static Error of_another_batch(const std::string& path, std::string_view why);
  Result<void> lock();
  Result<void> read_both();
  Result<void> begin_run();
  // Where its last whole line ends.
  Result<off_t> read(const Fd& file, bool in_part);
  void take(std::string_view line, const Place& place);
  void set(std::size_t line, const Place& place);
  Result<void> append(std::string_view line);
  Result<void> copy_all(const Fd& to);

  std::string path_, part_path_;
  Failed failed_;
  std::unordered_map<RequestId, std::size_t, IdHash> lines_;
  std::vector<std::optional<Place>> places_;
  std::size_t n_done_ = 0, n_failed_ = 0, n_strange_ = 0, n_known_ = 0;
  std::optional<RequestId> found_run_;
  RequestId run_;
  Fd whole_, part_;
  off_t part_size_ = 0;
};

}  // namespace foretoken::cli
