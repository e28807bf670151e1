// The ranks of a group on a host other than the launcher's. There ssh starts this program, and this
// program OpenMPI's daemon, which starts the ranks: so that a host that is cut off, or whose ranks
// die, ends its part of the group by itself and leaves nothing, as the launcher does on its own
// host. It knows nothing of models and speaks no MPI. One thread.
#pragma once

#include <string>
#include <vector>

namespace foretoken {

// First words of the command line that asks for it: FOLDER, then the daemon's own command.
inline constexpr const char* kRankHostWord = "--rank-host";

// Returns when the daemon and all ranks here have ended. folder: for all they leave here.
int host_ranks(const std::string& folder, const std::vector<std::string>& command);

}  // namespace foretoken
