#include "services/cli/terminal_signals.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <stdexcept>
#include <string>

namespace foretoken::cli {
namespace {

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

// Not those that the process was started to ignore, as by nohup: blocked, they would come.
sigset_t all_of_them() {
  sigset_t set = set_of({SIGINT, SIGWINCH, SIGTSTP, SIGCONT, SIGTERM, SIGHUP, SIGQUIT});
  for (const int signal : {SIGINT, SIGTSTP, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN)
      sigdelset(&set, signal);
  }
  return set;
}

}  // namespace

TerminalSignals::TerminalSignals() {
  const sigset_t set = all_of_them();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  fd_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ < 0)
    throw std::runtime_error(std::string("cannot create a signalfd: ") + std::strerror(errno));
}

TerminalSignals::~TerminalSignals() {
  while (next()) {  // one that was not handled must not end the process now
  }
  ::close(fd_);
  const sigset_t set = all_of_them();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

std::optional<int> TerminalSignals::next() {
  signalfd_siginfo info{};
  if (::read(fd_, &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

void TerminalSignals::obey(int signal) {
  const sigset_t set = set_of({signal});
  ::raise(signal);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

}  // namespace foretoken::cli
