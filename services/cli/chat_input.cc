#include "services/cli/chat_input.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace foretoken::cli {
namespace {

sigset_t interrupts() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

ChatInput::ChatInput(bool at_terminal) {
  if (!at_terminal) return;
  const sigset_t set = interrupts();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal_fd_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_fd_ < 0)
    throw std::runtime_error(std::string("cannot create a signalfd: ") + std::strerror(errno));
}

ChatInput::~ChatInput() {
  if (signal_fd_ < 0) return;
  (void)interrupted();  // one that was not handled must not end the process now
  ::close(signal_fd_);
  const sigset_t set = interrupts();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

bool ChatInput::interrupted() {
  if (signal_fd_ < 0) return false;
  bool any = false;
  for (signalfd_siginfo info{}; ::read(signal_fd_, &info, sizeof(info)) == sizeof(info);)
    any = true;
  return any;
}

ChatInput::What ChatInput::next_line(std::string& line) {
  for (;;) {
    if (const auto end = read_.find('\n'); end != std::string::npos) {
      line = read_.substr(0, end);
      read_.erase(0, end + 1);
      return What::kLine;
    }
    if (ended_) {
      line = std::exchange(read_, {});
      return line.empty() ? What::kEnd : What::kLine;
    }
    pollfd waiting[2] = {{0, POLLIN, 0},
                         {signal_fd_, POLLIN, 0}};  // poll() passes over a negative one
    if (::poll(waiting, 2, -1) < 0 && errno != EINTR) return What::kEnd;
    if (interrupted()) {
      read_.clear();  // the terminal has dropped its half of the line, too
      return What::kInterrupt;
    }
    if (waiting[0].revents == 0) continue;
    char bytes[4096];
    const ssize_t n = ::read(0, bytes, sizeof(bytes));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0)
      ended_ = true;
    else
      read_.append(bytes, static_cast<std::size_t>(n));
  }
}

}  // namespace foretoken::cli
