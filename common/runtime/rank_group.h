// What a group of ranks has on its host besides processes: a folder for everything it leaves, and a
// socket where the ranks report. For rank_launcher.cc and rank_host.cc alone. One thread.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/fd.h"

namespace foretoken {

std::string words_of_errno();

// A process of the group on this host, be it a child or not.
class WatchedProcess {
 public:
  WatchedProcess() = default;  // none: it has ended
  explicit WatchedProcess(pid_t pid);
  int fd() const { return fd_.get(); }  // readable once it has ended
  bool has_ended() const;
  // How long it has been seen stopped (SIGSTOP) without a break. No signal reports that.
  Duration stopped_for(TimePoint now);
  void kill() const;
  void await_end(Duration patience) const;

 private:
  Fd fd_;
  pid_t pid_ = 0;
  std::optional<TimePoint> stopped_since_;
};

// What a rank tells its launcher, one a line: who it is, and with which code it leaves.
inline constexpr std::string_view kRankWord = "FORETOKEN_RANK=";
inline constexpr std::string_view kExitWord = "EXIT_STATUS=";
// From a rank's own end, the task done, to that of all; and after any other end, for its last words
// to come through mpirun.
inline constexpr auto kGoodbye = std::chrono::seconds(3);
inline constexpr auto kLastWords = std::chrono::milliseconds(500);

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
