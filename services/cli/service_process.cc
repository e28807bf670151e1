#include "services/cli/service_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <stdexcept>

extern char** environ;

namespace foretoken::cli {
namespace {

std::runtime_error could_not(const std::string& what) {
  return std::runtime_error("cannot " + what + ": " + std::strerror(errno));
}

// The environment of this process without its own notify socket and watchdog, and with those of the
// service. The last entry ends with room for the process id, which only the child can fill in.
std::vector<std::string> environment_of(const ProcessSetup& setup) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (std::strncmp(*entry, "NOTIFY_SOCKET=", 14) != 0 &&
        std::strncmp(*entry, "WATCHDOG_", 9) != 0)
      environment.emplace_back(*entry);
  environment.push_back("NOTIFY_SOCKET=" + setup.notify_path);
  if (setup.watchdog > std::chrono::milliseconds(0)) {
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(setup.watchdog);
    environment.push_back("WATCHDOG_USEC=" + std::to_string(us.count()));
  }
  environment.push_back("WATCHDOG_PID=" + std::string(20, '\0'));
  return environment;
}

// With a null pointer behind the last.
std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// What the child does between fork() and the program. Allocates nothing.
[[noreturn]] void become(const std::vector<char*>& argv,
                         const std::vector<char*>& envp,
                         int log,
                         std::string& pid_entry,
                         pid_t parent) {
  // A group of its own, so that a Ctrl-C at the terminal reaches the supervisor alone. The child
  // ends when the supervisor does, which may be before prctl().
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);  // an ignored signal stays ignored in the program
  const int null = ::open("/dev/null", O_RDONLY);
  ::dup2(null, 0);
  ::dup2(log, 1);
  ::dup2(log, 2);
  std::to_chars(pid_entry.data() + std::strlen(pid_entry.data()),
                pid_entry.data() + pid_entry.size(), ::getpid());
  ::execve(argv[0], argv.data(), envp.data());
  ::dprintf(2, "cannot start %s: %s\n", argv[0], std::strerror(errno));
  ::_exit(127);
}

}  // namespace

pid_t start_process(ProcessSetup setup) {
  std::vector<std::string> environment = environment_of(setup);
  const std::vector<char*> argv = pointers_to(setup.argv), envp = pointers_to(environment);
  // Appended, so that a log that is truncated while the service runs has no hole before its next
  // line.
  const int begin = setup.how == ProcessSetup::Log::kBegin ? O_TRUNC : 0;
  const int log =
      ::open(setup.log.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | begin, 0600);
  if (log < 0) throw could_not("open the log of " + setup.log.stem().string());
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(argv, envp, log, environment.back(), parent);
  if (pid < 0) {
    const auto error = could_not("fork");
    ::close(log);
    throw error;
  }
  ::close(log);
  return pid;
}

}  // namespace foretoken::cli
