#include "common/runtime/rank_host.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/result.h"
#include "common/runtime/process.h"
#include "common/runtime/rank_group.h"
#include "common/runtime/service_main.h"

namespace foretoken {
namespace {

// Backslashes, not quotes: they survive being taken apart at each of several spaces in a row, and
// every shell knows them. Bytes beyond ASCII are letters to a shell.
std::string shell_word(const std::string& word) {
  static constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+,:@%=";
  std::string quoted;
  for (const char c : word) {
    if (static_cast<unsigned char>(c) < 0x80 && kPlain.find(c) == std::string_view::npos)
      quoted += '\\';
    quoted += c;
  }
  return quoted;
}

class RankHost {
 public:
  explicit RankHost(const RankHosting& hosting)
      : deadline_(hosting.deadline),
        folder_(GroupFolder::Named{hosting.folder}),
        reports_(folder_.path() / "notify") {
    ::setenv("NOTIFY_SOCKET", (folder_.path() / "notify").c_str(), 1);
    const pid_t parent = ::getpid();
    daemon_ = ::fork();
    if (daemon_ == 0) become(hosting.command, parent);
    if (daemon_ < 0) throw FatalError(ErrorCode::kIo, "fork: " + words_of_errno());
    daemon_process_ = WatchedProcess(daemon_);
  }

  int run() {
    while (!daemon_process_.has_ended() && ::getppid() == parent_ && !is_time()) {
      wait();
      while (const auto report = reports_.next()) take(*report);
      for (auto& [pid, rank] : ranks_) {
        // kLastWords also lets the daemon tell mpirun of it. Nothing else tells here that a rank
        // is stopped when the host of rank 0 is out of reach.
        if (rank.process.has_ended())
          end_by(steady_now() + (rank.left_well ? Duration(kGoodbye) : Duration(kLastWords)));
        else if (rank.process.stopped_for(steady_now()) > deadline_)
          end_by(steady_now());
      }
    }
    return end_all();
  }

 private:
  struct Rank {
    WatchedProcess process;
    bool left_well = false;
  };

  [[noreturn]] static void become(const std::vector<std::string>& command, pid_t parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kExitGone);
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    ::execvp(words.front(), words.data());
    ::_exit(127);
  }

  void wait() {
    std::vector<pollfd> all{{reports_.fd(), POLLIN, 0}, {daemon_process_.fd(), POLLIN, 0}};
    for (const auto& [pid, rank] : ranks_)
      if (!rank.process.has_ended()) all.push_back({rank.process.fd(), POLLIN, 0});
    ::poll(all.data(), all.size(), 100);
  }

  void take(const ReportSocket::Report& report) {
    if (report.text.starts_with(kRankWord))
      ranks_.insert_or_assign(report.pid, Rank{WatchedProcess(report.pid)});
    if (!report.text.starts_with(kExitWord)) return;
    if (const auto rank = ranks_.find(report.pid); rank != ranks_.end())
      rank->second.left_well = report.text.substr(kExitWord.size()) == "0";
  }

  void end_by(TimePoint when) { end_at_ = std::min(end_at_.value_or(when), when); }
  bool is_time() const { return end_at_ && steady_now() >= *end_at_; }

  // Also those that are stopped.
  int end_all() {
    for (const auto& [pid, rank] : ranks_) rank.process.kill();
    ::kill(daemon_, SIGKILL);
    int status = 0;
    ::waitpid(daemon_, &status, 0);
    const TimePoint latest = steady_now() + kGoodbye;
    for (const auto& [pid, rank] : ranks_) rank.process.await_end(latest - steady_now());
    return WIFEXITED(status) ? WEXITSTATUS(status) : kExitGone;
  }

  const Duration deadline_;
  GroupFolder folder_;
  ReportSocket reports_;
  const pid_t parent_ = ::getppid();  // of the ssh connection: another one when that has ended
  pid_t daemon_ = 0;
  WatchedProcess daemon_process_;
  std::map<pid_t, Rank> ranks_;
  std::optional<TimePoint> end_at_;
};

}  // namespace

RankHosting rank_hosting(int argc, char** argv) {
  return {.folder = argv[2],
          .deadline = std::chrono::milliseconds(std::atoi(argv[3])),
          .command = {argv + 4, argv + argc}};
}

std::string launch_agent(const std::string& program, const RankHosting& hosting) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(hosting.deadline).count();
  std::string line = shell_word(program) + " " + kRankHostWord + " " + shell_word(hosting.folder) +
                     " " + std::to_string(ms);
  for (const std::string& word : hosting.command) line += " " + shell_word(word);
  return line;
}

int host_ranks(const RankHosting& hosting) {
  try {
    return RankHost(hosting).run();
  } catch (const FatalError& error) {
    log_error(error.what(), {{"code", error_code_name(error.code())}});
    return kExitGone;
  }
}

}  // namespace foretoken
