#include "services/cli/batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/base/json.h"
#include "common/client/client.h"
#include "services/cli/batch_line.h"

namespace foretoken::cli {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 20;

// False and errno if not all could be written.
bool write_text(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

// The first line of FILE.part.
std::string run_line(RequestId run) {
  return to_text(OrderedJson{{"schema", "foretoken.run.part/1"}, {"run", wire::hex_of(run)}});
}

std::optional<RequestId> run_in(std::string_view line) {
  const auto json = parse_json(line);
  if (!json.ok() || !json->is_object()) return {};
  const Json run = json->value("run", Json());
  return run.is_string() ? wire::request_id_from_hex(run.get<std::string>()) : std::nullopt;
}

}  // namespace

BatchOutput::BatchOutput(const std::string& file, const std::vector<RequestId>& ids, Failed failed)
    : path_(file), part_path_(file + ".part"), failed_(failed), places_(ids.size()) {
  for (std::size_t i = 0; i < ids.size(); ++i) lines_.emplace(ids[i], i);
}

Error BatchOutput::cannot(const std::string& path) const {
  return {ErrorCode::kIo, path + ": " + std::strerror(errno), "--out"};
}

Error BatchOutput::of_another_batch(const std::string& path, std::string_view why) {
  return {ErrorCode::kConfig,
          path + std::string(why) +
              " and has no answer to any line of this batch, with these flags; name another file",
          "--out"};
}

Result<BatchOutput> BatchOutput::open(const std::string& file,
                                      const std::vector<RequestId>& ids,
                                      Failed failed) {
  struct stat info {};
  if (::stat(file.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return Error{ErrorCode::kConfig,
                 file + " is no regular file: an interrupted run could not go on", "--out"};
  BatchOutput output(file, ids, failed);
  if (const auto done = output.lock(); !done.ok()) return done.error();
  if (const auto done = output.read_both(); !done.ok()) {
    if (output.part_size_ == 0) ::unlink(output.part_path_.c_str());
    return done.error();
  }
  if (const auto done = output.begin_run(); !done.ok()) return done.error();
  return output;
}

// A run that ends takes the file away that another one may just have opened: then it is opened
// again.
Result<void> BatchOutput::lock() {
  for (;;) {
    part_ = Fd(::open(part_path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (!part_) return cannot(part_path_);
    if (::flock(part_.get(), LOCK_EX | LOCK_NB) != 0)
      return Error{ErrorCode::kConfig, part_path_ + " is locked: another run is writing it",
                   "--out"};
    struct stat locked {
    }, named{};
    if (::fstat(part_.get(), &locked) != 0) return cannot(part_path_);
    part_size_ = locked.st_size;
    if (::stat(part_path_.c_str(), &named) == 0 && named.st_ino == locked.st_ino) return {};
  }
}

Result<void> BatchOutput::read_both() {
  whole_ = Fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!whole_ && errno != ENOENT) return cannot(path_);
  if (whole_) {
    if (const auto read = this->read(whole_, false); !read.ok()) return read.error();
    struct stat info {};
    if (::fstat(whole_.get(), &info) != 0) return cannot(path_);
    if (info.st_size > 0 && n_known_ == 0) return of_another_batch(path_, " exists already");
  }
  const std::size_t n_known = n_known_, n_strange = n_strange_;
  const auto end = read(part_, true);
  if (!end.ok()) return end.error();
  if (n_strange_ > n_strange && n_known_ == n_known)
    return of_another_batch(part_path_, " is there from an interrupted run");
  // A line that was being written when the process ended.
  if (*end < part_size_ && ::ftruncate(part_.get(), *end) != 0) return cannot(part_path_);
  part_size_ = *end;
  return {};
}

Result<void> BatchOutput::begin_run() {
  run_ = found_run_ ? *found_run_ : new_request_id();
  return found_run_ ? Result<void>() : append(run_line(run_));
}

Result<off_t> BatchOutput::read(const Fd& file, bool in_part) {
  std::string rest;  // of a line whose end has not been read
  off_t begin = 0, at = 0;
  for (std::string chunk(kChunk, '\0');;) {
    const ssize_t n = ::pread(file.get(), chunk.data(), chunk.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return cannot(in_part ? part_path_ : path_);
    if (n == 0) return begin;
    at += n;
    std::string_view news(chunk.data(), static_cast<std::size_t>(n));
    for (auto end = news.find('\n'); end != std::string_view::npos; end = news.find('\n')) {
      rest += news.substr(0, end);
      news.remove_prefix(end + 1);
      take(rest, {.in_part = in_part, .at = begin, .size = rest.size() + 1});
      begin += static_cast<off_t>(rest.size()) + 1;
      rest.clear();
    }
    rest += news;
  }
}

void BatchOutput::take(std::string_view line, const Place& place) {
  if (place.in_part && place.at == 0) {
    found_run_ = run_in(line);
    if (found_run_) return;
  }
  const auto head = read_answer_head(line);
  if (!head) return;
  const auto found = lines_.find(head->id);
  if (found == lines_.end()) {
    ++n_strange_;
    return;
  }
  ++n_known_;
  if (head->failed && failed_ == Failed::kAskAgain) return;
  Place known = place;
  known.failed = head->failed;
  set(found->second, known);
}

void BatchOutput::set(std::size_t line, const Place& place) {
  if (!places_[line])
    ++n_done_;
  else if (places_[line]->failed)
    --n_failed_;
  if (place.failed) ++n_failed_;
  places_[line] = place;
}

Result<void> BatchOutput::append(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  if (!write_text(part_.get(), text)) {
    const Error error = cannot(part_path_);
    // Half a line is none.
    if (::ftruncate(part_.get(), part_size_) != 0) return cannot(part_path_);
    return error;
  }
  part_size_ += static_cast<off_t>(text.size());
  return {};
}

Result<void> BatchOutput::add(std::size_t line, std::string_view text, bool failed) {
  const Place place{.in_part = true, .at = part_size_, .size = text.size() + 1, .failed = failed};
  if (auto done = append(text); !done.ok()) return done;
  set(line, place);
  return {};
}

Result<void> BatchOutput::copy_all(const Fd& to) {
  std::string text;
  for (const auto& place : places_) {
    std::string line(place->size, '\0');
    const Fd& from = place->in_part ? part_ : whole_;
    for (std::size_t got = 0; got < line.size();) {
      const ssize_t n = ::pread(from.get(), line.data() + got, line.size() - got,
                                place->at + static_cast<off_t>(got));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return cannot(place->in_part ? part_path_ : path_);
      got += static_cast<std::size_t>(n);
    }
    text += line;
    if (text.size() < kChunk) continue;
    if (!write_text(to.get(), text)) return cannot(path_);
    text.clear();
  }
  if (!write_text(to.get(), text) || ::fsync(to.get()) != 0) return cannot(path_);
  return {};
}

Result<void> BatchOutput::finish() {
  const std::string sorted = path_ + ".new";
  {
    const Fd to(::open(sorted.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!to) return cannot(sorted);
    if (auto done = copy_all(to); !done.ok()) {
      ::unlink(sorted.c_str());
      return done;
    }
  }
  if (std::rename(sorted.c_str(), path_.c_str()) != 0) return cannot(path_);
  if (::unlink(part_path_.c_str()) != 0) return cannot(part_path_);
  return {};
}

}  // namespace foretoken::cli
