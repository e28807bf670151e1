#include "common/runtime/mps.h"

#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "common/base/log.h"

namespace foretoken {

// The daemon makes `control`, a socket (a pipe in old drivers), and removes its pid file when it
// ends; the socket stays.
MpsState mps_in(const std::string& folder) {
  struct stat control {};
  if (::stat((folder + "/control").c_str(), &control) != 0 ||
      !(S_ISSOCK(control.st_mode) || S_ISFIFO(control.st_mode)))
    return MpsState::kAbsent;
  std::ifstream file(folder + "/nvidia-cuda-mps-control.pid");
  pid_t daemon = 0;
  if (!(file >> daemon) || daemon <= 0) return MpsState::kNotVisible;
  return ::kill(daemon, 0) == 0 || errno == EPERM ? MpsState::kRunning : MpsState::kNotVisible;
}

Mps find_mps() {
  const char* configured = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string folder =
      configured != nullptr && *configured != '\0' ? configured : "/tmp/nvidia-mps";
  return {mps_in(folder), folder};
}

std::string_view name_of(MpsState state) {
  switch (state) {
    case MpsState::kAbsent:
      return "absent";
    case MpsState::kNotVisible:
      return "not_visible";
    case MpsState::kRunning:
      return "running";
  }
  return "absent";
}

void log_mps() {
  const Mps mps = find_mps();
  log_info("MPS (optional)", {{"state", std::string(name_of(mps.state))}, {"folder", mps.folder}});
}

}  // namespace foretoken
