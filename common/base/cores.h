// The processor cores that a process may use, and whether two processes have enough of them to work
// side by side.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace foretoken {

using CpuList = std::vector<int>;  // numbers of logical processors, ascending

// Those that the calling thread may run on; empty where the system does not say.
CpuList allowed_cpus();
// As the kernel writes them: "0-3,8".
std::string to_text(const CpuList& cpus);
Result<CpuList> cpu_list_from(std::string_view text);
// Hyperthreads counted once; those of this machine.
int physical_cores(const CpuList& cpus);
// Processors whose time the control groups of this process leave it; 0: there is no limit.
int cpu_limit();
// Physical cores that the calling thread may run on, at most cpu_limit(); at least one.
int usable_cores();
int usable_cores(int n_cores, int limit);  // of so many cores under such a limit

// The same processors in another order: the first one of each core, then the others. `core_of`
// gives the core of a processor; without it, the physical one of this machine.
CpuList spread_over_cores(const CpuList& cpus, const std::function<int(int cpu)>& core_of);
CpuList spread_over_cores(const CpuList& cpus);

// What a service takes of a machine.
struct CoreUse {
  std::string machine;  // boot id; empty: not known
  CpuList cpus;         // that it may use; empty: not known
  int n_threads = 0;    // that compute; 0: not known
  int cpu_limit = 0;    // of the control groups of this process; 0: none, or not known
};

// Both as one.
CoreUse together(const CoreUse& a, const CoreUse& b);

// On different machines, on different cores, or on more cores than both have threads, within the
// limit of either. False where that is not known.
bool have_own_cores(const CoreUse& a, const CoreUse& b);

}  // namespace foretoken
