// The control groups that a process is in, of either version, and the processors' time that they
// leave it. `groups` is a text like /proc/self/cgroup, `root` where control groups are mounted.
#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <string>
#include <string_view>

namespace foretoken {

enum class GroupVersion : std::uint8_t { kOne, kTwo };

// Calls `look` with the folder of each group that has this controller, "memory" or "cpu", from the
// process's own up to the root: each may have a limit. Folders end in '/', and need not be there.
void visit_groups(std::istream& groups,
                  const std::string& root,
                  std::string_view controller,
                  const std::function<void(const std::string& folder, GroupVersion version)>& look);

// Whole processors of the smallest limit (cpu.max, or cpu.cfs_quota_us), at least one; 0: there is
// no limit.
int cpus_of_groups(std::istream& groups, const std::string& root);

}  // namespace foretoken
