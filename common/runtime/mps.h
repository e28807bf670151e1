// Is NVIDIA's Multi-Process Service there? Looked for where the driver looks for it, by the
// daemon's files alone: no connection is made, and nothing of CUDA is needed. It is for the log:
// with it two processes share a GPU without switching contexts, and a fatal fault of one reaches
// the other; without it everything works as well.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace foretoken {

enum class MpsState : std::uint8_t {
  kAbsent,      // no control socket
  kNotVisible,  // a control socket, and no daemon that can be seen: it ended, or has another PID
                // namespace
  kRunning,
};

struct Mps {
  MpsState state = MpsState::kAbsent;
  std::string folder;  // $CUDA_MPS_PIPE_DIRECTORY, else /tmp/nvidia-mps
};

Mps find_mps();
MpsState mps_in(const std::string& folder);
std::string_view name_of(MpsState state);  // "absent", "not_visible", "running"
// One line in the log of a service that uses a GPU.
void log_mps();

}  // namespace foretoken
