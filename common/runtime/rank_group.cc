#include "common/runtime/rank_group.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "common/base/result.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolderPrefix = "foretoken-ranks-";

void clear_abandoned(const fs::path& root) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(root, ignored)) {
    if (!entry.path().filename().string().starts_with(kFolderPrefix)) continue;
    const Fd lock(::open((entry.path() / "lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) continue;
    fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

std::string words_of_errno() { return std::strerror(errno); }

WatchedProcess::WatchedProcess(pid_t pid)
    : fd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))), pid_(pid) {}

bool WatchedProcess::has_ended() const {
  pollfd one{fd_.get(), POLLIN, 0};
  return !fd_ || ::poll(&one, 1, 0) > 0;
}

Duration WatchedProcess::stopped_for(TimePoint now) {
  std::ifstream stat("/proc/" + std::to_string(pid_) + "/stat");
  std::string line;
  std::getline(stat, line);
  const std::size_t name_end = line.rfind(") ");
  if (name_end == std::string::npos || line[name_end + 2] != 'T') {
    stopped_since_.reset();
    return {};
  }
  stopped_since_ = stopped_since_.value_or(now);
  return now - *stopped_since_;
}

void WatchedProcess::kill() const {
  if (fd_) ::syscall(SYS_pidfd_send_signal, fd_.get(), SIGKILL, nullptr, 0);
}

void WatchedProcess::await_end(Duration patience) const {
  if (!fd_) return;
  pollfd one{fd_.get(), POLLIN, 0};
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(std::max(patience, Duration{}));
  ::poll(&one, 1, static_cast<int>(wait.count()));  // to poll, less than nothing is for ever
}

GroupFolder::GroupFolder(const std::string& name) {
  const fs::path root = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : fs::temp_directory_path();
  clear_abandoned(root);
  std::string pattern = (root / (kFolderPrefix + name + "-XXXXXX")).string();
  if (::mkdtemp(pattern.data()) == nullptr)
    throw FatalError(ErrorCode::kIo, "cannot make " + pattern + ": " + words_of_errno());
  path_ = pattern;
  lock();
}

GroupFolder::GroupFolder(const Named& folder) : path_(folder.path) {
  clear_abandoned(path_.parent_path());
  if (::mkdir(path_.c_str(), 0700) != 0) {
    // A host with two names: the launcher's own folder is here.
    std::string pattern = (path_ / "host-XXXXXX").string();
    if (errno != EEXIST || ::mkdtemp(pattern.data()) == nullptr)
      throw FatalError(ErrorCode::kIo, "cannot make " + path_.string() + ": " + words_of_errno());
    path_ = pattern;
  }
  lock();
}

void GroupFolder::lock() {
  lock_ = Fd(::open((path_ / "lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  if (!lock_ || ::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0)
    throw FatalError(ErrorCode::kIo, "cannot lock " + path_.string() + ": " + words_of_errno());
}

GroupFolder::~GroupFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

ReportSocket::ReportSocket(const fs::path& path) {
  fd_ = Fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = path.string();
  const int on = 1;
  if (text.size() >= sizeof address.sun_path)
    throw FatalError(ErrorCode::kIo, text + " is too long");
  std::memcpy(address.sun_path, text.c_str(), text.size() + 1);
  if (!fd_ || ::setsockopt(fd_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
      ::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw FatalError(ErrorCode::kIo, "cannot bind " + text + ": " + words_of_errno());
}

std::optional<ReportSocket::Report> ReportSocket::next() {
  std::array<char, 4096> bytes;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control;
  iovec into{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &into;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC);
  if (n < 0) return std::nullopt;
  Report report{.text = std::string(bytes.data(), static_cast<std::size_t>(n))};
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_CREDENTIALS) {
    ucred sender{};
    std::memcpy(&sender, CMSG_DATA(header), sizeof sender);
    report.pid = sender.pid;
  }
  return report;
}

}  // namespace foretoken
