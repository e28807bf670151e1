// The ranks of a group on a host other than the launcher's. There ssh starts this program, and this
// program OpenMPI's daemon, which starts the ranks: so that a host that is cut off, or whose ranks
// die, ends its part of the group by itself and leaves nothing, as the launcher does on its own
// host. It uses no model and no MPI. One thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/clock.h"

namespace foretoken {

// The command line that asks for it goes on with FOLDER, the group's deadline in milliseconds and
// the daemon's own command.
inline constexpr const char* kRankHostWord = "--rank-host";

struct RankHosting {
  std::string folder;   // for all they leave here
  Duration deadline{};  // how long a rank may be stopped; a host that is cut off must see it itself
  std::vector<std::string> command;
};
RankHosting rank_hosting(int argc, char** argv);
// The same as mpirun's --launch-agent: words for the shell of the other host, where this program
// lies at the path `program`. mpirun takes them apart at spaces and joins them again.
std::string launch_agent(const std::string& program, const RankHosting& hosting);

// Returns when the daemon and all ranks here have ended.
int host_ranks(const RankHosting& hosting);

}  // namespace foretoken
