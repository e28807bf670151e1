// A service of several MPI ranks, seen from outside as one process. The launcher is the process
// that systemd started: it starts mpirun, passes on readiness and the watchdog's signals of rank 0,
// passes SIGTERM and SIGINT to rank 0, which drains at the first and ends at the second, and ends
// all ranks when one has ended, rank 0 is silent, or they do not find each other; nothing of them
// is left. It uses no model and no MPI. One thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace foretoken {

struct RankLaunch {
  std::string name;  // "target-0": in messages and in the name of the group's folder
  int n_ranks = 2;
  std::string hostfile;  // "": all ranks on this host
  // How long rank 0 may be silent once it serves, or a rank stopped before that.
  Duration deadline{};
};

// Runs this very command line once more on every rank and returns when all have ended, with the
// exit code for all: 0 after a drain, what the ranks agree on if they ended by themselves, else 75.
// Throws FatalError if there is no mpirun.
int launch_ranks(const RankLaunch& launch);

// mpirun's options for the variables of this project, which services read their configuration from:
// ranks of other hosts get none from it otherwise. Not the key of a client of the edge.
std::vector<std::string> passed_variables(const std::map<std::string, std::string>& environment);

// In each rank, before it looks for the others: the launcher gets its name, and if what started
// this rank ends, this rank does too.
void join_launcher(int rank);

// The last word of any process of a group, for the launcher. Harmless elsewhere.
void report_exit(int code);

}  // namespace foretoken
