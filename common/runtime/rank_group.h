// What a group of ranks has on its host besides processes: a folder for everything it leaves, and a
// socket where the ranks report. For rank_launcher.cc and rank_host.cc alone. One thread.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace foretoken {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

std::string words_of_errno();
Fd open_process(pid_t pid);  // readable when the process has ended; empty if it is gone already

// Everything a group leaves on this host lies in one folder: MPI's session files, the memory that
// ranks share, the socket they report to. A lock on it, held by the launcher, tells whose group is
// alive; the folders of launchers that were killed are cleared by the next one. Throws FatalError.
class GroupFolder {
 public:
  explicit GroupFolder(const std::string& name);
  // Of this very path: on another host than the launcher's, whose name for it comes along.
  struct Named {
    std::filesystem::path path;
  };
  explicit GroupFolder(const Named& folder);
  ~GroupFolder();
  GroupFolder(const GroupFolder&) = delete;
  GroupFolder& operator=(const GroupFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  void lock();

  std::filesystem::path path_;
  Fd lock_;
};

// Where ranks say what services say to systemd, and which process says it. Throws FatalError.
class ReportSocket {
 public:
  explicit ReportSocket(const std::filesystem::path& path);
  int fd() const { return fd_.get(); }

  struct Report {
    pid_t pid = 0;
    std::string text;
  };
  std::optional<Report> next();  // never waits

 private:
  Fd fd_;
};

}  // namespace foretoken
